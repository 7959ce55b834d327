"""Read request bodies once the caller is known, and no further than the limit."""

from collections.abc import AsyncIterator, Callable, Mapping

from durable_agent_host.errors import RequestTooLargeError
from durable_agent_host.http.bodies import BodyLimit, media_type_of


async def read_body(
    headers: Mapping[str, str], stream: AsyncIterator[bytes], limit: BodyLimit, count: Callable[[int], None]
) -> bytes:
    """Read a body.

    Args:
        headers: of the request.
        stream: the body's pieces; not started when the limit is 0.
        limit: of the body.
        count: is told the size of each piece; see `durable_agent_host.http.rates.ArrivingBodies`.

    Raises:
        BodiesTooLargeError: the caller's bodies that are arriving are too large together.
        RequestTooLargeError: the body exceeds the limit; at most the limit was read.
        ClientDisconnect: the client disconnected.
    """
    max_bytes, setting = limit.of(media_type_of(headers))
    if max_bytes == 0:
        return b""
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(f"{int(declared)} bytes", max_bytes, setting)
    body = bytearray()
    async for chunk in stream:
        count(len(chunk))
        body += chunk
        if len(body) > max_bytes:
            raise _too_large(f"more than {max_bytes} bytes", max_bytes, setting)
    return bytes(body)


def _too_large(size: str, max_bytes: int, setting: str) -> RequestTooLargeError:
    return RequestTooLargeError(f"the body has {size}, and {max_bytes} are allowed: send less, or raise {setting}")
