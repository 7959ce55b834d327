"""Server-sent events as bytes.

Source: the section "Server-sent events" of the HTML standard.
"""

from collections.abc import Mapping
from typing import Any, Final

from durable_agent_host.codec.log_entry import encode_compact

CONTENT_TYPE: Final = "text/event-stream"
RETRY_MILLISECONDS: Final = 1000

STREAM_HEADERS: Final[Mapping[str, str]] = {
    "content-type": f"{CONTENT_TYPE}; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
"""Keeps proxies and browsers from buffering a stream."""

OPENING: Final = f"retry: {RETRY_MILLISECONDS}\n: the events of a turn\n".encode()
"""The first bytes, so that proxies forward the answer; they set how soon a disconnected client reconnects.

No empty line follows them, nor a heartbeat: some clients, httpx-sse and its relatives, read that as an empty event.
"""

HEARTBEAT: Final = b": still here\n"


def encode_event(name: str, data: Mapping[str, Any], offset: int) -> bytes:
    """Encode one event.

    Returns:
        The event with the empty line that ends it.
    """
    return f"id: {offset}\nevent: {name}\ndata: {encode_compact(data)}\n\n".encode()
