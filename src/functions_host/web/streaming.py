"""HTTP functions with a web framework's own request, through an ``azurefunctions-extensions-http-*`` package.

On Azure the worker runs a web server with a catch-all route, the host forwards each raw request to it, and the
invocation adds the route parameters. Here that web app is called directly: its ASGI messages cross
between the server's event loop and the app's. Buffers are small, so a slow reader slows the function's generator, and
the generator notices a disconnected caller.
"""

import asyncio
import importlib
import logging
import uuid
from collections.abc import Mapping, Sequence
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
_AHEAD_BYTES = 64 * 1024


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
    track_invocation(invocation_id, function.name)
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
    """

    def __init__(self, app: ASGIApp, loop: asyncio.AbstractEventLoop) -> None:
        self._app = app
        self._loop = loop

    async def forward(self, call: StreamingCall, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request to the app, and stream its response back."""
        exchange = _Exchange(self._loop, receive, send)
        call_scope = {**scope, _CALL: call, "headers": [*scope["headers"], _invocation_header()]}
        running = asyncio.run_coroutine_threadsafe(self._run(call, call_scope, exchange), self._loop)
        delivery = asyncio.create_task(exchange.deliver())
        try:
            await asyncio.wrap_future(running)
        finally:
            delivery.cancel()

    async def _run(self, call: StreamingCall, scope: Scope, exchange: "_Exchange") -> None:
        try:
            try:
                await self._app(scope, exchange.receive, exchange.send)
            finally:
                await exchange.drain()
        except Exception:  # the edge: the caller has its 500, or a cut connection; the log has the reason
            _logger.exception("Function %r failed", call.function.name)


class _Exchange:
    """One request's messages between two loops.

    A function may be ahead of its caller by `_AHEAD_BYTES`; then it waits. Until then it does not: the framework closes
    a generator of a caller who has left only where the generator itself waits.
    """

    def __init__(self, app_loop: asyncio.AbstractEventLoop, receive: Receive, send: Send) -> None:
        self._app_loop = app_loop
        self._loop = asyncio.get_running_loop()
        self._receive = receive
        self._send = send
        self._messages = asyncio.Queue[Message]()
        self._put = 0  # counted on the app's loop
        self._sent = 0  # counted on the server's loop
        self._error: Exception | None = None
        self._waiter: asyncio.Event | None = None

    async def receive(self) -> Message:
        """Return the next message of the request; called on the app's loop."""

        async def step() -> Message:
            return await self._receive()

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(step(), self._loop))

    async def send(self, message: Message) -> None:
        """Queue a message of the response; called on the app's loop."""
        self._put += _size_of(message)
        self._loop.call_soon_threadsafe(self._messages.put_nowait, message)
        await self._wait(_AHEAD_BYTES)

    async def drain(self) -> None:
        """Wait until all messages are sent; called on the app's loop."""
        await self._wait(0)

    async def _wait(self, max_unsent: int) -> None:
        while self._error is None and self._put - self._sent > max_unsent:
            self._waiter = asyncio.Event()
            if self._put - self._sent > max_unsent:  # the other loop sees the waiter only now
                await self._waiter.wait()
        if self._error is not None:
            raise self._error

    async def deliver(self) -> None:
        """Send what is queued, until it is cancelled; called on the server's loop."""
        while True:
            message = await self._messages.get()
            try:
                await self._send(message)
            except Exception as error:  # noqa: BLE001 - the sender gets it
                self._error = error
            self._sent += _size_of(message)
            if self._waiter is not None:
                self._app_loop.call_soon_threadsafe(self._waiter.set)


def _size_of(message: Message) -> int:
    return 1 + len(message.get("body", b""))


def _invocation_header() -> tuple[bytes, bytes]:
    return b"x-ms-invocation-id", str(uuid.uuid4()).encode()
