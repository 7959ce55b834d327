"""State shared by the parts of one agent run: its collaborators, and its progress."""

import json
import logging
import random
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, cast

from agent_framework import ChatContext, ChatResponse, Content, Message

from durable_agent_host.agent.budget_accounting import APPROVAL_NAME, BudgetAccount
from durable_agent_host.agent.exchange_recorder import ExchangeRecorder
from durable_agent_host.agent.observer import ApprovalRequested, ObserverGroup
from durable_agent_host.agent.provider import ModelProvider
from durable_agent_host.agent.retry_classification import RetryPolicy
from durable_agent_host.agent.run_output import RunOutput
from durable_agent_host.agent.run_result import AwaitingApproval, Cancelled, Failed, RunStoppedError, Stop
from durable_agent_host.agent.session_state_tracker import SessionState
from durable_agent_host.codec.schema_validation import find_limit_violations
from durable_agent_host.codec.strict_json import MAX_LEVELS, has_python_class, is_nested_too_deeply
from durable_agent_host.errors import log_reason
from durable_agent_host.model.journal_entry import ToolKey
from durable_agent_host.model.turn import ResponseLimits
from durable_agent_host.turn.pending_approvals import approval_request_id
from durable_agent_host.turn_log.journal import Journal

# Tool calls with unreadable arguments: not JSON, not an object, too deep, with numbers that are too long or classes.
#
# The framework parses arguments before any middleware runs. For some it fails the run; for others it substitutes
# arguments, with which a tool that needs none would run. Here such a call reaches the framework without arguments,
# and `durable_agent_host.agent.tool_calls` reports the error to the model instead of running the tool.

_PARSING_FAILED: Final = "Error: Argument parsing failed."
"""The framework's own words; a reason follows where the framework would have failed the run."""


_TOO_DEEP: Final = f"{_PARSING_FAILED} They are nested more than {MAX_LEVELS} levels deep: make them flatter."
_NAMES_CLASS: Final = (
    f"{_PARSING_FAILED} An object has '__class__', '__module__' and '__data__': give the fields other names."
)


class _UnreadableCall(Content):
    """A call that keeps its raw arguments and parses them as none."""

    def parse_arguments(self) -> dict[str, Any | None] | None:
        """Return no arguments."""
        return {}


def extract_invalid_calls(response: ChatResponse[Any]) -> Iterator[tuple[str, str]]:
    """Find the calls of a response whose arguments cannot be read, and keep the framework from parsing them.

    Yields:
        The id of each such call, and the result for the model.
    """
    for message in response.messages:
        for content in message.contents:
            if content.type == "function_call" and (result_text := _find_argument_error(content.arguments)) is not None:
                content.__class__ = _UnreadableCall
                yield str(content.call_id), result_text


def _find_argument_error(arguments: Any) -> str | None:
    if isinstance(arguments, dict):  # some services send no text; `encode_answer` checks the numbers
        return _find_limit(arguments)
    if not isinstance(arguments, str) or not arguments:
        return None
    try:
        value = json.loads(arguments)
    except RecursionError:
        return _TOO_DEEP
    except json.JSONDecodeError:
        return _PARSING_FAILED
    except ValueError as error:  # a number with more digits than Python reads
        return f"{_PARSING_FAILED} {error}."
    if not isinstance(value, dict):
        return _PARSING_FAILED
    if (limit := _find_limit(value)) is not None:
        return limit
    violation = next(find_limit_violations(value), None)
    return f"{_PARSING_FAILED} {violation.location} {violation.problem}." if violation is not None else None


def _find_limit(arguments: Any) -> str | None:
    if is_nested_too_deeply(arguments):
        return _TOO_DEEP
    return _NAMES_CLASS if has_python_class(arguments) else None


_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class LiveStream:
    """The stream comes from a model call that has no response yet.

    Attributes:
        position: of the call.
    """

    position: int


@dataclass(frozen=True)
class ReplayedStream:
    """The stream comes from the journal."""


REPLAYED: Final = ReplayedStream()

ChooseMessages = Callable[["AgentRun", ChatContext, int, bool], Awaitable[Sequence[Message]]]
"""See `AgentRun.choose_messages`."""

Source = LiveStream | ReplayedStream | None
"""The source of the current stream; None for what the framework and the app add between model calls."""


@dataclass(frozen=True)
class BrokenStream:
    """A stream that broke midway.

    Attributes:
        position: of the model call.
        wait_seconds: delay before the call is retried.
        reason: a sentence.
    """

    position: int
    wait_seconds: float
    reason: str


@dataclass
class Progress:
    """Progress of a run; only its `AgentRun` changes it.

    Attributes:
        source: of the current stream.
        pending: the calls that wait for a person.
        unreadable: the results for calls whose arguments cannot be read, by model call and call id.
        broken: the stream that has broken; another run may resume from there.
        stop: why the run's results are no longer needed, or None.
        available_tools: names of the tools in the model's requests; the model may call others.
    """

    source: Source = None
    pending: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    unreadable: dict[tuple[int, str], str] = field(default_factory=dict[tuple[int, str], str])
    broken: BrokenStream | None = None
    stop: Stop | None = None
    available_tools: set[str] = field(default_factory=set[str])


