"""Closes answers that are not read to their end, for SDKs that leave that to the collector of garbage.

An SDK's stream and its reader often refer to each other, so that the connection of a turn that was stopped would stay
open, and the service would go on writing (and charging), until the next collection.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Final, cast

_OPENED: Final[ContextVar[list[Any] | None]] = ContextVar("durable_agent_host_opened", default=None)


def note_answer(answer: Any) -> None:
    """Note an answer whose body is not read yet, if anybody wants to close it.

    Args:
        answer: of httpx or aiohttp.
    """
    if (opened := _OPENED.get()) is not None:
        opened.append(answer)


@contextmanager
def noted_answers() -> Generator[list[Any]]:
    """Collect the answers to the requests that are made within the block."""
    opened: list[Any] = []
    token = _OPENED.set(opened)
    try:
        yield opened
    finally:
        _OPENED.reset(token)


async def closed_at_the_end[T](parts: AsyncGenerator[T], answers: Sequence[Any]) -> AsyncGenerator[T]:
    """Yield the parts of a stream, and close what it was read from when the reader leaves.

    Args:
        parts: of the stream.
        answers: of httpx or aiohttp.
    """
    try:
        async with aclosing(parts):
            async for part in parts:
                yield part
    finally:
        for answer in answers:
            if callable(close := getattr(answer, "aclose", None)):
                await cast("Awaitable[None]", close())
            else:
                answer.close()


def closed_when_left(stream: AsyncIterable[Any]) -> AbstractAsyncContextManager[Any]:
    """Give a context that closes a stream at its end, if the stream can be closed.

    Args:
        stream: of a chat client, which an app's own class may have replaced by any iterable.
    """
    return aclosing(cast("Any", stream)) if callable(getattr(stream, "aclose", None)) else nullcontext()
