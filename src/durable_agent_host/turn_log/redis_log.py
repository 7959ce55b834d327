"""Turn logs in Redis Streams, for the lowest latency between several instances. Needs the extra ``redis``.

Theory of operation. A log is a stream, whose entries have the ids ``{offset}-1``, and a hash with the attempt and the
next offset. One script appends: it checks the attempt, writes all entries and publishes, atomically. On a retry after a
lost answer it first looks for its batch in the stream, and leaves a note that rejects the first try if that arrives
late. Publications wake followers in other processes, which also poll in case they miss one.

An append is as durable as the server: with ``appendonly yes`` and ``appendfsync always`` it is on disk.
"""

import asyncio
import itertools
import math
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Final, cast

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ConnectionError,  # noqa: A004 (the library's name)
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    TimeoutError,  # noqa: A004 (the library's name)
)

from durable_agent_host.codec.log_entry import decode_log_entry, encode_log_entry
from durable_agent_host.concurrency.event_loop_thread import LoopThread
from durable_agent_host.errors import FencedError, LogError
from durable_agent_host.model.log_entry import ATTEMPT, Inbox, LogEntry, LogPage, LogRecord
from durable_agent_host.storage.storage_retry import retry
from durable_agent_host.turn_log.followers import Followers
from durable_agent_host.turn_log.protocol import CHECK_SECONDS, INTERVAL_SECONDS, MAX_PAGE_BYTES

# Subscriptions to the appends of other processes, for logs that are followed here.
#
# There is no subscription for a log that this process writes: its followers are woken in the process, and would drop
# its own publications. The subscription is restored when an append is fenced, or after some seconds without one,
# because another process may then continue the turn.

_PREFIX: Final = "durable-agent-host:turn"
_WAKE_SECONDS: Final = 0.1
_PAUSE_SECONDS: Final = 1.0
_QUIET_SECONDS: Final = 3.0


def channel_of(log_id: str) -> str:
    """Return the channel that publishes the appends to a log."""
    return f"{_PREFIX}:{{{log_id}}}"


@dataclass
class _Followed:
    count: int = 0
    written_at: float = -math.inf


class RedisListener:
    """Wakes followers when another process has appended. A missed publication only delays them until they poll.

    All calls come from one loop.

    Args:
        name: of this process; its publications start with it.
        subscribe: opens a connection for subscriptions.
        errors: of a connection that breaks.
        on_news: called with the log's id.
    """

    def __init__(
        self,
        name: str,
        subscribe: Callable[[], Any],
        errors: tuple[type[Exception], ...],
        on_news: Callable[[str], None],
    ) -> None:
        self._name = name
        self._subscribe = subscribe
        self._errors = errors
        self._on_news = on_news
        self._followed: dict[str, _Followed] = {}
        self._subscribed_ids: set[str] = set()
        self._is_out_of_tune = True
        self._listening: asyncio.Task[None] | None = None

    def follow(self, log_id: str) -> None:
        """Subscribe for one more follower of a log."""
        self._followed.setdefault(log_id, _Followed()).count += 1
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())
        self._is_out_of_tune = True

    def unsubscribe(self, log_id: str) -> None:
        """Unsubscribe for one follower."""
        found = self._followed[log_id]
        found.count -= 1
        if not found.count:
            del self._followed[log_id]
            self._is_out_of_tune = True

    def wrote(self, log_id: str) -> None:
        """Record an append by this process."""
        found = self._followed.get(log_id)
        if found is not None:
            found.written_at = asyncio.get_running_loop().time()
            if log_id in self._subscribed_ids:
                self._is_out_of_tune = True

    def gave_way(self, log_id: str) -> None:
        """Record that another process appends."""
        found = self._followed.get(log_id)
        if found is not None:
            found.written_at = -math.inf
            self._is_out_of_tune = True

    def close(self) -> None:
        """Stop listening."""
        if self._listening is not None:
            self._listening.cancel()

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with self._subscribe() as channels:
                    self._subscribed_ids = set()
                    self._is_out_of_tune = True
                    await channels.subscribe(f"{_PREFIX}:{self._name}")  # a connection without one cannot wait
                    tuned_at = loop.time()
                    while True:
                        if self._is_out_of_tune or loop.time() >= tuned_at + _QUIET_SECONDS / 4:
                            self._is_out_of_tune = False
                            tuned_at = loop.time()
                            await self._tune(channels)
                        self._handle_message(await channels.get_message(timeout=_WAKE_SECONDS))
            except self._errors:
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _tune(self, channels: Any) -> None:
        """Change the subscriptions to those wanted now."""
        quiet_since = asyncio.get_running_loop().time() - _QUIET_SECONDS
        required = {log_id for log_id, found in self._followed.items() if found.written_at < quiet_since}
        added_ids = required - self._subscribed_ids
        dropped_ids = self._subscribed_ids - required
        self._subscribed_ids = required
        if added_ids:
            await channels.subscribe(*map(channel_of, added_ids))
        if dropped_ids:
            await channels.unsubscribe(*map(channel_of, dropped_ids))

    def _handle_message(self, message: Any) -> None:
        """Report a publication of another process, and a new subscription: it may have missed some."""
        if message is None:
            return
        is_others = message["type"] == "message" and not message["data"].startswith(self._name.encode())
        if is_others or message["type"] == "subscribe":
            log_id = message["channel"].decode().rpartition("{")[2].partition("}")[0]
            self._on_news(log_id)


