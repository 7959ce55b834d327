"""Turn logs in append blobs of Azure Storage, which every function app has.

Theory of operation. A log is the append blob ``{log_id}/entries``, whose blocks are frames, see `frame_format`. Each
block is appended on the condition that the blob ends at the position that the writer expects. If it does not, the
writer reads what came in between: its own block, if an answer was lost; the entry of a later attempt, which fences it;
or another block of its own attempt, after which it tries again. A blob takes 50,000 blocks; the writer of a turn leaves
more time between its writes as a log grows, see `TurnLogWriter`.

Clients of the SDK belong to one loop, so all requests run in the store's own `LoopThread`.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, cast
from weakref import WeakValueDictionary

from azure.storage.blob.aio import ContainerClient

from durable_agent_host.codec.log_entry import decode_log_entry, encode_log_entry
from durable_agent_host.concurrency.event_loop_thread import LoopThread
from durable_agent_host.errors import FencedError
from durable_agent_host.model.log_entry import ATTEMPT, Inbox, LogEntry, LogPage, LogRecord
from durable_agent_host.storage.azure_blob_container import MAX_BLOCK_BYTES, BlobMissingError, container_of_app
from durable_agent_host.storage.latest_dict import LatestDict
from durable_agent_host.turn_log.blob.frame_format import read_page
from durable_agent_host.turn_log.blob.log_tail import ENTRIES, BlobTails, LogContainer, LogTail, log_name
from durable_agent_host.turn_log.followers import Followers
from durable_agent_host.turn_log.protocol import CHECK_SECONDS, INTERVAL_SECONDS, MAX_PAGE_BYTES, TurnLog

# Inboxes, polled by many turns with few requests.
#
# An inbox consists of the blobs ``{log_id}/inbox/…``: ``cancel`` for a cancel mark, and messages by their ids. Whoever
# leaves one then writes the bell, one small blob for all turns. A running turn polls the bell, with one request for all
# turns of its process, and its own inbox only if the bell has changed since. Now and then it polls its inbox anyway, in
# case the sender died before it rang.

_BELL: Final = "inboxes/bell"
_CANCEL: Final = "cancel"
_TOGETHER_SECONDS: Final = 0.1
_TRUST_SECONDS: Final = 10.0
_NO_BELL: Final = ""
_CACHED_LOGS: Final = 8192


class BlobInboxes:
    """The inboxes of one container. All calls come from one loop.

    Args:
        container: of the inboxes.
    """

    def __init__(self, container: LogContainer) -> None:
        self._container = container
        self._checked: LatestDict[str, tuple[str | None, float, Inbox]] = LatestDict(_CACHED_LOGS)
        self._bell_task: asyncio.Task[str | None] | None = None

    async def send(self, log_id: str, name: str, content: bytes = b"") -> bytes:
        """Leave a blob in an inbox, unless it has one of this name; return that blob."""
        blob_name = f"{log_id}/inbox/{name}"
        is_new = await self._container.create_blob(blob_name, content)
        await self._container.mark(_BELL, uuid.uuid4().hex.encode())
        return content if is_new else (await self._container.read(blob_name, 0, MAX_BLOCK_BYTES)).data

    async def poll(self, log_id: str) -> Inbox:
        """Return what is in an inbox."""
        now = asyncio.get_running_loop().time()
        bell, checked_at, inbox = self._checked.get(log_id, (_NO_BELL, 0.0, Inbox()))
        is_first = log_id not in self._checked
        if not is_first:
            bell_now = await self._read_bell()  # before the inbox: whoever rings later has sent before the next look
            if bell_now == bell and now < checked_at + _TRUST_SECONDS:
                return inbox
            bell = bell_now
        inbox = await self._read(log_id)
        self._checked[log_id] = (bell, now, inbox)
        return inbox

    def evict(self, log_id: str) -> None:
        """Forget the inbox of a deleted log."""
        self._checked.pop(log_id, None)

    async def _read(self, log_id: str) -> Inbox:
        prefix = f"{log_id}/inbox/"
        sizes = {blob.name.removeprefix(prefix): blob.size for blob in await self._container.list_blobs(prefix)}
        is_cancel_requested = sizes.pop(_CANCEL, None) is not None
        messages: dict[str, LogEntry] = {}
        for name, size in sizes.items():
            with suppress(BlobMissingError):  # the log was deleted in between
                messages[name] = decode_log_entry((await self._container.read(prefix + name, 0, size)).data)
        return Inbox(is_cancel_requested, messages)

    async def _read_bell(self) -> str | None:
        """Return the bell's state, by one request for all callers within a moment; it starts after the last of them."""
        if self._bell_task is None:
            self._bell_task = asyncio.create_task(self._ask())
        return await asyncio.shield(self._bell_task)

    async def _ask(self) -> str | None:
        await asyncio.sleep(_TOGETHER_SECONDS)
        self._bell_task = None
        return await self._container.etag(_BELL)


