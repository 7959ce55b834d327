"""The host's HTTP edge: an ASGI app for HTTP triggers and the management API, and the server that runs it."""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from functions_host.admin_api import ADMIN_PATH
from functions_host.app_loader import AppFunction
from functions_host.durable_client import MCP_PATH, WEBHOOK_PATH, ClientAddresses
from functions_host.errors import StartupError
from functions_host.http_streaming import LoopBridge, StreamingCall
from functions_host.http_triggers import read_request, write_response
from functions_host.invoke import Datum, Invoker, client_inputs
from functions_host.keys import Keys
from functions_host.routing import RouteError, RouteTable, compile_template

_logger = logging.getLogger(__name__)
_MAX_BODY_BYTES = 104_857_600
_GRACE_SECONDS = 1
_LONGEST_LINE_BYTES = 64 * 1024
_FRONT_PAGE = "The functions host is up and running.\n"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """What the host itself serves: the management API, what is under ``/admin``, and MCP when the app has tools."""

    manage: Callable[[Request], Awaitable[Response]]
    admin: Callable[[Request], Awaitable[Response]]
    mcp: Callable[[Request], Awaitable[Response]] | None = None


class HostApp:
    """The ASGI app: the host's own endpoints under their paths, HTTP functions everywhere else.

    Args:
        functions: of the app.
        invoker: calls them.
        endpoints: of the host.
        addresses: under which the app's durable clients reach the host.
        route_prefix: stands before every route.
        streaming: runs HTTP functions that take a web framework's request; None when the app has none.
        keys: are asked for when given.
    """

    def __init__(
        self,
        functions: Iterable[AppFunction],
        invoker: Invoker,
        endpoints: Endpoints,
        addresses: ClientAddresses,
        *,
        route_prefix: str,
        streaming: LoopBridge | None = None,
        keys: Keys | None = None,
    ) -> None:
        self._invoker = invoker
        self._endpoints = endpoints
        self._addresses = addresses
        self._streaming = streaming
        self._keys = keys
        self._routes = _make_routes(functions, route_prefix)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        try:
            answer = await self._answer(Request(scope, receive))
        except ClientDisconnect:
            return
        if isinstance(answer, StreamingCall):
            assert self._streaming is not None
            await self._streaming.forward(answer, scope, receive, send)
        else:
            await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response | StreamingCall:
        own = self._find_endpoint(request)
        if own is not None:
            return await own(request)
        raw_path = request.scope.get("raw_path", b"").decode("latin-1").partition("?")[0] or request.url.path
        found = self._routes.find(request.method, raw_path)
        if found is None:
            return PlainTextResponse(_FRONT_PAGE) if raw_path == "/" else Response(status_code=404)
        function, values = found
        assert function.http is not None
        if self._keys is not None and not self._keys.open_function(request, function.http.auth_level):
            return Response(status_code=401)
        if int(request.headers.get("content-length") or 0) > _MAX_BODY_BYTES:
            return Response(status_code=413)
        clients = client_inputs(function, self._addresses.seen_by(request))
        if self._streaming is not None:
            return StreamingCall(function, values, clients)
        return await self._invoke(function, request, values, clients)

    def _find_endpoint(self, request: Request) -> Callable[[Request], Awaitable[Response]] | None:
        """Find the host's own endpoint for a request; the app's own calls carry their key in the path."""
        path = str(request.scope["path"])
        own_prefix = self._addresses.own_prefix
        is_own_call = bool(own_prefix) and path.startswith(own_prefix + WEBHOOK_PATH)
        if is_own_call:
            for key in ("path", "raw_path"):
                request.scope[key] = request.scope[key][len(own_prefix) :]
            path = path[len(own_prefix) :]
        if path.lower().startswith(f"{ADMIN_PATH}/"):
            is_open = self._keys is None or self._keys.open_function(request, "ADMIN")
            return self._endpoints.admin if is_open else _refuse
        if path.startswith(WEBHOOK_PATH):
            endpoint = self._endpoints.manage
        elif path.rstrip("/") == MCP_PATH and self._endpoints.mcp is not None:
            endpoint = self._endpoints.mcp
        else:
            return None
        return endpoint if is_own_call or self._keys is None or self._keys.open_system(request) else _refuse

    async def _invoke(
        self,
        function: AppFunction,
        request: Request,
        values: Mapping[str, str],
        clients: Iterable[tuple[str, Datum]],
    ) -> Response:
        body = await _read_body(request)
        if body is None:
            return Response(status_code=413)
        inputs = [(function.parameter, read_request(request, values, body)), *clients]
        result = await self._invoker.invoke(function, inputs)
        if result.raised is not None:
            _logger.error("Function %r failed: %s\n%s", function.name, result.raised.text, result.raised.trace)
            return Response(status_code=500)
        return write_response(result.returned)


