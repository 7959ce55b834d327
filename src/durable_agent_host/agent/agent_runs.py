"""The agent's runs in one attempt of a turn: as many as needed, each through the journal.

A run begins at the turn's start; finished calls are answered from the journal. It is repeated when the stream of a
model call broke midway, or when the model's service has lost what the request relied on.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import isawaitable
from typing import Any, cast

from agent_framework import AgentResponse, AgentResponseUpdate, AgentSession, ChatContext, Message, SupportsAgentRun

from durable_agent_host.agent.agent_budgets import NO_BUDGETS
from durable_agent_host.agent.agent_run import REPLAYED, AgentRun, Live
from durable_agent_host.agent.budget_accounting import Spending
from durable_agent_host.agent.context_window import TurnContext
from durable_agent_host.agent.exchange_recorder import KeptCalls
from durable_agent_host.agent.hosted_agent import HostedAgent
from durable_agent_host.agent.hosted_approvals import answer_requests
from durable_agent_host.agent.http_exchange import EXCHANGES
from durable_agent_host.agent.nested_model_calls import InnerCalls
from durable_agent_host.agent.observer import RunRepeats, UpdateCame
from durable_agent_host.agent.provider import ModelProvider
from durable_agent_host.agent.response_limits import RECEIVED, Received
from durable_agent_host.agent.retry_classification import RetryPolicy
from durable_agent_host.agent.run_history_providers import RunHistories
from durable_agent_host.agent.run_output import Produced
from durable_agent_host.agent.run_result import Cancelled, RunStoppedError
from durable_agent_host.agent.session_state_tracker import SessionState
from durable_agent_host.agent.transcript_provider import DurableSession
from durable_agent_host.agent.turn_attempt import Attempt
from durable_agent_host.codec.content import decode_content, encode_content
from durable_agent_host.codec.overlay import decode_overlay
from durable_agent_host.concurrency.cooperative_yield import Stretch, give_way
from durable_agent_host.concurrency.thread_offload import aside
from durable_agent_host.errors import TurnError, TurnTimedOutError
from durable_agent_host.model.budget import Budgets, Spent
from durable_agent_host.model.journal_entry import ToolKey
from durable_agent_host.model.provider_item import Forgotten, ItemPart
from durable_agent_host.model.session import WORKFLOW_STATE
from durable_agent_host.model.turn import ModelBounds, TurnRequest
from durable_agent_host.segments.conversation_reader import Record, entries_of_context
from durable_agent_host.session.context_selection import context_messages
from durable_agent_host.session.external_messages import kept_by
from durable_agent_host.session.transcript import replay_messages
from durable_agent_host.tool_calls import INNER_KEYS, InnerKeys, ToolCall
from durable_agent_host.turn.turn_redactor import Redactor
from durable_agent_host.turn_log.journal import Journal

_LOGGER = logging.getLogger(__name__)


class ServiceLosses:
    """The losses of one attempt; after each, the agent is run again from the stored transcript.

    Args:
        turn_id: for log lines.
    """

    def __init__(self, turn_id: str) -> None:
        self._turn_id = turn_id
        self._lost: list[Forgotten] = []
        self._marked = 0
        self._remembered: dict[str, Any] = {}

    def __len__(self) -> int:
        """Return how many requests the service refused because of a loss."""
        return len(self._lost)

    def add(self, forgotten: Forgotten, session: DurableSession) -> bool:
        """Record a loss.

        Args:
            forgotten: what the service has lost.
            session: of the refused run.

        Returns:
            Whether another run can do without it: the loss is new, and the run had used it.
        """
        goes_on = bool(session.service_session_id or WORKFLOW_STATE in session.state)
        if forgotten in self._lost or (forgotten.what == "continuation" and not (goes_on or forgotten.name)):
            return False
        _LOGGER.warning(
            "turn %s: the model's service can no longer use the %s; going on from the stored transcript",
            self._turn_id,
            forgotten.what,
        )
        self._lost.append(forgotten)
        return True

    def forget_in(self, session: DurableSession) -> None:
        """Remove the service's continuation from a session once something was lost."""
        if self._lost:
            session.service_session_id = None
            session.state.pop(WORKFLOW_STATE, None)

    def mark(
        self, messages: Sequence[Message], session: DurableSession, provider: ModelProvider, *, is_request: bool = False
    ) -> list[Message]:
        """Mark what the service can no longer use in messages; the session remembers it.

        Args:
            messages: stored ones, or all of a request.
            session: of the run.
            provider: of the agent.
            is_request: whether the messages are those of the refused request. Later messages of the same turn are new,
                and not lost.
        """
        remembered = {**session.forgotten, **self._remembered}
        marked, session.forgotten = provider.carry(messages, remembered, self._lost[self._marked :])
        if is_request:
            self._marked = len(self._lost)
            self._remembered = session.forgotten
        return marked


