"""The wire traffic of a model call: the interface between the SDK connection guards and its receiver.

The guards (`durable_agent_host.providers.http_client_guards`, `bounded_aiohttp`) report each request with a JSON body
that they send, and the decompressed response. Headers are never reported.
"""

from contextvars import ContextVar
from typing import Any, Final, Protocol


class HttpExchange(Protocol):
    """One request and its answer."""

    def record_status(self, status: int, *, is_stream: bool) -> None:
        """Record the status."""
        ...

    def record_chunk(self, chunk: bytes) -> None:
        """Record a piece of the answer's body."""
        ...


class ExchangeSink(Protocol):
    """Receives what is sent in one attempt of a turn."""

    async def record_request(self, method: str, url: str, body: bytes) -> HttpExchange | None:
        """Note a request.

        Args:
            method: HTTP method.
            url: with its query, which may contain a key.
            body: JSON; empty for none.

        Returns:
            The receiver of the answer; None when it is not wanted.
        """
        ...


EXCHANGES: Final = ContextVar[ExchangeSink | None]("durable_agent_exchanges", default=None)
"""Of the attempt that runs; None when nothing is kept."""


async def record_request(method: Any, url: Any, body: Any) -> HttpExchange | None:
    """Tell of a request, if anybody wants to know."""
    exchanges = EXCHANGES.get()
    if exchanges is None:
        return None
    if isinstance(body, str):
        body = body.encode()
    if body is not None and not isinstance(body, bytes):
        return None
    return await exchanges.record_request(str(method).upper(), str(url), body or b"")
