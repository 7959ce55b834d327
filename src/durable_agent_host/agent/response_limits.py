"""Limits on what a model's service sends: counted as bytes arrive, and again when an answer is complete.

The providers' guards count bytes (`ResponseSizeMeter`), because data that never becomes an update has a cost, too:
comments, unterminated lines, a few compressed kilobytes that expand to gigabytes. The run counts calls and arguments.
"""

import asyncio
import re
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, Final, cast
from weakref import WeakSet

from agent_framework import ChatResponse, ChatResponseUpdate, Content

from durable_agent_host.errors import ProviderError, TurnError
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.turn import ResponseLimits
from durable_agent_host.stream.fold import ItemReader
from durable_agent_host.turn.token_estimate import characters_of_json


class OutputCounter:
    """Counts the characters of texts, reasoning, arguments and code that one streamed answer says.

    Services end a streamed text by repeating it as a whole. A whole counts as far as it is longer than what has come of
    it in pieces: of the same part of the same item, or, where no item is known, of the text or call just before it.

    Args:
        items: the provider's knowledge of items.

    Attributes:
        characters: so far; never less than the complete contents have together.
    """

    def __init__(self, items: ItemReader) -> None:
        self.characters = 0
        self._items = items
        self._counts: dict[int | str, dict[tuple[str, ...], int]] = {}
        self._unmatched: dict[tuple[str, ...], int] = {}

    def add(self, update: ChatResponseUpdate) -> None:
        """Count an update."""
        part = None if update.raw_representation is None else self._items.read_item(update)
        if part is not None and part.first_item_id is not None and part.position is not None:
            self._counts[part.position] = {}  # some services give all items one place
        for content in update.contents:
            kind = content.type, content.call_id or content.id or ""
            if part is not None and part.position is not None:
                self._add(self._counts.setdefault(part.position, {}), (*kind, part.part), content)
                continue
            self._unmatched = {kind: self._unmatched.get(kind, 0)}
            self._add(self._unmatched, kind, content)
            if content.merge_mode == "replace":
                self._unmatched = {}

    def _add(self, counts: dict[tuple[str, ...], int], key: tuple[str, ...], content: Content) -> None:
        if size := _count_characters(content):
            before = counts.get(key, 0)
            more = max(size - before, 0) if content.merge_mode == "replace" else size
            self.characters += more
            counts[key] = before + more


def count_output_characters(response: ChatResponse[Any]) -> int:
    """Count what a whole answer says."""
    return sum(_count_characters(content) for message in response.messages for content in message.contents)


def _count_characters(content: Content) -> int:
    """Count what a content says in its text, its arguments and its code."""
    arguments: Any = content.arguments
    size = len(content.text) if isinstance(content.text, str) else 0
    if isinstance(arguments, str):
        size += len(arguments)
    elif isinstance(arguments, Mapping):
        size += characters_of_json(arguments)
    return size + sum(map(_count_characters, content.inputs or ()))


MOST_LINES: Final = 1000
"""Maximum lines of one stream event; the services write three. SDKs copy an event once for each of its lines."""

_LAST_UPDATES: Final = 8
"""The provider's end mark is in one of these: token counts and closing events may come after it."""

_QUIET_SECONDS: Final = 5.0
"""How long to wait for the end of a connection, or for token counts, when an answer is complete."""

_UPDATE_BYTES: Final = 32
"""Counted for an empty update; the services send more for each."""

_ONE_ANSWER: Final = ("for one answer", "MAX_ANSWER_BYTES")
_ONE_TURN: Final = ("for one turn", "MAX_TURN_BYTES")
_BLANK: Final = re.compile(rb"\r?\n\r?\n|\r\r")