async def _refuse(_: Request) -> Response:
    return Response(status_code=401)


def _make_routes(functions: Iterable[AppFunction], prefix: str) -> RouteTable[AppFunction]:
    routes = [
        (f"{prefix}/{function.http.route.lstrip('/')}", function.http.methods, function)
        for function in functions
        if function.http is not None
    ]
    for index, (template, methods, function) in enumerate(routes):
        try:
            compile_template(template)
        except RouteError as error:
            raise StartupError(f"Function {function.name!r} cannot be served: {error}.") from error
        for other_template, other_methods, other in routes[:index]:
            is_shared = not methods or not other_methods or methods & other_methods
            if is_shared and template.strip("/").lower() == other_template.strip("/").lower():
                raise StartupError(
                    f"Functions {other.name!r} and {function.name!r} have the same route {template!r}; change one of "
                    "the routes, or give them different methods."
                )
    return RouteTable(routes)


class RequestLog:
    """Logs one line per request around an ASGI app: method, path without its query, status, milliseconds."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on, and log it once its response has ended."""
        status, begin = 0, time.perf_counter()

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            if scope["type"] == "http":
                path = scope.get("raw_path", b"").decode("latin-1").partition("?")[0] or scope["path"]
                took = (time.perf_counter() - begin) * 1000
                _logger.info("%s %s %s %.1f ms", scope["method"], path, status or "-", took)


async def _read_body(request: Request) -> bytes | None:
    """Read the body; None when it is larger than the Functions host takes."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > _MAX_BODY_BYTES:
            return None
        chunks.append(chunk)
    return b"".join(chunks)


def open_listener(host: str, port: int) -> socket.socket:
    """Take the port before anything is loaded.

    Raises:
        StartupError: the address cannot be taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named, the protocol lets asyncio turn Nagle's algorithm off: it costs 40 ms per answer otherwise.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise StartupError(
            f"Port {port} on {host} cannot be used ({error.strerror}); stop what is using it, or pass another --port "
            "(0 takes a free one)."
        ) from error
    listener.setblocking(False)
    return listener


class HttpConnection(HttpToolsProtocol):
    """A connection of a client, whichever version of HTTP/1 it speaks. Arguments are those that uvicorn gives.

    HTTP/1.0 knows no chunks: an answer of unknown length ends with its connection. uvicorn's fast parser sends chunks
    all the same, which RFC 9112 forbids (section 6.1), and its slow one does not. So a connection whose first line
    says HTTP/1.0 is handed to that one.
    """

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], **more: Any) -> None:
        super().__init__(config, server_state, app_state, **more)
        self._make_slow = lambda: H11Protocol(config, server_state, app_state, **more)
        self._begin: bytes | None = b""

    def data_received(self, data: bytes) -> None:
        """Take bytes; those of the first line wait until it is whole."""
        if self._begin is None:
            super().data_received(data)
            return
        begin = self._begin + data
        line, end, _ = begin.partition(b"\n")
        if not end and len(begin) < _LONGEST_LINE_BYTES:
            self._begin = begin
            return
        self._begin = None
        if line.rstrip().endswith(b" HTTP/1.0"):
            self._hand_over(self.transport, begin)
        else:
            super().data_received(begin)

    def _hand_over(self, transport: asyncio.Transport, begin: bytes) -> None:
        self.connections.discard(self)
        slow = self._make_slow()
        transport.set_protocol(slow)
        slow.connection_made(transport)
        slow.data_received(begin)


class HostServer(uvicorn.Server):
    """uvicorn with the host's own signal handling and a short grace for open connections."""

    def __init__(self, app: ASGIApp, on_ready: Callable[[], None]) -> None:
        self._on_ready = on_ready
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                http=HttpConnection,
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_GRACE_SECONDS,
                timeout_keep_alive=75,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals to the host."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, then say so."""
        await super().startup(sockets=sockets)
        self._on_ready()
