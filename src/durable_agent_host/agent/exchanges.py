"""What goes over the wire in a model call: the seam between the guards of the SDKs' connections and who keeps it.

The guards (`durable_agent_host.providers.connections`, `bounded_sessions`) tell of each request with a JSON body that
they let out, and of what comes back, decompressed. Headers are never told.
"""

from typing import Any, Final, Protocol

from durable_agent_host.loops.weak_context_var import WeakContextVar


class Exchange(Protocol):
    """One request and its answer."""

    def answered(self, status: int, *, is_stream: bool) -> None:
        """Note the status."""
        ...

    def take(self, piece: bytes) -> None:
        """Note a piece of the answer's body."""
        ...


class Exchanges(Protocol):
    """Takes what is sent in one attempt of a turn."""

    async def sent(self, method: str, url: str, body: bytes) -> Exchange | None:
        """Note a request.

        Args:
            method: HTTP method.
            url: with its query, which may hold a key.
            body: JSON; empty for none.

        Returns:
            What takes the answer; None when nobody wants it.
        """
        ...


EXCHANGES: Final = WeakContextVar[Exchanges]("durable_agent_exchanges")
"""Of the attempt that runs; None when nothing is kept."""


async def sent(method: Any, url: Any, body: Any) -> Exchange | None:
    """Tell of a request, if anybody wants to know.

    Args:
        method: HTTP method.
        url: as the SDK has it.
        body: bytes or text; of other kinds, which are forms and streams, nothing is told.
    """
    exchanges = EXCHANGES.get()
    if exchanges is None:
        return None
    if isinstance(body, str):
        body = body.encode()
    if body is not None and not isinstance(body, bytes):
        return None
    return await exchanges.sent(str(method).upper(), str(url), body or b"")
