"""Turn logs in Redis Streams, for the shortest way between several instances. Needs the extra ``redis``.

Theory of operation. A log is a stream whose entries have the ids ``{offset}-1``, and a hash with the attempt and the
next offset. One script appends: it looks at the attempt, writes all entries and publishes, in one step of the server.
It is told when it runs again because an answer was lost, and then looks first whether it has written already. Followers
of other processes are woken by the publication, and read now and then in case one was missed.

An append is as durable as the server is set up: with ``appendonly yes`` and ``appendfsync always`` it is on the disk.
"""

import asyncio
import itertools
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final, cast

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ConnectionError,  # noqa: A004 (the library's name)
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    TimeoutError,  # noqa: A004 (the library's name)
)

from durable_agent_host.codec.log_entry import decode_log_entry, encode_log_entry
from durable_agent_host.errors import FencedError, LogError
from durable_agent_host.log.log import INTERVAL_SECONDS, MAX_PAGE_BYTES
from durable_agent_host.model.log_entry import ATTEMPT, LogEntry, LogPage, LogRecord
from durable_agent_host.stores.arrivals import Arrivals
from durable_agent_host.stores.own_loop import OwnLoop
from durable_agent_host.stores.retry import retry

_APPEND: Final = """
local state, stream = KEYS[1], KEYS[2]
local expected, attempt, batch, is_retry, expire, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
if is_retry == '1' then
  for _, found in ipairs(redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1000)) do
    local fields = found[2]
    if fields[4] == batch then
      return {1, tonumber(string.match(found[1], '^%d+')) - tonumber(fields[6])}
    end
  end
end
local current = redis.call('HGET', state, 'attempt') or '0'
if current ~= expected then return {0, tonumber(current)} end
local first = tonumber(redis.call('HGET', state, 'next') or '0')
for index = 7, #ARGV do
  local id = string.format('%.0f-1', first + index - 7)
  redis.call('XADD', stream, id, 'a', attempt, 'b', batch, 'i', index - 7, 'e', ARGV[index])
end
redis.call('HSET', state, 'attempt', attempt, 'next', string.format('%.0f', first + #ARGV - 6),
  'at', redis.call('TIME')[1])
redis.call('EXPIRE', state, expire)
redis.call('EXPIRE', stream, expire)
redis.call('PUBLISH', channel, batch)
return {1, first}
"""
_PREFIX: Final = "durable-agent-host:turn"
_CONNECTIONS: Final = 32
_ENTRIES_AT_ONCE: Final = 64
_KEPT_SECONDS: Final = 7 * 24 * 3600
_LISTEN_SECONDS: Final = 1.0


