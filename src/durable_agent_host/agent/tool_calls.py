"""Function middleware around every tool call of a turn: finished calls come from the journal, others leave an intent.

It is the outermost function middleware: it journals what the model receives, and nothing of a finished call runs
again, including the app's own middleware; its changes to the session's state are restored. It also decides whether a
person must approve: the framework sees no tool that needs approval (`tool_wrappers` makes views of them), so the other
calls of a batch run immediately.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, cast

from agent_framework import (
    Content,
    FunctionInvocationContext,
    FunctionMiddleware,
    FunctionTool,
    MiddlewareFailure,
    MiddlewareTermination,
)
from agent_framework.exceptions import UserInputRequiredException

from durable_agent_host.agent.agent_run import AgentRun
from durable_agent_host.agent.mcp_servers import DID_NOT_RUN, UNKNOWN, ConnectionLostError, UnreachableError
from durable_agent_host.agent.nested_agents import NestedAgents, log_tool_failure
from durable_agent_host.agent.observer import ToolCallCompleted, ToolCallStarted
from durable_agent_host.agent.response_limits import is_larger
from durable_agent_host.agent.run_result import AwaitingApproval, RunStoppedError, stop_of
from durable_agent_host.agent.tool_wrappers import in_doubt_policy, needs_approval, plain_arguments, without_approvals
from durable_agent_host.codec.content import decode_content, encode_content
from durable_agent_host.codec.journal_entry import decode_tool_result, encode_tool_result, tool_result_text
from durable_agent_host.errors import CorruptStateError, LogError, TurnError, locate_error
from durable_agent_host.model.journal_entry import ToolCallCompletedEntry, ToolKey
from durable_agent_host.tool_calls import APPROVED_BY, INNER_KEYS, RUNNING_CALL, InnerKeys, ToolCall
from durable_agent_host.turn_log.journal import RecordedTool


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


_LOGGER = logging.getLogger(__name__)
CallNext = Callable[[], Awaitable[None]]

DENIED: Final = "Error: Tool call invocation was rejected by user."
"""The framework's own words."""


_STOPPED: Final = (
    "Error: The agent was stopped before its work was done, because a budget was used up and a person had to be "
    "asked; what it has done until then may have taken effect."
)
_FAILED: Final = "Error: Function failed."
_NO_RESULT: Final = "Error: The call was cut and has no result; it is safe to make it again: "
_BAD_ARGUMENTS: Final = "Error: Argument parsing failed."
_MOST_LOSSES: Final = 3
"""How often the connection may end within one call before its outcome is given up."""


class ToolFailedError(TurnError):
    """A tool raised; the model learns that it failed, the log says why."""


class ToolCrashedError(TurnError):
    """A tool raised what would end the process, such as `SystemExit`; the model learns that it failed."""


@dataclass(frozen=True)
class _Decision:
    """What to do with a call.

    Attributes:
        outcome: ``run``, ``wait`` for a person, ``denied`` or ``unknown``.
        result: what the model receives instead of a result.
        arguments: a person's replacement for the model's, or None.
    """

    outcome: str
    result: str = ""
    arguments: Mapping[str, Any] | None = None


_POLICY_TEXTS: Final[Mapping[str, str]] = {
    "fail": "the model is told that its outcome is not known",
    "ask": "a person decides whether it is run again",
}
_CHANGED: Final = "an approver has changed the arguments, and somebody else must approve them"
_RUN: Final = _Decision("run")
_WAIT: Final = _Decision("wait")


