"""The turn log's protocol. Its implementations are in `durable_agent_host.stores`."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, Protocol

from durable_agent_host.model.log_entry import LogEntry, LogPage

MAX_PAGE_BYTES: Final = 1024 * 1024
INTERVAL_SECONDS: Final = 0.025


class TurnLog(Protocol):
    """Append-only logs, one for each turn, in one store.

    Guarantee: every method may be called from any event loop and any thread of the process, and from any process that
    shares the store. A reader sees only what is durable, in the order of its offsets. Connection losses, throttling
    and server errors are retried with backoff inside, for as long as the store's ``give_up_seconds``; an append that
    was retried is there once.

    Raises (every method): LogError: the store does not answer, or holds something that is no log.

    Attributes:
        interval_seconds: between two durable writes of a turn's live events: `INTERVAL_SECONDS` where a write is a
            request; a store that commits locally takes less, because clients wait for it.
    """

    interval_seconds: float

    async def open(self, log_id: str) -> int:
        """Begin an attempt: writers of earlier attempts are fenced from here on.

        Args:
            log_id: 32 hexadecimal digits, see `durable_agent_host.model.ids.turn_log_id`; a new log begins empty.

        Returns:
            The attempt's number, 1 for the first. An entry of kind ``attempt`` has been appended.
        """
        ...

    async def append(self, log_id: str, entries: Sequence[LogEntry], *, attempt: int) -> int:
        """Append entries, all or none; they are durable when this returns.

        Args:
            log_id: an open log.
            entries: at least one; together of any size.
            attempt: the writer's, as `open` gave it.

        Returns:
            The offset of the first entry; the others follow it without a gap.

        Raises:
            FencedError: a later attempt has begun, there is no such attempt, or the log has been deleted; nothing was
                appended.
        """
        ...

    async def read(self, log_id: str, from_offset: int = 0, *, max_bytes: int = MAX_PAGE_BYTES) -> LogPage:
        """Read what is there now.

        Args:
            log_id: which log; one that does not exist is empty.
            from_offset: first place wanted; places that were truncated are passed over.
            max_bytes: how much at the most, of encoded entries; at least one entry is given when there is one.

        Returns:
            A page.
        """
        ...

    def follow(
        self,
        log_id: str,
        from_offset: int = 0,
        *,
        max_bytes: int = MAX_PAGE_BYTES,
        idle_seconds: float | None = None,
        until: asyncio.Future[Any] | None = None,
    ) -> AsyncIterator[LogPage]:
        """Read what is there and what will be, until the caller stops.

        Args:
            log_id: which log; it may begin to exist later.
            from_offset: as in `read`.
            max_bytes: as in `read`.
            idle_seconds: after so long without a record the caller gets an empty page; None: it waits.
            until: of the caller's loop; when it is done, the caller gets nothing more, even if there is more to read.

        Yields:
            Pages with at least one record, but for silence. A slow caller gets larger pages; nothing is kept for it in
            memory.
        """
        ...

    async def truncate(self, log_id: str, before_offset: int) -> None:
        """Forget what is before an offset. Offsets stay what they are; idempotent.

        Args:
            log_id: which log.
            before_offset: the first place to keep; an implementation may keep some more before it.
        """
        ...

    async def delete(self, log_id: str) -> None:
        """Delete a log and its cancel mark; nothing happens when there is none."""
        ...

    async def sweep(self, *, older_than_seconds: float) -> int:
        """Delete logs to which nothing has been appended for so long.

        Args:
            older_than_seconds: age of the last append.

        Returns:
            How many logs were deleted.
        """
        ...

    async def request_cancel(self, log_id: str) -> None:
        """Leave a mark that the turn is to be cancelled; idempotent, needs no attempt."""
        ...

    async def is_cancel_requested(self, log_id: str) -> bool:
        """Tell whether the mark is there; cheap enough to ask twice a second."""
        ...

    async def close(self) -> None:
        """Give back connections and threads; what is appended is durable before."""
        ...
