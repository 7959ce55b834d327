"""A turn log that stores nothing."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from durable_agent_host.model.log_entry import Inbox, LogEntry, LogPage
from durable_agent_host.turn_log.protocol import INTERVAL_SECONDS, MAX_PAGE_BYTES


class NullTurnLog:
    """Stores nothing. Implements `durable_agent_host.turn_log.protocol.TurnLog`."""

    interval_seconds = INTERVAL_SECONDS

    async def open(self, log_id: str) -> int:
        """Begin an attempt, always number 1."""
        del log_id
        return 1

    async def append(self, log_id: str, entries: Sequence[LogEntry], *, attempt: int) -> int:
        """Discard the entries."""
        del log_id, entries, attempt
        return 0

    async def read(self, log_id: str, from_offset: int = 0, *, max_bytes: int = MAX_PAGE_BYTES) -> LogPage:
        """Return an empty page."""
        del log_id, max_bytes
        return LogPage((), from_offset)

    async def follow(
        self,
        log_id: str,
        from_offset: int = 0,
        *,
        max_bytes: int = MAX_PAGE_BYTES,
        until: asyncio.Future[Any] | None = None,
    ) -> AsyncGenerator[LogPage]:
        """Yield nothing."""
        del log_id, from_offset, max_bytes, until
        for page in ():
            yield page

    async def delete(self, *log_ids: str) -> None:
        """Do nothing."""

    async def sweep(self, *, older_than_seconds: float) -> int:
        """Delete nothing."""
        del older_than_seconds
        return 0

    async def request_cancel(self, log_id: str) -> None:
        """Do nothing: the turn is not marked."""

    async def send_message(self, log_id: str, message_id: str, message: LogEntry) -> LogEntry:
        """Do nothing: the turn does not get the message."""
        del log_id, message_id
        return message

    async def read_inbox(self, log_id: str) -> Inbox:
        """Return an empty inbox."""
        del log_id
        return Inbox()

    async def check(self) -> None:
        """Do nothing: there is no store to fail."""

    async def close(self) -> None:
        """Do nothing."""
