"""The guard of `http_client_guards` for SDKs that use aiohttp: limits on responses, lines and events."""

# ruff: noqa: SLF001 - aiohttp has no public way to change a response

import io
import json
from collections.abc import AsyncIterator
from typing import Any, Final

from durable_agent_host.agent.http_exchange import HttpExchange, record_request
from durable_agent_host.agent.response_limits import ResponseSizeMeter, received_bytes
from durable_agent_host.providers.response_cleanup import track_response
from durable_agent_host.providers.stream_completion import is_complete_json

EVENT_STREAM: Final = "text/event-stream"
_LONG_BYTES: Final = 512 * 1024


class BoundedSession:
    """A session of aiohttp with limited responses.

    Args:
        session: of the SDK; shared.
    """

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        """Return unguarded attributes of the original."""
        return getattr(self._session, name)

    async def request(self, *args: Any, **kwargs: Any) -> Any:
        """Make a request; its response raises `ProviderError` when it is too large."""
        from multidict import CIMultiDict  # noqa: PLC0415 - loaded with aiohttp

        method, url = (
            kwargs.get(name, args[at] if at < len(args) else "") for at, name in enumerate(("method", "url"))
        )
        body = kwargs.get("data")
        exchange = await record_request(
            method, url, json.dumps(kwargs["json"]) if kwargs.get("json") is not None else body
        )
        if (
            isinstance(body, bytes)
            and len(body) > _LONG_BYTES
            and type(self._session).__module__.startswith("aiohttp.")  # google-auth's may send it twice
        ):
            kwargs["data"] = io.BytesIO(body)  # bytes would be copied again, and sent in one step
        response = await self._session.request(*args, **kwargs)
        aiohttp_response = getattr(response, "_response", response)  # google-auth wraps it
        track_response(aiohttp_response)
        kind = str(aiohttp_response.headers.get("content-type", "")).partition(";")[0].strip().lower()
        # aiohttp decompresses it; azure.core would decompress it again
        headers = [
            (name, value) for name, value in aiohttp_response.headers.items() if name.lower() != "content-encoding"
        ]
        aiohttp_response._headers = type(aiohttp_response.headers)(CIMultiDict(headers))
        aiohttp_response._cache.pop("headers", None)
        if exchange is not None:
            exchange.record_status(aiohttp_response.status)
        _fail_on_close(aiohttp_response)
        aiohttp_response.content = BoundedContent(
            aiohttp_response.content, is_stream=kind == EVENT_STREAM, exchange=exchange
        )
        return response


def _fail_on_close(response: Any) -> None:
    """Fail a pending read when the connection closes; aiohttp waits forever after broken chunks."""
    content = response.content

    def fail(_: Any) -> None:
        if not content.is_eof() and content.exception() is None:
            content.set_exception(_connection_closed_error())

    if response.connection is not None and (closed_future := response.connection.protocol.closed) is not None:
        closed_future.add_done_callback(fail)


def _connection_closed_error() -> Exception:
    from aiohttp import ClientPayloadError  # noqa: PLC0415 - loaded by the caller

    return ClientPayloadError("the connection was closed before the end of the response")


class BoundedContent:
    """The body of a response, decompressed by aiohttp step by step.

    Args:
        content: aiohttp's reader.
        is_stream: whether it is a stream of events.
        exchange: receives the data; or None.
    """

    def __init__(self, content: Any, *, is_stream: bool, exchange: HttpExchange | None = None) -> None:
        self._content = content
        self._exchange = exchange
        self._meter = ResponseSizeMeter(is_stream=is_stream)
        self._is_stream = is_stream

    def __getattr__(self, name: str) -> Any:
        """Return unguarded attributes of the original."""
        return getattr(self._content, name)

    async def read(self, n: int = -1) -> bytes:
        """Read all, or the available data; a chunk may be longer than requested."""
        if n >= 0:
            return await self.readany()
        return b"".join([chunk async for chunk in self])

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the data as it arrives."""
        parts: list[bytes] = []
        try:
            while chunk := await self.readany():
                parts += () if self._is_stream else (chunk,)
                yield chunk
        except Exception:
            if self._is_stream or received_bytes().exceeded_limit is not None or not is_complete_json(parts):
                raise

    async def readany(self) -> bytes:
        """Read the available data; empty at the end."""
        while raw := await self._read_available():
            if ready := self._meter.feed(raw):
                return self._record_chunk(ready)
        return self._record_chunk(self._meter.flush())

    async def _read_available(self) -> bytes:
        """Read aiohttp's buffer; aiohttp raises an error before it returns the data that arrived before the error."""
        try:
            return await self._content.readany()
        except Exception as error:
            data: bytes = self._content._read_nowait(-1)
            if data:
                return data
            if isinstance(error, RuntimeError):  # aiohttp's for a connection that is closed already
                raise _connection_closed_error() from error
            raise

    def _record_chunk(self, chunk: bytes) -> bytes:
        if self._exchange is not None and chunk:
            self._exchange.record_chunk(chunk)
        return chunk
