"""Encrypted turn logs, on top of any store of turn logs.

An entry is encrypted for its log, attempt and offset, so moving or repeating one is detected, and removing one leaves a
gap. Cutting off the newest entries or deleting a whole log is not detected here. The offset is known before the append
because an attempt has one writer, which alone writes the log until it is fenced: it begins after the entry that opens
the attempt, which a later attempt reads. A second writer of the same attempt, in another object, fails at its first
append that collides with the other's. Entries stored before encryption was turned on are read as they are, unless the
operator refuses plaintext.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from durable_agent_host.codec.log_entry import decode_log_entry, encode_log_entry
from durable_agent_host.encryption.cipher import AssociatedData, Cipher
from durable_agent_host.errors import CorruptStateError, LogError
from durable_agent_host.model.log_entry import ATTEMPT, ENCRYPTED, Inbox, LogEntry, LogPage, LogRecord
from durable_agent_host.storage.latest_dict import LatestDict
from durable_agent_host.turn_log.protocol import MAX_PAGE_BYTES, TurnLog, check_order, missing_entries

_MAX_CACHED_OFFSETS: Final = 10_000
"""How many logs' next offsets are remembered; for others it is read."""


class EncryptedTurnLog:
    """Encrypts the logs of another store. Implements `durable_agent_host.turn_log.protocol.TurnLog`.

    Args:
        log: the store that keeps them.
        cipher: of the app.
    """

    def __init__(self, log: TurnLog, cipher: Cipher) -> None:
        self.interval_seconds = log.interval_seconds
        self._log = log
        self._cipher = cipher
        self._next = LatestDict[tuple[str, int], int](_MAX_CACHED_OFFSETS)

    async def open(self, log_id: str) -> int:
        """Begin an attempt; see the protocol."""
        attempt = await self._log.open(log_id)
        if attempt == 1:
            self._next[log_id, attempt] = 1  # its first entry is the one that opens it
        return attempt

    async def append(self, log_id: str, entries: Sequence[LogEntry], *, attempt: int) -> int:
        """Append entries; see the protocol. The writer waits for each append before it begins the next one."""
        expected_offset = self._next.pop((log_id, attempt), None)
        if expected_offset is None:
            expected_offset = await self._end_of(log_id)
        encrypted_entries = [
            LogEntry(
                ENCRYPTED,
                self._cipher.encrypt_to_envelope(
                    _location_of(log_id, attempt, offset), encode_log_entry(entry).encode()
                ),
            )
            for offset, entry in enumerate(entries, expected_offset)
        ]
        first = await self._log.append(log_id, encrypted_entries, attempt=attempt)
        if first != expected_offset:
            raise LogError(f"the log {log_id} has grown behind its writer's back: it is no longer written")
        self._next[log_id, attempt] = first + len(entries)
        return first

    async def read(self, log_id: str, from_offset: int = 0, *, max_bytes: int = MAX_PAGE_BYTES) -> LogPage:
        """Read the entries that are there now; see the protocol."""
        return self._decrypt_page(log_id, await self._log.read(log_id, from_offset, max_bytes=max_bytes))

    async def follow(
        self,
        log_id: str,
        from_offset: int = 0,
        *,
        max_bytes: int = MAX_PAGE_BYTES,
        until: asyncio.Future[Any] | None = None,
    ) -> AsyncGenerator[LogPage]:
        """Read present and future entries; see the protocol."""
        pages = self._log.follow(log_id, from_offset, max_bytes=max_bytes, until=until)
        async with aclosing(pages):
            async for page in pages:
                yield self._decrypt_page(log_id, page)

    async def delete(self, *log_ids: str) -> None:
        """Delete logs; see the protocol."""
        await self._log.delete(*log_ids)

    async def sweep(self, *, older_than_seconds: float) -> int:
        """Delete old logs; see the protocol."""
        return await self._log.sweep(older_than_seconds=older_than_seconds)

    async def request_cancel(self, log_id: str) -> None:
        """Mark the turn to be cancelled; see the protocol."""
        await self._log.request_cancel(log_id)

    async def send_message(self, log_id: str, message_id: str, message: LogEntry) -> LogEntry:
        """Leave a message for the turn; see the protocol."""
        line = encode_log_entry(message).encode()
        location = _location_of_message(log_id, message_id)
        entry = LogEntry(ENCRYPTED, self._cipher.encrypt_to_envelope(location, line))
        return self._decrypt(location, await self._log.send_message(log_id, message_id, entry), "a message")

    async def read_inbox(self, log_id: str) -> Inbox:
        """Return what was sent to the turn; see the protocol."""
        inbox = await self._log.read_inbox(log_id)
        if not inbox.messages:
            return inbox
        messages = {
            name: self._decrypt(_location_of_message(log_id, name), message, "a message")
            for name, message in inbox.messages.items()
        }
        return replace(inbox, messages=messages)

    async def check(self) -> None:
        """Check that the store is writable; see the protocol."""
        await self._log.check()

    async def close(self) -> None:
        """Close the store; see the protocol."""
        await self._log.close()

    async def _end_of(self, log_id: str) -> int:
        offset = 0
        has_more = True
        while has_more:
            page = await self._log.read(log_id, offset)
            offset = page.next_offset
            has_more = page.has_more
        return offset

    def _decrypt_page(self, log_id: str, page: LogPage) -> LogPage:
        last = check_order(log_id, page.records)
        if last is not None and not page.has_more and page.next_offset != last.offset + 1:
            raise missing_entries(log_id, last.offset + 1)
        if not any(record.entry.kind != ATTEMPT for record in page.records):
            return page
        return replace(page, records=[self._record(log_id, record) for record in page.records])

    def _record(self, log_id: str, record: LogRecord) -> LogRecord:
        if record.entry.kind == ATTEMPT:  # written by the store itself
            return record
        location = _location_of(log_id, record.attempt, record.offset)
        return replace(record, entry=self._decrypt(location, record.entry, f"entry {record.offset}"))

    def _decrypt(self, location: AssociatedData, entry: LogEntry, label: str) -> LogEntry:
        if entry.kind != ENCRYPTED:
            self._cipher.check_plaintext(f"{label} of the turn log {location[1]}")
            return entry
        line = self._cipher.decrypt_value(location, entry.data)
        if line is None:
            raise CorruptStateError(f"{label} of the turn log {location[1]} is not what was encrypted")
        return decode_log_entry(line)


def _location_of(log_id: str, attempt: int, offset: int) -> AssociatedData:
    return ("log", log_id, str(attempt), str(offset))


def _location_of_message(log_id: str, message_id: str) -> AssociatedData:
    return ("log", log_id, "inbox", message_id)