class ToolCallMiddleware(FunctionMiddleware):
    """Journals the tool calls of one run.

    Args:
        run: whose calls they are.
        inner: bounds tools that are agents.
        includes_error_texts: whether the model receives the texts of exceptions; otherwise only the log has them.
    """

    def __init__(self, run: AgentRun, inner: NestedAgents, *, includes_error_texts: bool = False) -> None:
        self._run = run
        self._inner = inner
        self._includes_error_texts = includes_error_texts

    async def process(self, context: FunctionInvocationContext, call_next: CallNext) -> None:
        """Answer a call from the journal, leave it to a person, or run the tool and journal its result.

        Raises:
            RunStoppedError: the run is no longer wanted, or its log cannot be written.
        """
        self._run.gate.raise_if_stopped()
        key, recorded_call = self._run.journal.next_tool_call(str(context.metadata["call_id"]))
        if recorded_call.finished is not None:
            self._run.session_state.restore(key)
            await self._notify_replay(context, key, recorded_call)
            _replay(context, recorded_call.finished)
            return
        try:
            self._run.gate.raise_if_cancelled()
            await self._process_open(context, call_next, key, recorded_call)
        except LogError as error:
            raise RunStoppedError(stop_of(error)) from error
        finally:
            if context.tools is not None:
                context.tools[:] = without_approvals(self._inner.tools(context.tools))  # a tool can add tools

    async def _process_open(
        self, context: FunctionInvocationContext, call_next: CallNext, key: ToolKey, recorded_call: RecordedTool
    ) -> None:
        argument_error = self._run.progress.unreadable.get((key.position, key.call_id))
        if argument_error is not None:
            await self._end(context, key, "invalid_arguments", argument_error)
            return
        arguments = plain_arguments(context.arguments)
        decision = await self._decide(context.function, key, recorded_call, arguments)
        if decision.outcome == "wait":
            context.result = "waits for a person"
            return
        if decision.outcome != "run":
            await self._end(context, key, decision.outcome, decision.result)
            return
        if decision.arguments is not None:
            context.arguments = arguments = dict(decision.arguments)
        account = self._run.budget_account
        if account is not None and not await account.admit_tool_call(self._run.approvals.ask_for_budget):
            context.result = "waits for its budget"
            return
        name = context.function.name
        attempt = recorded_call.starts + 1
        await self._run.observers.notify(ToolCallStarted(key.call_id, name, arguments, attempt, replayed=False))
        await self._run.journal.tool_started(key, name, arguments)
        call = ToolCall(
            call_id=key.call_id,
            name=name,
            turn_id=self._run.turn_id,
            idempotency_key=self._run.journal.idempotency_key(key),
            attempt=attempt,
            cancelled=self._run.gate.gave_up,
        )
        token = RUNNING_CALL.set(call)
        inner_token = INNER_KEYS.set(InnerKeys(call))
        try:
            await self._run_tool(context, call_next, key, changed_arguments=decision.arguments)
        except RunStoppedError as stop_error:
            if not isinstance(stop_error.stop, AwaitingApproval):
                raise
            await self._end(context, key, "stopped", _STOPPED)  # at a budget; the turn waits before its next call
        except (ConnectionLostError, UnreachableError) as error:
            _LOGGER.warning("%s: tool %s failed (call %s): %s", self._run.label, name, key.call_id, error)
            await self._go_without_server(context, call_next, key, error, attempt)
        finally:
            RUNNING_CALL.reset(token)
            INNER_KEYS.reset(inner_token)

    async def _go_without_server(
        self, context: FunctionInvocationContext, call_next: CallNext, key: ToolKey, error: TurnError, attempt: int
    ) -> None:
        """End a call that did not reach its MCP server, and decide again about one whose connection was lost."""
        if isinstance(error, UnreachableError) and attempt == 1:
            await self._end(context, key, "unreachable", f"{DID_NOT_RUN}{error}")
        elif isinstance(error, UnreachableError) and in_doubt_policy(context.function) == "retry":
            await self._end(context, key, "unreachable", f"{_NO_RESULT}{error}")
        elif isinstance(error, UnreachableError) or attempt >= _MOST_LOSSES:
            await self._end(context, key, "unknown", UNKNOWN)
        else:
            await self._process_open(context, call_next, key, RecordedTool(attempt))

    async def _decide(
        self, tool: FunctionTool, key: ToolKey, recorded_call: RecordedTool, arguments: Mapping[str, Any]
    ) -> _Decision:
        decision = _RUN
        questions = 0
        if needs_approval(tool):
            decision = await self._ask(tool, key, 0, arguments, "the tool needs approval", _Decision("denied", DENIED))
            questions = 1
        if recorded_call.starts == 0 or decision.outcome != "run":
            return decision
        policy = in_doubt_policy(tool)
        _LOGGER.warning(
            "%s: call %s of tool %s was running when its process or connection ended, so it is in doubt: %s",
            self._run.label,
            key.call_id,
            tool.name,
            _POLICY_TEXTS.get(policy, "it is run again"),
        )
        if policy == "fail":
            return _Decision("unknown", UNKNOWN)
        if policy == "ask":
            reason = (
                "the process or a connection ended while the tool was running, so it may or may not have taken "
                "effect: run it again?"
            )
            question_index = questions + recorded_call.starts - 1
            proposed_arguments = arguments if decision.arguments is None else decision.arguments
            repeat_decision = await self._ask(
                tool, key, question_index, proposed_arguments, reason, _Decision("unknown", UNKNOWN)
            )
            return (
                repeat_decision
                if repeat_decision.arguments is not None or repeat_decision.outcome != "run"
                else decision
            )
        return decision

    async def _ask(  # noqa: PLR0917 - one question
        self,
        tool: FunctionTool,
        key: ToolKey,
        question_index: int,
        arguments: Mapping[str, Any],
        reason: str,
        denial: _Decision,
    ) -> _Decision:
        """Look up the answer to a question, or ask it.

        Where the tool says who must approve, arguments that an approver has changed are asked about again.
        """
        approved_by = (tool.additional_properties or {}).get(APPROVED_BY)
        changes = 0
        changed_by = None
        while True:
            question = self._run.approvals.question_id(key, question_index, changes)
            answer = self._run.approvals.decision(question)
            if answer is None:
                whom = {"approved_by": approved_by, "changed_by": changed_by}
                await self._run.approvals.ask(
                    question, key, tool.name, arguments, _CHANGED if changes else reason, **whom
                )
                return _WAIT
            if answer.get("approved") is not True:
                reason_text = f" Reason: {answer['reason']}" if answer.get("reason") else ""
                return _Decision(denial.outcome, denial.result + reason_text)
            changed_arguments = answer.get("arguments")
            if changed_arguments is None or _is_same_value(changed_arguments, arguments):
                return _Decision("run", arguments=arguments if changes else None)
            if approved_by is None:
                return _Decision("run", arguments=changed_arguments)
            arguments = changed_arguments
            changes = changes + 1
            changed_by = answer.get("by")

    async def _run_tool(
        self,
        context: FunctionInvocationContext,
        call_next: CallNext,
        key: ToolKey,
        *,
        changed_arguments: Mapping[str, Any] | None,
    ) -> None:
        try:
            await in_own_task(call_next)
        except (RunStoppedError, MiddlewareFailure, ConnectionLostError, UnreachableError):
            raise
        except asyncio.CancelledError as error:
            if self._run.gate.gave_up.is_set() or (task := asyncio.current_task()) is None or task.cancelling():
                raise
            crash_error = ToolCrashedError("the tool was cancelled by itself")
            await self._fail(key, context.function.name, crash_error)
            raise crash_error from error
        except MiddlewareTermination as error:
            if context.result is None:
                context.result = error.result
            await self._succeed(context, key, "terminated")
            raise
        except UserInputRequiredException as error:
            contents = [encode_content(item) for item in error.contents if isinstance(item, Content)]
            await self._finish(key, context.function.name, "input_required", {"contents": contents})
            raise
        except BaseException as error:
            model_error = self._error_for_model(key, context.function.name, error)
            is_app_error = type(error).__name__ != _ARGUMENT_ERROR  # that is the framework's, before the tool began
            await self._fail(key, context.function.name, model_error, locate_error(error) if is_app_error else None)
            if model_error is error:
                raise
            raise model_error from error
        if changed_arguments is not None:
            context.result = _with_remark(context.result, changed_arguments)
        await self._succeed(context, key)

    async def _succeed(self, context: FunctionInvocationContext, key: ToolKey, outcome: str = "success") -> None:
        if isinstance(context.result, Content) and context.result.type == "function_approval_request":
            return  # the app's middleware asks; the framework ends the turn with the request
        try:
            result = encode_tool_result(context.result) | _carrier(context)
        except (CorruptStateError, RecursionError) as error:
            context.result = f"Error: The tool has run, and its result cannot be stored: {error}"
            result = encode_tool_result(context.result)
        max_bytes = self._run.bounds.max_tool_result_bytes
        if is_larger(result, max_bytes):
            _LOGGER.warning(
                "turn %s: the result of tool %s is larger than %d bytes, and the model is told so (call %s); "
                "DURABLE_AGENT_HOST_MAX_TOOL_RESULT_BYTES sets the limit",
                *(self._run.turn_id, context.function.name, max_bytes, key.call_id),
            )
            context.result = (
                f"Error: The tool has run, and its result is larger than {max_bytes} bytes: ask it for less."
            )
            result = encode_tool_result(context.result)
        await self._finish(key, context.function.name, outcome, result)

    def _error_for_model(self, key: ToolKey, name: str, error: BaseException) -> Exception:
        """Return the error for the framework and the journal, without its text.

        Exception texts go only to the log: a driver quotes its connection string, with the password.
        """
        log_tool_failure(f"turn {self._run.turn_id}: tool {name} failed (call {key.call_id})", error)
        if self._includes_error_texts:
            return error if isinstance(error, Exception) else ToolCrashedError(f"{type(error).__name__}: {error}")
        if type(error).__name__ == _ARGUMENT_ERROR:
            return _framework()._FunctionArgumentValidationError(_BAD_ARGUMENTS)  # noqa: SLF001
        return ToolFailedError(_FAILED)

    async def _fail(
        self, key: ToolKey, name: str, error: BaseException, location: Mapping[str, Any] | None = None
    ) -> None:
        error_json: dict[str, Any] = {"error": type(error).__name__, "message": str(error)}
        if location is not None:
            error_json["raised"] = location
        if type(error).__name__ == _ARGUMENT_ERROR:
            error_json["redacted_message"] = getattr(error, "redacted_message", None)
        await self._finish(key, name, "error", error_json)

    async def _end(self, context: FunctionInvocationContext, key: ToolKey, outcome: str, result: str) -> None:
        """End a call that has no result of the tool's."""
        context.result = result
        await self._finish(key, context.function.name, outcome, encode_tool_result(result))

    async def _finish(self, key: ToolKey, name: str, outcome: str, result: Mapping[str, Any]) -> None:
        result_text = tool_result_text(result)
        await self._run.observers.notify(
            ToolCallCompleted(key.call_id, name, outcome, replayed=False, result=result_text)
        )
        await self._run.journal.tool_finished(key, outcome, result, self._run.session_state.changes())

    async def _notify_replay(
        self, context: FunctionInvocationContext, key: ToolKey, recorded_call: RecordedTool
    ) -> None:
        if recorded_call.finished is None:
            return
        name = context.function.name
        notify = self._run.observers.notify
        if recorded_call.starts:
            await notify(
                ToolCallStarted(
                    key.call_id, name, plain_arguments(context.arguments), recorded_call.starts, replayed=True
                )
            )
        result_text = tool_result_text(recorded_call.finished.result)
        await notify(
            ToolCallCompleted(key.call_id, name, recorded_call.finished.outcome, replayed=True, result=result_text)
        )


