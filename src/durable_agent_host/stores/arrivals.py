"""What has just become durable, handed to the followers of the same process without reading it again."""

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Final

from durable_agent_host.log.log import TurnLog
from durable_agent_host.model.log_entry import LogPage, LogRecord

_FIRST_PAUSE_SECONDS: Final = 0.020
_FIRST_PAUSE_BESIDE_WRITER_SECONDS: Final = 0.25
_LONGEST_PAUSE_SECONDS: Final = 0.250
_LONGEST_PAUSE_BESIDE_WRITER_SECONDS: Final = 2.0
_MAILBOX_BYTES: Final = 256 * 1024

type Arrival = tuple[str, Sequence[LogRecord], int]
"""A log's id, records of it that have become durable, and their encoded bytes; without records: something came."""


class _Mailbox:
    """What has arrived for one follower since it looked last, as long as it is not much, and how it is woken."""

    def __init__(self, capacity_bytes: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.has_local_writer = False
        self._capacity_bytes = capacity_bytes
        self._records: list[LogRecord] = []
        self._bytes = 0
        self._lock = threading.Lock()
        self._is_rung = False
        self._waiter: asyncio.Future[None] | None = None
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def put(self, records: Sequence[LogRecord], size_bytes: int) -> None:
        """Put in what has become durable; of any thread."""
        with self._lock:
            fits = self._bytes + size_bytes <= self._capacity_bytes
            follows = not self._records or (bool(records) and self._records[-1].offset + 1 == records[0].offset)
            self.has_local_writer = self.has_local_writer or bool(records)
            if fits and follows:
                self._records.extend(records)
            self._bytes += size_bytes  # when it is full it stays so until it is emptied: what follows is read

    def take(self) -> list[LogRecord]:
        """Empty it."""
        self._is_rung = False
        with self._lock:
            taken, self._records, self._bytes = self._records, [], 0
        return taken

    def ring(self, *_: object) -> None:
        """Wake the follower, now or when it waits next; in its loop only."""
        self._is_rung = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, seconds: float) -> bool:
        """Wait until it is rung, or for so long; tells whether it was rung."""
        if self._is_rung:
            return True
        self._waiter = self.loop.create_future()
        self._deadline = self.loop.time() + seconds
        if self._timer is None or self._timer.when() > self._deadline:
            self._set_timer()
        await self._waiter
        return self._is_rung

    def close(self) -> None:
        """Let go of the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        self.close()
        self._timer = self.loop.call_at(self._deadline, self._on_time)

    def _on_time(self) -> None:
        """One timer serves many waits: it is set anew for the current one, if that is not over."""
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if self.loop.time() < self._deadline:
            self._set_timer()
        else:
            self._waiter.set_result(None)


class Arrivals:
    """The followers of one store in this process. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mailboxes: dict[str, set[_Mailbox]] = {}
        self._is_closed = False

    def announce(self, arrivals: Iterable[Arrival]) -> None:
        """Wake the followers of logs to which something was appended.

        Args:
            arrivals: in the order of their offsets.
        """
        woken: defaultdict[asyncio.AbstractEventLoop, set[_Mailbox]] = defaultdict(set)
        with self._lock:
            for log_id, records, size_bytes in arrivals:
                for mailbox in self._mailboxes.get(log_id, ()):
                    mailbox.put(records, size_bytes)
                    woken[mailbox.loop].add(mailbox)
        _wake(woken)

    def close(self) -> None:
        """Wake all followers, so that they end."""
        self._is_closed = True
        woken: defaultdict[asyncio.AbstractEventLoop, set[_Mailbox]] = defaultdict(set)
        with self._lock:
            for mailbox in (one for some in self._mailboxes.values() for one in some):
                woken[mailbox.loop].add(mailbox)
        _wake(woken)

    async def follow(
        self,
        log: TurnLog,
        log_id: str,
        from_offset: int,
        max_bytes: int,
        *,
        idle_seconds: float | None = None,
        until: asyncio.Future[Any] | None = None,
    ) -> AsyncGenerator[LogPage]:
        """Give what is there and what will be: announced records as they are, all else by reading.

        Args:
            log: the store, for what was not announced.
            log_id: which log.
            from_offset: first place wanted.
            max_bytes: of a page.
            idle_seconds: as in the protocol.
            until: as in the protocol.

        Yields:
            Pages with at least one record, and empty ones for silence.
        """
        with self._subscribe(log_id, min(max_bytes, _MAILBOX_BYTES), until) as mailbox:
            pause, offset, arrived = _FIRST_PAUSE_SECONDS, from_offset, list[LogRecord]()
            told_at = mailbox.loop.time()
            while not self._is_closed:
                if arrived and arrived[0].offset <= offset <= arrived[-1].offset:
                    page = LogPage(arrived[offset - arrived[0].offset :], arrived[-1].offset + 1)
                else:
                    page = await log.read(log_id, offset, max_bytes=max_bytes)
                offset = page.next_offset
                silence = mailbox.loop.time() - told_at
                if page.records:
                    pause = _FIRST_PAUSE_BESIDE_WRITER_SECONDS if mailbox.has_local_writer else _FIRST_PAUSE_SECONDS
                if page.records or (idle_seconds is not None and silence >= idle_seconds):
                    yield page
                    told_at, silence = mailbox.loop.time(), 0.0
                if until is not None and until.done():
                    return
                if not page.has_more:
                    rest = pause if idle_seconds is None else min(pause, max(idle_seconds - silence, 0.0))
                    if not await mailbox.wait(rest):
                        # A writer in this process tells what it writes; reading is for another one's taking over.
                        longest = (
                            _LONGEST_PAUSE_BESIDE_WRITER_SECONDS if mailbox.has_local_writer else _LONGEST_PAUSE_SECONDS
                        )
                        pause = min(pause * 2, longest)
                arrived = mailbox.take()

    @contextmanager
    def _subscribe(self, log_id: str, capacity_bytes: int, until: asyncio.Future[Any] | None) -> Generator[_Mailbox]:
        mailbox = _Mailbox(capacity_bytes)
        with self._lock:
            self._mailboxes.setdefault(log_id, set()).add(mailbox)
        if until is not None:
            until.add_done_callback(mailbox.ring)
        try:
            yield mailbox
        finally:
            mailbox.close()
            if until is not None:
                until.remove_done_callback(mailbox.ring)
            with self._lock:
                self._mailboxes[log_id].discard(mailbox)
                if not self._mailboxes[log_id]:
                    del self._mailboxes[log_id]


def _wake(woken: dict[asyncio.AbstractEventLoop, set[_Mailbox]]) -> None:
    for loop, mailboxes in woken.items():
        with contextlib.suppress(RuntimeError):  # the follower's loop is closed
            loop.call_soon_threadsafe(_ring_all, mailboxes)


def _ring_all(mailboxes: set[_Mailbox]) -> None:
    for mailbox in mailboxes:
        mailbox.ring()
