"""Reads the frames of one part of a log, in ranges, and joins them to appends and pages."""

from collections.abc import AsyncIterator
from typing import Final

from durable_agent_host.codec.log_entry import decode_log_entry
from durable_agent_host.model.log_entry import LogRecord
from durable_agent_host.turn_log.blob.container import LogContainer
from durable_agent_host.turn_log.blob.frame_format import LogFrame, decode_log_frames

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
        """Yield the frames, except the seal.

        Args:
            read_bytes: per request.
        """
        start, buffer = self._position, bytearray()
        while not self._is_at_end:
            piece = await self._container.read(self._name, start + len(buffer), read_bytes)
            buffer += piece.data
            self.blocks = piece.blocks
            consumed = 0
            for frame in decode_log_frames(buffer, start):
                consumed = frame.end - start
                if frame.next_part is not None:
                    self.next_part = frame.next_part
                else:
                    yield frame
            del buffer[:consumed]
            start += consumed
            self._is_at_end = start + len(buffer) >= piece.size


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
        whole, self._open = self._open, []
        return whole

    def forget(self) -> None:
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

        Args:
            reader: of the part.
            position: of the reader.

        Returns:
            The position from which to read the part for the next page.
        """
        appends = Appends()
        async for frame in reader.frames(max(_READ_BYTES, min(self._max_bytes, 4 * 1024 * 1024))):
            whole = appends.add(frame)
            if whole is not None:
                self._take(whole)
                if self.has_more:
                    return whole[0].position
                position = frame.end
        return position

    def _take(self, whole: list[LogFrame]) -> None:
        first = whole[0]
        if first.offset + first.count <= self.next_offset:
            return
        lines = b"".join(frame.payload for frame in whole).split(b"\n")[:-1]
        for offset, line in enumerate(lines, first.offset):
            if offset < self.next_offset:
                continue
            if self.records and self._bytes + len(line) > self._max_bytes:
                self.has_more = True
                return
            self._bytes += len(line)
            self.records.append(LogRecord(offset, first.attempt, decode_log_entry(line)))
            self.next_offset = offset + 1
