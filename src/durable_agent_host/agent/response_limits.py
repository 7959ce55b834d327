"""Limits on what a model's service sends, and the end of an answer whose connection stays open or breaks."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, Final, cast
from weakref import WeakSet

from agent_framework import Content

from durable_agent_host.agent.run_result import Failed, RunStoppedError
from durable_agent_host.errors import ProviderError, TurnLimitError
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.turn import ResponseLimits

MAX_TURN_CHARACTERS: Final = 128 * 1024 * 1024
"""Maximum characters that the models of a turn send in one attempt: room for dozens of generated images."""

_LAST_UPDATES: Final = 8
"""The provider's end mark is in one of these: token counts and closing events may come after it."""

_QUIET_SECONDS: Final = 5.0
"""How long to wait for the end of a connection, or for token counts, when an answer is complete."""


class TurnTraffic:
    """What one attempt of a turn has exchanged with model services.

    Args:
        bounds: of the turn.

    Attributes:
        bounds: of the turn.
        characters: of the contents of all answers so far.
        response_count: HTTP responses so far.
        started_calls: model calls started by the turn's agents, including replayed ones.
        inner_calls: model calls of compaction strategies so far.
    """

    def __init__(self, bounds: ResponseLimits) -> None:
        self.bounds = bounds
        self.characters = 0
        self.response_count = 0
        self.started_calls = set[CallPath]()
        self.inner_calls = 0
        self._responses: WeakSet[Any] = WeakSet()

    def count_contents(self, contents: Iterable[Content]) -> None:
        """Count the contents of an update, or of a whole message.

        Raises:
            TurnLimitError: the models have sent too much.
        """
        for content in contents:
            for text in (content.text, content.arguments, content.uri):
                self.characters += len(text) if isinstance(text, str) else 0
        if self.characters > MAX_TURN_CHARACTERS:
            raise TurnLimitError(
                f"the models have sent more than {MAX_TURN_CHARACTERS} characters in one turn: ask for less, "
                "or check the endpoint's address"
            )

    def track_response(self, response: Any) -> None:
        """Record a response of httpx or aiohttp, as long as something refers to it."""
        self.response_count += 1
        self._responses.add(response)

    async def close_responses(self) -> None:
        """Close the connections of responses that were not read to their end."""
        for response in list(self._responses):
            await close_response(response)


TRAFFIC: Final = ContextVar[TurnTraffic | None]("durable_agent_traffic", default=None)
"""Of the turn that runs; a call outside of a turn has the default bounds for itself."""


def turn_traffic() -> TurnTraffic:
    """Return the traffic of the turn that runs; outside of a turn, a new one."""
    return TRAFFIC.get() or TurnTraffic(ResponseLimits())


async def close_response(response: Any) -> None:
    """Close a response of httpx or aiohttp; nothing happens if it is closed already."""
    if callable(close := getattr(response, "aclose", None)):
        await cast("Awaitable[None]", close())
    else:
        response.close()


def check_model_call() -> None:
    """Check that a turn may make the model call that it has begun; calls of inner agents count.

    Raises:
        RunStoppedError: it may not, and ends.
    """
    traffic = turn_traffic()
    call_count = len(traffic.started_calls) + traffic.inner_calls - 1
    if call_count >= traffic.bounds.max_model_calls:
        error = TurnLimitError(
            f"the turn has made {call_count} model calls without coming to an end: ask for less in one turn, "
            "or raise DURABLE_AGENT_HOST_MAX_MODEL_CALLS"
        )
        raise RunStoppedError(Failed(error))


def check_calls(contents: Iterable[Content], bounds: ResponseLimits) -> None:
    """Check the tool calls of one complete answer before any of them runs.

    Raises:
        TurnLimitError: there are too many.
    """
    count = sum(content.type == "function_call" for content in contents)
    if count > bounds.max_calls_at_once:
        raise TurnLimitError(
            f"the model asked for {count} tool calls in one answer, and none of them was run: ask for less at "
            f"once, or raise DURABLE_AGENT_HOST_MAX_CALLS_AT_ONCE, which is {bounds.max_calls_at_once}"
        )


async def stream_with_timeout[T](updates: AsyncGenerator[T], bounds: ResponseLimits) -> AsyncGenerator[T]:
    """Yield updates until the answer has taken too long, even if the service sends a sign of life now and then.

    Raises:
        TurnLimitError: it has taken too long.
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
                    raise TurnLimitError(
                        f"the model has not finished its answer in {bounds.answer_seconds:g} s: ask for less at once, "
                        "or raise DURABLE_AGENT_HOST_ANSWER_SECONDS"
                    ) from error
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
    except ProviderError:
        raise  # what the service says of its answer, also behind the end
    except Exception:
        if is_truncated(last):
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
