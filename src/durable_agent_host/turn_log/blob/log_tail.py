"""The ends of the logs in a blob container: where to append, and how to recover if a log ends elsewhere."""

import math
import time
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from durable_agent_host.errors import FencedError, LogError
from durable_agent_host.storage.azure_blob_container import BlobMissingError
from durable_agent_host.turn_log.blob.container import BlobMovedError, LogContainer
from durable_agent_host.turn_log.blob.frame_format import Appends, FrameReader, encode_log_frames, encode_log_seal

_CACHED_LOGS: Final = 2048


def part_name(log_id: str, part: int) -> str:
    """Return the name of a part's blob."""
    return f"{log_id}/{part:08d}"


@dataclass
class LogTail:
    """Where a log ends, as far as this process knows.

    Attributes:
        part: number of the last part.
        position: size of that part.
        blocks: of that part.
        next_offset: of the next entry.
        attempt: the current one.
        next_part: number of the following part, if this one takes no more blocks.
        appends: may have an incomplete one at the end.
        appended_at: of this process's last append, by the monotonic clock.
    """

    part: int
    position: int = 0
    blocks: int = 0
    next_offset: int = 0
    attempt: int = 0
    next_part: int | None = None
    appends: Appends = field(default_factory=Appends)
    appended_at: float = -math.inf


class BlobTails:
    """Appends to logs at their ends. Calls for the same log must not overlap.

    Args:
        container: of the logs.
        max_blocks: of a part.
        max_block_bytes: of a block.
    """

    def __init__(self, container: LogContainer, *, max_blocks: int, max_block_bytes: int) -> None:
        self._container = container
        self._max_blocks = max_blocks
        self._max_block_bytes = max_block_bytes
        self._tails: OrderedDict[str, LogTail] = OrderedDict()

    def cached(self, log_id: str) -> LogTail | None:
        """Return the remembered end; another process may have appended since."""
        return self._tails.get(log_id)

    def evict(self, log_id: str) -> None:
        """Forget the end of a deleted log."""
        self._tails.pop(log_id, None)

    async def try_append(self, log_id: str, tail: LogTail, lines: Sequence[str], attempt: int) -> int | None:
        """Append at the expected end of a log; updates the tail.

        Returns:
            The first offset, or None if the log ended elsewhere and the caller must recheck the tail.

        Raises:
            FencedError: the log was deleted.
            LogError: the storage does not answer; the entries may or may not be there.
        """
        batch = uuid.uuid4().hex
        first = tail.next_offset
        frames = encode_log_frames(lines, offset=first, attempt=attempt, batch=batch, max_bytes=self._max_block_bytes)
        try:
            needs_new_part = tail.next_part is not None or tail.blocks + len(frames) >= self._max_blocks
            if needs_new_part and not await self._roll_over(log_id, tail):
                return None
            for index, frame in enumerate(frames):
                if not await self._append_frame(log_id, tail, frame, (batch, index), is_last=index + 1 == len(frames)):
                    return None
        except BlobMissingError:
            self._tails.pop(log_id, None)
            raise FencedError(f"the turn log {log_id} has been deleted: attempt {attempt} may not write") from None
        except BaseException:
            self._tails.pop(log_id, None)  # the block may or may not be there
            raise
        if tail.next_offset < first + len(lines):
            tail.next_offset = first + len(lines)
            tail.attempt = attempt
        tail.appended_at = time.monotonic()
        self._cache_tail(log_id, tail)
        return first

    async def _append_frame(
        self, log_id: str, tail: LogTail, frame: bytes, name: tuple[str, int], *, is_last: bool
    ) -> bool:
        """Append one frame; False if something else is there, or follows before the append is complete."""
        try:
            await self._container.append(part_name(log_id, tail.part), frame, tail.position)
        except BlobMovedError:
            before = tail.part, tail.position
            seen = await self._catch_up(log_id, tail)
            if (tail.part, tail.position) == before and tail.next_part is None:
                raise LogError(
                    f"the blob {part_name(log_id, tail.part)} takes no more blocks, and is not full: "
                    "see that no policy makes it immutable"
                ) from None
            # If it is there, its first try succeeded and only the answer was lost.
            return name in seen if is_last else seen[-1:] == [name]
        tail.position += len(frame)
        tail.blocks += 1
        tail.appends.discard()
        return True

    async def _roll_over(self, log_id: str, tail: LogTail) -> bool:
        """Continue in the next part; return False if another process has already moved the log on."""
        if tail.next_part is None:
            batch = uuid.uuid4().hex
            seal = encode_log_seal(tail.part + 1, offset=tail.next_offset, attempt=tail.attempt, batch=batch)
            if not await self._append_frame(log_id, tail, seal, (batch, 0), is_last=True) or tail.next_part is not None:
                return False
            tail.next_part = tail.part + 1
        await self._container.create(
            part_name(log_id, tail.next_part), first_offset=tail.next_offset, attempt=tail.attempt
        )
        tail.part = tail.next_part
        tail.position = 0
        tail.blocks = 0
        tail.next_part = None
        return True

    async def recover(self, log_id: str) -> LogTail | None:
        """Find the end of a log by reading; None without a log."""
        parts = await self._container.parts(log_id)
        if not parts:
            return None
        last = parts[-1]
        tail = LogTail(last.number, next_offset=last.first_offset, attempt=last.attempt)
        await self._catch_up(log_id, tail)
        self._cache_tail(log_id, tail)
        return tail

    async def _catch_up(self, log_id: str, tail: LogTail) -> list[tuple[str, int]]:
        """Read what was appended after the tail; returns batch and index of the frames found."""
        seen: list[tuple[str, int]] = []
        while True:
            reader = FrameReader(self._container, part_name(log_id, tail.part), tail.position, self._max_blocks)
            async for frame in reader.frames():
                seen.append((frame.batch, frame.index))
                if tail.appends.add(frame):
                    tail.next_offset = frame.offset + frame.count
                    tail.attempt = max(tail.attempt, frame.attempt)
                tail.position = frame.end
            tail.blocks = reader.blocks
            if not reader.is_full:
                return seen
            tail.next_part = tail.part + 1
            later = [part for part in await self._container.parts(log_id) if part.number > tail.part]
            if not later:
                return seen
            tail.part = later[0].number
            tail.position = 0
            tail.blocks = 0
            tail.next_part = None
            tail.next_offset, tail.attempt = later[0].first_offset, max(later[0].attempt, tail.attempt)

    def _cache_tail(self, log_id: str, tail: LogTail) -> None:
        self._tails[log_id] = tail
        self._tails.move_to_end(log_id)
        while len(self._tails) > _CACHED_LOGS:
            self._tails.popitem(last=False)