@dataclass(frozen=True)
class AgentRun:
    """One run of an agent within a turn.

    Attributes:
        turn_id: the run's turn.
        label: names turn, agent, session and attempt, for log lines.
        journal: finished calls, and where to append.
        observers: the turn's observers.
        provider: of the agent's chat client.
        approvals: people's decisions, by the question's id.
        retry_policy: for model calls.
        bounds: limits on what the model's service and the tools may send.
        breaks: how often the stream of a model call broke midway in earlier runs of this turn, by position.
        session_state: what the steps change in the framework's session.
        output: what the run has streamed.
        replay_only: the turn was cancelled before this run: nothing outside the journal is done.
        drop_continuations: replayed responses omit their conversation ids, because the service has lost them.
        choose_messages: returns the messages of a model call, from its context, its position, and whether it is
            replayed.
        exchange_recorder: records the HTTP exchanges of model calls.
        prepare_messages: removes from a request what the service can no longer use.
        budget_account: counts the turn's usage, and enforces its budgets; None without budgets.
        gave_up: set when the run's results are no longer wanted; tools can check it from their threads.
        progress: how far the run is.
    """

    turn_id: str
    label: str
    journal: Journal
    observers: ObserverGroup
    provider: ModelProvider
    approvals: Mapping[str, Mapping[str, Any]]
    retry_policy: RetryPolicy
    bounds: ResponseLimits
    breaks: Mapping[int, int]
    session_state: SessionState
    output: RunOutput
    replay_only: bool
    drop_continuations: bool
    choose_messages: "ChooseMessages"
    exchange_recorder: ExchangeRecorder
    prepare_messages: Callable[[Sequence[Message]], Sequence[Message]]
    budget_account: BudgetAccount | None = None
    gave_up: threading.Event = field(default_factory=threading.Event)
    progress: Progress = field(default_factory=Progress)

    def check(self) -> None:
        """Allow new work only while the run is wanted.

        Raises:
            RunStoppedError: the run was stopped, was cancelled before it started, or waits for a person.
        """
        self.raise_if_stopped()
        if self.replay_only:
            raise RunStoppedError(Cancelled())
        self.check_waiting()

    def raise_if_stopped(self) -> None:
        """Allow no more work once the run was stopped.

        Raises:
            RunStoppedError: the run was stopped.
        """
        if self.progress.stop is not None:
            raise RunStoppedError(self.progress.stop)

    def check_waiting(self) -> None:
        """Start no model call while calls wait for a person.

        Raises:
            RunStoppedError: some calls wait.
        """
        if self.progress.pending:
            raise RunStoppedError(Cancelled() if self.replay_only else AwaitingApproval(tuple(self.progress.pending)))
        if self.budget_account is not None and self.budget_account.failure is not None:
            raise RunStoppedError(Failed(self.budget_account.failure))

    def stop(self, stop: Stop) -> None:
        """Stop new work; safe from any thread."""
        self.progress.stop = stop
        self.gave_up.set()

    def begin_call(self, position: int) -> None:
        """Record that a model call streams."""
        self.progress.source = LiveStream(position)

    def record_available_tools(self, options: Mapping[str, Any] | None) -> None:
        """Record the tools in the options of a model call."""
        tools: Any = (options or {}).get("tools") or ()
        for tool in cast("list[Any]", tools) if isinstance(tools, list | tuple) else [tools]:
            name: Any = (
                cast("dict[str, Any]", tool).get("name") if isinstance(tool, dict) else getattr(tool, "name", None)
            )
            self.progress.available_tools.add(str(name))

    def finish_call(self, position: int, response: ChatResponse[Any]) -> None:
        """Record that a model call has its response."""
        self.output.finish_call(position)
        self.record_invalid_calls(response, position)
        self.progress.source = None

    @contextmanager
    def replaying(self) -> Generator[None]:
        """Mark the context's stream as coming from the journal."""
        self.progress.source = REPLAYED
        try:
            yield
        finally:
            self.progress.source = None

    def broke(self, broken: BrokenStream) -> None:
        """Record that a stream broke midway."""
        self.progress.broken = broken

    def record_invalid_calls(self, response: ChatResponse[Any], position: int) -> None:
        """Record the calls of a model's response whose arguments cannot be read."""
        for call_id, result_text in extract_invalid_calls(response):
            self.progress.unreadable[position, call_id] = result_text

    def wait_before_retry(self, retry: int, error: BaseException) -> float | None:
        """Return whether and when a failed model call is retried; see `RetryPolicy.wait_before`."""
        explain = self.provider.explain
        seconds = self.retry_policy.wait_before(retry, error, explain, random.random())  # noqa: S311
        if seconds is not None:
            reason = explain(error) or error
            _LOGGER.warning("%s: model call failed, again in %.1f s: %s", self.label, seconds, log_reason(reason))
        return seconds

    def approval_request_id(self, key: ToolKey, number: int = 0, changes: int = 0) -> str:
        """Return the id of a question to a person about a call; see `durable_agent_host.turn.pending_approvals`."""
        return approval_request_id(key, number, changes, is_repeated=self.journal.is_repeated(key))

    async def ask_for_budget(self, question: str, figures: Mapping[str, Any], sentence: str) -> None:
        """Ask a person whether a turn may spend more; the run stops before its next model call."""
        await self.request_approval(
            question, ToolKey(self.journal.position, question, 0), APPROVAL_NAME, figures, sentence
        )

    async def request_approval(
        self,
        question: str,
        key: ToolKey,
        name: str,
        arguments: Mapping[str, Any],
        reason: str,
        *,
        approved_by: str | None = None,
        changed_by: Mapping[str, Any] | None = None,
    ) -> None:
        """Leave a tool call to a person: the run finishes the other calls of the batch, then stops."""
        pending_call: dict[str, Any] = {
            "call_id": question,
            "name": name,
            "arguments": dict(arguments),
            "reason": reason,
        }
        pending_call |= {"approved_by": approved_by} if approved_by is not None else {}
        pending_call |= {"changed_by": changed_by} if changed_by else {}
        self.progress.pending.append(pending_call)
        await self.observers.notify(
            ApprovalRequested(pending_call, replayed=question in self.journal.recorded.requested_approval_ids)
        )
        _LOGGER.info("turn %s: call %s of %s waits for a person", self.turn_id, key.call_id, name)
