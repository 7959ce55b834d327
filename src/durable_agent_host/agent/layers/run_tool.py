"""Running a tool: in a task of its own, with its result or its error in a form for the model. The innermost layer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from threading import Event
from typing import Any, Final

from agent_framework import Content, MiddlewareFailure, MiddlewareTermination
from agent_framework.exceptions import UserInputRequiredException

from durable_agent_host.agent.run_result import RunStoppedError
from durable_agent_host.agent.tool_invocation import (
    ConnectionLostError,
    ToolCallEnd,
    ToolInvocation,
    ToolResult,
    UnreachableError,
    WaitingToolCall,
    argument_error,
    encode_carrier,
    encode_error,
    is_argument_error,
    remark_on_arguments,
)
from durable_agent_host.codec.content import encode_content
from durable_agent_host.codec.journal_entry import encode_tool_result
from durable_agent_host.codec.session_blobs import json_bytes_of
from durable_agent_host.errors import CorruptStateError, TurnError, locate_error, strip_error_text
from durable_agent_host.model.journal_entry import ToolOutcome
from durable_agent_host.tool_calls import DeferredCall

_LOGGER = logging.getLogger(__name__)
_LOGGED_CHARACTERS: Final = 4000
_FAILED: Final = "Error: Function failed."
_BAD_ARGUMENTS: Final = "Error: Argument parsing failed."


class ToolFailedError(TurnError):
    """A tool raised; the model learns that it failed, the log says why."""


class ToolCrashedError(TurnError):
    """A tool raised what would end the process, such as `SystemExit`; the model learns that it failed."""


@dataclass(frozen=True)
class RunTool:
    """Runs the tools of one run.

    Attributes:
        label: of the turn, for log lines.
        gave_up: set when the run's results are no longer wanted.
        max_result_bytes: limit on a result.
        includes_error_texts: whether the model receives the texts of exceptions; otherwise only the log has them: a
            driver quotes its connection string, with the password.
    """

    label: str
    gave_up: Event
    max_result_bytes: int
    includes_error_texts: bool

    async def __call__(self, call: ToolInvocation) -> ToolCallEnd:
        """Run a tool; what it raises is its result, but for what stops the run or reports a lost server."""
        value: Any = None

        async def run() -> None:
            nonlocal value
            value = await call.run(call.arguments if call.has_changed_arguments else None)

        try:
            await in_own_task(run)
        except (RunStoppedError, MiddlewareFailure, ConnectionLostError, UnreachableError):
            raise
        except asyncio.CancelledError as error:
            if self.gave_up.is_set() or (task := asyncio.current_task()) is None or task.cancelling():
                raise
            return _failed(ToolCrashedError("the tool was cancelled by itself"), error)
        except MiddlewareTermination as error:
            return self._succeed(call, error.result, "terminated", error)
        except UserInputRequiredException as error:
            contents = [encode_content(item) for item in error.contents if isinstance(item, Content)]
            return ToolResult("input_required", {"contents": contents}, error=error)
        except BaseException as error:  # noqa: BLE001 - a tool may raise anything, and the turn continues
            # the framework refuses arguments before the tool begins: that is raised nowhere in the app
            location = None if is_argument_error(error) else locate_error(error)
            return _failed(self._error_for_model(call, error), error, location)
        return self._succeed(call, value)

    def _succeed(
        self, call: ToolInvocation, value: Any, outcome: ToolOutcome = "success", error: BaseException | None = None
    ) -> ToolCallEnd:
        match value:
            case DeferredCall() as deferral:
                return WaitingToolCall(deferral)
            case [DeferredCall() as deferral]:  # the framework makes a list of it
                return WaitingToolCall(deferral)
            case _:
                pass
        if isinstance(value, Content) and value.type == "function_approval_request":
            # the app's middleware asks; the framework ends the turn with the request
            return WaitingToolCall(value, error)
        if call.has_changed_arguments and error is None:
            value = remark_on_arguments(value, call.arguments)
        try:
            wire = encode_tool_result(value) | encode_carrier(call.metadata)
        except (CorruptStateError, RecursionError) as encoding_error:
            value = f"Error: The tool has run, and its result cannot be stored: {encoding_error}"
            wire = encode_tool_result(value)
        max_bytes = self.max_result_bytes
        if len(json_bytes_of(wire)) > max_bytes:
            _LOGGER.warning(
                "%s: the result of tool %s is larger than %d bytes, and the model is told so (call %s); "
                "DURABLE_AGENT_HOST_MAX_TOOL_RESULT_BYTES sets the limit",
                *(self.label, call.name, max_bytes, call.path.call_id),
            )
            value = f"Error: The tool has run, and its result is larger than {max_bytes} bytes: ask it for less."
            wire = encode_tool_result(value)
        return ToolResult(outcome, wire, value, error)

    def _error_for_model(self, call: ToolInvocation, error: BaseException) -> Exception:
        """Return the error for the framework and the journal."""
        log_tool_failure(f"{self.label}: tool {call.name} failed (call {call.path.call_id})", error)
        if self.includes_error_texts:
            return error if isinstance(error, Exception) else ToolCrashedError(f"{type(error).__name__}: {error}")
        return argument_error(_BAD_ARGUMENTS) if is_argument_error(error) else ToolFailedError(_FAILED)


def _failed(model_error: Exception, error: BaseException, location: Mapping[str, Any] | None = None) -> ToolResult:
    if model_error is not error:
        model_error.__cause__ = error
    wire = encode_error(model_error)
    return ToolResult("error", wire if location is None else wire | {"raised": location}, error=model_error)


def log_tool_failure(subject: str, error: BaseException) -> None:
    """Log what a tool raised, with its traceback; some errors quote whole answers of services.

    Arguments that the model has made up are no error of the app, and raised nowhere in it: they get a line.
    """
    text = f"{type(error).__name__}: {error}"
    more = len(text) - _LOGGED_CHARACTERS
    text = text if more <= 0 else f"{text[:_LOGGED_CHARACTERS]}... ({more:,} characters more)"
    trace = None if is_argument_error(error) else strip_error_text(error)
    _LOGGER.warning("%s: %s", subject, text, exc_info=trace)


async def in_own_task(do: Callable[[], Awaitable[None]]) -> None:
    """Run code in a new task, and wait for its end; cancelling the caller cancels it.

    Within the caller's task, code that cancels its task would cancel the caller. A `GeneratorExit` that it raises in a
    thread would close the caller's coroutines where they wait: asyncio throws what a thread raised into the outermost
    coroutine, and that exception means `close` to it.

    Args:
        do: called once, in the task; has a copy of the caller's context.

    Raises:
        BaseException: what it raises; also `asyncio.CancelledError` when it has cancelled only itself.
    """
    task = asyncio.create_task(_raised_by(do))
    try:
        task_error = await task
    except asyncio.CancelledError:
        if not task.done() or task.cancelled():
            raise
        task_error = task.result()  # it had ended just before: what it did is not to be lost
        if (caller_task := asyncio.current_task()) is not None:
            caller_task.uncancel()
            caller_task.cancel()  # at the next wait
    try:
        if task_error is not None:
            raise task_error
    finally:
        del task_error  # it refers to this frame


async def _raised_by(do: Callable[[], Awaitable[None]]) -> BaseException | None:
    """Run code, and return what it raises: as a task's own exception, some would end the loop or close coroutines."""
    try:
        await do()
    except BaseException as error:  # noqa: BLE001 - the caller raises it
        return error
    return None
