r"""Frames: the format of appends to a turn log in an append blob.

One block of the blob is one frame: a header, which is a line of JSON, and ``bytes`` bytes of entries, one per line. An
append that is too large for a block is cut into several frames, at any byte, and counts once its last frame is there.
If the writer dies in between, the next append starts with a frame 0, and readers skip the incomplete one.

::

    {"offset":7,"attempt":2,"count":1,"batch":"5f…","frame":0,"frames":1,"bytes":52}\n
    {"kind":"event","data":{"event":"message.delta",…}}\n
"""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from durable_agent_host.codec.log_entry import decode_log_entry
from durable_agent_host.errors import LogError
from durable_agent_host.model.log_entry import LogPage, LogRecord
from durable_agent_host.storage.azure_blob_container import BlobContainer

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
    position: int
    end: int


def encode_log_frames(lines: Sequence[str], *, offset: int, attempt: int, batch: str, max_bytes: int) -> list[bytes]:
    """Write an append as frames.

    Returns:
        The frames in order, at least one.
    """
    payload = "".join(line + "\n" for line in lines).encode("ascii")
    payload_bytes = max_bytes - _MAX_HEADER_BYTES
    parts = [payload[start : start + payload_bytes] for start in range(0, len(payload), payload_bytes)]
    header = {"offset": offset, "attempt": attempt, "count": len(lines), "batch": batch}
    return [
        _encode(header | {"frame": index, "frames": len(parts), "bytes": len(part)}) + part
        for index, part in enumerate(parts)
    ]


def decode_log_frames(data: bytes | bytearray, position: int) -> Iterator[LogFrame]:
    """Read the complete frames.

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


_READ_BYTES: Final = 256 * 1024
_MAX_READ_BYTES: Final = 4 * 1024 * 1024


async def read_frames(
    container: BlobContainer, name: str, position: int, read_bytes: int = _READ_BYTES
) -> AsyncIterator[LogFrame]:
    """Read a blob from the position of a frame to its current end."""
    buffer = bytearray()
    while True:
        blob_range = await container.read(name, position + len(buffer), read_bytes)
        buffer += blob_range.data
        consumed_bytes = 0
        for frame in decode_log_frames(buffer, position):
            consumed_bytes = frame.end - position
            yield frame
        del buffer[:consumed_bytes]
        position += consumed_bytes
        if position + len(buffer) >= blob_range.size:
            return


class Appends:
    """Joins the frames of each append, in their order in the blob."""

    def __init__(self) -> None:
        self._open: list[LogFrame] = []

    def add(self, frame: LogFrame) -> list[LogFrame] | None:
        """Add the next frame.

        Returns:
            The frames of an append that is now complete, or None. An interrupted append never completes.
        """
        if frame.index == 0:
            self._open = []
        elif not self._open or self._open[-1].batch != frame.batch or self._open[-1].index + 1 != frame.index:
            self._open = []
            return None
        self._open.append(frame)
        if frame.index + 1 < frame.total:
            return None
        frames = self._open
        self._open = []
        return frames

    def discard(self) -> None:
        """Drop the incomplete append: another one follows it."""
        self._open = []


async def read_page(
    container: BlobContainer, name: str, position: int, *, from_offset: int, max_bytes: int
) -> tuple[LogPage, int]:
    """Read the records of a blob from an offset on, as far as they fit on a page; the first one always does.

    Args:
        container: of the blob.
        name: of the blob.
        position: of a frame that is not after the offset.
        from_offset: first offset wanted.
        max_bytes: of the page.

    Returns:
        The page, and the position from which to read the next one.
    """
    records: list[LogRecord] = []
    next_offset = from_offset
    appends = Appends()
    async for frame in read_frames(container, name, position, max(_READ_BYTES, min(max_bytes, _MAX_READ_BYTES))):
        frames = appends.add(frame)
        if frames is None:
            continue
        if frame.offset + frame.count > next_offset:
            lines = b"".join(part.payload for part in frames).split(b"\n")[:-1]
            for line in lines[next_offset - frame.offset :]:
                if records and len(line) > max_bytes:
                    return LogPage(records, next_offset, has_more=True), frames[0].position
                max_bytes -= len(line)
                records.append(LogRecord(next_offset, frame.attempt, decode_log_entry(line)))
                next_offset += 1
        position = frame.end
    return LogPage(records, next_offset), position
