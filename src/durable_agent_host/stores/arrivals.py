"""What has just become durable, handed to the followers of the same process without reading it again."""

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Final

from durable_agent_host.log.log import TurnLog
from durable_agent_host.model.log_entry import LogPage, LogRecord

_FIRST_PAUSE_SECONDS: Final = 0.010
_LONGEST_PAUSE_SECONDS: Final = 0.250
_LONGEST_PAUSE_BESIDE_WRITER_SECONDS: Final = 2.0
_MAILBOX_BYTES: Final = 256 * 1024

type Arrival = tuple[str, Sequence[LogRecord], int]
"""A log's id, records of it that have become durable, and their encoded bytes; without records: something came."""


class _Mailbox:
    """What has arrived for one follower since it looked last, as long as it is not much."""

    def __init__(self, capacity_bytes: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.arrived = asyncio.Event()
        self.has_local_writer = False
        self._capacity_bytes = capacity_bytes
        self._records: list[LogRecord] = []
        self._bytes = 0
        self._lock = threading.Lock()

    def put(self, records: Sequence[LogRecord], size_bytes: int) -> None:
        with self._lock:
            fits = self._bytes + size_bytes <= self._capacity_bytes
            follows = not self._records or (bool(records) and self._records[-1].offset + 1 == records[0].offset)
            self.has_local_writer = self.has_local_writer or bool(records)
            if fits and follows:
                self._records.extend(records)
            self._bytes += size_bytes  # when it is full it stays so until it is emptied: what follows is read

    def take(self) -> list[LogRecord]:
        with self._lock:
            taken, self._records, self._bytes = self._records, [], 0
        self.arrived.clear()
        return taken


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
        woken: defaultdict[asyncio.AbstractEventLoop, set[asyncio.Event]] = defaultdict(set)
        with self._lock:
            for log_id, records, size_bytes in arrivals:
                for mailbox in self._mailboxes.get(log_id, ()):
                    mailbox.put(records, size_bytes)
                    woken[mailbox.loop].add(mailbox.arrived)
        _wake(woken)

    def close(self) -> None:
        """Wake all followers, so that they end."""
        self._is_closed = True
        woken: defaultdict[asyncio.AbstractEventLoop, set[asyncio.Event]] = defaultdict(set)
        with self._lock:
            for mailbox in (one for some in self._mailboxes.values() for one in some):
                woken[mailbox.loop].add(mailbox.arrived)
        _wake(woken)

    async def follow(self, log: TurnLog, log_id: str, from_offset: int, max_bytes: int) -> AsyncGenerator[LogPage]:
        """Give what is there and what will be: announced records as they are, all else by reading.

        Args:
            log: the store, for what was not announced.
            log_id: which log.
            from_offset: first place wanted.
            max_bytes: of a page.

        Yields:
            Pages with at least one record.
        """
        with self._subscribe(log_id, min(max_bytes, _MAILBOX_BYTES)) as mailbox:
            pause, offset, arrived = _FIRST_PAUSE_SECONDS, from_offset, list[LogRecord]()
            while not self._is_closed:
                if arrived and arrived[0].offset <= offset <= arrived[-1].offset:
                    page = LogPage(arrived[offset - arrived[0].offset :], arrived[-1].offset + 1)
                else:
                    page = await log.read(log_id, offset, max_bytes=max_bytes)
                offset = page.next_offset
                if page.records:
                    pause = _FIRST_PAUSE_SECONDS
                    yield page
                if not page.has_more:
                    pause = await _rest(mailbox, pause)
                arrived = mailbox.take()

    @contextmanager
    def _subscribe(self, log_id: str, capacity_bytes: int) -> Generator[_Mailbox]:
        mailbox = _Mailbox(capacity_bytes)
        with self._lock:
            self._mailboxes.setdefault(log_id, set()).add(mailbox)
        try:
            yield mailbox
        finally:
            with self._lock:
                self._mailboxes[log_id].discard(mailbox)
                if not self._mailboxes[log_id]:
                    del self._mailboxes[log_id]


async def _rest(mailbox: _Mailbox, pause: float) -> float:
    """Wait for an arrival, at most the pause; gives the next pause, which is longer when nothing came."""
    try:
        async with asyncio.timeout(pause):
            await mailbox.arrived.wait()
    except TimeoutError:
        # A writer in this process announces what it writes; reading is for the case that another one took over.
        longest = _LONGEST_PAUSE_BESIDE_WRITER_SECONDS if mailbox.has_local_writer else _LONGEST_PAUSE_SECONDS
        return min(pause * 1.5, longest)
    return pause


def _wake(woken: dict[asyncio.AbstractEventLoop, set[asyncio.Event]]) -> None:
    for loop, events in woken.items():
        with contextlib.suppress(RuntimeError):  # the follower's loop is closed
            loop.call_soon_threadsafe(_set_all, events)


def _set_all(events: set[asyncio.Event]) -> None:
    for event in events:
        event.set()