class ReceivedBytes:
    """What the service has sent in one attempt of a turn.

    Args:
        bounds: of the turn.

    Attributes:
        bounds: of the turn.
        bytes: of all answers so far, as received.
        content_bytes: of the content of all answers so far.
        started_calls: model calls started by the turn's agents, including replayed ones.
        inner_calls: model calls of compaction strategies so far.
        exceeded_limit: the first one, even if its error was caught; nothing is read after it.
        responses: of httpx or aiohttp, as long as something refers to them.
    """

    def __init__(self, bounds: ResponseLimits) -> None:
        self.bounds = bounds
        self.bytes = 0
        self.content_bytes = 0
        self.started_calls = set[CallPath]()
        self.inner_calls = 0
        self.exceeded_limit: ProviderError | TurnError | None = None
        self.responses: WeakSet[Any] = WeakSet()

    async def close_responses(self) -> None:
        """Close the connections of responses that were not read to their end."""
        for response in list(self.responses):
            await close_response(response)

    def cross[E: ProviderError | TurnError](self, error: E) -> E:
        """Record an exceeded limit, and return its error."""
        self.exceeded_limit = self.exceeded_limit or error
        return error

    def check(self) -> None:
        """Stop reading and calling once a limit was exceeded.

        Raises:
            ProviderError: a limit was exceeded.
            TurnError: likewise.
        """
        if self.exceeded_limit is not None:
            raise self.exceeded_limit


RECEIVED: Final = ContextVar[ReceivedBytes | None]("durable_agent_received", default=None)
"""Of the turn that runs; a call outside of a turn has the default bounds for itself."""


def received_bytes() -> ReceivedBytes:
    """Return what the turn that runs has received; outside of a turn, a new one."""
    return RECEIVED.get() or ReceivedBytes(ResponseLimits())


async def close_response(response: Any) -> None:
    """Close a response of httpx or aiohttp; nothing happens if it is closed already."""
    if callable(close := getattr(response, "aclose", None)):
        await cast("Awaitable[None]", close())
    else:
        response.close()


class ResponseSizeMeter:
    """Counts one answer as it arrives, and passes on complete lines of a stream.

    An SDK that assembles a long line copies all of it for each piece from the network.

    Args:
        is_stream: whether it is a stream of events.
        is_counted: whether another meter counts it for the turn.
    """

    def __init__(self, *, is_stream: bool, is_counted: bool = False) -> None:
        self._totals = received_bytes()
        self._totals.check()
        self._is_counted = is_counted
        self._is_stream = is_stream
        self._bytes = 0
        self._open: list[bytes] = []
        self._open_bytes = 0
        self._lines = 0

    def check_line(self, size_bytes: int) -> None:
        """Check the length of a line so far.

        Raises:
            ProviderError: it is too long.
        """
        if size_bytes > self._totals.bounds.max_line_bytes:
            raise self._too_much(self._totals.bounds.max_line_bytes, "on one line", "MAX_LINE_BYTES")

    def feed(self, chunk: bytes) -> bytes:
        """Count decompressed bytes.

        Returns:
            The bytes that can be read now; empty while a line is incomplete.

        Raises:
            ProviderError: a limit is exceeded.
        """
        bounds = self._totals.bounds
        size = len(chunk)
        self._totals.check()
        self._bytes += size
        self._totals.bytes += 0 if self._is_counted else size
        if self._bytes > bounds.max_answer_bytes:
            raise self._too_much(bounds.max_answer_bytes, *_ONE_ANSWER)
        if self._totals.bytes > bounds.max_turn_bytes:
            raise self._too_much(bounds.max_turn_bytes, *_ONE_TURN)
        return self._complete_lines(chunk) if self._is_stream else chunk

    def flush(self) -> bytes:
        """Return a stream's unterminated last line."""
        line = b"".join(self._open)
        self._open = []
        return line

    def _too_much(self, most_bytes: int, where: str, setting: str) -> ProviderError:
        return self._totals.cross(_too_much("sent", most_bytes, where, setting))

    def _complete_lines(self, chunk: bytes) -> bytes:
        end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
        self.check_line(self._open_bytes + (min(_end(chunk, b"\n"), _end(chunk, b"\r")) if end else len(chunk)))
        if not end:
            self._open.append(chunk)
            self._open_bytes += len(chunk)
            return b""
        lines = b"".join((*self._open, chunk[:end]))
        self._open, self._open_bytes = ([chunk[end:]], len(chunk) - end) if end < len(chunk) else ([], 0)
        self._count_lines(lines)
        return lines

    def _count_lines(self, lines: bytes) -> None:
        if self._lines + lines.count(b"\n") + lines.count(b"\r") <= MOST_LINES:  # of whichever events
            blank = max(lines.rfind(mark) for mark in (b"\n\n", b"\r\r", b"\n\r\n"))
            event = lines[blank + 1 :]
            self._lines = (0 if blank >= 0 else self._lines) + event.count(b"\n") + event.count(b"\r")
            return
        for index, event in enumerate(_BLANK.split(lines)):
            self._lines = (0 if index else self._lines) + event.count(b"\n") + event.count(b"\r")
            if self._lines > MOST_LINES:
                raise self._totals.cross(
                    ProviderError(
                        f"the model's service sent an event of more than {MOST_LINES} lines: check the endpoint's "
                        "address",
                        retryable=False,
                    )
                )


