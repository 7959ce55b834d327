"""A turn log in memory, in one class: what a new store has to write, and nothing else.

It passes the contract, and hosts turns when `durable_agent_host.turn_log.turn_log_factory.STORES` has a row for it
(`tests/durable_agent_host/turn_log/test_stores.py`).
"""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from durable_agent_host.codec.log_entry import decode_log_entry, encode_log_entry
from durable_agent_host.errors import FencedError, LogError
from durable_agent_host.model.log_entry import ATTEMPT, Inbox, LogEntry, LogPage, LogRecord
from durable_agent_host.turn_log.followers import Followers
from durable_agent_host.turn_log.protocol import INTERVAL_SECONDS, MAX_PAGE_BYTES


@dataclass
class Log:
    """One log: its current attempt, and by offset each entry's attempt and line."""

    attempt: int = 0
    lines: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    first_offset: int = 0
    appended_at: float = 0.0


class Memory:
    """What the objects of one store share, as other stores share a file or a server."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.logs: defaultdict[str, Log] = defaultdict(Log)
        self.inboxes: defaultdict[str, Inbox] = defaultdict(Inbox)


class MemoryTurnLog:
    """Turn logs in memory. Implements `durable_agent_host.turn_log.protocol.TurnLog`."""

    interval_seconds = INTERVAL_SECONDS

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._followers = Followers()
        self._is_closed = False

    async def open(self, log_id: str) -> int:
        """Begin an attempt."""
        await self.check()
        with self._memory.lock:
            log = self._memory.logs[log_id]
            log.attempt += 1
            self._add(log_id, log, [LogEntry(ATTEMPT, {"number": log.attempt})])
            return log.attempt

    async def append(self, log_id: str, entries: Sequence[LogEntry], *, attempt: int) -> int:
        """Append entries, all or none."""
        await self.check()
        with self._memory.lock:
            log = self._memory.logs.get(log_id)
            if log is None or log.attempt != attempt:
                raise FencedError(f"attempt {attempt} of the turn log {log_id} may not write")
            return self._add(log_id, log, entries)

    def _add(self, log_id: str, log: Log, entries: Sequence[LogEntry]) -> int:
        lines, first = [encode_log_entry(entry) for entry in entries], len(log.lines)
        log.lines += [(log.attempt, line) for line in lines]
        log.appended_at = time.monotonic()
        records = [LogRecord(offset, log.attempt, entry) for offset, entry in enumerate(entries, first)]
        self._followers.announce([(log_id, records, sum(map(len, lines)))])
        return first

    async def read(self, log_id: str, from_offset: int = 0, *, max_bytes: int = MAX_PAGE_BYTES) -> LogPage:
        """Read what is there now."""
        await self.check()
        with self._memory.lock:
            log = self._memory.logs.get(log_id, Log())
            start = max(from_offset, log.first_offset)
            records: list[LogRecord] = []
            for offset, (attempt, line) in enumerate(log.lines[start:], start):
                max_bytes -= len(line)
                if records and max_bytes < 0:
                    return LogPage(records, offset, has_more=True)
                records.append(LogRecord(offset, attempt, decode_log_entry(line)))
            return LogPage(records, max(from_offset, len(log.lines)))

    def follow(
        self,
        log_id: str,
        from_offset: int = 0,
        *,
        max_bytes: int = MAX_PAGE_BYTES,
        idle_seconds: float | None = None,
        until: asyncio.Future[Any] | None = None,
    ) -> AsyncGenerator[LogPage]:
        """Read what is there and what will be."""
        return self._followers.follow(self, log_id, from_offset, max_bytes, idle_seconds=idle_seconds, until=until)

    async def truncate(self, log_id: str, before_offset: int) -> None:
        """Forget what is before an offset."""
        with self._memory.lock:
            log = self._memory.logs[log_id]
            log.first_offset = min(before_offset, len(log.lines))

    async def delete(self, *log_ids: str) -> None:
        """Delete logs and their inboxes."""
        with self._memory.lock:
            for log_id in log_ids:
                self._memory.logs.pop(log_id, None)
                self._memory.inboxes.pop(log_id, None)

    async def sweep(self, *, older_than_seconds: float) -> int:
        """Delete logs to which nothing has been appended for so long."""
        before = time.monotonic() - older_than_seconds
        old = [log_id for log_id, log in list(self._memory.logs.items()) if log.appended_at < before]
        for log_id in old:
            await self.delete(log_id)
        return len(old)

    async def request_cancel(self, log_id: str) -> None:
        """Leave a mark that the turn is to be cancelled."""
        with self._memory.lock:
            self._memory.inboxes[log_id] = replace(self._memory.inboxes[log_id], is_cancel_requested=True)

    async def send_message(self, log_id: str, message_id: str, message: LogEntry) -> None:
        """Leave a message for the turn's agent."""
        with self._memory.lock:
            inbox = self._memory.inboxes[log_id]
            self._memory.inboxes[log_id] = replace(inbox, messages={message_id: message} | dict(inbox.messages))

    async def read_inbox(self, log_id: str) -> Inbox:
        """Read what was sent to the turn."""
        with self._memory.lock:
            return self._memory.inboxes.get(log_id, Inbox())

    async def check(self) -> None:
        """Prove that the store can be written."""
        if self._is_closed:
            raise LogError("the turn log is closed")

    async def close(self) -> None:
        """End the followers."""
        self._is_closed = True
        self._followers.close()
