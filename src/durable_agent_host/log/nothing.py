"""A turn log that keeps nothing, for turns whose app has no store: they run, and a crash runs them again."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from durable_agent_host.log.log import INTERVAL_SECONDS, MAX_PAGE_BYTES
from durable_agent_host.model.log_entry import LogEntry, LogPage


class NoTurnLog:
    """Forgets what it is given; see `TurnLog` for the methods."""

    interval_seconds = INTERVAL_SECONDS

    async def open(self, log_id: str) -> int:
        """Begin an attempt; each is the first."""
        del log_id
        return 1

    async def append(self, log_id: str, entries: Sequence[LogEntry], *, attempt: int) -> int:
        """Forget the entries."""
        del log_id, entries, attempt
        return 0

    async def read(self, log_id: str, from_offset: int = 0, *, max_bytes: int = MAX_PAGE_BYTES) -> LogPage:
        """Find nothing."""
        del log_id, max_bytes
        return LogPage((), from_offset)

    async def follow(
        self,
        log_id: str,
        from_offset: int = 0,
        *,
        max_bytes: int = MAX_PAGE_BYTES,
        idle_seconds: float | None = None,
        until: asyncio.Future[Any] | None = None,
    ) -> AsyncIterator[LogPage]:
        """Find nothing, and never will."""
        del log_id, from_offset, max_bytes, idle_seconds, until
        for page in ():
            yield page

    async def truncate(self, log_id: str, before_offset: int) -> None:
        """Do nothing."""

    async def delete(self, log_id: str) -> None:
        """Do nothing."""

    async def sweep(self, *, older_than_seconds: float) -> int:
        """Find nothing to delete."""
        del older_than_seconds
        return 0

    async def request_cancel(self, log_id: str) -> None:
        """Leave no mark."""

    async def is_cancel_requested(self, log_id: str) -> bool:
        """Find no mark."""
        del log_id
        return False

    async def close(self) -> None:
        """Do nothing."""
