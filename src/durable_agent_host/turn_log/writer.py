"""The writer of one attempt: live events in batches, finished steps immediately and in order."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from durable_agent_host.model.log_entry import AT, EVENT, LogEntry
from durable_agent_host.turn.turn_events import rule_of_stored
from durable_agent_host.turn_log.protocol import INTERVAL_SECONDS, TurnLog

BATCH_BYTES: Final = 16 * 1024
WAITING_BYTES: Final = 1024 * 1024
"""`TurnLogWriter.put` waits while more than this is not durable."""
_ENTRY_BYTES: Final = 64
_SLOWER_ENTRIES: Final = 10_000
"""After so many entries of a log, the interval doubles, up to five times."""


class TurnLogWriter:
    """Appends to a log in the order of the calls, which all come from one event loop.

    The first event is written immediately, later ones at most once per interval, or earlier when a batch is full or
    something is committed; the interval grows with the log, whose store may limit the number of its writes. Adjacent
    deltas of a batch are merged into one event. Memory is bounded: `put` waits while the store is far behind. Entries
    but deltas carry the time at which they were handed over, in milliseconds.

    Args:
        log: the store.
        log_id: the log.
        attempt: as returned by ``log.open``.
        interval_seconds: between the starts of two writes.
    """

    def __init__(
        self,
        log: TurnLog,
        log_id: str,
        attempt: int,
        *,
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self._log = log
        self._log_id = log_id
        self._attempt = attempt
        self._interval_seconds = interval_seconds
        self._pending_entries: list[tuple[LogEntry, asyncio.Future[int] | None]] = []
        self._bytes = 0
        self._is_urgent = False
        self._loop = asyncio.get_running_loop()
        self._write_event = asyncio.Event()
        self._written_at = float("-inf")
        self._offset = 0
        self._is_writing = False
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._error: BaseException | None = None

    async def put(self, event: str, data: Mapping[str, Any]) -> None:
        """Append an event for clients: durable soon, and before anything committed later.

        Args:
            event: its name.
            data: its JSON object.

        Raises:
            FencedError: a later attempt has begun; this one must stop.
            LogError: an earlier write failed finally; everything put since is lost.
        """
        entry = LogEntry(EVENT, {"event": event, "data": data})
        self._add(entry if rule_of_stored(event).is_delta else self._with_time(entry), _size_of(data))
        while self._bytes > WAITING_BYTES and self._error is None:
            self._write_event.clear()
            await self._write_event.wait()
        self._check()

    def append_soon(self, entry: LogEntry, *, size_bytes: int = _ENTRY_BYTES, within_seconds: float = 0.0) -> None:
        """Append an entry that recovery does not need: durable soon, and before anything committed later.

        Raises:
            FencedError: a later attempt has begun; this one must stop.
            LogError: an earlier write failed finally.
        """
        if not within_seconds:
            self._add(self._with_time(entry), size_bytes)
            return
        self._check()
        self._pending_entries.append((self._with_time(entry), None))
        self._bytes += size_bytes
        self._loop.call_later(within_seconds, self._wake)

    async def commit(self, *entries: LogEntry) -> int:
        """Append entries; they, and everything put before, are durable when this returns.

        Returns:
            The offset of the first one.

        Raises:
            FencedError: a later attempt has begun; this one must stop.
            LogError: the store failed finally.
        """
        self._check()
        durable: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        first, *remaining_entries = map(self._with_time, entries)
        self._pending_entries.append((first, durable))
        self._pending_entries.extend((entry, None) for entry in remaining_entries)
        self._hurry()
        return await durable

    async def flush(self) -> None:
        """Wait until everything put is durable.

        Raises:
            FencedError: a later attempt has begun; this one must stop.
            LogError: the store failed finally.
        """
        while self._error is None and (self._pending_entries or self._is_writing):
            self._hurry()
            if self._task is not None:
                await asyncio.wait([self._task])
        self._check()

    def _add(self, entry: LogEntry, size_bytes: int) -> None:
        self._check()
        self._pending_entries.append((entry, None))
        self._bytes += size_bytes
        self._wake()

    def _with_time(self, entry: LogEntry) -> LogEntry:
        return LogEntry(entry.kind, {**entry.data, AT: int(time.time() * 1000)})

    def _hurry(self) -> None:
        self._is_urgent = True
        self._wake()

    def _wake(self) -> None:
        """Start or schedule a write of what waits: now if it is urgent or large, else when the interval is over."""
        if self._is_writing or not self._pending_entries:
            return
        due_at = self._written_at + self._interval_seconds * 2 ** min(self._offset // _SLOWER_ENTRIES, 5)
        if self._is_urgent or self._bytes >= BATCH_BYTES or due_at <= self._loop.time():
            self._begin()
        elif self._timer is None:
            self._timer = self._loop.call_at(due_at, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self._pending_entries and not self._is_writing:
            self._begin()

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_writing = True
        self._task = self._loop.create_task(self._write_all(), name=f"turn-log {self._log_id}")

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    async def _write_all(self) -> None:
        """Write what waits, and continue while more is urgent. The first error of the store is final."""
        try:
            while self._pending_entries:
                batch = self._pending_entries
                self._pending_entries = []
                size_bytes = self._bytes
                self._is_urgent = False
                self._written_at = self._loop.time()
                await self._write(batch)
                self._bytes = 0 if self._error else self._bytes - size_bytes
                self._write_event.set()
                if not self._is_urgent and self._bytes < BATCH_BYTES:
                    break
        finally:
            self._is_writing = False
        self._wake()

    async def _write(self, batch: Sequence[tuple[LogEntry, asyncio.Future[int] | None]]) -> None:
        entries, promises = _merge(batch)
        try:
            first = await self._log.append(self._log_id, entries, attempt=self._attempt)
        except BaseException as error:
            self._fail(error, [durable for durable, _ in promises])
            if not isinstance(error, Exception):  # the loop is being shut down
                raise
            return
        self._offset = first + len(entries)
        for durable, index in promises:
            if not durable.done():
                durable.set_result(first + index)

    def _fail(self, error: BaseException, futures: Sequence[asyncio.Future[int]]) -> None:
        self._error = error
        later = [durable for _, durable in self._pending_entries if durable is not None]
        self._pending_entries.clear()
        self._write_event.set()
        for durable in (*futures, *later):
            if durable.done():
                continue
            if isinstance(error, Exception):
                durable.set_exception(error)
            else:
                durable.cancel()


def _merge(
    batch: Sequence[tuple[LogEntry, asyncio.Future[int] | None]],
) -> tuple[list[LogEntry], list[tuple[asyncio.Future[int], int]]]:
    """Merge adjacent deltas of the same item; returns the entries, and for each promise the index of its entry."""
    if len(batch) == 1:
        [(entry, durable)] = batch
        return [entry], [] if durable is None else [(durable, 0)]
    entries: list[LogEntry] = []
    promises: list[tuple[asyncio.Future[int], int]] = []
    texts: list[str] = []
    open_delta: tuple[str, dict[str, Any]] | None = None
    last: LogEntry | None = None

    def close_delta() -> None:
        if open_delta is not None and last is not None:
            name, other_fields = open_delta
            data = {"event": name, "data": other_fields | {"text": "".join(texts)}}
            entries.append(LogEntry(EVENT, {**last.data, **data}))
            texts.clear()

    for entry, durable in batch:
        delta = _delta_of(entry) if durable is None else None
        if delta is None or open_delta is None or delta[:2] != open_delta:
            close_delta()
            open_delta = delta[:2] if delta else None
        if delta:
            texts.append(delta[2])
            last = entry
        else:
            if durable is not None:
                promises.append((durable, len(entries)))
            entries.append(entry)
    close_delta()
    return entries, promises


def _delta_of(entry: LogEntry) -> tuple[str, dict[str, Any], str] | None:
    """Return a delta's event name, its data without the text, and its text; None for other entries."""
    if entry.kind != EVENT or not rule_of_stored(entry.data["event"]).is_delta:
        return None
    data = entry.data["data"]
    text = data.get("text")
    other_fields = {key: value for key, value in data.items() if key != "text"}
    return (entry.data["event"], other_fields, text) if isinstance(text, str) else None


def _size_of(data: Mapping[str, Any]) -> int:
    return _ENTRY_BYTES + sum(len(value) if isinstance(value, str) else _ENTRY_BYTES for value in data.values())