class OutputSizeMeter:
    """Counts what an answer says, for clients whose connections are not guarded; services send more than that."""

    def __init__(self) -> None:
        self._totals = received_bytes()
        self._bytes = 0

    def add(self, contents: Iterable[Content]) -> None:
        """Count an update, or a whole message.

        Raises:
            ProviderError: a limit is exceeded.
        """
        size = _UPDATE_BYTES
        for content in contents:
            for text in (content.text, content.arguments, content.uri):
                size += len(text) if isinstance(text, str) else 0
        self._bytes += size
        self._totals.content_bytes += size
        bounds = self._totals.bounds
        if self._bytes > bounds.max_answer_bytes:
            raise self._totals.cross(_too_much("said", bounds.max_answer_bytes, *_ONE_ANSWER))
        if self._totals.content_bytes > bounds.max_turn_bytes:
            raise self._totals.cross(_too_much("said", bounds.max_turn_bytes, *_ONE_TURN))


def _end(chunk: bytes, mark: bytes) -> int:
    offset = chunk.find(mark)
    return offset if offset >= 0 else len(chunk)


def check_model_call(bounds: ResponseLimits, *, started_count: int = 0) -> None:
    """Check that a turn may make one more model call; calls of inner agents count.

    Raises:
        TurnError: it may not.
    """
    turn = received_bytes()
    call_count = len(turn.started_calls) + turn.inner_calls - started_count
    if call_count >= bounds.max_model_calls:
        raise turn.cross(
            TurnError(
                f"the turn has made {call_count} model calls without coming to an end: ask for less in one turn, "
                "or raise DURABLE_AGENT_HOST_MAX_MODEL_CALLS"
            )
        )


def check_calls(contents: Iterable[Content], bounds: ResponseLimits) -> None:
    """Check the tool calls of one complete answer before any of them runs.

    Raises:
        ProviderError: there are too many, or one has too long arguments.
    """
    count = 0
    for content in contents:
        if content.type != "function_call":
            continue
        count += 1
        if is_larger(content.arguments, bounds.max_argument_bytes):
            much = _too_much("asked for a tool with", bounds.max_argument_bytes, "of arguments", "MAX_ARGUMENT_BYTES")
            raise received_bytes().cross(much)
    if count > bounds.max_calls_at_once:
        raise received_bytes().cross(
            ProviderError(
                f"the model asked for {count} tool calls in one answer, and none of them was run: ask for less at "
                f"once, or raise DURABLE_AGENT_HOST_MAX_CALLS_AT_ONCE, which is {bounds.max_calls_at_once}",
                retryable=False,
            )
        )


def is_larger(value: Any, most_bytes: int) -> bool:
    """Estimate whether a JSON value is larger than a number of bytes, without encoding it."""
    remaining_bytes = most_bytes
    pending = [value]
    while pending and remaining_bytes >= 0:
        item = pending.pop()
        remaining_bytes -= 1
        if isinstance(item, str):
            remaining_bytes -= (
                len(item)
                if item.isascii() or len(item) > remaining_bytes
                else len(item.encode("utf-8", "surrogatepass"))
            )
        elif isinstance(item, dict):
            inner = cast("dict[str, Any]", item)
            remaining_bytes -= sum(map(len, inner))
            pending += inner.values()
        elif isinstance(item, list):
            pending += cast("list[Any]", item)
    return remaining_bytes < 0


