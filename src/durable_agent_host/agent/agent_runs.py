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
from itertools import takewhile
from typing import Any, cast

from agent_framework import AgentResponse, AgentResponseUpdate, AgentSession, ChatContext, Message, SupportsAgentRun

from durable_agent_host.agent.call_middleware import RunCalls, Send
from durable_agent_host.agent.call_order import (
    ModelLayers,
    chain_compaction_call,
    chain_model_call,
    chain_tool_call,
    new_model_layers,
    new_tool_layers,
)
from durable_agent_host.agent.call_scope import CALL_SCOPE, CallScope
from durable_agent_host.agent.durable_session import DurableSession, LostProviderState, SessionState
from durable_agent_host.agent.feature import AnswerReader, AttemptFeature, CurrentRun, RunContext, RunHistory, RunPart
from durable_agent_host.agent.hosted_agent import HostedAgent
from durable_agent_host.agent.http_exchange import EXCHANGES, ExchangeRecorder
from durable_agent_host.agent.layers.journal import JournalCompactionCalls
from durable_agent_host.agent.layers.running_call import WaitRules
from durable_agent_host.agent.model_call import ModelCall, ModelStream
from durable_agent_host.agent.nested_runs import NestedRun
from durable_agent_host.agent.observer import RunRestarted, UpdateReceived
from durable_agent_host.agent.pending_calls import PendingCalls, answer_requests
from durable_agent_host.agent.provider import ModelProvider
from durable_agent_host.agent.response_limits import TRAFFIC, TurnTraffic, check_model_call, turn_traffic
from durable_agent_host.agent.retry_classification import RetryPolicy
from durable_agent_host.agent.run_gate import RunGate
from durable_agent_host.agent.run_output import RunOutput
from durable_agent_host.agent.run_result import RunStoppedError, Stop
from durable_agent_host.agent.stream_progress import (
    REPLAYED,
    LiveStream,
    NestedStreamBrokenError,
    StreamProgress,
)
from durable_agent_host.agent.turn_attempt import TurnAttempt
from durable_agent_host.agent.workflow_agents import HostedWorkflow
from durable_agent_host.agent.workflow_questions import WorkflowQuestions, part_path
from durable_agent_host.codec.content import decode_content, encode_content
from durable_agent_host.concurrency.thread_offload import TaskSlice, run_in_thread_if_many
from durable_agent_host.errors import TurnError, TurnTimedOutError
from durable_agent_host.model.call_path import AGENT_RUN, TURN_AGENT, CallPath
from durable_agent_host.model.provider_item import ItemPart
from durable_agent_host.model.session import WORKFLOW_STATE
from durable_agent_host.model.turn import ResponseLimits, TurnOutcome, TurnRequest
from durable_agent_host.segments.conversation_reader import ConversationReader, entries_of_context
from durable_agent_host.session.context_selection import context_messages
from durable_agent_host.session.sealing import Withdrawal
from durable_agent_host.session.transcript import external_provider_of, replay_messages
from durable_agent_host.turn.client_tools import client_tool
from durable_agent_host.turn.turn_redactor import Redactor
from durable_agent_host.turn_log.journal import Journal

_LOGGER = logging.getLogger(__name__)


async def stream_updates(
    agent: SupportsAgentRun,
    messages: Sequence[Message],
    session: AgentSession,
    options: dict[str, Any],
    apply_result: Callable[[AgentResponse[Any]], None] | None = None,
) -> AsyncGenerator[AgentResponseUpdate]:
    """Run an agent and yield what it streams."""
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
            if apply_result is not None and isinstance(result, AgentResponse):
                apply_result(cast("AgentResponse[Any]", result))
    finally:
        # a stream of the framework, or the generator of an agent of the app's own
        if callable(close := getattr(running, "close", None) or getattr(running, "aclose", None)):
            closing = close()
            if isawaitable(closing):
                await closing