async def updates_of(
    agent: SupportsAgentRun,
    messages: Sequence[Message],
    session: AgentSession,
    options: dict[str, Any],
    take_result: Callable[[AgentResponse[Any]], None] | None = None,
) -> AsyncGenerator[AgentResponseUpdate]:
    """Run an agent and yield what it streams.

    Args:
        agent: the app's, as it was put together for this run.
        messages: of the run.
        session: of the run; the framework changes it.
        options: for the agent, see `options_of`.
        take_result: receives the response with which a stream of the framework ends.
    """
    arguments: dict[str, Any] = {"options": options} if options else {}
    running: Any = cast("Any", agent.run)(messages, stream=True, session=session, **arguments)
    if not hasattr(running, "__aiter__"):
        running = await running
    if isinstance(running, AgentResponse):
        for update in cast("AgentResponse[Any]", running).to_updates():
            yield update
        return
    try:
        async for update in running:
            yield update
        if callable(finish := getattr(running, "get_final_response", None)):
            result = await cast("Awaitable[Any]", finish())  # runs the framework's end: providers, the session's id
            if take_result is not None and isinstance(result, AgentResponse):
                take_result(cast("AgentResponse[Any]", result))
    finally:
        # a stream of the framework, or the generator of an agent of the app's own
        if callable(close := getattr(running, "close", None) or getattr(running, "aclose", None)):
            closing = close()
            if isawaitable(closing):
                await closing


def options_of(request: TurnRequest) -> dict[str, Any]:
    """Return the options with which the agent runs.

    Args:
        request: the turn's.
    """
    asked_for: Any = {} if request.response_format is None else {"response_format": _named(request.response_format)}
    options: dict[str, Any] = {**request.options, **asked_for}
    if not request.enable_tool_calls:
        options.pop("tools", None)
        options["tool_choice"] = "none"
    return options


def _named(response_format: Mapping[str, Any]) -> dict[str, Any]:
    """Wrap a bare schema without one type, such as an ``enum``: not every client takes it for a schema."""
    if isinstance(response_format.get("type"), str):
        return dict(response_format)
    schema = {name: value for name, value in response_format.items() if name != "title"}
    named = {"name": str(response_format.get("title") or "response"), "schema": schema, "strict": True}
    return {"type": "json_schema", "json_schema": named}


_WHOLE_AGENT = ToolKey(-1, "agent", 0)
"""The journal key for the run of an agent without a journal, treated like one tool call."""


