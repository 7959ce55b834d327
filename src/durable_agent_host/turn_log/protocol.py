"""The protocol of the turn log.

`sqlite_log`, `blob` and `redis_log` implement it; `durable_agent_host.store_factory` selects one.
`tests/contract` tests this contract against every implementation.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any, Final, Protocol

from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.log_entry import ATTEMPT, Inbox, LogEntry, LogPage, LogRecord

# Checks by the order of a log's records that none is missing and none is out of place.
#
# Offsets have no gaps, attempts only grow, and each begins once. A store that has lost records, or had some removed,
# does not report it; a recovery that trusted it would repeat finished work.


def check_order(log_id: str, records: Iterable[LogRecord], *, after: LogRecord | None = None) -> LogRecord | None:
    """Check that records of a log follow each other.

    Args:
        log_id: the log.
        records: in the order of their offsets.
        after: the record before them; None when unknown.

    Returns:
        The last record; ``after`` when there are none.

    Raises:
        CorruptStateError: one is missing, or out of place.
    """
    for record in records:
        if after is not None:
            if record.offset != after.offset + 1:
                raise missing_entries(log_id, after.offset + 1)
            is_repeated_start = record.entry.kind == ATTEMPT and record.attempt == after.attempt
            if record.attempt < after.attempt or is_repeated_start:
                raise CorruptStateError(
                    f"entry {record.offset} of the turn log {log_id} has been changed, or was moved there from another "
                    "place: restore a copy; nothing was changed"
                )
        after = record
    return after


def missing_entries(log_id: str, offset: int) -> CorruptStateError:
    """Make the error for a log that has lost entries.

    Args:
        log_id: the log.
        offset: of the first missing one.
    """
    return CorruptStateError(
        f"the turn log {log_id} has lost entries from {offset} on: restore a copy; nothing was changed"
    )


FILES_SECONDS: Final = 60
"""Until deleted text is in no file of a store any more: SQLite files are written anew when nobody writes."""

CHECK_SECONDS: Final = 1.5
"""How long `TurnLog.check` retries: enough for a connection that was cut."""

MAX_PAGE_BYTES: Final = 1024 * 1024
INTERVAL_SECONDS: Final = 0.025


class TurnLog(Protocol):
    """Append-only logs, one for each turn, in one store.

    Guarantee: every method is callable from any event loop and thread of the process, and from any process that shares
    the store. Readers see only durable entries, in the order of their offsets. The store retries lost connections,
    throttling and server errors with backoff, up to its ``retry_seconds``; a retried append is stored once.

    Raises (every method): LogError: the store does not answer, or holds something that is not a log.

    Attributes:
        interval_seconds: between two durable writes of a turn's live events: `INTERVAL_SECONDS` where a write is a
            request; shorter where commits are local, because clients wait for it.
    """

    interval_seconds: float

    async def open(self, log_id: str) -> int:
        """Begin an attempt, and fence the writers of earlier ones.

        Args:
            log_id: 32 hexadecimal digits, see `durable_agent_host.model.ids.turn_log_id`; an unknown one creates a log.

        Returns:
            The attempt's number, from 1. The log has a new entry of kind ``attempt``.
        """
        ...

    async def append(self, log_id: str, entries: Sequence[LogEntry], *, attempt: int) -> int:
        """Append entries, all or none; durable when this returns.

        An attempt has one writer, which waits for an append before it begins the next one, and writes no more once one
        has failed or was cancelled.

        Args:
            log_id: an open log.
            entries: at least one; of any total size.
            attempt: the writer's, as returned by `open`.

        Returns:
            The offset of the first entry; the others follow without a gap.

        Raises:
            FencedError: a later attempt has begun, the attempt does not exist, or the log was deleted; nothing was
                appended.
        """
        ...

    async def read(self, log_id: str, from_offset: int = 0, *, max_bytes: int = MAX_PAGE_BYTES) -> LogPage:
        """Read the entries that are there now.

        Args:
            log_id: the log; a missing one is empty.
            from_offset: first offset wanted.
            max_bytes: limit of the encoded entries; one entry is returned even if it is larger.

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
        until: asyncio.Future[Any] | None = None,
    ) -> AsyncGenerator[LogPage]:
        """Read present and future entries, until the caller closes it: the store is read for as long as it is open.

        Args:
            log_id: the log; it may be created later.
            from_offset: as in `read`.
            max_bytes: as in `read`.
            until: of the caller's loop; when it is done, nothing more is yielded, even if there is more to read.

        Yields:
            Pages with at least one record. A slow caller gets larger pages; memory per caller is bounded.
        """
        ...

    async def delete(self, *log_ids: str) -> None:
        """Delete logs and their inboxes, if they exist; idempotent. Many at once cost much less than one by one.

        When it returns, none of the logs' data can be found in the store's blobs or keys; in a SQLite file, a minute
        later at the latest.

        Args:
            log_ids: any number; when one is gone, those before it are, too.

        Raises:
            LogError: something may be left; delete again.
        """
        ...

    async def sweep(self, *, older_than_seconds: float) -> int:
        """Delete logs without an append for a given time.

        Args:
            older_than_seconds: age of the last append.

        Returns:
            The number of deleted logs.
        """
        ...

    async def request_cancel(self, log_id: str) -> None:
        """Mark the turn to be cancelled; idempotent, needs no attempt."""
        ...

    async def send_message(self, log_id: str, message_id: str, message: LogEntry) -> LogEntry:
        """Leave a message for the turn; needs no attempt. The first message with an id stays, and is returned."""
        ...

    async def read_inbox(self, log_id: str) -> Inbox:
        """Return what was sent to the turn; cheap enough to call twice a second."""
        ...

    async def check(self) -> None:
        """Check that the store is writable, by one small write that replaces the previous one.

        Raises:
            LogError: it is not; retried for at most `CHECK_SECONDS`, or as long as the store takes to answer.
        """
        ...

    async def close(self) -> None:
        """Release connections and threads, after pending appends are durable."""
        ...
