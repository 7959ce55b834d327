r"""Frames: the format of appends to a turn log in an append blob.

One block of the blob is one frame: a header, which is a line of JSON, and ``bytes`` bytes of entries, one per line. An
append that is too large for a block is cut into several frames, at any byte, and counts once its last frame is there.
If the writer dies in between, the next append starts with a frame 0, and readers skip the incomplete one. A header with
``next`` seals the blob: the log continues in another one.

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
from durable_agent_host.model.log_entry import LogRecord
from durable_agent_host.turn_log.blob.container import LogContainer

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
    next_part: int | None
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


def encode_log_seal(next_part: int, *, offset: int, attempt: int, batch: str) -> bytes:
    """Write the frame that seals a blob."""
    header = {"offset": offset, "attempt": attempt, "count": 0, "batch": batch}
    return _encode(header | {"frame": 0, "frames": 1, "bytes": 0, "next": next_part})


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


_READ_BYTES: Final = 256 * 1024


class FrameReader:
    """Reads one part from a position to its current end.

    Args:
        container: of the part.
        name: of the blob.
        position: of a frame.
        max_blocks: limit of a part.

    Attributes:
        blocks: of the part; known after reading.
        next_part: number of the following part, once the seal was read.
    """

    def __init__(self, container: LogContainer, name: str, position: int, max_blocks: int) -> None:
        self.blocks = 0
        self.next_part: int | None = None
        self._container = container
        self._name = name
        self._position = position
        self._max_blocks = max_blocks
        self._is_at_end = False

    @property
    def is_full(self) -> bool:
        """Whether the end was reached, and the part takes no more blocks."""
        return self._is_at_end and (self.next_part is not None or self.blocks >= self._max_blocks)

    async def frames(self, read_bytes: int = _READ_BYTES) -> AsyncIterator[LogFrame]:
        """Yield the frames, except the seal."""
        start = self._position
        buffer = bytearray()
        while not self._is_at_end:
            blob_range = await self._container.read(self._name, start + len(buffer), read_bytes)
            buffer += blob_range.data
            self.blocks = blob_range.blocks
            consumed_bytes = 0
            for frame in decode_log_frames(buffer, start):
                consumed_bytes = frame.end - start
                if frame.next_part is not None:
                    self.next_part = frame.next_part
                else:
                    yield frame
            del buffer[:consumed_bytes]
            start += consumed_bytes
            self._is_at_end = start + len(buffer) >= blob_range.size


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


class PageBuilder:
    """Collects the records of one page, across parts.

    Args:
        from_offset: first offset wanted.
        max_bytes: of the page; one record is added even if it is larger.

    Attributes:
        records: of the page.
        next_offset: after the last record.
        has_more: whether a record did not fit.
    """

    def __init__(self, from_offset: int, max_bytes: int) -> None:
        self.records: list[LogRecord] = []
        self.next_offset = from_offset
        self.has_more = False
        self._max_bytes = max_bytes
        self._bytes = 0

    async def fill(self, reader: FrameReader, position: int) -> int:
        """Add the records of a part.

        Returns:
            The position from which to read the part for the next page.
        """
        appends = Appends()
        async for frame in reader.frames(max(_READ_BYTES, min(self._max_bytes, 4 * 1024 * 1024))):
            frames = appends.add(frame)
            if frames is not None:
                self._add_append(frames)
                if self.has_more:
                    return frames[0].position
                position = frame.end
        return position

    def _add_append(self, frames: list[LogFrame]) -> None:
        first = frames[0]
        if first.offset + first.count <= self.next_offset:
            return
        lines = b"".join(frame.payload for frame in frames).split(b"\n")[:-1]
        for offset, line in enumerate(lines, first.offset):
            if offset < self.next_offset:
                continue
            if self.records and self._bytes + len(line) > self._max_bytes:
                self.has_more = True
                return
            self._bytes += len(line)
            self.records.append(LogRecord(offset, first.attempt, decode_log_entry(line)))
            self.next_offset = offset + 1