async def stream_with_timeout[T](updates: AsyncGenerator[T], bounds: ResponseLimits) -> AsyncGenerator[T]:
    """Yield updates until the answer has taken too long, even if the service sends a sign of life now and then.

    Raises:
        ProviderError: it has taken too long.
    """
    deadline = asyncio.get_running_loop().time() + bounds.answer_seconds
    async with aclosing(updates):
        while True:
            limit = asyncio.timeout_at(deadline)
            try:
                async with limit:
                    update = await anext(updates)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                if limit.expired():
                    raise _too_slow(bounds) from error
                raise
            yield update


def lacks_finish_reason(updates: Iterable[Any]) -> bool:
    """Return whether the updates of a client of any service do not say how the answer ended."""
    return not any(getattr(update, "finish_reason", None) for update in updates)


async def until_its_end[T](
    updates: AsyncIterable[T],
    is_truncated: Callable[[Iterable[Any]], bool],
    quiet_seconds: float | None = _QUIET_SECONDS,
) -> AsyncGenerator[T]:
    """Yield the updates of a model call; a connection that fails or stays open after the end of the answer is left."""
    last = deque[T](maxlen=_LAST_UPDATES)
    wait = _Wait(lambda: not is_truncated(last), quiet_seconds)
    iterator = aiter(updates)
    try:
        while True:
            wait.begin()
            update = await anext(iterator)
            wait.task = None
            last.append(update)
            yield update
    except StopAsyncIteration:
        pass
    except asyncio.CancelledError:
        if not wait.was_cut_short():
            raise
    except Exception:
        if received_bytes().exceeded_limit is not None or is_truncated(last):
            raise
    finally:
        wait.close()
        if callable(close := getattr(updates, "aclose", None)):
            await cast("Awaitable[None]", close())


class _Wait:
    """Cancels the wait for an update of a complete answer; has one timer, because updates are many."""

    def __init__(self, is_complete: Callable[[], bool], seconds: float | None) -> None:
        self.task: asyncio.Task[Any] | None = None
        self._is_complete = is_complete
        self._seconds = seconds
        self._started_at = time.monotonic()
        self._cancellations: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._set_timer(seconds)

    def begin(self) -> None:
        """Begin to wait in the task that runs."""
        self.task = asyncio.current_task()
        self._started_at = time.monotonic()

    def was_cut_short(self) -> bool:
        """Return whether only this object has cancelled the task, which then goes on."""
        return self.task is not None and self._cancellations is not None and self.task.uncancel() <= self._cancellations

    def close(self) -> None:
        """End the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self, seconds: float | None) -> None:
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._check_quiet)

    def _check_quiet(self) -> None:
        if self._seconds is None:
            return
        remaining_seconds = self._started_at + self._seconds - time.monotonic()
        if self.task is not None and remaining_seconds <= 0 and self._is_complete():
            self._cancellations = self.task.cancelling()
            self.task.cancel()
        else:
            self._set_timer(remaining_seconds if remaining_seconds > 0 else self._seconds)


def _too_slow(bounds: ResponseLimits) -> ProviderError:
    return received_bytes().cross(
        ProviderError(
            f"the model has not finished its answer in {bounds.answer_seconds:g} s: ask for less at once, "
            "or raise DURABLE_AGENT_HOST_ANSWER_SECONDS",
            retryable=False,
        )
    )


def _too_much(did: str, most_bytes: int, where: str, setting: str) -> ProviderError:
    limit_text = f"{most_bytes / 1024**2:g} MiB" if most_bytes >= 1024**2 else f"{most_bytes} bytes"
    return ProviderError(
        f"the model's service {did} more than {limit_text} {where}: ask for less, check the endpoint's address, "
        f"or raise DURABLE_AGENT_HOST_{setting}",
        retryable=False,
    )
