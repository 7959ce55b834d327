"""Calls the app's functions through the worker library's native entry.

``async`` functions run on their own event loop in a second thread, so a blocking one does not stall the host's loop.
Sync functions, including orchestrators and entities, run in the library's thread pool. Each call crosses one thread.
"""

import asyncio
import importlib
import logging
import threading
import traceback
import uuid
from collections.abc import Coroutine, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from functions_host.app.bindings import UNSUPPORTED_KIND, unsupported_call_reason, unsupported_outputs_reason
from functions_host.app.client_binding import ClientAddresses, encode_client_binding
from functions_host.app.current_invocation import track_invocation
from functions_host.app.function import AppFunction
from functions_host.engine.durable_functions import TIMEOUT_KIND, Raised

_CLOSE_SECONDS = 5.0
_logger = logging.getLogger(__name__)
_WORKER_LOGGER = logging.getLogger("azure.functions")


@dataclass(slots=True)
class _Failure:
    error: BaseException | None = None


_current_failure: ContextVar[_Failure | None] = ContextVar("current_failure", default=None)


class _FailureFilter(logging.Filter):
    """Takes the exception from the library's log record: the return value has only its ``repr``."""

    def filter(self, record: logging.LogRecord) -> bool:
        failure = _current_failure.get()
        if failure is None or record.exc_info is None or record.exc_info[1] is None:
            return True
        failure.error = record.exc_info[1]
        return False


_FAILURE_FILTER = _FailureFilter()


@dataclass(frozen=True, slots=True)
class Retry:
    """The attempt of an invocation, for functions with a retry policy."""

    count: int
    limit: int


@dataclass(frozen=True, slots=True)
class Datum:
    """A typed value for the library's converters."""

    value: Any
    type: str | None


@dataclass(frozen=True, slots=True)
class Invocation:
    """The result of a function: the return value as the library encoded it, or the failure."""

    return_value: Any = None
    failure: Raised | None = None


@dataclass(slots=True)
class Invoker:
    """Calls the functions of one app, between ``start`` and ``stop``."""

    timeout_seconds: float | None = None
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _thread: threading.Thread | None = None
    _native: Any = None
    _threads: Any = field(default_factory=lambda: importlib.import_module("azure_functions_runtime.utils.threadpool"))

    def start(self) -> None:
        """Start the thread pool and the app's loop."""
        self._threads.start_threadpool_executor()
        self._native = importlib.import_module("azure_functions_runtime.native_invocation")
        _WORKER_LOGGER.addFilter(_FAILURE_FILTER)
        self._thread = threading.Thread(target=self._run_loop, name="app-loop", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the app's loop; running functions are abandoned."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    def close(self) -> None:
        """After ``stop``, wait a few seconds for the app's loop to close; a blocked loop is abandoned."""
        assert self._thread is not None
        self._thread.join(_CLOSE_SECONDS)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._run_until_stopped()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def _run_until_stopped(self) -> None:
        while True:
            try:
                self._loop.run_forever()
            except BaseException:  # asyncio lets `KeyboardInterrupt` and `SystemExit` of a task end its loop
                _logger.exception("a task of the app tried to end the process; the app's other functions go on")
            else:
                return

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The app's event loop, in its own thread."""
        return self._loop

    async def invoke(
        self, function: AppFunction, inputs: Sequence[tuple[str, Datum]], retry: Retry | None = None
    ) -> Invocation:
        """Call a function and wait for its result; exceptions are returned, not raised.

        A function that exceeds ``timeout_seconds`` fails. A sync function cannot be stopped: it occupies its thread
        until it ends.
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
                self._add_thread()
            return Invocation(failure=Raised(TIMEOUT_KIND, message))
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            return Invocation(failure=Raised("CancelledError", str(error) or "the function cancelled itself"))

    def _add_thread(self) -> None:
        """Allow one more thread, in the place of a lost one: a few functions that hang must not stop all others."""
        pool = self._threads.get_threadpool_executor()
        pool._max_workers += 1  # noqa: SLF001 - there is no public way
        pool._adjust_thread_count()  # noqa: SLF001 - for what is already waiting

    async def _on_app_loop(self, call: Coroutine[Any, Any, Invocation]) -> Invocation:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))

    async def _invoke_here(
        self, function: AppFunction, inputs: Sequence[tuple[str, Datum]], retry: Retry | None
    ) -> Invocation:
        if refusal := unsupported_call_reason(function.name, function.bindings):
            return Invocation(failure=Raised(UNSUPPORTED_KIND, refusal))
        failure = _Failure()
        token = _current_failure.set(failure)
        attempt = {} if retry is None else {"retry_count": retry.count, "max_retry_count": retry.limit}
        invocation_id = str(uuid.uuid4())
        track_invocation(invocation_id, function.name)
        try:
            ok, return_value, outputs, text, trace = await self._native.invocation_request_native(
                invocation_id, function.function_id, inputs, {}, **attempt
            )
        except asyncio.CancelledError:
            raise  # `invoke` knows whose it is
        except BaseException as error:  # noqa: BLE001 - of the function, not of the host: the library takes only `Exception`
            return Invocation(failure=_describe_failure(error, "", ""))
        finally:
            _current_failure.reset(token)
        if ok:
            return _read_outputs(function, return_value, dict(outputs))
        return Invocation(failure=_describe_failure(failure.error, text, trace))


def _read_outputs(function: AppFunction, return_value: Any, outputs: dict[str, Any]) -> Invocation:
    """Return the function's response; fails for outputs that no binding would store."""
    names = set(outputs) if return_value is None or return_value.value is None else {*outputs, "$return"}
    if refusal := unsupported_outputs_reason(function.name, function.bindings, names):
        return Invocation(failure=Raised(UNSUPPORTED_KIND, refusal))
    if function.http is None:
        return Invocation(return_value=return_value)
    return Invocation(return_value=outputs.get(function.bindings.http_output or "", return_value))


def _describe_failure(error: BaseException | None, text: str, trace: str) -> Raised:
    if error is None:
        return Raised("Exception", text, trace)
    return Raised(type(error).__name__, _get_message(error), trace or "".join(traceback.format_exception(error)))


def _get_message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:  # noqa: BLE001 - the text of an app's exception is the app's code
        return f"<its text cannot be written: {type(second).__name__}>"


def client_inputs(function: AppFunction, addresses: ClientAddresses) -> list[tuple[str, Datum]]:
    """Return the values of a function's durable client parameters, by parameter name."""
    return [
        (client.parameter, Datum(encode_client_binding(addresses, client.task_hub, client.connection), "string"))
        for client in function.clients
    ]
