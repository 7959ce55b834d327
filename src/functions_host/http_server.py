"""The host's HTTP edge: an ASGI app for HTTP triggers and the management API, and the server that runs it."""

import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Generator, Iterable

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from functions_host.app_loader import AppFunction
from functions_host.durable_client import WEBHOOK_PATH
from functions_host.errors import StartupError
from functions_host.http_triggers import read_request, write_response
from functions_host.invoke import Invoker, client_inputs
from functions_host.routing import RouteError, RouteTable

_logger = logging.getLogger(__name__)
_MAX_BODY_BYTES = 104_857_600
_GRACE_SECONDS = 1


class HostApp:
    """The ASGI app: management API under its path, HTTP functions everywhere else."""

    def __init__(
        self,
        functions: Iterable[AppFunction],
        invoker: Invoker,
        manage: Callable[[Request], Awaitable[Response]],
        *,
        route_prefix: str,
        hub_name: str,
        rpc_origin: str,
    ) -> None:
        self._invoker = invoker
        self._manage = manage
        self._hub_name = hub_name
        self._rpc_origin = rpc_origin
        try:
            self._routes = RouteTable(
                (f"{route_prefix}/{function.http.route.lstrip('/')}", function.http.methods, function)
                for function in functions
                if function.http is not None
            )
        except RouteError as error:
            raise StartupError(f"An HTTP function cannot be served: {error}.") from error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path = str(request.scope["path"])
        if path.startswith(WEBHOOK_PATH):
            return await self._manage(request)
        raw_path = request.scope.get("raw_path", path.encode()).decode("latin-1").partition("?")[0]
        found = self._routes.find(request.method, raw_path)
        if found is None:
            return Response(status_code=404)
        function, values = found
        body = await _read_body(request)
        if body is None:
            return Response(status_code=413)
        origin = f"{request.url.scheme}://{request.url.netloc}"
        clients = client_inputs(function, origin, self._rpc_origin, self._hub_name)
        inputs = [(function.parameter, read_request(request, values, body)), *clients]
        result = await self._invoker.invoke(function, inputs)
        if result.raised is not None:
            _logger.error("Function %r failed: %s\n%s", function.name, result.raised.text, result.raised.trace)
            return Response(status_code=500)
        return write_response(result.returned)


async def _read_body(request: Request) -> bytes | None:
    """Read the body; None when it is larger than the Functions host takes."""
    if int(request.headers.get("content-length") or 0) > _MAX_BODY_BYTES:
        return None
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


class HostServer(uvicorn.Server):
    """uvicorn with the host's own signal handling, request log and a short grace for open connections."""

    def __init__(self, app: HostApp, *, log_requests: bool, on_ready: Callable[[], None]) -> None:
        self._on_ready = on_ready
        super().__init__(
            uvicorn.Config(
                app,
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=log_requests,
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
