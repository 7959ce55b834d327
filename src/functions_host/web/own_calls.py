"""The durable client's calls to its own host, without a connection.

On Azure the client's calls cross from the worker's process to the host's, over HTTP. Here both are one process, and
most of such a call's time went into connections, parsers and buffers. So the SDK's three functions that make requests
hand those to this host to its router on the host's loop, without the checks of what comes from outside; other
requests, and those of other clients, go over the network as ever. An SDK without these functions keeps its own way.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

from starlette.types import ASGIApp, Message
from yarl import URL

_CLIENT = "azure.durable_functions.models.DurableOrchestrationClient"
_METHODS = {"get_async_request": "GET", "post_async_request": "POST", "delete_async_request": "DELETE"}

Request = Callable[..., Awaitable[list[Any]]]
"""A function of the SDK that makes a request: returns the status and the parsed body."""


class OwnCalls:
    """Answers the durable client's calls to one host, while it is open; a process may have several hosts.

    Args:
        origin: scheme and authority of the host, as in the client's binding.
        app: the host's ASGI app; called on the running loop only.
    """

    _open: ClassVar[dict[str, "OwnCalls"]] = {}

    def __init__(self, origin: str, app: ASGIApp) -> None:
        self._origin = origin
        self._app = app
        self._loop = asyncio.get_running_loop()
        parts = urlsplit(origin)
        self._scheme = parts.scheme
        self._authority = parts.netloc.encode()
        _intercept()
        self._open[origin] = self

    def close(self) -> None:
        """Leave later calls to the network."""
        self._open.pop(self._origin, None)

    @classmethod
    def find(cls, url: str) -> "OwnCalls | None":
        """Return what answers a call to this URL, None for the network."""
        return cls._open.get(url[: url.find("/", url.find("//") + 2)])

    async def call(self, method: str, url: str, body: bytes | None) -> tuple[int, Any]:
        """Make a call; callable from any loop.

        Returns:
            The status and the parsed body, None when it is empty.
        """
        answer = asyncio.run_coroutine_threadsafe(self._answer(method, url, body), self._loop)
        status, text = await asyncio.wrap_future(answer)
        return status, json.loads(text) if text.strip() else None

    async def _answer(self, method: str, url: str, body: bytes | None) -> tuple[int, bytes]:
        status = 0
        parts = list[bytes]()
        has_sent_body = False

        async def receive() -> Message:
            nonlocal has_sent_body
            if has_sent_body:
                await asyncio.get_running_loop().create_future()  # the caller stays
            has_sent_body = True
            return {"type": "http.request", "body": body or b""}

        async def send(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            parts.append(message.get("body", b""))

        await self._app(self._scope(method, url), receive, send)
        return status, b"".join(parts)

    def _scope(self, method: str, url: str) -> dict[str, Any]:
        raw_path, _, query = URL(url).raw_path_qs.partition("?")  # escaped as the SDK's HTTP client does
        return {
            "type": "http",
            "method": method,
            "scheme": self._scheme,
            "path": unquote(raw_path),
            "raw_path": raw_path.encode(),
            "query_string": query.encode(),
            "headers": [(b"host", self._authority), (b"content-type", b"application/json")],
        }


def _intercept() -> None:
    """Have the SDK's functions look for a host of this process first.

    An app without durable functions has not loaded the SDK, which takes two seconds, and does not get it from here; one
    that loads it later makes its calls over the network.
    """
    client: Any = sys.modules.get(_CLIENT)
    if client is None:
        return
    for name, method in _METHODS.items():
        request = getattr(client, name, None)
        if request is not None and not isinstance(request, partial):
            setattr(client, name, partial(_request, method, request))


async def _request(method: str, over_network: Request, url: str, *args: Any, **kwargs: Any) -> list[Any]:
    own_calls = OwnCalls.find(url)
    if own_calls is None:
        return await over_network(url, *args, **kwargs)
    data: Any = (args[0] if args else kwargs.get("data")) if method == "POST" else None
    status, response_body = await own_calls.call(method, url, None if data is None else json.dumps(data).encode())
    return [status, "" if response_body is None and method == "GET" else response_body]