def build_options(request: TurnRequest) -> dict[str, Any]:
    """Return the options with which the agent runs."""
    format_options: Any = (
        {} if request.response_format is None else {"response_format": _name_schema(request.response_format)}
    )
    options: dict[str, Any] = {**request.options, **format_options}
    if not request.enable_tool_calls:
        options.pop("tools", None)
        options["tool_choice"] = "none"
    elif request.client_tools:
        options["tools"] = [*(options.get("tools") or ()), *map(client_tool, request.client_tools)]
    return options


def _name_schema(response_format: Mapping[str, Any]) -> dict[str, Any]:
    """Wrap a bare schema without one type, such as an ``enum``: not every client takes it for a schema."""
    if isinstance(response_format.get("type"), str):
        return dict(response_format)
    schema = {name: value for name, value in response_format.items() if name != "title"}
    json_schema = {"name": str(response_format.get("title") or "response"), "schema": schema, "strict": True}
    return {"type": "json_schema", "json_schema": json_schema}


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
        history_session_id: see `durable_agent_host.agent.durable_session.DurableSession.restore`.
        with_files: adds the bytes of files to a request that refers to them.
        request: the turn's request.
        replies: to pending calls, by their ids.
        wait_rules: how long calls wait, and how their results may come.
        exchange_recorder: records the HTTP exchanges of model calls.
        collects: how the turn ends, if that was decided before: only what is in the journal is collected.
        withdrawal: of the entries of the turn's earlier end, for a resumed turn; None for others.
        agent_session: the framework's session of the current run.
        hosted_agent: the agent of the current run.
        run: the current one; None before the first.
        losses: what the model's service has lost.
        output: what the current run has streamed.
        features: that take part in the attempt.
        redactor: for stored and shown data, or None.
        started_at: by `time.perf_counter`.
    """

    host: Callable[[], HostedAgent]
    provider: ModelProvider
    retry_policy: RetryPolicy
    bounds: ResponseLimits
    attempt: TurnAttempt
    record: ConversationReader
    agent_session_before: Mapping[str, Any] | None
    with_files: Callable[[TurnRequest], Awaitable[TurnRequest]]
    request: TurnRequest
    replies: Mapping[str, Mapping[str, Any]]
    wait_rules: WaitRules
    exchange_recorder: ExchangeRecorder
    collects: Stop | None = None
    withdrawal: Withdrawal | None = None
    history_session_id: str = ""
    agent_session: DurableSession = field(default_factory=DurableSession)
    hosted_agent: HostedAgent = field(init=False)
    run: CurrentRun | None = None
    losses: LostProviderState = field(init=False)
    output: RunOutput = field(init=False)
    features: Sequence[AttemptFeature] = ()
    redactor: Redactor | None = None
    started_at: float = field(default_factory=time.perf_counter)
    _calls: RunCalls = field(init=False)
    _breaks: dict[CallPath, int] = field(default_factory=dict[CallPath, int])
    _sent: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        """Start with nothing lost and nothing produced."""
        self.losses, self.output = LostProviderState(self.request.turn_id), RunOutput(self.provider)

    async def finish(self) -> None:
        """Run the agent until it has answered.

        Raises:
            RunStoppedError: a run stops without an answer.
            Exception: raised by the agent, the model or a tool, when another run would not help.
        """
        traffic = TurnTraffic(self.bounds)
        TRAFFIC.set(traffic)  # in the context of this task, which ends with the attempt
        try:
            await self._run_until_complete(traffic)
        finally:  # an abandoned stream would keep its connection until the next garbage collection
            await traffic.close_responses()

    async def _run_until_complete(self, traffic: TurnTraffic) -> None:
        EXCHANGES.set(self.exchange_recorder)
        self.request = await self.with_files(self.request)
        while True:
            self.hosted_agent = self.host()
            self.provider = self.hosted_agent.provider
            journal = self.attempt.new_journal()
            run = self._begin_run(journal)
            await self.attempt.begin_run(
                self._reader or self.provider,
                has_journal=self.hosted_agent.has_journal,
                is_opaque=self.hosted_agent.is_opaque,
            )
            strategy_call_count = len(journal.recorded.compaction_responses)
            traffic.inner_calls = max(traffic.inner_calls, strategy_call_count)
            path = AGENT_RUN if self.hosted_agent.is_opaque else TURN_AGENT
            if journal.recorded.workflow_parts:  # after a question, the workflow's agents count anew
                path = part_path(journal.recorded)
            CALL_SCOPE.set(run.new_scope(path))
            try:
                await self._run_once(run)
            except NestedStreamBrokenError as error:
                restart = error.restart
            except Exception as error:
                if (restart := await self._restart_after(run, error)) is None:
                    raise
            else:
                return
            await self.attempt.observers.notify(restart)
            await asyncio.sleep(restart.wait_seconds)
            await self.attempt.read_again()

    @property
    def effective_request(self) -> TurnRequest:
        """The request as the agent's middleware has left it, which is what the framework keeps of it."""
        inputs = self.agent_session.input_messages
        if not self._sent or not inputs or any(message.role != self.request.role for message in inputs):
            return self.request
        contents = tuple(encode_content(content) for message in inputs for content in message.contents)
        if contents == self._sent:
            return self.request
        return replace(self.request, message="\n".join(message.text for message in inputs), contents=contents)

    def milliseconds(self) -> float:
        """Return how long the agent has worked."""
        return round((time.perf_counter() - self.started_at) * 1000, 1)

    def remaining_seconds(self, most_seconds: float) -> float:
        """Return how long the agent may continue; 0 when its time is over."""
        remaining_seconds = most_seconds - (time.perf_counter() - self.started_at)
        limits = [part.clock.remaining_seconds for part in self.parts if part.clock is not None]
        return max(min([remaining_seconds, *limits]), 0.0)

    def out_of_time(self, most_seconds: float) -> TurnError:
        """Return which time limit is reached; the arguments are those of `remaining_seconds`."""
        errors = (part.clock.out_of_time() for part in self.parts if part.clock is not None)
        if (feature_error := next(filter(None, errors), None)) is not None:
            return feature_error
        return TurnTimedOutError(
            f"the turn has taken longer than {most_seconds:g} s: ask for less in one turn, or raise "
            "DURABLE_AGENT_HOST_TURN_TIMEOUT_SECONDS"
        )

    def complete_outcome(self, outcome: TurnOutcome) -> TurnOutcome:
        """Complete an outcome with what the features say of the attempt."""
        for complete in [part.complete_outcome for part in self.parts if part.complete_outcome is not None]:
            outcome = complete(outcome)
        return outcome

    @property
    def parts(self) -> Sequence[RunPart]:
        """The parts of the features in the current run; none before the first."""
        return self.run.parts if self.run is not None else ()

    @property
    def context(self) -> RunContext | None:
        """Chooses the messages of the current run's model calls; None when all are sent."""
        return next((part.context for part in self.parts if part.context is not None), None)

    @property
    def history(self) -> RunHistory | None:
        """Keeps the messages of the current run outside of the session; None when the session has them."""
        return next((part.history for part in self.parts if part.history is not None), None)

    @property
    def _reader(self) -> AnswerReader | None:
        """Reads the answers of the current run, where a feature decides who gives them."""
        return next((part.reader for part in self.parts if part.reader is not None), None)

    def _begin_run(self, journal: Journal) -> CurrentRun:
        self.output = RunOutput(self.provider)
        self.agent_session = DurableSession.restore(self.agent_session_before, self.request, self.history_session_id)
        pending_calls = PendingCalls(
            self.request.turn_id,
            self.replies,
            journal,
            self.attempt.observers,
            answer_seconds=self.wait_rules.answer_seconds,
        )
        run = CurrentRun(
            request=self.request,
            label=self.attempt.label,
            agent=self.hosted_agent,
            provider=self.provider,
            session=self.agent_session,
            journal=journal,
            observers=self.attempt.observers,
            session_state=SessionState(self.agent_session, journal.recorded),
            pending_calls=pending_calls,
            gate=RunGate(pending_calls, collects=self.collects),
            progress=StreamProgress(),
            output=self.output,
            retry_policy=self.retry_policy,
            breaks=self._breaks,
            exchange_recorder=self.exchange_recorder if self.exchange_recorder.is_enabled else None,
            bounds=self.bounds,
            includes_error_texts=self.hosted_agent.includes_error_texts,
            wait_rules=self.wait_rules,
            new_scope=lambda path: CallScope(journal, path, partial(NestedRun, run, self.attempt.observers)),
            make_strategy_call=lambda call: chain_compaction_call(model_layers, JournalCompactionCalls(journal), call),
            rehydrate=self._rehydrate,
        )
        self.run = run = replace(run, parts=[feature.begin_run(run) for feature in self.features])
        model_layers = new_model_layers(run, drops_continuations=bool(self.losses) or self._sends_transcript)
        self._calls = RunCalls(
            partial(self._begin_model_call, run, model_layers),
            journal.next_tool_call,
            partial(chain_tool_call, new_tool_layers(run)),
            partial(run.pending_calls.removed_tools, journal.path),
        )
        return run

    async def _begin_model_call(
        self, run: CurrentRun, layers: ModelLayers, context: ChatContext, send: Send
    ) -> ModelStream:
        """Choose the messages of the next model call, check that it may be made, and return its stream.

        Raises:
            RunStoppedError: the run is no longer wanted.
        """
        run.gate.raise_if_waiting()
        path, recorded_response = run.journal.next_model_call()
        while recorded_response is not None and (rejection := run.journal.recorded.rejections.get(path)) is not None:
            turn_traffic().started_calls.add(path)
            more_messages = await layers.journal.pass_over(path, recorded_response, rejection)
            context.messages = [*context.messages, *more_messages]
            path, recorded_response = run.journal.next_model_call()
        is_finished = recorded_response is not None
        turn_traffic().started_calls.add(path)
        for add_messages in [part.add_messages for part in run.parts if part.add_messages is not None]:
            await add_messages(context, path, is_replayed=is_finished)
        messages = await self._choose_messages(context, path, is_replayed=is_finished)
        if not is_finished:
            run.gate.check()
            check_model_call(self.bounds, started_count=1)
            messages = [*self._without_losses(messages)]
        options = dict(context.options or {})
        if not is_finished:
            await run.admit()
            run.gate.raise_if_waiting()
        return chain_model_call(layers, ModelCall(path, context.client, self.provider, messages, options, send))

    async def _choose_messages(self, context: ChatContext, path: CallPath, *, is_replayed: bool) -> Sequence[Message]:
        if (run_context := self.context) is None:
            return context.messages
        if self.agent_session.input_messages:
            run_context.question = self.agent_session.input_messages[-1]
        return await run_context.project(context, path, replayed=is_replayed)

    async def _run_once(self, run: CurrentRun) -> None:
        if parts := run.journal.recorded.workflow_parts:
            self.agent_session.state[WORKFLOW_STATE] = parts[-1].result["checkpoint"]
        messages = await self._prepare()
        try:
            await self._stream(run, messages)
        finally:  # the rest of the run is part of cycles, and waits for the collector of garbage
            self.agent_session.transcript = ()
            for end in [part.end for part in run.parts if part.end is not None]:
                end()

    async def _stream(self, run: CurrentRun, messages: list[Message]) -> None:
        agent = self.hosted_agent.for_run(
            self.request.turn_id,
            self._calls,
            self.output.fold_call,
            (self._reader or self.provider).continuation_messages,
            with_tools=self.request.enable_tool_calls,
            has_transcript=bool(self.agent_session.transcript),
        )
        if self.history is not None:
            agent = self.history.adapt_agent(agent)
        questions = self._new_questions(run, agent) if isinstance(agent, HostedWorkflow) else None
        if questions is not None:
            await questions.resume()
            run.gate.raise_if_waiting()
        if self.hosted_agent.is_opaque:
            await self._record_agent_start(run)
        self.hosted_agent.check_client_tools(self.request)
        while True:
            start = len(self.output)
            stretch = TaskSlice()
            apply_result = partial(self.output.apply_result, start) if self._has_middleware else None
            options = build_options(self.request)
            async with aclosing(stream_updates(agent, messages, self.agent_session, options, apply_result)) as updates:
                async for update in updates:
                    if not self.hosted_agent.is_workflow:  # other agents of the workflow may go on
                        run.gate.raise_if_waiting()
                    await self._collect(run, update)
                    await stretch.pause()
            if run.pending_calls.pending or not (next_messages := await self._find_next_messages(run, messages, start)):
                break
            messages = next_messages
        if questions is not None:
            await questions.ask()
        run.gate.raise_if_waiting()

    def _new_questions(self, run: CurrentRun, workflow: HostedWorkflow) -> WorkflowQuestions:
        return WorkflowQuestions(
            workflow,
            run.journal,
            run.pending_calls,
            self.agent_session,
            run.session_state,
            self.output,
            run.progress,
            partial(self._collect, run),
        )

    async def _find_next_messages(self, run: CurrentRun, sent: list[Message], start: int) -> list[Message]:
        """Return the messages with which the run continues after an answer; none at its end.

        They answer what the provider's tools ask, or were sent to the turn while the answer was made.
        """
        if not self.hosted_agent.has_journal:
            return []
        response_messages = self.output.response(start).messages
        next_messages = await answer_requests(
            run.pending_calls, run.journal, run.observers, self.provider, response_messages
        )
        if next_messages:
            await self._collect_replies(run, next_messages)
        else:
            questions = [part.next_messages for part in run.parts if part.next_messages is not None]
            next_messages = [message for ask in questions for message in await ask()]
        if run.pending_calls.pending or not next_messages:
            return []
        session = self.agent_session
        if session.service_session_id:  # the service has the conversation, and accepts only new messages
            session.transcript = ()
            unsent_results = [*takewhile(lambda message: message.role == "tool", reversed(response_messages))][::-1]
            return [*unsent_results, *next_messages]
        session.transcript = self.provider.as_history([*session.transcript, *sent, *response_messages])
        return next_messages

    async def _collect_replies(self, run: CurrentRun, messages: Sequence[Message]) -> None:
        is_replayed = CallPath().model_call(run.journal.position + 1) in run.journal.recorded.responses
        for message in messages:
            update = AgentResponseUpdate(role=message.role, contents=message.contents)
            self.output.add(update, None)
            if message.role == "tool":
                await self.attempt.observers.notify(UpdateReceived(update, is_replayed))

    async def _collect(self, run: CurrentRun, update: AgentResponseUpdate) -> None:
        source = run.progress.source
        is_replayed = source is REPLAYED
        self.output.served_model = getattr(update.raw_representation, "model", None) or self.output.served_model
        if is_replayed:
            update.raw_representation = ItemPart(None)  # nothing joins what was folded before
        self.output.add(update, source.position if isinstance(source, LiveStream) else None)
        await self.attempt.observers.notify(UpdateReceived(update, is_replayed))

    async def _record_agent_start(self, run: CurrentRun) -> None:
        """Record that an agent without a journal begins; it does not begin a second time unless it allows that."""
        journal = run.journal
        recorded_call = journal.recorded.tools.get(AGENT_RUN)
        if self.collects is not None:
            raise RunStoppedError(self.collects)
        if (
            recorded_call is not None
            and recorded_call.starts
            and not self.losses
            and not self.hosted_agent.may_run_again
        ):
            raise TurnError(
                f"the process ended while agent {self.request.agent!r} was running, and what it had done is not "
                "known: look before you ask again. The agent has no journal to go on from: "
                f"{self.hosted_agent.why_no_journal}"
            )
        await journal.tool_started(AGENT_RUN, self.request.agent, {})

    @property
    def _sends_transcript(self) -> bool:
        """Whether a service that keeps the conversation is not continued: it is too long there, or another answers."""
        return any(part.sends_transcript for part in self.parts)

    async def _restart_after(self, run: CurrentRun, error: Exception) -> RunRestarted | None:
        """Return whether and when the agent is run again after an error: by a feature, or because something is lost."""
        for restart_after in [part.restart_after for part in run.parts if part.restart_after is not None]:
            if (restart := await restart_after(error)) is not None:
                return restart
        return self._repeats(run, error)

    def _repeats(self, run: CurrentRun, error: Exception) -> RunRestarted | None:
        """Return whether and when the agent is run again after an error.

        With a journal, every finished call is replayed. Without one, a turn is run again only when its first request
        was refused: nothing has been streamed then, and no tool has run.
        """
        provider = self.provider if (reader := self._reader) is None else reader.provider
        loss = provider.lost_state(error)
        if loss is None:
            return run.progress.restart
        if (self.output.updates_streamed and self.hosted_agent.is_opaque) or run.journal.recorded.workflow_parts:
            return None
        is_new = self.losses.add(loss, self.agent_session, provider)
        return RunRestarted(loss.reason, 0.0) if is_new else None

    @property
    def _has_middleware(self) -> bool:
        return bool(getattr(self.hosted_agent.agent, "middleware", None))

    async def _prepare(self) -> list[Message]:
        """Give the session its transcript, and return the messages of the run."""
        contents = [decode_content(content) for content in self.request.contents] or [self.request.message]
        message = Message(self.request.role, contents)
        self.provider.check_message(message)
        if self._has_middleware:
            self._sent = tuple(encode_content(content) for content in message.contents)
        if self.context is not None:
            self.context.question = message
        session = self.agent_session
        self.losses.clear_continuation(session)
        if self._sends_transcript:
            session.service_session_id = None
        session.leave_other_service(self.provider)
        if session.service_session_id or self.hosted_agent.restores(session) or self.hosted_agent.has_own_history:
            return [message]
        transcript = await self._transcript()
        if not self.hosted_agent.owns_history:
            return [*transcript, message]
        session.transcript = transcript
        return [message]

    async def _transcript(self) -> list[Message]:
        """Rehydrate what of the record is the context; segments of which nothing is in it are not read."""
        context = self.context
        head = self.record.session
        entries = await entries_of_context(self.record, None if context is None else context.before)
        self._check_providers([*entries.values()])
        if context is None:
            build_messages = partial(replay_messages, entries.values())
        else:
            build_messages = partial(context_messages, entries, context.before, count=head.message_count)
        omits_refusals = self.provider.omits_refusals
        return await run_in_thread_if_many(
            len(entries),
            lambda: self._rehydrate(build_messages(omits_refusals=omits_refusals)),
        )

    def _rehydrate(self, messages: Sequence[Message]) -> list[Message]:
        """Prepare earlier messages for the model."""
        marked_messages = self.losses.mark(messages, self.agent_session, self.provider)
        request = self.request
        return self.provider.replay(marked_messages, session_id=f"{request.agent}@{request.session_id}")

    def _check_providers(self, entries: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """Refuse to continue without the messages kept by a provider that the agent no longer has."""
        for provider_name in filter(None, map(external_provider_of, entries)):
            raise TurnError(
                f"messages of this session are kept by {provider_name}, which agent {self.request.agent!r} no "
                "longer has: add it to the agent again, or begin a new session"
            )
        return entries

    def _without_losses(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Mark what the service can no longer use or refuses, also in the turn's own output."""
        if self.losses or self.agent_session.lost_state:
            messages = self.losses.mark(messages, self.agent_session, self.provider, is_request=True)
        self.losses.request_messages = messages
        return messages