CONTAINER: Final = "durable-agent-host-turns"
_CHECK: Final = "check"
_MAX_CACHED_POSITIONS: Final = 8192
_LOCAL_WRITER_SECONDS: Final = 2.0


class BlobTurnLog:
    """The turn logs of one blob container. Implements `durable_agent_host.turn_log.protocol.TurnLog`.

    Args:
        make_client: creates the container's client, in the store's own loop, at the first use, with a given transport;
            see `from_environment`.
        retry_seconds: how long a request is retried while the storage does not answer.
        max_block_bytes: 4 MiB is the limit of all versions of the service.
    """

    interval_seconds = INTERVAL_SECONDS

    def __init__(
        self,
        make_client: Callable[[Any], ContainerClient],
        *,
        retry_seconds: float = 30.0,
        max_block_bytes: int = MAX_BLOCK_BYTES,
    ) -> None:
        self._container = LogContainer(make_client, retry_seconds)
        self._loop = LoopThread("turn-log-blob")
        self._followers = Followers()
        self._tails = BlobTails(self._container, max_block_bytes=max_block_bytes)
        self._positions: LatestDict[tuple[str, int], int] = LatestDict(_MAX_CACHED_POSITIONS)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._inboxes = BlobInboxes(self._container)

    @classmethod
    def from_environment(
        cls,
        *,
        container: str = CONTAINER,
        **options: Any,
    ) -> "BlobTurnLog":
        """Use the storage account of a function app.

        Returns:
            The store, not connected yet.

        Raises:
            SettingError: none of the settings exists.
        """
        return cls(container_of_app(container, label="the turn log"), **options)

    async def open(self, log_id: str) -> int:
        """Begin an attempt; see the protocol."""

        async def begin_attempt() -> int:
            async with self._lock(log_id):
                tail = await self._tails.recover(log_id)
                if tail is None:
                    tail = LogTail()
                    await self._container.create(log_name(log_id))
                while True:
                    attempt = tail.attempt + 1
                    entries = [LogEntry(ATTEMPT, {"number": attempt})]
                    if await self._append_at(log_id, tail, entries, attempt) is not None:
                        return attempt

        return await self._loop.run(begin_attempt())

    async def append(self, log_id: str, entries: Sequence[LogEntry], *, attempt: int) -> int:
        """Append entries, all or none; see the protocol."""

        async def append_entries() -> int:
            async with self._lock(log_id):
                return await self._append(log_id, entries, attempt)

        return await self._loop.run(append_entries())

    async def read(self, log_id: str, from_offset: int = 0, *, max_bytes: int = MAX_PAGE_BYTES) -> LogPage:
        """Read the entries that are there now; see the protocol."""

        async def read_page() -> LogPage:
            try:
                return await self._page(log_id, from_offset, max_bytes)
            except BlobMissingError:  # the log was deleted in between
                self._positions.pop((log_id, from_offset), None)
                return LogPage([], from_offset)

        return await self._loop.run(read_page())

    def follow(
        self,
        log_id: str,
        from_offset: int = 0,
        *,
        max_bytes: int = MAX_PAGE_BYTES,
        until: asyncio.Future[Any] | None = None,
    ) -> AsyncGenerator[LogPage]:
        """Read existing and future entries; see the protocol."""
        local_view = cast("TurnLog", _LocalFollowerView(self))
        return self._followers.follow(local_view, log_id, from_offset, max_bytes, until=until)

    async def read_from_peer(self, log_id: str, from_offset: int, *, max_bytes: int) -> LogPage:
        """Read for a follower in this process, which gets this process's appends without reading.

        Makes no request where this process has just appended the last entry.
        """
        end = self._tails.cached(log_id)
        if end and end.next_offset == from_offset and time.monotonic() < end.appended_at + _LOCAL_WRITER_SECONDS:
            return LogPage([], from_offset)
        return await self.read(log_id, from_offset, max_bytes=max_bytes)

    async def delete(self, *log_ids: str) -> None:
        """Delete logs and their inboxes; see the protocol."""

        async def delete_logs() -> None:
            for log_id in log_ids:
                await self._delete(log_id)

        await self._loop.run(delete_logs())

    async def sweep(self, *, older_than_seconds: float) -> int:
        """Delete logs without an append for that long; see the protocol."""

        async def delete_old_logs() -> int:
            ages: dict[str, float] = {}
            logs: set[str] = set()
            for blob in await self._container.list_blobs(""):
                log_id, _, name = blob.name.partition("/")
                ages[log_id] = min(blob.age_seconds, ages.get(log_id, blob.age_seconds))
                if name == ENTRIES:
                    logs.add(log_id)
            old = {log_id for log_id, age in ages.items() if age > older_than_seconds}
            for log_id in old:
                await self._delete(log_id)
            return len(old & logs)

        return await self._loop.run(delete_old_logs())

    async def request_cancel(self, log_id: str) -> None:
        """Mark the turn to be cancelled."""
        await self._loop.run(self._inboxes.send(log_id, _CANCEL))

    async def send_message(self, log_id: str, message_id: str, message: LogEntry) -> LogEntry:
        """Leave a message for the turn; see the protocol."""
        content = encode_log_entry(message).encode()
        return decode_log_entry(await self._loop.run(self._inboxes.send(log_id, message_id, content)))

    async def read_inbox(self, log_id: str) -> Inbox:
        """Return what was sent to the turn."""
        return await self._loop.run(self._inboxes.poll(log_id))

    async def check(self) -> None:
        """Check that the container is writable; see the protocol."""
        await self._loop.run(self._container.mark(_CHECK, b"", retry_seconds=CHECK_SECONDS))

    async def close(self) -> None:
        """Close the connections and stop the loop."""
        self._followers.close()
        await self._loop.close(self._container.close())

    async def _delete(self, log_id: str) -> None:
        self._tails.evict(log_id)
        self._inboxes.evict(log_id)
        for blob in await self._container.list_blobs(f"{log_id}/"):
            await self._container.delete(blob.name)

    async def _append(self, log_id: str, entries: Sequence[LogEntry], attempt: int) -> int:
        tail = self._tails.cached(log_id)
        if tail is None or tail.attempt < attempt:
            tail = await self._tails.recover(log_id)
        while tail is not None and tail.attempt == attempt:
            first = await self._append_at(log_id, tail, entries, attempt)
            if first is not None:
                return first
        current = tail.attempt if tail else 0
        raise FencedError(f"attempt {attempt} of the turn log {log_id} may not write: attempt {current} has begun")

    def _lock(self, log_id: str) -> asyncio.Lock:
        return self._locks.setdefault(log_id, asyncio.Lock())

    async def _append_at(self, log_id: str, tail: LogTail, entries: Sequence[LogEntry], attempt: int) -> int | None:
        lines = [encode_log_entry(entry) for entry in entries]
        first = await self._tails.try_append(log_id, tail, lines, attempt)
        if first is not None:
            records = [LogRecord(offset, attempt, entry) for offset, entry in enumerate(entries, first)]
            self._followers.announce([(log_id, records, sum(map(len, lines)))])
        return first

    async def _page(self, log_id: str, from_offset: int, max_bytes: int) -> LogPage:
        position = self._positions.get((log_id, from_offset), 0)
        page, position = await read_page(
            self._container, log_name(log_id), position, from_offset=from_offset, max_bytes=max_bytes
        )
        self._positions[log_id, page.next_offset] = position
        return page


class _LocalFollowerView:
    """The store as followers in the writer's process read it."""

    def __init__(self, log: BlobTurnLog) -> None:
        self.read = log.read_from_peer
