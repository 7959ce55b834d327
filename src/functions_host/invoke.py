"""Call the app's functions through the worker library's native entry.

``async`` functions run on an event loop of their own in a second thread, so that one that blocks does
not stall the host's loop; sync functions, orchestrators and entities among them, go from the host's
loop straight to the library's thread pool: one hop each.
"""

import asyncio
import importlib
import logging
import os
import threading
import traceback
import uuid
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from functions_host.app_loader import AppFunction
from functions_host.durable_client import encode_client_binding
from functions_host.engine.decide import Catalog
from functions_host.engine.functions import Raised, Returned
from functions_host.engine.sdk_wire import HTTP_ACTIVITY
from functions_host.http_activity import run_http_activity

_WORKER_LOGGER = logging.getLogger("azure.functions")


@dataclass(slots=True)
class _Failure:
    error: BaseException | None = None


_current_failure: ContextVar[_Failure | None] = ContextVar("current_failure", default=None)


class _FailureFilter(logging.Filter):
    """Takes the exception from the library's log record: its return value carries only the ``repr``."""

    def filter(self, record: logging.LogRecord) -> bool:
        failure = _current_failure.get()
        if failure is None or record.exc_info is None or record.exc_info[1] is None:
            return True
        failure.error = record.exc_info[1]
        return False


@dataclass(frozen=True, slots=True)
class Datum:
    """A typed value as the library's converters read it."""

    value: Any
    type: str | None


@dataclass(frozen=True, slots=True)
class Invocation:
    """What a function answered: its return value as the library encoded it, or how it failed."""

    returned: Any = None
    raised: Raised | None = None


@dataclass(slots=True)
class Invoker:
    """Runs functions of one app; start and stop it around use."""

    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _thread: threading.Thread | None = None
    _native: Any = None

    def start(self, sync_threads: int) -> None:
        """Start the thread pool and the app's loop.

        Args:
            sync_threads: size of the pool when ``PYTHON_THREADPOOL_THREAD_COUNT`` does not set it; enough
                for every function that may run at once, so that slow entities do not starve orchestrators.
        """
        threadpool: Any = importlib.import_module("azure_functions_runtime.utils.threadpool")
        is_set = "PYTHON_THREADPOOL_THREAD_COUNT" in os.environ
        os.environ.setdefault("PYTHON_THREADPOOL_THREAD_COUNT", str(sync_threads))
        threadpool.start_threadpool_executor()
        if not is_set:
            del os.environ["PYTHON_THREADPOOL_THREAD_COUNT"]
        self._native = importlib.import_module("azure_functions_runtime.native_invocation")
        _WORKER_LOGGER.addFilter(_FailureFilter())
        self._thread = threading.Thread(target=self._run_loop, name="app-loop", daemon=True)
        self._thread.start()

    def wrap_handle(self, function: AppFunction, wrap: Any) -> None:
        """Put something around what the library calls for a function."""
        registry: Any = importlib.import_module("azure_functions_runtime.handle_event")._functions._functions  # noqa: SLF001 - the runtime's registry
        found = registry[function.function_id]
        registry[function.function_id] = found._replace(func=wrap(found.func))

    def stop(self) -> None:
        """Let the app's loop end; running functions are abandoned."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def invoke(self, function: AppFunction, inputs: Sequence[tuple[str, Datum]]) -> Invocation:
        """Call a function and wait for its answer; what it raises is returned, not raised."""
        call = self._invoke_here(function, inputs)
        return await (self._on_app_loop(call) if function.is_async else call)

    async def _on_app_loop(self, call: Coroutine[Any, Any, Invocation]) -> Invocation:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))

    async def _invoke_here(self, function: AppFunction, inputs: Sequence[tuple[str, Datum]]) -> Invocation:
        failure = _Failure()
        token = _current_failure.set(failure)
        try:
            ok, returned, _, text, trace = await self._native.invocation_request_native(
                uuid.uuid4().hex, function.function_id, inputs, {}
            )
        except SystemExit as error:  # of the function, not of the host
            return Invocation(raised=Raised("SystemExit", str(error)))
        finally:
            _current_failure.reset(token)
        if ok:
            return Invocation(returned=returned)
        return Invocation(raised=_describe_failure(failure.error, text, trace))


def _describe_failure(error: BaseException | None, text: str, trace: str) -> Raised:
    if error is None:
        return Raised("Exception", text, trace)
    return Raised(type(error).__name__, str(error), trace or "".join(traceback.format_exception(error)))


def client_inputs(function: AppFunction, origin: str, rpc_origin: str, hub_name: str) -> list[tuple[str, Datum]]:
    """Make the values of a function's durable client parameters.

    Args:
        function: whose parameters.
        origin: scheme and authority under which callers see the host.
        rpc_origin: the same for the app's own calls.
        hub_name: the task hub of bindings that name none.

    Returns:
        Parameter names and values.
    """
    return [
        (
            client.parameter,
            Datum(
                encode_client_binding(origin, rpc_origin, client.task_hub or hub_name, client.connection),
                "string",
            ),
        )
        for client in function.clients
    ]