def _replay(context: FunctionInvocationContext, finished_call: ToolCallCompletedEntry) -> None:
    """Set a finished call's result, or raise the tool's error again."""
    result = finished_call.result
    if finished_call.outcome == "input_required":
        raise UserInputRequiredException([decode_content(item) for item in result["contents"]])
    if finished_call.outcome == "error":
        raise _rebuild_error(result)
    context.result = decode_tool_result(result)
    if finished_call.outcome == "terminated":
        raise MiddlewareTermination
    if "carrier" in result:
        fields: dict[str, Any] = {
            name: frozenset(cast("list[str]", value)) if isinstance(value, list) else value
            for name, value in result["carrier"].items()
        }
        context.metadata[_CARRIER] = _framework()._FunctionResultCarrier(**fields)  # noqa: SLF001


def _rebuild_error(error_json: Mapping[str, Any]) -> Exception:
    if error_json["error"] == _ARGUMENT_ERROR:
        return _framework()._FunctionArgumentValidationError(  # noqa: SLF001
            error_json["message"], redacted_message=error_json.get("redacted_message")
        )
    return TurnError(error_json["message"])


def _framework() -> Any:
    """Return the framework's module that has what only its own tool loop makes."""
    return import_module("agent_framework._tools")


_ARGUMENT_ERROR: Final = "_FunctionArgumentValidationError"
_CARRIER: Final = "_function_result_carrier"


