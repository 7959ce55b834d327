"""The guard of `connections` for SDKs that use aiohttp: answers, lines and events of bounded size."""

# ruff: noqa: SLF001 - aiohttp has no public way to change an answer

import io
import json
from typing import Any, Final

from durable_agent_host.agent.bounds import AnswerMeter, received
from durable_agent_host.agent.exchanges import Exchange, sent
from durable_agent_host.errors import ProviderError
from durable_agent_host.providers.endings import is_whole
from durable_agent_host.providers.open_answers import note_answer

EVENT_STREAM: Final = "text/event-stream"
_LONG_BYTES: Final = 512 * 1024
_MOST_PLAIN_LINE_BYTES: Final = 1024 * 1024
"""Maximum line that is not an event, which Google's SDK reads character by character."""


class BoundedSession:
    """A session of aiohttp whose answers are bounded.

    Args:
        session: of the SDK; shared.
    """

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        """Return unguarded attributes of the original."""
        return getattr(self._session, name)

    async def request(self, *args: Any, **kwargs: Any) -> Any:
        """Make a request; its answer raises `ProviderError` when it is too large."""
        from multidict import CIMultiDict  # noqa: PLC0415 - loaded with aiohttp

        method, url = (
            kwargs.get(name, args[at] if at < len(args) else "") for at, name in enumerate(("method", "url"))
        )
        body = kwargs.get("data")
        exchange = await sent(method, url, json.dumps(kwargs["json"]) if kwargs.get("json") is not None else body)
        if (
            isinstance(body, bytes)
            and len(body) > _LONG_BYTES
            and type(self._session).__module__.startswith("aiohttp.")  # google-auth's may send it twice
        ):
            kwargs["data"] = io.BytesIO(body)  # bytes are copied once more, and sent in one step
        response = await self._session.request(*args, **kwargs)
        answer = getattr(response, "_response", response)  # google-auth wraps it
        note_answer(answer)
        kind = str(answer.headers.get("content-type", "")).partition(";")[0].strip().lower()
        # aiohttp decompresses it; azure.core would decompress it again
        kept = [(name, value) for name, value in answer.headers.items() if name.lower() != "content-encoding"]
        answer._headers = type(answer.headers)(CIMultiDict(kept))
        answer._cache.pop("headers", None)
        if exchange is not None:
            exchange.answered(answer.status, is_stream=kind == EVENT_STREAM)
        _fail_when_closed(answer)
        answer.content = BoundedContent(answer.content, is_stream=kind == EVENT_STREAM, exchange=exchange)
        return response


def _fail_when_closed(answer: Any) -> None:
    """End the wait for the rest of an answer when its connection closes; aiohttp waits for ever after broken chunks."""
    content = answer.content

    def fail(_: Any) -> None:
        if not content.is_eof() and content.exception() is None:
            content.set_exception(_cut())

    if answer.connection is not None and (closed := answer.connection.protocol.closed) is not None:
        closed.add_done_callback(fail)


def _cut() -> Exception:
    from aiohttp import ClientPayloadError  # noqa: PLC0415 - loaded by the caller

    return ClientPayloadError("the connection was closed before the end of the answer")


class BoundedContent:
    """The body of an answer, decompressed by aiohttp step by step.

    Args:
        content: aiohttp's reader.
        is_stream: whether it is a stream of events.
        exchange: receives what arrives; or None.
    """

    def __init__(self, content: Any, *, is_stream: bool, exchange: Exchange | None = None) -> None:
        self._content = content
        self._exchange = exchange
        self._meter = AnswerMeter(is_stream=is_stream)
        self._ready = b""
        self._at = 0

    def __getattr__(self, name: str) -> Any:
        """Return unguarded attributes of the original."""
        return getattr(self._content, name)

    async def read(self, n: int = -1) -> bytes:
        """Read all, or what has arrived; a piece may be longer than requested."""
        if n >= 0:
            return await self.readany()
        parts: list[bytes] = []
        try:
            while piece := await self.readany():
                parts.append(piece)
        except Exception:
            if received().crossed is not None or not is_whole(parts):
                raise
        return b"".join(parts)

    async def readany(self) -> bytes:
        """Read what has arrived; empty at the end."""
        if self._at < len(self._ready):
            ready, self._ready, self._at = self._ready[self._at :], b"", 0
            return ready
        while raw := await self._arrived():
            if ready := self._meter.take(raw):
                return self._told(ready)
        return self._told(self._meter.rest())

    async def _arrived(self) -> bytes:
        """Read what aiohttp has received; it would raise an error before it returns what came before the error."""
        try:
            return await self._content.readany()
        except Exception as error:
            arrived: bytes = self._content._read_nowait(-1)
            if arrived:
                return arrived
            if isinstance(error, RuntimeError):  # aiohttp's for a connection that is closed already
                raise _cut() from error
            raise

    def _told(self, piece: bytes) -> bytes:
        if self._exchange is not None and piece:
            self._exchange.take(piece)
        return piece

    async def readline(self, **_: Any) -> bytes:
        """Read a line with its end, ignoring the SDK's own length limit; empty at the end."""
        parts: list[bytes] = []
        size = 0
        while True:
            end = self._ready.find(b"\n", self._at) + 1
            part = self._ready[self._at : end or None]
            self._at += len(part)
            size += len(part)
            parts.append(part)
            self._meter.check_line(size)
            if end:
                break
            self._ready, self._at = await self.readany(), 0
            if not self._ready:
                break
        line = b"".join(parts)
        if len(line) > _MOST_PLAIN_LINE_BYTES and not line.startswith(b"data:"):
            raise ProviderError(
                "the model's service sent a long line that is no event: check the endpoint's address", retryable=False
            )
        return line