@dataclass
class AgentRuns:
    """The runs of one attempt, and their results so far.

    Attributes:
        host: returns the agent for a run; a new one each time when the app gave a function that builds it.
        provider: of the current run's agent; before the first run, one that knows what every provider knows.
        retry_policy: for model calls.
        bounds: limits on what the model's service and the tools may send.
        attempt: at the turn's log.
        record: the session's record when the turn was granted.
        agent_session_before: the framework's session from before the turn, serialized.
        kept_as: see `durable_agent_host.agent.transcript_provider.DurableSession.restored`.
        with_files: adds the bytes of files to a request that refers to them.
        request: the turn's request.
        answers: people's decisions, by the question's id.
        kept: keeps the wire traffic of model calls.
        was_cancelled: the turn was cancelled while it waited: only what is in the journal is collected.
        agent_session: the framework's session of the current run.
        hosted: the agent of the current run.
        run: the current one; None before the first.
        inner_calls: model calls of inner agents.
        losses: what the model's service has lost.
        produced: what the current run has streamed.
        histories: the agent's history providers in the current run.
        context: chooses the messages of the current run's model calls; None when all are sent.
        budgets: of the agent.
        redactor: for stored and shown data, or None.
        worked_before: seconds worked by earlier attempts.
        began_at: by `time.perf_counter`.
    """

    host: Callable[[], HostedAgent]
    provider: ModelProvider
    retry_policy: RetryPolicy
    bounds: ModelBounds
    attempt: Attempt
    record: Record
    agent_session_before: Mapping[str, Any] | None
    with_files: Callable[[TurnRequest], Awaitable[TurnRequest]]
    overlay_before: Mapping[str, Any] | None
    request: TurnRequest
    answers: Mapping[str, Mapping[str, Any]]
    kept: KeptCalls
    was_cancelled: bool = False
    kept_as: str = ""
    agent_session: DurableSession = field(default_factory=DurableSession)
    hosted: HostedAgent = field(init=False)
    run: AgentRun | None = None
    inner_calls: InnerCalls | None = None
    losses: ServiceLosses = field(init=False)
    produced: Produced = field(init=False)
    histories: RunHistories | None = None
    context: TurnContext | None = None
    budgets: Budgets = NO_BUDGETS
    redactor: Redactor | None = None
    worked_before: float = 0.0
    began_at: float = field(default_factory=time.perf_counter)
    _sent: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        """Start with nothing lost and nothing produced."""
        self.losses, self.produced = ServiceLosses(self.request.turn_id), Produced(self.provider)
        self.worked_before = self.attempt.recorded.worked_seconds

    async def finish(self) -> None:
        """Run the agent until it has answered.

        Raises:
            RunStoppedError: a run stops without an answer.
            Exception: raised by the agent, the model or a tool, when another run would not help.
        """
        RECEIVED.set(received := Received(self.bounds))  # in the context of this task, which ends with the attempt
        EXCHANGES.set(self.kept)
        self.request = await self.with_files(self.request)
        breaks: dict[int, int] = {}
        while True:
            self.hosted = self.host()
            self.provider = self.hosted.provider
            journal = await self.attempt.begin_run(self.provider, has_journal=self.hosted.has_journal)
            run = self.run = self._new_run(journal, dict(breaks))
            self.inner_calls = await InnerCalls.of_run(run, received)
            try:
                await self._run_once(run)
            except Exception as error:
                if (repeats := self._repeats(run, error)) is None:
                    raise
            else:
                return
            if (broken := run.progress.broken) is not None:
                breaks[broken.position] = breaks.get(broken.position, 0) + 1
            await self.attempt.audience.tell(repeats)
            await asyncio.sleep(repeats.wait_seconds)
            await self.attempt.read_again()

    @property
    def asked(self) -> TurnRequest:
        """The request as the agent's middleware has left it, which is what the framework keeps of it."""
        inputs = self.agent_session.asked
        if not self._sent or not inputs or any(message.role != self.request.role for message in inputs):
            return self.request
        contents = tuple(encode_content(content) for message in inputs for content in message.contents)
        if contents == self._sent:
            return self.request
        return replace(self.request, message="\n".join(message.text for message in inputs), contents=contents)

    def milliseconds(self) -> float:
        """Return how long the agent has worked."""
        return round((time.perf_counter() - self.began_at) * 1000, 1)

    def seconds_left(self, most_seconds: float) -> float:
        """Return how long the agent may continue; 0 when its time is over.

        Args:
            most_seconds: limit for one attempt of a turn.
        """
        left = most_seconds - (time.perf_counter() - self.began_at)
        spending = self.run.spending if self.run is not None else None
        return max(left if spending is None else min(left, spending.seconds_left), 0.0)

    def out_of_time(self, most_seconds: float) -> TurnError:
        """Return which time limit is reached; the arguments are those of `seconds_left`."""
        spending = self.run.spending if self.run is not None else None
        if spending is not None and (exceeded := spending.out_of_time()) is not None:
            return exceeded
        return TurnTimedOutError(
            f"the turn has taken longer than {most_seconds:g} s: ask for less in one turn, "
            "or raise DURABLE_AGENT_HOST_TURN_TIMEOUT_SECONDS"
        )

    def spent(self) -> Spent | None:
        """Return what the turn has spent; None when nothing counts it."""
        return self.run.spending.total if self.run is not None and self.run.spending is not None else None

    def _new_run(self, journal: Journal, breaks: Mapping[int, int]) -> AgentRun:
        self.produced = Produced(self.provider)
        self.agent_session = DurableSession.restored(self.agent_session_before, self.request, self.kept_as)
        for source in self.hosted.replaced:  # an earlier version stored this twice
            self.agent_session.state.pop(source, None)
        self.context = self._new_context()
        return AgentRun(
            turn_id=self.request.turn_id,
            label=self.attempt.label,
            journal=journal,
            audience=self.attempt.audience,
            provider=self.provider,
            answers=self.answers,
            retry_policy=self.retry_policy,
            bounds=self.bounds,
            breaks=breaks,
            session_state=SessionState(self.agent_session, journal.recorded),
            produced=self.produced,
            replay_only=self.was_cancelled,
            drop_continuations=bool(self.losses),
            choose_messages=self._choose_messages,
            kept=self.kept,
            prepare_messages=self._without_losses,
            spending=_spending(self, journal),
        )

    def _new_context(self) -> TurnContext | None:
        compaction = self.hosted.compaction
        if compaction is None:
            return None
        overlay = decode_overlay(self.overlay_before)
        entries = self.record.session.message_count
        if overlay is not None and not overlay.holds_for(compaction.made_by, entries):
            overlay = None  # made by other strategies; the current ones make their own
        return TurnContext(compaction, self.request, overlay, entries, has_our_history=not self.hosted.has_own_history)

    async def _choose_messages(
        self, run: AgentRun, context: ChatContext, position: int, replayed: bool
    ) -> Sequence[Message]:
        if self.context is None:
            return context.messages
        if self.agent_session.asked:
            self.context.question = self.agent_session.asked[-1]
        return await self.context.project(run, context, position, replayed=replayed)

    async def _run_once(self, run: AgentRun) -> None:
        messages = await self._prepare()
        try:
            await self._stream(run, messages)
        finally:  # the rest of the run is part of cycles, and waits for the collector of garbage
            self.agent_session.transcript = ()
            _end(run)

    async def _stream(self, run: AgentRun, messages: list[Message]) -> None:
        self.histories = self._new_histories()
        agent = self.histories.put_into(self.hosted.for_run(run, with_tools=self.request.enable_tool_calls))
        if not self.hosted.has_journal:
            await self._note_whole_agent(run)
        while True:
            start = len(self.produced)
            stretch = Stretch()
            take_result = partial(self.produced.take_result, start) if self._has_middleware else None
            options = options_of(self.request)
            async with aclosing(updates_of(agent, messages, self.agent_session, options, take_result)) as updates:
                async for update in updates:
                    run.check_waiting()
                    await self._take(run, update)
                    await stretch.pause()
            if run.progress.pending or (answers := await self._provider_answers(run, messages, start)) is None:
                break
            messages = answers
        run.check_waiting()

    async def _provider_answers(self, run: AgentRun, sent: list[Message], start: int) -> list[Message] | None:
        """Return the messages with which the run continues after the provider's requests for approval, or None."""
        if not self.hosted.has_journal:
            return None
        said = self.produced.response(start).messages
        answer = await answer_requests(run, said)
        if answer is None:
            return None
        self.produced.take(AgentResponseUpdate(role="user", contents=answer.contents), None)
        session = self.agent_session
        if session.service_session_id:  # the service has the conversation, and accepts only new messages
            session.transcript = ()
        else:
            session.transcript = self.provider.as_history([*session.transcript, *sent, *said])
        return [answer]

    async def _take(self, run: AgentRun, update: AgentResponseUpdate) -> None:
        source = run.progress.source
        is_replayed = source is REPLAYED
        self.produced.served_model = getattr(update.raw_representation, "model", None) or self.produced.served_model
        if is_replayed:
            update.raw_representation = ItemPart(None)  # nothing joins what was folded before
        self.produced.take(update, source.position if isinstance(source, Live) else None)
        await self.attempt.audience.tell(UpdateCame(update, is_replayed))

    async def _note_whole_agent(self, run: AgentRun) -> None:
        """Record that an agent without a journal begins; it does not begin a second time unless it allows that."""
        journal = run.journal
        known = journal.recorded.tools.get(_WHOLE_AGENT)
        if self.was_cancelled:
            raise RunStoppedError(Cancelled())
        if known is not None and known.starts and not self.losses and not self.hosted.may_run_again:
            raise TurnError(
                f"the process ended while agent {self.request.agent!r} was running, and what it had done is not known: "
                f"look before you ask again. The agent has no journal to go on from: {self.hosted.why_no_journal}"
            )
        await journal.tool_started(_WHOLE_AGENT, self.request.agent, {})
        whole_agent = ToolCall(
            call_id=_WHOLE_AGENT.call_id,
            name=self.request.agent,
            turn_id=self.request.turn_id,
            idempotency_key=journal.idempotency_key(_WHOLE_AGENT),
            attempt=known.starts + 1 if known is not None else 1,
            cancelled=run.gave_up,
        )
        INNER_KEYS.set(InnerKeys(whole_agent))  # in the context of the attempt's task, like `RECEIVED`

    def _repeats(self, run: AgentRun, error: Exception) -> RunRepeats | None:
        """Return whether and when the agent is run again after an error.

        With a journal, every finished call is replayed. Without one, a turn is run again only when its first request
        was refused: nothing has been streamed then, and no tool has run.
        """
        forgotten = self.provider.forgotten(error)
        if forgotten is None:
            broken = run.progress.broken
            return RunRepeats(broken.reason, broken.wait_seconds) if broken is not None else None
        if self.produced.updates_streamed and not self.hosted.has_journal:
            return None
        is_new = self.losses.add(forgotten, self.agent_session)
        return RunRepeats(f"the model's service can no longer use the {forgotten.what}", 0.0) if is_new else None

    @property
    def _has_middleware(self) -> bool:
        return bool(getattr(self.hosted.agent, "middleware", None))

    async def _prepare(self) -> list[Message]:
        """Give the session its transcript, and return the messages of the run."""
        said = [decode_content(content) for content in self.request.contents] or [self.request.message]
        message = Message(self.request.role, said)
        self.provider.check_message(message)
        if self._has_middleware:
            self._sent = tuple(encode_content(content) for content in message.contents)
        if self.context is not None:
            self.context.question = message
        session = self.agent_session
        self.losses.forget_in(session)
        session.leave_other_service(self.provider)
        if session.service_session_id or self.hosted.restores(session) or self.hosted.has_own_history:
            return [message]
        transcript = await self._transcript()
        if not self.hosted.owns_history:
            return [*transcript, message]
        session.transcript = transcript
        return [message]

    async def _transcript(self) -> list[Message]:
        """Rehydrate what of the record is the context; segments of which nothing is in it are not read."""
        context = self.context
        head = self.record.session
        stored = await entries_of_context(self.record, context and context.before)
        self._checked([*stored.values()])
        if context is None:
            given = partial(replay_messages, stored.values())
        else:
            given = partial(context_messages, stored, context.before, count=head.message_count)
        return await aside(len(stored), lambda: self._rehydrated(given(imported=head.imported, between=give_way)))

    def _rehydrated(self, messages: Sequence[Message]) -> list[Message]:
        """Prepare earlier messages for the model."""
        stored = self.losses.mark(messages, self.agent_session, self.provider)
        request = self.request
        return self.provider.replay(stored, session_id=f"{request.agent}@{request.session_id}")

    def _checked(self, entries: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Refuse to continue without the messages kept by a provider that the agent no longer has."""
        for keeper in filter(None, map(kept_by, entries)):
            raise TurnError(
                f"messages of this session are kept by {keeper}, which agent {self.request.agent!r} no longer "
                "has: add it to the agent again, or begin a new session"
            )
        return entries

    def _new_histories(self) -> RunHistories:
        return RunHistories(
            session=self.agent_session,
            turn_id=self.request.turn_id,
            receipts=self.record.session.receipts,
            may_have_saved=self.attempt.number > 1,
            rehydrate=self._rehydrated,
            as_history=self.provider.as_history,
            clean=self.redactor.messages if self.redactor is not None else list,
        )

    def _without_losses(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Mark what the service can no longer use, also in the turn's own output."""
        if not (self.losses or self.agent_session.forgotten) or self.agent_session.service_session_id:
            return messages
        return self.losses.mark(messages, self.agent_session, self.provider, is_request=True)


def _end(run: AgentRun) -> None:
    if run.spending is not None:
        run.spending.end()
    for history in run.held:
        history.held.clear()


def _spending(runs: AgentRuns, journal: Journal) -> Spending | None:
    if not runs.budgets.counts:
        return None
    return Spending(
        runs.budgets,
        journal,
        before=runs.record.session.spent,
        answers=runs.answers,
        worked_before=runs.worked_before,
        began_at=runs.began_at,
    )
