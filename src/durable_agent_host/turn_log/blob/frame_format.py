r"""Frames: the format of appends to a turn log in an append blob. Pure.

One block of the blob is one frame: a header, which is a line of JSON, and ``bytes`` bytes of entries, one per line. An
append that is too large for a block is cut into several frames, at any byte, and counts once its last frame is there.
If the writer dies in between, the next append starts with a frame 0, and readers skip the incomplete one. A header with
``next`` seals the blob: the log continues in another one.

::

    {"offset":7,"attempt":2,"count":1,"batch":"5f…","frame":0,"frames":1,"bytes":52}\n
    {"kind":"event","data":{"event":"message.delta",…}}\n
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from durable_agent_host.errors import LogError

_MAX_HEADER_BYTES: Final = 512


@dataclass(frozen=True)
class LogFrame:
    """One block.

    Attributes:
        offset: of the first entry of the append.
        attempt: of the writer.
        count: of the entries of the append.
        batch: unique to the append.
        index: of the frame in the append, from 0.
        total: frames of the append.
        payload: its part of the append's lines.
        next_part: number of the blob in which the log continues, if this frame seals its blob; else None.
        position: of the frame in its blob.
        end: of the frame in its blob.
    """

    offset: int
    attempt: int
    count: int
    batch: str
    index: int
    total: int
    payload: bytes
    next_part: int | None = None
    position: int = 0
    end: int = 0


def encode_log_frames(lines: Sequence[str], *, offset: int, attempt: int, batch: str, max_bytes: int) -> list[bytes]:
    """Write an append as frames.

    Guarantee: pure.

    Args:
        lines: at least one entry, as `durable_agent_host.codec.log_entry.encode_log_entry` writes them.
        offset: of the first entry.
        attempt: of the writer.
        batch: unique to the append.
        max_bytes: of a frame with its header; at least 1024.

    Returns:
        The frames in order, at least one.
    """
    payload = "".join(line + "\n" for line in lines).encode("ascii")
    room = max_bytes - _MAX_HEADER_BYTES
    parts = [payload[start : start + room] for start in range(0, len(payload), room)]
    header = {"offset": offset, "attempt": attempt, "count": len(lines), "batch": batch}
    return [
        _encode(header | {"frame": index, "frames": len(parts), "bytes": len(part)}) + part
        for index, part in enumerate(parts)
    ]


def encode_log_seal(next_part: int, *, offset: int, attempt: int, batch: str) -> bytes:
    """Write the frame that seals a blob.

    Guarantee: pure.

    Args:
        next_part: number of the blob in which the log continues.
        offset: at which the log continues.
        attempt: the current one.
        batch: unique to the frame.
    """
    header = {"offset": offset, "attempt": attempt, "count": 0, "batch": batch}
    return _encode(header | {"frame": 0, "frames": 1, "bytes": 0, "next": next_part})


def decode_log_frames(data: bytes | bytearray, position: int) -> Iterator[LogFrame]:
    """Read the complete frames.

    Guarantee: pure.

    Args:
        data: starts with a frame; may end within one.
        position: of the data in the blob.

    Yields:
        Frames in order.

    Raises:
        LogError: the data are not frames.
    """
    start = 0
    while (line_end := data.find(b"\n", start)) >= 0:
        header = _decode(data[start:line_end])
        end = line_end + 1 + header["bytes"]
        if end > len(data):
            return
        yield LogFrame(
            offset=header["offset"],
            attempt=header["attempt"],
            count=header["count"],
            batch=header["batch"],
            index=header["frame"],
            total=header["frames"],
            payload=bytes(data[line_end + 1 : end]),
            next_part=header.get("next"),
            position=position + start,
            end=position + end,
        )
        start = end
    if len(data) - start > _MAX_HEADER_BYTES:
        raise LogError(f"the turn log holds something that is no frame: {bytes(data[start : start + 80])!r}")


def _encode(header: dict[str, Any]) -> bytes:
    return json.dumps(header, separators=(",", ":")).encode("ascii") + b"\n"


def _decode(line: bytes | bytearray) -> dict[str, Any]:
    try:
        header: Any = json.loads(line)
    except ValueError:
        header = None
    if isinstance(header, dict):
        read = cast("dict[str, Any]", header)
        numbers = (read.get(name) for name in ("offset", "attempt", "count", "frame", "frames", "bytes"))
        if all(isinstance(number, int) for number in numbers) and isinstance(read.get("batch"), str):
            return read
    raise LogError(f"the turn log holds something that is no frame: {bytes(line[:80])!r}")