_APPEND: Final = """
local state, stream = KEYS[1], KEYS[2]
local expected, attempt, batch, is_retry, expire, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
if is_retry == '1' then
  for _, found in ipairs(redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1000)) do
    local fields = found[2]
    if fields[4] == batch then
      return tonumber(string.match(found[1], '^%d+')) - tonumber(fields[6])
    end
  end
end
local found = redis.call('HMGET', state, 'attempt', 'next', batch)
local current, first = found[1] or '0', tonumber(found[2] or '0')
if current ~= expected then return -1 - tonumber(current) end
if is_retry == '1' then
  redis.call('HSET', state, batch, 1)
elseif found[3] then
  return redis.error_reply('LATE the append has been tried again')
end
for index = 7, #ARGV do
  local id = string.format('%.0f-1', first + index - 7)
  redis.call('XADD', stream, id, 'a', attempt, 'b', batch, 'i', index - 7, 'e', ARGV[index])
end
redis.call('HSET', state, 'attempt', attempt, 'next', string.format('%.0f', first + #ARGV - 6),
  'at', redis.call('TIME')[1])
redis.call('EXPIRE', state, expire)
redis.call('EXPIRE', stream, expire)
redis.call('PUBLISH', channel, batch)
return first
"""
_CONNECTIONS: Final = 32
"""Maximum connections to Redis."""
_ENTRIES_AT_ONCE: Final = 64


