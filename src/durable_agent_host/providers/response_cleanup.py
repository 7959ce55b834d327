"""Closes responses that are not read to their end, for SDKs that rely on garbage collection.

An SDK's stream and its reader often refer to each other, so that the connection of a turn that was stopped would stay
open, and the service would continue to write (and charge), until the next collection.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Final, cast

from durable_agent_host.agent.response_limits import close_response, turn_traffic

_TRACKED_RESPONSES: Final[ContextVar[list[Any] | None]] = ContextVar("durable_agent_host_opened", default=None)


def track_response(response: Any) -> None:
    """Record a response with an unread body, for the turn and inside a `tracked_responses` block."""
    turn_traffic().track_response(response)
    if (responses := _TRACKED_RESPONSES.get()) is not None:
        responses.append(response)


@contextmanager
def tracked_responses() -> Generator[list[Any]]:
    """Collect the responses to the requests that are made within the block."""
    responses: list[Any] = []
    token = _TRACKED_RESPONSES.set(responses)
    try:
        yield responses
    finally:
        _TRACKED_RESPONSES.reset(token)


async def closing_responses[T](parts: AsyncGenerator[T], responses: Sequence[Any]) -> AsyncGenerator[T]:
    """Yield the parts of a stream, and close its responses when the reader stops."""
    try:
        async with aclosing(parts):
            async for part in parts:
                yield part
    finally:
        for response in responses:
            await close_response(response)


def closing_stream(stream: AsyncIterable[Any]) -> AbstractAsyncContextManager[Any]:
    """Return a context manager that closes a stream at its end, if the stream can be closed."""
    return aclosing(cast("Any", stream)) if callable(getattr(stream, "aclose", None)) else nullcontext()
