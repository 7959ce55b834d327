"""The HTTP server of the host."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Generator
from http import HTTPStatus

import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from functions_host.errors import StartupError
from functions_host.web.problems import problem

_logger = logging.getLogger(__name__)
_server_logger = logging.getLogger("uvicorn.error")
KEEP_ALIVE_SECONDS = 75
MOST_CONNECTIONS = 2000
HEAD_BYTES = 64 * 1024
_GRACE_SECONDS = 1
_RETRY_AFTER_SECONDS = 5
_LAST_EVENT = f": the host is stopping\nretry: {_RETRY_AFTER_SECONDS * 1000}\n\n".encode()
_LAST_PORT = 65535
_BACKLOG = 2048
_ACCEPTED_AT_ONCE = 64


def open_listener(host: str, port: int) -> socket.socket:
    """Bind the port, before the app is loaded.

    Raises:
        StartupError: the address cannot be bound.
    """
    if not 0 <= port <= _LAST_PORT:
        raise StartupError(f"Port {port} does not exist; pass a --port from 1 to {_LAST_PORT}, or 0 for a free one.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named, the protocol lets asyncio turn Nagle's algorithm off: it costs 40 ms per answer otherwise.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise StartupError(
            f"Port {port} on {host} cannot be used ({error.strerror}); stop what is using it, or pass another --port "
            "(0 takes a free one)."
        ) from error
    listener.setblocking(False)
    return listener


class _StoppingApp:
    """ASGI middleware that answers for a host that stops.

    Requests that come then, and those that are cancelled before their answer begins, get 503; a stream of events that
    is cancelled between two of them ends with the time after which its client tries again.

    Attributes:
        is_stopping: whether the host accepts no more requests.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.is_stopping = False
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request, or answer it."""
        if self.is_stopping and scope["type"] == "http":
            await _stopping_response()(scope, receive, send)
            return
        has_started = is_stream = is_between_events = False

        async def watch(message: Message) -> None:
            nonlocal has_started, is_stream, is_between_events
            if not has_started:
                has_started = True
                types = (value for name, value in message["headers"] if name.lower() == b"content-type")
                is_stream = next(types, b"").startswith(b"text/event-stream")
            body = message.get("body", b"\n\n")
            is_between_events = is_stream and body.endswith(b"\n\n") and message.get("more_body") is not False
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except asyncio.CancelledError:
            if not has_started:
                await _stopping_response()(scope, receive, send)
            elif is_between_events:
                await send({"type": "http.response.body", "body": _LAST_EVENT})


def _stopping_response() -> Response:
    response = problem(HTTPStatus.SERVICE_UNAVAILABLE, "The host is stopping; try again once it runs.")
    response.headers.update({"retry-after": str(_RETRY_AFTER_SECONDS), "connection": "close"})
    return response


class HostServer(uvicorn.Server):
    """uvicorn with the host's signal handling and a short grace period for open connections."""

    def __init__(self, app: ASGIApp, on_ready: Callable[[], None]) -> None:
        self._on_ready = on_ready
        self._app = _StoppingApp(app)
        super().__init__(
            uvicorn.Config(
                self._app,
                lifespan="off",
                http="h11",
                h11_max_incomplete_event_size=HEAD_BYTES,
                limit_concurrency=MOST_CONNECTIONS,
                backlog=_ACCEPTED_AT_ONCE,
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_GRACE_SECONDS,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
            )
        )

    def reject_requests(self) -> None:
        """Answer new requests with 503; those that have begun go on."""
        self._app.is_stopping = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; requests that exceed the grace period are cancelled, without uvicorn's tracebacks."""
        level = _server_logger.level
        _server_logger.setLevel(logging.CRITICAL)
        try:
            await super().shutdown(sockets)
            if cut_off := list(self.server_state.tasks):
                _logger.info("The stop cut off %d requests.", len(cut_off))
                await asyncio.wait(cut_off, timeout=_GRACE_SECONDS)
        finally:
            _server_logger.setLevel(level)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals to the host."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, then call ``on_ready``."""
        await super().startup(sockets=sockets)
        for listener in sockets or ():
            listener.listen(_BACKLOG)  # who waits to be accepted is not turned away
        self._on_ready()
