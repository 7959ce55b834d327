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
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from functions_host.app_loader import AppFunction
from functions_host.durable_client import ClientAddresses, encode_client_binding
from functions_host.engine.functions import TIMEOUT_KIND, Raised

_CLOSE_SECONDS = 5.0
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


_FAILURE_FILTER = _FailureFilter()


@dataclass(frozen=True, slots=True)
class Retry:
    """Which attempt of an invocation this is, for functions with a retry policy."""

    count: int
    limit: int


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

    timeout_seconds: float | None = None
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
        _WORKER_LOGGER.addFilter(_FAILURE_FILTER)
        self._thread = threading.Thread(target=self._run_loop, name="app-loop", daemon=True)
        self._thread.start()

    def wrap_handle(self, function: AppFunction, wrap: Callable[[Any], Any]) -> None:
        """Put something around what the library calls for a function."""
        registry: Any = importlib.import_module("azure_functions_runtime.handle_event")._functions._functions  # noqa: SLF001 - the runtime's registry
        found = registry[function.function_id]
        registry[function.function_id] = found._replace(func=wrap(found.func))

    def stop(self) -> None:
        """Let the app's loop end; running functions are abandoned."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    def close(self) -> None:
        """After ``stop``, wait for the app's loop to be closed; one that a function blocks is left to its fate."""
        assert self._thread is not None
        self._thread.join(_CLOSE_SECONDS)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The app's loop; it runs in a thread of its own."""
        return self._loop

    async def invoke(
        self, function: AppFunction, inputs: Sequence[tuple[str, Datum]], retry: Retry | None = None
    ) -> Invocation:
        """Call a function and wait for its answer; what it raises is returned, not raised.

        A function that takes longer than ``timeout_seconds`` has failed; one that is not ``async`` cannot be
        stopped, and its thread is lost until it ends by itself.
        """
        call = self._invoke_here(function, inputs, retry)
        answer = self._on_app_loop(call) if function.is_async else call
        try:
            return await asyncio.wait_for(answer, self.timeout_seconds)
        except TimeoutError:
            minutes, seconds = divmod(int(self.timeout_seconds or 0), 60)
            limit = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
            message = f"Timeout value of {limit} was exceeded by function: Functions.{function.name}"
            if not function.is_async:
                self._replace_thread()
            return Invocation(raised=Raised(TIMEOUT_KIND, message))

    def _replace_thread(self) -> None:
        """Let the pool start one more thread, for the one that hangs: a few such functions must not stop all others."""
        pool: Any = self._native.get_threadpool_executor()
        pool._max_workers += 1  # noqa: SLF001 - there is no other way to widen a pool
        pool._adjust_thread_count()  # noqa: SLF001 - for what is already waiting

    async def _on_app_loop(self, call: Coroutine[Any, Any, Invocation]) -> Invocation:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))

    async def _invoke_here(
        self, function: AppFunction, inputs: Sequence[tuple[str, Datum]], retry: Retry | None
    ) -> Invocation:
        failure = _Failure()
        token = _current_failure.set(failure)
        attempt = {} if retry is None else {"retry_count": retry.count, "max_retry_count": retry.limit}
        try:
            ok, returned, _, text, trace = await self._native.invocation_request_native(
                uuid.uuid4().hex, function.function_id, inputs, {}, **attempt
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


def client_inputs(function: AppFunction, addresses: ClientAddresses) -> list[tuple[str, Datum]]:
    """Make the values of a function's durable client parameters: their names, and what they are decoded from."""
    return [
        (client.parameter, Datum(encode_client_binding(addresses, client.task_hub, client.connection), "string"))
        for client in function.clients
    ]
