"""Followers of the turn logs of one store, in this process.

Theory of operation. A store announces what it has made durable; followers in the same process get those records
directly, without a read. They read the store for everything else: earlier records, records that did not fit into their
mailbox, and appends of other processes, for which they poll, seldom while a local writer announces.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Final

from durable_agent_host.concurrency.thread_safe_waiters import call_in_loop
from durable_agent_host.model.log_entry import LogPage, LogRecord
from durable_agent_host.turn_log.protocol import TurnLog

_FIRST_PAUSE_SECONDS: Final = 0.020
_FIRST_PAUSE_WITH_WRITER_SECONDS: Final = 0.25
_MAX_PAUSE_SECONDS: Final = 0.250
_MAX_PAUSE_WITH_WRITER_SECONDS: Final = 2.0
_MAILBOX_BYTES: Final = 256 * 1024

type Appended = tuple[str, Sequence[LogRecord], int]
"""A log's id, its new durable records, and their encoded size in bytes; no records: another process has appended."""


class _FollowerQueue:
    """The records announced to one follower since its last check, up to a capacity, and how to wake the follower."""

    def __init__(self, capacity_bytes: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.has_local_writer = False
        self._capacity_bytes = capacity_bytes
        self._records: list[LogRecord] = []
        self._bytes = 0
        self._lock = threading.Lock()
        self._is_woken = False
        self._waiter: asyncio.Future[None] | None = None
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def put(self, records: Sequence[LogRecord], size_bytes: int) -> None:
        """Add durable records; callable from any thread."""
        with self._lock:
            fits = self._bytes + size_bytes <= self._capacity_bytes
            follows = not self._records or (bool(records) and self._records[-1].offset + 1 == records[0].offset)
            self.has_local_writer = self.has_local_writer or bool(records)
            if fits and follows:
                self._records.extend(records)
            self._bytes += size_bytes  # once full, it stays full until emptied: the rest is read

    def drain(self) -> list[LogRecord]:
        """Empty the mailbox."""
        self._is_woken = False
        with self._lock:
            records, self._records, self._bytes = self._records, [], 0
        return records

    def wake(self, *_: object) -> None:
        """Wake the follower, now or at its next wait; called in its loop only."""
        self._is_woken = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, seconds: float) -> bool:
        """Wait until woken, or for a time limit; return whether it was woken."""
        if self._is_woken:
            return True
        self._waiter = self.loop.create_future()
        self._deadline = self.loop.time() + seconds
        if self._timer is None or self._timer.when() > self._deadline:
            self._set_timer()
        await self._waiter
        return self._is_woken

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        self.close()
        self._timer = self.loop.call_at(self._deadline, self._on_time)

    def _on_time(self) -> None:
        """End the current wait if its time is over; one timer serves many waits, so it may fire early."""
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if self.loop.time() < self._deadline:
            self._set_timer()
        else:
            self._waiter.set_result(None)


class Followers:
    """The followers of one store in this process. Every method is callable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mailboxes: dict[str, set[_FollowerQueue]] = {}
        self._is_closed = False

    def announce(self, appends: Iterable[Appended]) -> None:
        """Deliver appended records to the followers of their logs, and wake them."""
        mailboxes_to_wake: set[_FollowerQueue] = set()
        with self._lock:
            for log_id, records, size_bytes in appends:
                for mailbox in self._mailboxes.get(log_id, ()):
                    mailbox.put(records, size_bytes)
                    mailboxes_to_wake.add(mailbox)
        for mailbox in mailboxes_to_wake:
            call_in_loop(mailbox.loop, mailbox.wake)

    def close(self) -> None:
        """End all followers."""
        self._is_closed = True
        with self._lock:
            mailboxes = set[_FollowerQueue]().union(*self._mailboxes.values())
        for mailbox in mailboxes:
            call_in_loop(mailbox.loop, mailbox.wake)

    async def follow(
        self,
        log: TurnLog,
        log_id: str,
        from_offset: int,
        max_bytes: int,
        *,
        until: asyncio.Future[Any] | None = None,
    ) -> AsyncGenerator[LogPage]:
        """Yield present and future records: announced ones directly, all others by reading."""
        with self._subscribe(log_id, min(max_bytes, _MAILBOX_BYTES), until) as mailbox:
            pause, offset, announced_records = _FIRST_PAUSE_SECONDS, from_offset, list[LogRecord]()
            while not self._is_closed:
                if announced_records and announced_records[0].offset <= offset <= announced_records[-1].offset:
                    page = LogPage(
                        announced_records[offset - announced_records[0].offset :], announced_records[-1].offset + 1
                    )
                else:
                    page = await log.read(log_id, offset, max_bytes=max_bytes)
                offset = page.next_offset
                if page.records:
                    pause = _FIRST_PAUSE_WITH_WRITER_SECONDS if mailbox.has_local_writer else _FIRST_PAUSE_SECONDS
                    yield page
                if until is not None and until.done():
                    return
                if not page.has_more and not await mailbox.wait(pause):
                    # A local writer announces what it writes; polls only find another process that takes over.
                    max_pause = _MAX_PAUSE_WITH_WRITER_SECONDS if mailbox.has_local_writer else _MAX_PAUSE_SECONDS
                    pause = min(pause * 2, max_pause)
                announced_records = mailbox.drain()

    @contextmanager
    def _subscribe(
        self, log_id: str, capacity_bytes: int, until: asyncio.Future[Any] | None
    ) -> Generator[_FollowerQueue]:
        mailbox = _FollowerQueue(capacity_bytes)
        with self._lock:
            self._mailboxes.setdefault(log_id, set()).add(mailbox)
        if until is not None:
            until.add_done_callback(mailbox.wake)
        try:
            yield mailbox
        finally:
            mailbox.close()
            if until is not None:
                until.remove_done_callback(mailbox.wake)
            with self._lock:
                self._mailboxes[log_id].discard(mailbox)
                if not self._mailboxes[log_id]:
                    del self._mailboxes[log_id]