def _carrier(context: FunctionInvocationContext) -> dict[str, Any]:
    """Read what an MCP tool returns to the app beside its result."""
    carrier = context.metadata.get(_CARRIER)
    if carrier is None:
        return {}
    carrier_fields = cast("dict[str, Any]", vars(carrier))
    fields = {
        name: sorted(cast("frozenset[str]", value)) if isinstance(value, frozenset) else value
        for name, value in carrier_fields.items()
    }
    try:
        return {"carrier": json.loads(json.dumps(fields))}
    except (TypeError, ValueError):
        return {}


def _with_remark(result: Any, arguments: Mapping[str, Any]) -> list[Content]:
    """Add a note for the model that the call ran with changed arguments."""
    remark = f"(Approved with changed arguments: {json.dumps(dict(arguments), ensure_ascii=False)})"
    return [*(Content.from_function_result("", result=result).items or ()), Content.from_text(remark)]


def _is_same_value(left: Any, right: Any) -> bool:
    """Compare JSON by value: ``1`` and ``1.0`` are the same number, ``true`` is none."""
    if isinstance(left, dict) and isinstance(right, dict):
        left_fields = cast("dict[str, Any]", left)
        right_fields = cast("dict[str, Any]", right)
        return left_fields.keys() == right_fields.keys() and all(
            _is_same_value(value, right_fields[name]) for name, value in left_fields.items()
        )
    if isinstance(left, list) and isinstance(right, list):
        left_items = cast("list[Any]", left)
        right_items = cast("list[Any]", right)
        return len(left_items) == len(right_items) and all(map(_is_same_value, left_items, right_items))
    return left == right and isinstance(left, bool) == isinstance(right, bool)
