"""The steps of a turn, read from its log: attempts, model calls, tool calls, waits, retries and restarts.

Theory of operation. The log has what the journal needs and what clients received, in order of time. A reader goes over
it once: an entry that opens a step makes a dictionary, the entry that ends it completes the same one, and a further
attempt marks everything still open as having an unknown end. A step lacks what the log lacks: a
process that died has written no reason.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from agent_framework import ChatResponse

from durable_agent_host.codec.content import decode_usage
from durable_agent_host.codec.entity_state import encode_budget_usage
from durable_agent_host.codec.journal_entry import (
    decode_journal_entry,
    decode_model_response,
    tool_result_text,
)
from durable_agent_host.codec.log_entry import format_entry_time
from durable_agent_host.errors import InvalidAnswerError
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.ending import RefusalWire, VisibleStatus, end_of_answer, visible_turn_status
from durable_agent_host.model.journal_entry import (
    DEFERRED,
    FeatureEntry,
    JournaledOutcome,
    JournalStep,
    ModelCallCompletedEntry,
    ModelCallStartedEntry,
    ToolCallCompletedEntry,
    ToolCallStartedEntry,
)
from durable_agent_host.model.log_entry import (
    ATTEMPT,
    ATTEMPT_STARTED,
    EVENT,
    MODEL_FAILED,
    MODEL_SENT,
    OUTCOME,
    POSTPONED,
    RETRIED,
    SUSPENDED,
    LogRecord,
)
from durable_agent_host.model.provider_item import CONTEXT_EDITS
from durable_agent_host.model.turn import Turn, TurnOutcome, TurnStatus
from durable_agent_host.turn import turn_events
from durable_agent_host.turn.budget_checks import usage_of_response
from durable_agent_host.turn.step_types import (
    AttemptStepWire,
    InnerCallStepWire,
    ModelCallStepWire,
    ModelResponseWire,
    RestartStepWire,
    RetryStepWire,
    ShowEntry,
    StepWire,
    StrategyCallStepWire,
    ToolCallStepWire,
    TurnSummaryWire,
    WaitingCallWire,
    WaitStepWire,
)
from durable_agent_host.turn.trace_ids import trace_of
from durable_agent_host.turn.turn_events import UsageWire
from durable_agent_host.turn.turn_report import bounded_name

MAX_TEXT_CHARACTERS: Final = 4000
"""A longer result is cut; the conversation has it in full."""

_MAX_ARGUMENTS: Final = 16_000
"""Maximum characters of the arguments of a call, as JSON."""
_DELTAS: Final = frozenset(name for name, rule in turn_events.EVENTS.items() if rule.is_delta)


class StepReader:
    """Reads the steps of one turn.

    Args:
        turn: its current state, for what the log does not contain.
        feature_views: shows the entries of each feature.
    """

    def __init__(self, turn: Turn, feature_views: Mapping[str, ShowEntry]) -> None:
        self._turn = turn
        self._feature_views = feature_views
        queue: WaitStepWire = {
            "kind": "wait",
            "reason": "queue",
            "began_at": turn.request.created_at or None,
            "ended_at": None,
        }
        self._queue = queue
        self._steps: list[StepWire] = [queue]
        self._attempt: AttemptStepWire | None = None
        self._model: ModelCallStepWire | None = None
        self._wait: WaitStepWire | None = None
        self._tools: dict[CallPath, ToolCallStepWire] = {}
        self._announced_calls: dict[str, ToolCallStepWire] = {}
        self._calls_by_id: dict[str, tuple[str, Any]] = {}
        self._questions: dict[str, Mapping[str, Any]] = {}
        self._model_calls = 0
        self._tool_calls = 0
        self._last_at: str | None = None
        self._sent_at: str | None = None
        self._side_sent_at: str | None = None
        self._of_calls: dict[str, Any] = {}
        self._started_at: str | None = None

    def add(self, record: LogRecord) -> None:
        """Add the next record of the log."""
        data = record.entry.data
        at = format_entry_time(data)
        kind = record.entry.kind
        if kind == MODEL_SENT:
            self._add_request(data, at)
        elif kind == ATTEMPT:
            self._begin_attempt(record.attempt)
        elif kind == EVENT:
            self._add_event(data["event"], data["data"], at)
        elif kind == ATTEMPT_STARTED:
            self._start(at)
        elif kind == RETRIED:
            self._add_retry(data, at)
        elif kind == MODEL_FAILED:
            self._fail_model_call(data, at)
        elif kind in {SUSPENDED, POSTPONED}:
            self._suspend(data, at)
        elif kind == OUTCOME:
            self._end_attempt(cast("TurnStatus", data.get("status")), at)
            self._reject_last_answer(data.get("error") or {})
        elif (step := decode_journal_entry(record.entry)) is not None:
            self._add_journal_step(step, at)
        self._last_at = at or self._last_at

    def steps(self) -> list[StepWire]:
        """Return the steps so far, in the order in which they began; call it once."""
        outcome = self._turn.outcome
        self._show_sent_call()
        if outcome is not None:
            self._interrupt()
            if self._attempt is None and self._turn.replies:  # the log is deleted
                calls = [self._waiting_call(call_id) for call_id in self._turn.replies]
                self._add(WaitStepWire(kind="wait", reason="person", began_at=None, ended_at=None, calls=calls))
            self._steps.append(
                {"kind": "end", "status": _status_of(outcome), "error": outcome.error, "at": outcome.ended_at or None}
            )
        elif self._attempt is not None and self._attempt["ended"] is None:
            self._attempt["ended"] = "running"
        if self._queue["ended_at"] is None and outcome is not None:
            self._queue["ended_at"] = self._started_at or outcome.ended_at or None
        return self._steps

    def _add[S: StepWire](self, step: S) -> S:
        self._steps.append(step)
        return step

    @property
    def _number(self) -> int:
        return self._attempt["number"] if self._attempt is not None else 0

    def _begin_attempt(self, number: int) -> None:
        self._show_sent_call()
        model_call = self._model
        self._interrupt()
        if model_call is not None and model_call.get("background"):  # its service continues it
            model_call["outcome"] = None
            self._model = model_call
        attempt: AttemptStepWire = {
            "kind": "attempt",
            "number": number,
            "began_at": None,
            "ended_at": None,
            "ended": None,
            "found_model_calls": self._model_calls,
            "found_tool_calls": self._tool_calls,
        }
        self._attempt = self._add(attempt)

    def _start(self, at: str | None) -> None:
        """Record that an attempt runs the agent; the turn's waits are over."""
        self._started_at = self._started_at or at
        if self._attempt is not None and self._attempt["began_at"] is None:
            self._attempt["began_at"] = at
        if self._queue["ended_at"] is None:
            self._queue["ended_at"] = at
        if self._wait is not None:
            self._wait["ended_at"] = at
            self._wait = None

    def _end_attempt(self, status: TurnStatus, at: str | None) -> None:
        self._show_sent_call()
        if self._attempt is not None:
            self._attempt["ended"] = status
            self._attempt["ended_at"] = at
        if status == "cancelled":
            for step in (*self._tools.values(), self._model):
                if step and step["outcome"] is None and not step.get("in_doubt"):
                    step["outcome"] = "cancelled"
                    step["ended_at"] = at
            self._model = None
        elif self._model is not None and status in {"completed", "suspended"}:
            self._steps.remove(self._model)  # what agents of a workflow said was no call of its own
            self._model = None

    def _reject_last_answer(self, error: Mapping[str, Any]) -> None:
        """Record why the turn has failed with the model's last answer."""
        if error.get("type") == InvalidAnswerError.__name__:
            for step in reversed(self._steps):
                if step["kind"] == "model_call":
                    step["rejected"] = error["message"]
                    return

    def _interrupt(self) -> None:
        """Mark the end of what is open as unknown: the process died, or another one has taken over."""
        if self._attempt is not None and self._attempt["ended"] is None:
            self._attempt["ended"] = "crashed"
        self._lose_model_call()
        running = [call for call_id, call in self._announced_calls.items() if call_id not in self._questions]
        for step in (*running, *self._tools.values()):
            if step["outcome"] is None:
                step["in_doubt"] = True

    def _lose_model_call(self) -> None:
        self._sent_at = self._side_sent_at = None
        if self._model is not None:
            self._model["outcome"] = "lost"
            self._model = None

    def _show_sent_call(self) -> None:
        """Open a model call of which nothing has arrived yet."""
        if self._sent_at is not None:
            self._open_model_call()
            self._sent_at = None

    def _open_model_call(self) -> ModelCallStepWire:
        if self._model is None:
            step: ModelCallStepWire = {
                "kind": "model_call",
                "position": self._model_calls,
                "attempt": self._number,
                "outcome": None,
                "began_at": self._sent_at or self._last_at,
                "ended_at": None,
                "characters": 0,
            }
            self._model = self._add(step)
        return self._model

    def _add_request(self, data: Mapping[str, Any], at: str | None) -> None:
        """Record when a model call was sent; a call may take several requests."""
        if "number" in data:
            self._side_sent_at = self._side_sent_at or at
        else:
            self._sent_at = self._sent_at or at

    def _add_event(self, name: str, data: Mapping[str, Any], at: str | None) -> None:
        if name == turn_events.TURN_STARTED:
            self._start(at)
        elif name in _DELTAS:
            self._open_model_call()["characters"] += len(str(data.get("text") or ""))
        elif name == turn_events.TOOL_STARTED and "waits" not in data:  # the wait has it
            call_id = str(data["call_id"])
            if call_id not in self._calls_by_id:
                self._open_model_call()
            arguments = data.get("arguments") or self._calls_by_id.get(call_id, ("", None))[1]
            self._announced_calls[call_id] = self._tool(call_id, data["name"], arguments, at, is_hosted=True)
        elif name == turn_events.TOOL_COMPLETED:
            announced_call = self._announced_calls.get(str(data["call_id"]))
            if announced_call is not None and announced_call["outcome"] is None:
                if "arguments" in data:
                    announced_call["arguments"] = _short_arguments(data["arguments"])
                more = {name: data[name] for name in ("files", "approval_request_id") if name in data}
                announced_call |= cast("ToolCallStepWire", more)
                self._finish_tool(announced_call, data["outcome"], str(data.get("result") or ""), at)
        elif name == turn_events.CALL_PENDING:
            self._ask(str(data["call_id"]), data)
        elif name == turn_events.TURN_RESTARTED:
            self._lose_model_call()
            restart: RestartStepWire = {
                "kind": "restart",
                "attempt": self._number,
                "discard_from": data["discard_from"],
                "at": at,
            }
            self._add(restart)

    def _ask(self, call_id: str, question: Mapping[str, Any]) -> None:
        """Record a pending call; one of a tool of the service that the client runs is no call of the service."""
        self._questions[call_id] = question
        if question["kind"] == "client_tool" and call_id in self._announced_calls:
            self._announced_calls[call_id]["runs_in"] = "host"

    def _add_journal_step(self, step: JournalStep, at: str | None) -> None:
        match step:
            case ModelCallCompletedEntry() if step.path.compaction_number is not None:
                strategy_call: StrategyCallStepWire = {
                    "kind": "strategy_call",
                    "position": step.path.position,
                    "attempt": self._number,
                    "at": at,
                    "began_at": self._side_sent_at or at,
                    "ended_at": at,
                    **self._describe_response(decode_model_response(step.response)),
                }
                self._side_sent_at = None
                self._add(strategy_call)
            case ModelCallCompletedEntry() if step.path.is_nested:
                inner_call = self._add_inner_call(str(step.path), at)
                inner_call |= cast("InnerCallStepWire", self._describe_response(decode_model_response(step.response)))
            case ModelCallCompletedEntry():
                self._finish_model_call(step, at)
            case ToolCallStartedEntry():
                self._start_tool(step, at)
            case ToolCallCompletedEntry() if not step.path.is_agent_run:
                self._end_tool(step, at)
            case ModelCallStartedEntry() if not step.path.is_nested:
                self._open_model_call()["background"] = step.continuation is not None
            case FeatureEntry():
                self._show(step, at)
            case _:
                pass

    def _show(self, entry: FeatureEntry, at: str | None) -> None:
        show = self._feature_views.get(entry.feature)
        view = show(entry) if show is not None else None
        if view is None:
            return
        self._of_calls |= view.of_calls
        position = {"position": entry.path.position, "attempt": self._number, "at": at}
        self._add(cast("StepWire", {**view.step, **position}))

    def _finish_model_call(self, step: ModelCallCompletedEntry, at: str | None) -> None:
        response = decode_model_response(step.response)
        call = self._open_model_call()
        self._model = self._sent_at = None
        call["position"] = step.path.position
        call["outcome"] = "completed"
        call["ended_at"] = at
        if step.rejection is not None:
            call["rejected"] = step.rejection.reason
        call |= cast("ModelCallStepWire", {name: value for name, value in self._of_calls.items() if value is not None})
        call |= cast("ModelCallStepWire", self._describe_response(response))
        self._calls_by_id |= {
            content.call_id: (content.name or "", content.arguments)
            for message in response.messages
            for content in message.contents
            if content.type == "function_call" and content.call_id
        }
        self._model_calls += 1

    def _add_inner_call(self, path: str, at: str | None) -> InnerCallStepWire:
        call: InnerCallStepWire = {"kind": "inner_call", "path": path, "attempt": self._number, "at": at}
        return self._add(call)

    def _fail_model_call(self, data: Mapping[str, Any], at: str | None) -> None:
        if "path" in data:
            call = self._add_inner_call(data["path"], at)
            call |= cast("InnerCallStepWire", {"reason": data["reason"], **_describe_failure(data)})
            return
        call = self._open_model_call()
        self._model = self._sent_at = None
        call["position"] = data["position"]
        call["outcome"] = "failed"
        call["reason"] = data["reason"]
        call["ended_at"] = at
        call |= cast("ModelCallStepWire", _describe_failure(data))

    def _tool(self, call_id: str, name: str, arguments: Any, at: str | None, *, is_hosted: bool) -> ToolCallStepWire:
        step: ToolCallStepWire = {
            "kind": "tool_call",
            "call_id": call_id,
            "name": name,
            "arguments": _short_arguments(arguments),
            "runs_in": "service" if is_hosted else "host",
            "attempts": [],
            "outcome": None,
            "result": None,
            "in_doubt": False,
            "began_at": at,
            "ended_at": None,
        }
        return self._add(step)

    def _start_tool(self, entry: ToolCallStartedEntry, at: str | None) -> None:
        step = self._tools.get(entry.path)
        if step is None:
            step = self._announced_calls.pop(entry.path.call_id, None)
            if step is None or step["outcome"] is not None:
                step = self._tool(entry.path.call_id, entry.name, None, at, is_hosted=False)
            self._tools[entry.path] = step
        _locate_tool(step, entry.path)
        step["arguments"] = _short_arguments(entry.arguments)
        step["attempts"].append({"attempt": self._number, "at": at})

    def _end_tool(self, entry: ToolCallCompletedEntry, at: str | None) -> None:
        step = self._tools.get(entry.path) or self._announced_calls.pop(entry.path.call_id, None)
        if step is None:
            name, arguments = self._calls_by_id.get(entry.path.call_id, ("", None))
            step = self._tool(entry.path.call_id, name, arguments, at, is_hosted=False)
        self._tools[entry.path] = step
        _locate_tool(step, entry.path)
        self._finish_tool(step, entry.outcome, tool_result_text(entry.result), at)
        if (exception_json := entry.result.get("raised")) is not None:
            step["raised"] = exception_json
        if entry.outcome != DEFERRED:
            self._tool_calls += 1

    def _finish_tool(self, step: ToolCallStepWire, outcome: JournaledOutcome, result: str, at: str | None) -> None:
        step["outcome"] = outcome
        step["result"] = result[:MAX_TEXT_CHARACTERS]
        step["ended_at"] = at
        if len(result) > MAX_TEXT_CHARACTERS:
            step["result_characters"] = len(result)

    def _add_retry(self, data: Mapping[str, Any], at: str | None) -> None:
        if "path" in data:
            call = self._add_inner_call(data["path"], at)
            call["reason"] = data["reason"]
            call["wait_seconds"] = data["seconds"]
            call |= cast("InnerCallStepWire", _describe_failure(data))
            return
        last = self._steps[-1]
        if "position" not in data and last["kind"] == "retry":  # for a stream that broke, both have reported it
            last["repeats_run"] = True
            return
        started_at = self._sent_at or at
        if self._model is not None:
            self._model["ended_at"] = at
        self._lose_model_call()
        retry: RetryStepWire = {
            "kind": "retry",
            "position": data.get("position"),
            "attempt": self._number,
            "reason": data["reason"],
            "wait_seconds": data["seconds"],
            "repeats_run": "position" not in data,
            "began_at": started_at,
            "ended_at": at,
            "at": at,
        }
        self._add(cast("RetryStepWire", {**retry, **_describe_failure(data)}))

    def _suspend(self, data: Mapping[str, Any], at: str | None) -> None:
        """End an attempt after which the turn waits: for answers, or before its next attempt."""
        is_postponed = "calls" not in data
        self._end_attempt("postponed" if is_postponed else "suspended", at)
        wait: WaitStepWire = {
            "kind": "wait",
            "reason": "retry" if is_postponed else "person",
            "began_at": at,
            "ended_at": None,
        }
        if is_postponed:
            wait["cause"] = data["reason"]
            wait["wait_seconds"] = data["seconds"]
        else:
            wait["calls"] = [self._waiting_call(call_id) for call_id in data["calls"]]
        self._wait = self._add(wait)

    def _waiting_call(self, call_id: str) -> WaitingCallWire:
        question = self._questions.get(call_id, {})
        return {
            "call_id": call_id,
            "name": question.get("name"),
            "reason": question.get("reason"),
            "arguments": _short_arguments(question.get("arguments")),
            "answer": _answer_view(self._turn.replies.get(call_id)),
        }

    def _describe_response(self, model_response: ChatResponse[Any]) -> ModelResponseWire:
        """Return the model that served a call, and its usage."""
        usage = cast("Mapping[str, Any] | None", model_response.usage_details)
        end = end_of_answer(model_response)
        response: ModelResponseWire = {
            "model": bounded_name(model_response.model or "") or None,
            "usage": cast("UsageWire", dict(usage)) if usage else None,
            "finish_reason": end.finish_reason,
        }
        if end.refusal:
            response["refusal"] = cast("RefusalWire", end.refusal)
        if edits := (model_response.additional_properties or {}).get(CONTEXT_EDITS):
            response["context_edits"] = edits
        cost = usage_of_response(usage, model_response.model).cost if usage else None
        if cost is not None:
            response["cost"] = cost
        return response


