"""Turn logs in Redis Streams, for the lowest latency between several instances. Needs the extra ``redis``.

Theory of operation. A log is a stream, whose entries have the ids ``{offset}-1``, and a hash with the attempt and the
next offset. One script appends: it checks the attempt, writes all entries and publishes, atomically. On a retry after a
lost answer it first looks for its batch in the stream, and leaves a note that rejects the first try if that arrives
late. The appends of all turns share pipelines, see `pipeline`. Publications wake followers in other processes, which
also poll in case they miss one.

An append is as durable as the server: with ``appendonly yes`` and ``appendfsync always`` it is on disk.
"""

import asyncio
import hashlib
import itertools
import uuid
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
from durable_agent_host.loops.loop_thread import LoopThread
from durable_agent_host.model.log_entry import ATTEMPT, LogEntry, LogPage, LogRecord
from durable_agent_host.storage.backoff import retry
from durable_agent_host.turn_log.followers import Appended, Followers
from durable_agent_host.turn_log.protocol import CHECK_SECONDS, INTERVAL_SECONDS, MAX_PAGE_BYTES
from durable_agent_host.turn_log.redis.listener import RedisListener, channel_of
from durable_agent_host.turn_log.redis.pipeline import Command, Pipelines

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
_DIGEST: Final = hashlib.sha1(_APPEND.encode(), usedforsecurity=False).hexdigest()
_CONNECTIONS: Final = 32
_ENTRIES_AT_ONCE: Final = 64
_KEPT_SECONDS: Final = 7 * 24 * 3600


class _Append(Command):
    """The script that appends. It answers the first offset or, if fenced, -1 minus the current attempt."""

    def __init__(self, log_id: str, entries: Sequence[LogEntry], lines: Sequence[str], values: Sequence[Any]) -> None:
        super().__init__(sum(map(len, lines)))
        self.log_id = log_id
        self.attempt = int(values[1])
        self._entries = entries
        self._lines = lines
        self._values = values

    def arguments(self) -> Sequence[Any]:
        expected, attempt, batch, kept_seconds = self._values
        keys = (2, _state(self.log_id), _stream(self.log_id))
        values = (expected, attempt, batch, int(self.tries > 1), kept_seconds, channel_of(self.log_id))
        return ("EVALSHA", _DIGEST, *keys, *values, *self._lines)

    def records(self, first: int) -> list[LogRecord]:
        return [LogRecord(offset, self.attempt, entry) for offset, entry in enumerate(self._entries, first)]


