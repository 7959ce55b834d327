"""The ends of the logs in a blob container: where to append, and how to recover if a log ends elsewhere."""

import asyncio
import math
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.storage.blob.aio import ContainerClient

from durable_agent_host.errors import FencedError, LogError
from durable_agent_host.storage.azure_blob_container import BlobContainer, BlobMissingError, as_body, code_of
from durable_agent_host.storage.latest_dict import LatestDict
from durable_agent_host.turn_log.blob.frame_format import Appends, encode_log_frames, read_frames

_CACHED_LOGS: Final = 2048
_AT_ONCE: Final = 16


class BlobMovedError(Exception):
    """The blob does not end at the expected position, or takes no more blocks."""


class LogContainer(BlobContainer):
    """Requests to the container of turn logs. All calls come from one loop.

    Args:
        make_client: creates the client, in that loop, with a given transport.
        retry_seconds: how long a request is retried.
    """

    def __init__(self, make_client: Callable[[Any], ContainerClient], retry_seconds: float) -> None:
        super().__init__(make_client, retry_seconds, label="the turn log")
        self._append_slots = asyncio.Semaphore(_AT_ONCE)

    async def append(self, name: str, block: bytes, position: int) -> None:
        """Append a block at the expected end of the blob.

        Raises:
            BlobMovedError: it ends elsewhere (perhaps because this block is there already), or is full.
            BlobMissingError: it does not exist.
            LogError: the storage does not answer.
        """

        async def call() -> None:
            async with self._append_slots:
                blob = self.client().get_blob_client(name)
                await blob.append_block(as_body(block), len(block), appendpos_condition=position)

        try:
            await self.retry(call)
        except ResourceNotFoundError as error:
            raise BlobMissingError from error
        except HttpResponseError as error:
            if error.status_code == 412 or code_of(error) in {"BlockCountExceedsLimit", "BlobIsSealed"}:  # noqa: PLR2004
                raise BlobMovedError(code_of(error)) from error
            raise self.explain(error) from error

    async def create(self, name: str) -> None:
        """Create an append blob, unless it exists. Creates the container if that is missing."""

        async def call() -> Any:
            blob = self.client().get_blob_client(name)
            return await blob.create_append_blob(match_condition=MatchConditions.IfMissing)

        await self.make(call)


ENTRIES: Final = "entries"


def log_name(log_id: str) -> str:
    """Return the name of a log's blob."""
    return f"{log_id}/{ENTRIES}"


@dataclass
class LogTail:
    """Where a log ends, as far as this process knows.

    Attributes:
        position: size of its blob.
        next_offset: of the next entry.
        attempt: the current one.
        appends: may have an incomplete one at the end.
        appended_at: of this process's last append, by the monotonic clock.
    """

    position: int = 0
    next_offset: int = 0
    attempt: int = 0
    appends: Appends = field(default_factory=Appends)
    appended_at: float = -math.inf


class BlobTails:
    """Appends to logs at their ends. Calls for the same log must not overlap.

    Args:
        container: of the logs.
        max_block_bytes: of a block.
    """

    def __init__(self, container: LogContainer, *, max_block_bytes: int) -> None:
        self._container = container
        self._max_block_bytes = max_block_bytes
        self._tails: LatestDict[str, LogTail] = LatestDict(_CACHED_LOGS)

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
        self._tails[log_id] = tail
        return first

    async def _append_frame(
        self, log_id: str, tail: LogTail, frame: bytes, name: tuple[str, int], *, is_last: bool
    ) -> bool:
        """Append one frame; False if something else is there, or follows before the append is complete."""
        try:
            await self._container.append(log_name(log_id), frame, tail.position)
        except BlobMovedError as error:
            before = tail.position
            seen = await self._catch_up(log_id, tail)
            if tail.position == before:
                raise LogError(
                    f"the blob {log_name(log_id)} takes no more blocks ({error}): see that no policy makes it immutable"
                ) from None
            # If it is there, its first try succeeded and only the answer was lost.
            return name in seen if is_last else seen[-1:] == [name]
        tail.position += len(frame)
        tail.appends.discard()
        return True

    async def recover(self, log_id: str) -> LogTail | None:
        """Find the end of a log by reading; None without a log."""
        tail = LogTail()
        try:
            await self._catch_up(log_id, tail)
        except BlobMissingError:
            return None
        self._tails[log_id] = tail
        return tail

    async def _catch_up(self, log_id: str, tail: LogTail) -> list[tuple[str, int]]:
        """Read what was appended after the tail; returns batch and index of the frames found."""
        seen: list[tuple[str, int]] = []
        async for frame in read_frames(self._container, log_name(log_id), tail.position):
            seen.append((frame.batch, frame.index))
            if tail.appends.add(frame):
                tail.next_offset = frame.offset + frame.count
                tail.attempt = max(tail.attempt, frame.attempt)
            tail.position = frame.end
        return seen
