"""HTTP functions with a web framework's own request, through an ``azurefunctions-extensions-http-*`` package.

On Azure the worker runs a web server with a catch-all route, the host forwards each raw request to it, and the
invocation adds the route parameters. Here that web app is called directly: its ASGI messages cross
between the server's event loop and the app's, one at a time: a slow reader slows the function's generator, and the
generator notices a disconnected caller.
"""

import asyncio
import importlib
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from functions_host.app.bindings import unsupported_call_reason, unsupported_outputs_reason
from functions_host.app.current_invocation import track_invocation
from functions_host.app.function import AppFunction
from functions_host.app.invoker import Datum

_logger = logging.getLogger(__name__)
_CALL = "functions_host.call"
INACTIVITY_SECONDS = 240.0  # the limit of the Functions host


@dataclass(frozen=True, slots=True)
class StreamingCall:
    """An invocation's data besides the request: route parameters and durable clients."""

    function: AppFunction
    route_values: Mapping[str, str]
    clients: Sequence[tuple[str, Datum]]


def is_streaming_app() -> bool:
    """Return whether the loaded app has imported an HTTP streaming extension."""
    http_v2: Any = importlib.import_module("azure_functions_runtime.http_v2")
    return bool(http_v2.HttpV2Registry.http_v2_enabled())


def make_web_app() -> ASGIApp:
    """Make the extension's web app; its one route invokes the function in the ASGI scope."""
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
    """Call the function as the worker library's ``invocation_request`` does; exceptions of the function propagate."""
    function = call.function
    if refusal := unsupported_call_reason(function.name, function.bindings):
        return _reject(refusal)
    native: Any = importlib.import_module("azure_functions_runtime.native_invocation")
    found = native._functions.get_function(function.function_id)  # noqa: SLF001 - the runtime's registry
    invocation_id = request.headers["x-ms-invocation-id"]
    arguments = native._decode_inputs(found, call.clients, {})  # noqa: SLF001 - the classic path's own steps
    context = native._prepare_context(found, invocation_id, arguments)  # noqa: SLF001
    arguments[function.parameter] = request
    with track_invocation(invocation_id, function.name):
        answer = await _call(found, invocation_id, context, arguments)
    outputs = {name: arguments[name].get() for name in found.output_types}
    is_set = {name for name, value in outputs.items() if value is not None}
    if refusal := unsupported_outputs_reason(function.name, function.bindings, is_set):
        return _reject(refusal)
    return outputs.get(function.bindings.http_output or "", answer)


async def _call(found: Any, invocation_id: str, context: Any, arguments: dict[str, Any]) -> Any:
    executor: Any = importlib.import_module("azure_functions_runtime.utils.executor")
    if not found.is_async:
        threads: Any = importlib.import_module("azure_functions_runtime.utils.threadpool").get_threadpool_executor()
        run = asyncio.get_running_loop().run_in_executor
        return await run(threads, executor.run_sync_func, invocation_id, context, found.func, arguments)
    context.thread_local_storage.invocation_id = invocation_id
    token = executor.invocation_id_cv.set(invocation_id)
    try:
        return await found.func(**arguments)
    finally:
        executor.invocation_id_cv.reset(token)


def _reject(sentence: str) -> Response:
    _logger.error("%s", sentence)
    return PlainTextResponse(f"{sentence}\n", 500)


class LoopBridge:
    """Runs an ASGI app on another event loop, for requests of this one.

    Args:
        app: called on ``loop`` only.
        loop: runs in another thread.
        inactivity_seconds: timeout of a request without any progress: 504, or a closed connection.
    """

    def __init__(
        self, app: ASGIApp, loop: asyncio.AbstractEventLoop, inactivity_seconds: float = INACTIVITY_SECONDS
    ) -> None:
        self._app = app
        self._loop = loop
        self._limit = inactivity_seconds

    async def forward(self, call: StreamingCall, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request to the app, and stream its response back."""
        exchange = _Exchange(receive, send)
        call_scope = {**scope, _CALL: call, "headers": [*scope["headers"], _invocation_header()]}
        running = asyncio.run_coroutine_threadsafe(self._run(call, call_scope, exchange), self._loop)
        exchange_future = asyncio.wrap_future(running)
        try:
            while (left := exchange.last_moved + self._limit - time.monotonic()) > 0:
                if (await asyncio.wait({exchange_future}, timeout=left))[0]:
                    return
        finally:
            running.cancel()  # nothing, when it is done
        _logger.error("Function %r moved nothing for %g s; its request is given up.", call.function.name, self._limit)
        if not exchange.has_started:
            await send({"type": "http.response.start", "status": 504, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})

    async def _run(self, call: StreamingCall, scope: Scope, exchange: "_Exchange") -> None:
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except Exception:  # the edge: the caller has its 500, or a cut connection; the log has the reason
            _logger.exception("Function %r failed", call.function.name)


class _Exchange:
    """One request's messages between two loops, and the time of the last one; a sender waits for its caller."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self.has_started = False
        self.last_moved = time.monotonic()
        self._loop = asyncio.get_running_loop()
        self._receive = receive
        self._send = send

    async def receive(self) -> Message:
        """Return the next message of the request; called on the app's loop."""
        return await self._cross(self._receive)

    async def send(self, message: Message) -> None:
        """Send a message of the response; called on the app's loop."""
        self.has_started = True
        await self._cross(lambda: self._send(message))

    async def _cross[Result](self, step: Callable[[], Awaitable[Result]]) -> Result:
        async def run() -> Result:
            return await step()

        result = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run(), self._loop))
        self.last_moved = time.monotonic()
        return result


def _invocation_header() -> tuple[bytes, bytes]:
    return b"x-ms-invocation-id", str(uuid.uuid4()).encode()