def _locate_tool(step: ToolCallStepWire, path: CallPath) -> None:
    """Say where a tool call was made: by which model call of the turn's agent, or on which path within it."""
    if "approval_request_id" not in step:
        step["runs_in"] = "host"
    if path.is_nested:
        step["path"] = str(path)
    else:
        step["position"] = path.position


def turn_summary(turn: Turn) -> TurnSummaryWire:
    """Return a short summary of the steps' turn."""
    outcome = turn.outcome
    status = _status_of(outcome) if outcome else "waiting" if turn.pending else "running"
    summary: TurnSummaryWire = {
        "agent": turn.request.agent,
        "session_id": turn.request.session_id,
        "turn_id": turn.request.turn_id,
        "trace_id": trace_of(turn.request).name,
        "status": status,
        "created_at": turn.request.created_at or None,
        "ended_at": (outcome.ended_at or None) if outcome else None,
        "usage": cast("UsageWire | None", outcome.usage) if outcome else None,
    }
    if outcome and outcome.budget_usage:
        summary["spent"] = encode_budget_usage(outcome.budget_usage)
    return summary


def _status_of(outcome: TurnOutcome) -> VisibleStatus:
    return visible_turn_status(outcome.status, outcome.finish_reason)


def _answer_view(answer: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Leave out what tells an answer from others, and where it is stored."""
    if answer is None:
        return None
    return {name: value for name, value in answer.items() if name not in {"digest", "stored"}}


def _short_arguments(arguments: Any) -> Any:
    """Leave out arguments that would fill the page."""
    size = len(arguments) if isinstance(arguments, str) else len(json.dumps(arguments))
    return arguments if size <= _MAX_ARGUMENTS else {"truncated": size}


def _describe_failure(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tokens of a call that has failed; nothing when its service has counted none."""
    return {"usage": decode_usage(data["usage"])} if "usage" in data else {}