class _Exists(Command):
    """Whether a key exists."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self._key = key

    def arguments(self) -> Sequence[Any]:
        return ("EXISTS", self._key)


class RedisTurnLog:
    """The turn logs of one Redis database. Implements `durable_agent_host.turn_log.protocol.TurnLog`.

    Args:
        url: ``redis://`` or ``rediss://``, with user, password and database where needed.
        give_up_seconds: how long a command is retried while the server does not answer.
        kept_seconds: the server expires a log after this time without an append.

    Attributes:
        durable_writes: appends by this object.
    """

    interval_seconds = INTERVAL_SECONDS

    def __init__(self, url: str, *, give_up_seconds: float = 30.0, kept_seconds: int = _KEPT_SECONDS) -> None:
        self.durable_writes = 0
        self._url = url
        self._give_up_seconds = give_up_seconds
        self._kept_seconds = kept_seconds
        self._loop = LoopThread("turn-log-redis")
        self._followers = Followers()
        self._name = uuid.uuid4().hex[:12]
        self._batches = itertools.count()
        self._made: Any = None
        self._pipelines = Pipelines(
            self._loop,
            self._send,
            explain=lambda error: None if _is_passing(error) else _explain(error),
            on_answers=self._on_answers,
            give_up_seconds=give_up_seconds,
        )
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

        async def work() -> LogPage:
            records: list[LogRecord] = []
            next_offset, left, count = from_offset, max_bytes, _ENTRIES_AT_ONCE

            async def ask() -> tuple[list[Any], int]:
                nonlocal count
                asked, count = count, max(count // 2, 1)  # after an answer cut off by a bad network, ask for half
                rows = await self._client().xrange(_stream(log_id), f"{next_offset}-0", "+", count=asked)
                count = asked
                return rows, asked

            while True:
                rows, asked = await self._retry(ask)
                for entry_id, fields in rows:
                    line = fields[b"e"]
                    if records and len(line) > left:
                        return LogPage(records, next_offset, has_more=True)
                    left -= len(line)
                    offset = int(entry_id.partition(b"-")[0])
                    records.append(LogRecord(offset, int(fields[b"a"]), decode_log_entry(line)))
                    next_offset = offset + 1
                if len(rows) < asked:
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
        """Read existing and future entries; see the protocol."""
        self._loop.post(self._listener.follow, log_id)
        try:
            async with aclosing(
                self._followers.follow(self, log_id, from_offset, max_bytes, idle_seconds=idle_seconds, until=until)
            ) as pages:
                async for page in pages:
                    yield page
        finally:
            with suppress(LogError):  # closed
                self._loop.post(self._listener.forget, log_id)

    async def truncate(self, log_id: str, before_offset: int) -> None:
        """Delete the entries before an offset, but the last one, which tells readers where the log ends."""

        async def work() -> None:
            newest = await self._retry(lambda: self._client().xrevrange(_stream(log_id), count=1))
            if newest:
                first = min(before_offset, int(newest[0][0].partition(b"-")[0]))
                await self._retry(lambda: self._client().xtrim(_stream(log_id), minid=f"{first}-0", approximate=False))

        await self._loop.run(work())

    async def delete(self, *log_ids: str) -> None:
        """Delete logs and their cancel marks; see the protocol."""

        async def work() -> None:
            for log_id in log_ids:
                await self._delete(log_id)

        await self._loop.run(work())

    async def sweep(self, *, older_than_seconds: float) -> int:
        """Delete logs without an append for that long; see the protocol."""

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
        """Mark the turn to be cancelled."""
        await self._run(lambda: self._client().set(_cancel(log_id), 1, ex=self._kept_seconds))

    async def is_cancel_requested(self, log_id: str) -> bool:
        """Return whether the turn is marked."""
        return bool(await self._pipelines.ask(_Exists(_cancel(log_id))))

    async def check(self) -> None:
        """Check that the server is writable; see the protocol."""
        key = _cancel("check")
        await self._run(lambda: self._client().set(key, 1, ex=self._kept_seconds), give_up_seconds=CHECK_SECONDS)

    async def close(self) -> None:
        """Close the connections and stop the loop."""
        self._followers.close()
        with suppress(LogError):  # closed before
            self._loop.post(lambda listener: listener.close(), self._listener)
        await self._loop.close(self._disconnect())

    async def _append(self, log_id: str, entries: Sequence[LogEntry], *, expected: int, attempt: int) -> int:
        """Run the script; return its answer."""
        lines = [encode_log_entry(entry) for entry in entries]
        values = (expected, attempt, f"{self._name}:{next(self._batches)}", self._kept_seconds)
        return await self._pipelines.ask(_Append(log_id, entries, lines, values))

    async def _send(self, commands: Sequence[Command]) -> Sequence[Any]:
        """Send commands in one pipeline, and resend those whose script the server does not know."""
        some = [command.arguments() for command in commands]
        answers = await self._pipeline(some)
        unknown = [index for index, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if unknown:  # the server is new, or has restarted
            again = await self._pipeline([("EVAL", _APPEND, *some[index][2:]) for index in unknown])
            for index, answer in zip(unknown, again, strict=True):
                answers[index] = answer
        return answers

    async def _pipeline(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        pipeline = self._client().pipeline(transaction=False)
        for arguments in commands:
            pipeline.execute_command(*arguments)
        return await pipeline.execute(raise_on_error=False)

    def _on_answers(self, answers: Sequence[tuple[Command, Any]]) -> None:
        """Announce all appends of a pipeline to the followers of this process."""
        appended: list[Appended] = []
        for command, first in answers:
            if not isinstance(command, _Append):
                continue
            if first < 0:
                self._listener.gave_way(command.log_id)
                continue
            self.durable_writes += 1
            self._listener.wrote(command.log_id)
            appended.append((command.log_id, command.records(first), command.size_bytes))
        self._followers.announce(appended)

    async def _delete(self, log_id: str) -> None:
        await self._retry(lambda: self._client().delete(_state(log_id), _stream(log_id), _cancel(log_id)))

    async def _states(self) -> list[bytes]:
        found = cast("AsyncIterator[bytes]", self._client().scan_iter(match=_state("*"), count=500))
        return [key async for key in found]

    async def _disconnect(self) -> None:
        self._pipelines.close()
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

    async def _run(self, call: Callable[[], Awaitable[Any]], *, give_up_seconds: float | None = None) -> Any:
        return await self._loop.run(self._retry(call, give_up_seconds))

    async def _retry(self, call: Callable[[], Awaitable[Any]], give_up_seconds: float | None = None) -> Any:
        seconds = self._give_up_seconds if give_up_seconds is None else give_up_seconds
        try:
            return await retry(call, _is_passing, what="Redis", give_up_seconds=seconds)
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


def _cancel(log_id: str) -> str:
    return f"{channel_of(log_id)}:cancel"
