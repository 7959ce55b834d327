"""HTTP functions that take a web framework's own request, through an ``azurefunctions-extensions-http-*`` package.

On Azure the worker runs a web server with one route for everything, the host forwards each raw request to
it, and the invocation adds the route parameters (spec section 2.5). Here that web app is called in place:
its ASGI messages cross from the server's event loop to the app's and back, one at a time, so nothing is
buffered, a slow reader slows the function's generator, and a caller who leaves is noticed by it.
"""

import asyncio
import importlib
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from functions_host.app_loader import AppFunction
from functions_host.invoke import Datum

_logger = logging.getLogger(__name__)
_CALL = "functions_host.call"
INACTIVITY_SECONDS = 240.0  # the limit of the Functions host


@dataclass(frozen=True, slots=True)
class StreamingCall:
    """What an invocation carries besides the request: route parameters and durable clients."""

    function: AppFunction
    route_values: Mapping[str, str]
    clients: Sequence[tuple[str, Datum]]


def is_streaming_app() -> bool:
    """Say whether the app that was loaded has imported an HTTP streaming extension."""
    http_v2: Any = importlib.import_module("azure_functions_runtime.http_v2")
    return bool(http_v2.HttpV2Registry.http_v2_enabled())


def make_web_app() -> ASGIApp:
    """Make the extension's web app, whose one route invokes the function that the scope names."""
    http_v2: Any = importlib.import_module("azure_functions_runtime.http_v2")
    base = http_v2.HttpV2Registry.ext_base()
    extension: Any = importlib.import_module(base.ModuleTrackerMeta.get_module())
    synchronizer = base.RequestTrackerMeta.get_synchronizer()

    async def catch_all(request: Any) -> Any:
        call: StreamingCall = request.scope[_CALL]
        synchronizer.sync_route_params(request, call.route_values)
        return await _invoke(call, request)

    # The framework reads its own request class off the annotation; the return value is left to it.
    catch_all.__annotations__ = {"request": base.RequestTrackerMeta.get_request_type()}
    web_app = extension.WebApp()
    web_app.route(catch_all)
    return web_app.get_app()


async def _invoke(call: StreamingCall, request: Any) -> Any:
    """Call the function as the worker library's own ``invocation_request`` does; it raises what the function raises."""
    native: Any = importlib.import_module("azure_functions_runtime.native_invocation")
    executor: Any = importlib.import_module("azure_functions_runtime.utils.executor")
    found = native._functions.get_function(call.function.function_id)  # noqa: SLF001 - the runtime's registry
    invocation_id = request.headers["x-ms-invocation-id"]
    arguments = native._decode_inputs(found, call.clients, {})  # noqa: SLF001 - the classic path's own steps
    context = native._prepare_context(found, invocation_id, arguments)  # noqa: SLF001
    arguments[call.function.parameter] = request
    if not found.is_async:
        threads = native.get_threadpool_executor()
        run = asyncio.get_running_loop().run_in_executor
        return await run(threads, executor.run_sync_func, invocation_id, context, found.func, arguments)
    context.thread_local_storage.invocation_id = invocation_id
    token = executor.invocation_id_cv.set(invocation_id)
    try:
        return await found.func(**arguments)
    finally:
        executor.invocation_id_cv.reset(token)


class LoopBridge:
    """Runs an ASGI app on another event loop, for requests of this one.

    Args:
        app: called on ``loop`` only.
        loop: runs in another thread.
        inactivity_seconds: a request on which nothing moves for this long is given up: 504, or a cut connection.
    """

    def __init__(
        self, app: ASGIApp, loop: asyncio.AbstractEventLoop, inactivity_seconds: float = INACTIVITY_SECONDS
    ) -> None:
        self._app = app
        self._loop = loop
        self._limit = inactivity_seconds

    async def forward(self, call: StreamingCall, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand one request to the app, and its response back as it comes."""
        exchange = _Exchange(asyncio.get_running_loop(), receive, send)
        marked = {**scope, _CALL: call, "headers": [*scope["headers"], _invocation_header()]}
        running = asyncio.run_coroutine_threadsafe(self._run(call, marked, exchange), self._loop)
        answered = asyncio.wrap_future(running)
        try:
            while (left := exchange.last_moved + self._limit - time.monotonic()) > 0:
                if (await asyncio.wait({answered}, timeout=left))[0]:
                    return
        finally:
            running.cancel()  # nothing, when it is done
        _logger.error("Function %r moved nothing for %g s; its request is given up.", call.function.name, self._limit)
        if not exchange.started:
            await send({"type": "http.response.start", "status": 504, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})

    async def _run(self, call: StreamingCall, scope: Scope, exchange: "_Exchange") -> None:
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except Exception:  # the edge: the caller has its 500, or a cut connection; the log has the reason
            _logger.exception("Function %r failed", call.function.name)


class _Exchange:
    """One request's messages between two loops, and when the last of them moved."""

    def __init__(self, loop: asyncio.AbstractEventLoop, receive: Receive, send: Send) -> None:
        self._loop = loop
        self._receive = receive
        self._send = send
        self.started = False
        self.last_moved = time.monotonic()

    async def receive(self) -> Message:
        """Take the next message of the request; called on the app's loop."""
        return await self._there(self._receive)

    async def send(self, message: Message) -> None:
        """Hand a message of the response on; called on the app's loop."""
        self.started = True
        await self._there(lambda: self._send(message))

    async def _there(self, step: Callable[[], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            return await step()

        result = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run(), self._loop))
        self.last_moved = time.monotonic()
        return result


def _invocation_header() -> tuple[bytes, bytes]:
    return b"x-ms-invocation-id", str(uuid.uuid4()).encode()