class RedisTurnLog:
    """The turn logs of one Redis database. Implements `durable_agent_host.log.log.TurnLog`.

    Args:
        url: ``redis://`` or ``rediss://``, with user, password and database where needed.
        give_up_seconds: how long a command is tried again while the server does not answer.
        kept_seconds: after so long without an append the server forgets a log by itself.

    Attributes:
        durable_writes: appends made so far by this object.
    """

    interval_seconds = INTERVAL_SECONDS

    def __init__(self, url: str, *, give_up_seconds: float = 30.0, kept_seconds: int = _KEPT_SECONDS) -> None:
        self.durable_writes = 0
        self._url = url
        self._give_up_seconds = give_up_seconds
        self._kept_seconds = kept_seconds
        self._loop = OwnLoop("turn-log-redis")
        self._arrivals = Arrivals()
        self._name = uuid.uuid4().hex[:12]
        self._batches = itertools.count()
        self._made: Any = None
        self._script = ""
        self._followed: Counter[str] = Counter()
        self._listener: asyncio.Task[None] | None = None
        self._channels: Any = None

    async def open(self, log_id: str) -> int:
        """Begin an attempt; see the protocol."""

        async def work() -> int:
            current = int(await self._retry(lambda: self._client().hget(_state(log_id), "attempt")) or 0)
            while True:
                entry = LogEntry(ATTEMPT, {"number": current + 1})
                is_done, found = await self._append(log_id, [entry], expected=current, attempt=current + 1)
                if is_done:
                    return current + 1
                current = found

        return await self._loop.run(work())

    async def append(self, log_id: str, entries: Sequence[LogEntry], *, attempt: int) -> int:
        """Append entries, all or none; see the protocol."""

        async def work() -> int:
            is_done, found = await self._append(log_id, entries, expected=attempt, attempt=attempt)
            if not is_done:
                raise FencedError(
                    f"attempt {attempt} of the turn log {log_id} may not write: attempt {found} has begun"
                )
            return found

        return await self._loop.run(work())

    async def read(self, log_id: str, from_offset: int = 0, *, max_bytes: int = MAX_PAGE_BYTES) -> LogPage:
        """Read what is there now; see the protocol."""

        async def work() -> LogPage:
            records: list[LogRecord] = []
            next_offset, left = from_offset, max_bytes
            while True:
                start = f"{next_offset}-0"
                rows = await self._retry(
                    lambda start=start: self._client().xrange(_stream(log_id), start, "+", count=_ENTRIES_AT_ONCE)
                )
                for entry_id, fields in rows:
                    line = fields[b"e"]
                    if records and len(line) > left:
                        return LogPage(records, next_offset, has_more=True)
                    left -= len(line)
                    offset = int(entry_id.partition(b"-")[0])
                    records.append(LogRecord(offset, int(fields[b"a"]), decode_log_entry(line)))
                    next_offset = offset + 1
                if len(rows) < _ENTRIES_AT_ONCE:
                    return LogPage(records, next_offset)

        return await self._loop.run(work())

    async def follow(
        self,
        log_id: str,
        from_offset: int = 0,
        *,
        max_bytes: int = MAX_PAGE_BYTES,
        idle_seconds: float | None = None,
        until: asyncio.Future[Any] | None = None,
    ) -> AsyncGenerator[LogPage]:
        """Read what is there and what will be; see the protocol."""
        await self._loop.run(self._listen_to(log_id))
        try:
            async with aclosing(
                self._arrivals.follow(self, log_id, from_offset, max_bytes, idle_seconds=idle_seconds, until=until)
            ) as pages:
                async for page in pages:
                    yield page
        finally:
            with suppress(LogError):  # closed
                await self._loop.run(self._forget(log_id))

    async def truncate(self, log_id: str, before_offset: int) -> None:
        """Forget what is before an offset; see the protocol."""

        async def work() -> None:
            await self._retry(
                lambda: self._client().xtrim(_stream(log_id), minid=f"{before_offset}-0", approximate=False)
            )

        await self._loop.run(work())

    async def delete(self, log_id: str) -> None:
        """Delete a log and its cancel mark."""
        await self._loop.run(self._delete(log_id))

    async def sweep(self, *, older_than_seconds: float) -> int:
        """Delete logs to which nothing has been appended for so long; see the protocol."""

        async def work() -> int:
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

        return await self._loop.run(work())

    async def request_cancel(self, log_id: str) -> None:
        """Leave a mark that the turn is to be cancelled."""

        async def work() -> None:
            await self._retry(lambda: self._client().set(_cancel(log_id), 1, ex=self._kept_seconds))

        await self._loop.run(work())

    async def is_cancel_requested(self, log_id: str) -> bool:
        """Tell whether the mark is there."""

        async def work() -> bool:
            return bool(await self._retry(lambda: self._client().exists(_cancel(log_id))))

        return await self._loop.run(work())

    async def close(self) -> None:
        """Close the connections and end the store's loop."""
        self._arrivals.close()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.get_loop().call_soon_threadsafe(listener.cancel)
        await self._loop.close(self._disconnect())

    async def _append(
        self, log_id: str, entries: Sequence[LogEntry], *, expected: int, attempt: int
    ) -> tuple[bool, int]:
        """Run the script: whether it appended, and the first offset or else the attempt that has begun."""
        lines = [encode_log_entry(entry) for entry in entries]
        batch = f"{self._name}:{next(self._batches)}"
        tries = 0

        async def call() -> Any:
            nonlocal tries
            tries += 1
            values = [expected, attempt, batch, int(tries > 1), self._kept_seconds, _channel(log_id), *lines]
            client = self._client()
            if not self._script:
                self._script = await client.script_load(_APPEND)
            try:
                return await client.evalsha(self._script, 2, _state(log_id), _stream(log_id), *values)
            except NoScriptError:  # the server was started anew
                return await client.eval(_APPEND, 2, _state(log_id), _stream(log_id), *values)

        is_done, value = cast("tuple[int, int]", await self._retry(call))
        if is_done:
            self.durable_writes += 1
            records = [LogRecord(offset, attempt, entry) for offset, entry in enumerate(entries, value)]
            self._arrivals.announce([(log_id, records, sum(map(len, lines)))])
        return bool(is_done), value

    async def _delete(self, log_id: str) -> None:
        await self._retry(lambda: self._client().delete(_state(log_id), _stream(log_id), _cancel(log_id)))

    async def _states(self) -> list[bytes]:
        found = cast("AsyncIterator[bytes]", self._client().scan_iter(match=f"{_PREFIX}:{{*}}:state", count=500))
        return [key async for key in found]

    async def _listen_to(self, log_id: str) -> None:
        self._followed[log_id] += 1
        if self._followed[log_id] == 1 and self._channels is not None:
            with suppress(RedisError, OSError):  # the listener connects anew, to all channels
                await self._channels.subscribe(_channel(log_id))
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen())

    async def _forget(self, log_id: str) -> None:
        self._followed[log_id] -= 1
        if self._followed[log_id] <= 0:
            del self._followed[log_id]
            if self._channels is not None:
                with suppress(RedisError, OSError):
                    await self._channels.unsubscribe(_channel(log_id))

    async def _listen(self) -> None:
        """Wake followers when another process has appended. A missed publication costs them a little time only."""
        while True:
            try:
                async with self._client().pubsub() as self._channels:
                    await self._channels.subscribe(f"{_PREFIX}:{self._name}", *map(_channel, self._followed))
                    while True:
                        message = await self._channels.get_message(True, _LISTEN_SECONDS)
                        if message is not None and not message["data"].startswith(self._name.encode()):
                            log_id = message["channel"].decode().rpartition("{")[2].partition("}")[0]
                            self._arrivals.announce([(log_id, [], 0)])
            except (RedisError, OSError):
                self._channels = None
                await asyncio.sleep(_LISTEN_SECONDS)

    async def _disconnect(self) -> None:
        if self._made is not None:
            await self._made.aclose()
            await self._made.connection_pool.disconnect()

    def _client(self) -> Any:
        if self._made is None:
            pool = cast("Any", BlockingConnectionPool).from_url(
                self._url,
                max_connections=_CONNECTIONS,
                timeout=None,
                socket_connect_timeout=5,
                socket_timeout=10,
                health_check_interval=30,
                retry=Retry(NoBackoff(), 0),
            )
            self._made = Redis(connection_pool=pool)
        return self._made

    async def _retry(self, call: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await retry(call, _is_passing, what="Redis", give_up_seconds=self._give_up_seconds)
        except RedisError as error:
            raise LogError(
                f"Redis refused the turn log ({type(error).__name__}: {error}): see the address, the user and the "
                "password, and that streams, scripts and publish are allowed"
            ) from error


def _is_passing(error: Exception) -> bool:
    if isinstance(error, AuthenticationError | AuthorizationError):
        return False
    return isinstance(error, ConnectionError | TimeoutError | ReadOnlyError | OutOfMemoryError | OSError)


def _state(log_id: str) -> str:
    return f"{_PREFIX}:{{{log_id}}}:state"


def _stream(log_id: str) -> str:
    return f"{_PREFIX}:{{{log_id}}}:entries"


def _cancel(log_id: str) -> str:
    return f"{_PREFIX}:{{{log_id}}}:cancel"


def _channel(log_id: str) -> str:
    return f"{_PREFIX}:{{{log_id}}}"
