"""Large answers: encoded off the event loop and in parts, so that other requests proceed; sent as clients read them.

Theory of operation. A client that does not read must cost the host little, whatever it asked for. So an answer is sent
slice by slice, and between two slices its body belongs to a cache of limited size. If others have displaced it when the
client reads on, it is made again, and must have the same bytes.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Final, cast

import azure.functions as func

from durable_agent_host.codec.strict_json import encode_strict
from durable_agent_host.errors import StateError
from durable_agent_host.loops.aside import aside
from durable_agent_host.loops.giving_way import give_way
from durable_agent_host.segments.cache import MAX_BYTES, PieceCache

SLICE_BYTES: Final = 192 * 1024
BODIES: Final = PieceCache(largest_bytes=MAX_BYTES)
"""Bodies that this process is sending, by their SHA-256."""


async def large_answer(
    count: int, view: Callable[[], Mapping[str, Any]], headers: Mapping[str, str]
) -> func.HttpResponse:
    """Answer 200 with JSON.

    Args:
        count: number of things in it; an answer about few is encoded on the loop.
        view: builds the body; touches nothing that the loop changes at the same time.
        headers: further headers.

    Raises:
        Exception: whatever the view raises.
    """
    text = await aside(count, lambda: _written(view()))
    return func.HttpResponse(text, status_code=int(HTTPStatus.OK), mimetype="application/json", headers=dict(headers))


async def slices_of(body: bytes, again: Callable[[], Awaitable[bytes]]) -> AsyncGenerator[bytes]:
    """Divide a large body into slices; between two of them, only `BODIES` holds it.

    Args:
        body: all of it.
        again: makes it again.

    Returns:
        The slices; they raise `StateError` if what is made again has other bytes.
    """
    digest, size = await _digest(body), len(body)
    BODIES.put(digest, body, size)
    return _slices(digest, size, again)


async def _slices(digest: str, size: int, again: Callable[[], Awaitable[bytes]]) -> AsyncGenerator[bytes]:
    for start in range(0, size, SLICE_BYTES):
        if (body := BODIES.get(digest)) is None:
            body = await again()
            if await _digest(body) != digest:
                raise StateError("what is sent has changed while the client read it: read it again")
            BODIES.put(digest, body, size)
        part = body[start : start + SLICE_BYTES]
        del body
        yield part


async def _digest(body: bytes) -> str:
    return await asyncio.to_thread(lambda: sha256(body).hexdigest())


def _written(value: Any) -> str:
    """Encode JSON as `encode_strict` does, pausing between the parts of its lists."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return f"{{{', '.join([f'{encode_strict(name)}: {_written(one)}' for name, one in members.items()])}}}"
    if not isinstance(value, list):
        return encode_strict(value)
    parts: list[str] = []
    for one in cast("list[Any]", value):
        give_way()
        parts.append(encode_strict(one))
    return f"[{', '.join(parts)}]"
