"""Server-sent events as bytes. Pure.

Source: the section "Server-sent events" of the HTML standard.
"""

from collections.abc import Mapping
from typing import Any, Final

from durable_agent_host.codec.log_entry import encode_compact
from durable_agent_host.errors import RequestError

CONTENT_TYPE: Final = "text/event-stream"
RETRY_MILLISECONDS: Final = 1000

STREAM_HEADERS: Final[Mapping[str, str]] = {
    "content-type": f"{CONTENT_TYPE}; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
"""What keeps proxies and browsers from holding a stream back."""

OPENING: Final = f"retry: {RETRY_MILLISECONDS}\n: the events of a turn\n".encode()
"""The first bytes, so that proxies pass the answer on, and how soon a client that was cut off comes back.

No empty line ends them, nor a heartbeat: some clients, httpx-sse and those of its kin, make an empty event of it.
"""

HEARTBEAT: Final = b": still here\n"


def encode_event(name: str, data: Mapping[str, Any], offset: int) -> bytes:
    """Write one event.

    Guarantee: pure.

    Args:
        name: of the event.
        data: what JSON can hold; written as ASCII, so that it has no line break and a lone surrogate survives.
        offset: the client gives it back as ``Last-Event-ID``.

    Returns:
        The event with the empty line that ends it.
    """
    return f"id: {offset}\nevent: {name}\ndata: {encode_compact(data)}\n\n".encode()


def accepts_events(accept: str) -> bool:
    """Tell whether a client wants a stream. Guarantee: pure.

    Args:
        accept: the header, or nothing.

    Returns:
        Whether it names ``text/event-stream`` with a weight above zero; ``*/*`` is no wish for a stream.
    """
    for part in accept.lower().split(","):
        kind, *parameters = (piece.strip() for piece in part.split(";"))
        if kind == CONTENT_TYPE and not any(piece.replace(" ", "") in _REFUSALS for piece in parameters):
            return True
    return False


_REFUSALS: Final = frozenset({"q=0", "q=0.0", "q=0.00", "q=0.000"})


def parse_resume(last_event_id: str | None, after: str | None) -> int | None:
    """Read where a client goes on.

    Guarantee: pure.

    Args:
        last_event_id: the header ``Last-Event-ID``, which browsers send when they come back.
        after: the query parameter, for clients that cannot set the header; the header goes before it.

    Returns:
        The offset of the last event that the client has, or None to begin with the first.

    Raises:
        RequestError: it is no offset.
    """
    for name, text in (("Last-Event-ID", last_event_id), ("after", after)):
        if text is None or not text.strip():
            continue
        if not (text.strip().isascii() and text.strip().isdecimal()) or len(text.strip()) > _MAX_DIGITS:
            raise RequestError(
                f"{name} is {text[:40]!r}: give the id of the last event that you have, a whole number from 0, "
                "or leave it out to get all events"
            )
        return int(text)
    return None


_MAX_DIGITS: Final = 15