class RedisTurnLog:
    """The turn logs of one Redis database. Implements `durable_agent_host.turn_log.protocol.TurnLog`.

    Args:
        url: ``redis://`` or ``rediss://``, with user, password and database where needed.
        retry_seconds: how long a command is retried while the server does not answer.
        retention_seconds: the server expires a log after this time without an append.
    """

    interval_seconds = INTERVAL_SECONDS

    def __init__(self, url: str, *, retry_seconds: float = 30.0, retention_seconds: int) -> None:
        self._url = url
        self._retry_seconds = retry_seconds
        self._retention_seconds = retention_seconds
        self._loop = LoopThread("turn-log-redis")
        self._followers = Followers()
        self._name = uuid.uuid4().hex[:12]
        self._batches = itertools.count()
        self._redis: Any = None
        self._listener = RedisListener(
            self._name,
            lambda: self._client().pubsub(),
            (RedisError, OSError),
            lambda log_id: self._followers.announce([(log_id, [], 0)]),
        )

    async def open(self, log_id: str) -> int:
        """Begin an attempt; see the protocol."""
        current = int(await self._run(lambda: self._client().hget(_state(log_id), "attempt")) or 0)
        while True:
            entry = LogEntry(ATTEMPT, {"number": current + 1})
            first = await self._append(log_id, [entry], expected=current, attempt=current + 1)
            if first >= 0:
                return current + 1
            current = -1 - first

    async def append(self, log_id: str, entries: Sequence[LogEntry], *, attempt: int) -> int:
        """Append entries, all or none; see the protocol."""
        first = await self._append(log_id, entries, expected=attempt, attempt=attempt)
        if first < 0:
            raise FencedError(
                f"attempt {attempt} of the turn log {log_id} may not write: attempt {-1 - first} has begun"
            )
        return first

    async def read(self, log_id: str, from_offset: int = 0, *, max_bytes: int = MAX_PAGE_BYTES) -> LogPage:
        """Read the entries that are there now; see the protocol."""

        async def read_page() -> LogPage:
            records: list[LogRecord] = []
            next_offset = from_offset
            left = max_bytes
            count = _ENTRIES_AT_ONCE

            async def ask() -> tuple[list[Any], int]:
                nonlocal count
                requested_count = count  # after an answer cut off by a bad network, ask for half
                count = max(count // 2, 1)
                rows = await self._client().xrange(_stream(log_id), f"{next_offset}-0", "+", count=requested_count)
                count = requested_count
                return rows, requested_count

            while True:
                rows, page_size = await self._retry(ask)
                for entry_id, fields in rows:
                    line = fields[b"e"]
                    if records and len(line) > left:
                        return LogPage(records, next_offset, has_more=True)
                    left -= len(line)
                    offset = int(entry_id.partition(b"-")[0])
                    records.append(LogRecord(offset, int(fields[b"a"]), decode_log_entry(line)))
                    next_offset = offset + 1
                if len(rows) < page_size:
                    return LogPage(records, next_offset)

        return await self._loop.run(read_page())

    async def follow(
        self,
        log_id: str,
        from_offset: int = 0,
        *,
        max_bytes: int = MAX_PAGE_BYTES,
        until: asyncio.Future[Any] | None = None,
    ) -> AsyncGenerator[LogPage]:
        """Read existing and future entries; see the protocol."""
        self._loop.post(self._listener.follow, log_id)
        try:
            async with aclosing(self._followers.follow(self, log_id, from_offset, max_bytes, until=until)) as pages:
                async for page in pages:
                    yield page
        finally:
            with suppress(LogError):  # closed
                self._loop.post(self._listener.unsubscribe, log_id)

    async def delete(self, *log_ids: str) -> None:
        """Delete logs and their inboxes; see the protocol."""

        async def delete_log() -> None:
            for log_id in log_ids:
                await self._delete(log_id)

        await self._loop.run(delete_log())

    async def sweep(self, *, older_than_seconds: float) -> int:
        """Delete logs without an append for that long; see the protocol."""

        async def sweep_logs() -> int:
            now = (await self._retry(lambda: self._client().time()))[0]
            keys = await self._retry(self._states)
            count = 0
            for key in keys:
                log_id = key.decode().partition("{")[2].partition("}")[0]
                at = await self._retry(lambda key=key: self._client().hget(key, "at"))
                if at is not None and int(at) <= now - older_than_seconds:
                    await self._delete(log_id)
                    count += 1
            return count

        return await self._loop.run(sweep_logs())

    async def request_cancel(self, log_id: str) -> None:
        """Mark the turn to be cancelled."""
        await self._send_to_inbox(log_id, _CANCEL, "1")

    async def send_message(self, log_id: str, message_id: str, message: LogEntry) -> LogEntry:
        """Leave a message for the turn; see the protocol."""
        await self._send_to_inbox(log_id, message_id, encode_log_entry(message))
        return decode_log_entry(await self._run(lambda: self._client().hget(_inbox(log_id), message_id)))

    async def _send_to_inbox(self, log_id: str, name: str, body: str) -> None:
        await self._run(lambda: self._client().hsetnx(_inbox(log_id), name, body))
        await self._run(lambda: self._client().expire(_inbox(log_id), self._retention_seconds))

    async def read_inbox(self, log_id: str) -> Inbox:
        """Return what was sent to the turn."""
        bodies: dict[bytes, bytes] = await self._run(lambda: self._client().hgetall(_inbox(log_id)))
        is_cancel_requested = bodies.pop(_CANCEL.encode(), None) is not None
        return Inbox(is_cancel_requested, {name.decode(): decode_log_entry(body) for name, body in bodies.items()})

    async def check(self) -> None:
        """Check that the server is writable; see the protocol."""
        key = f"{_PREFIX}:check"
        await self._run(lambda: self._client().set(key, 1, ex=self._retention_seconds), retry_seconds=CHECK_SECONDS)

    async def close(self) -> None:
        """Close the connections and stop the loop."""
        self._followers.close()
        with suppress(LogError):  # closed before
            self._loop.post(lambda listener: listener.close(), self._listener)
        await self._loop.close(self._disconnect())

    async def _append(self, log_id: str, entries: Sequence[LogEntry], *, expected: int, attempt: int) -> int:
        """Run the script; return the first offset or, if fenced, -1 minus the current attempt."""
        lines = [encode_log_entry(entry) for entry in entries]
        batch = f"{self._name}:{next(self._batches)}"
        tries = itertools.count()

        async def send() -> int:
            is_retry = int(next(tries) > 0)
            values = (expected, attempt, batch, is_retry, self._retention_seconds, channel_of(log_id), *lines)
            script = self._client().register_script(_APPEND)
            return int(await script(keys=[_state(log_id), _stream(log_id)], args=values))

        async def append() -> int:
            first = await self._retry(send)
            if first < 0:
                self._listener.gave_way(log_id)
                return first
            self._listener.wrote(log_id)
            records = [LogRecord(offset, attempt, entry) for offset, entry in enumerate(entries, first)]
            self._followers.announce([(log_id, records, sum(map(len, lines)))])
            return first

        return await self._loop.run(append())

    async def _delete(self, log_id: str) -> None:
        await self._retry(lambda: self._client().delete(_state(log_id), _stream(log_id), _inbox(log_id)))

    async def _states(self) -> list[bytes]:
        found = cast("AsyncIterator[bytes]", self._client().scan_iter(match=_state("*"), count=500))
        return [key async for key in found]

    async def _disconnect(self) -> None:
        if self._redis is not None:
            await self._redis.aclose()
            await self._redis.connection_pool.disconnect()

    def _client(self) -> Any:
        if self._redis is None:
            pool = cast("Any", BlockingConnectionPool).from_url(
                self._url,
                max_connections=_CONNECTIONS,
                timeout=None,
                socket_connect_timeout=5,
                socket_timeout=10,
                health_check_interval=30,
                retry=Retry(NoBackoff(), 0),
            )
            self._redis = Redis(connection_pool=pool)
        return self._redis

    async def _run(self, call: Callable[[], Awaitable[Any]], *, retry_seconds: float | None = None) -> Any:
        return await self._loop.run(self._retry(call, retry_seconds))

    async def _retry(self, call: Callable[[], Awaitable[Any]], retry_seconds: float | None = None) -> Any:
        seconds = self._retry_seconds if retry_seconds is None else retry_seconds
        try:
            return await retry(call, _is_passing, label="Redis", retry_seconds=seconds)
        except RedisError as error:
            raise _explain(error) from error


def _explain(error: Exception) -> Exception:
    """Return the error for the caller, when a retry cannot help."""
    if not isinstance(error, RedisError):
        return error
    refusal = LogError(
        f"Redis refused the turn log ({type(error).__name__}: {error}): see the address, the user and the "
        "password, and that streams, scripts and publish are allowed"
    )
    refusal.__cause__ = error
    return refusal


def _is_passing(error: Exception) -> bool:
    if isinstance(error, AuthenticationError | AuthorizationError):
        return False
    return isinstance(error, ConnectionError | TimeoutError | ReadOnlyError | OutOfMemoryError | OSError)


def _state(log_id: str) -> str:
    return f"{channel_of(log_id)}:state"


def _stream(log_id: str) -> str:
    return f"{channel_of(log_id)}:entries"


_CANCEL: Final = "cancel"
"""The field of an inbox that marks the turn to be cancelled; the others are messages."""


def _inbox(log_id: str) -> str:
    return f"{channel_of(log_id)}:inbox"
