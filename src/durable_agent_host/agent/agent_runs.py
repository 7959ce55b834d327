"""The agent's runs in one attempt of a turn: as many as needed, each through the journal.

A run begins at the turn's start; finished calls are answered from the journal. It is repeated when the stream of a
model call broke midway, or when the model's service has lost what the request relied on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial

from agent_framework import ChatContext, Message

from durable_agent_host.agent.call_middleware import RunCalls, Send
from durable_agent_host.agent.call_order import chain_model_call, chain_tool_call, journal_model_calls
from durable_agent_host.agent.call_scope import CALL_SCOPE, CallScope
from durable_agent_host.agent.durable_session import DurableSession, LostProviderState, SessionState
from durable_agent_host.agent.feature import AgentFeature, AttemptStart, CurrentRun, RunPart
from durable_agent_host.agent.hosted_agent import HostedAgent, build_options, stream_updates
from durable_agent_host.agent.http_exchange import EXCHANGES
from durable_agent_host.agent.model_call import ModelCall, ModelStream
from durable_agent_host.agent.nested_runs import NestedRun
from durable_agent_host.agent.observer import RunRestarted
from durable_agent_host.agent.pending_calls import PendingCalls
from durable_agent_host.agent.response_limits import TRAFFIC, TurnTraffic, check_model_call, turn_traffic
from durable_agent_host.agent.run_gate import RunGate
from durable_agent_host.agent.run_messages import (
    ContentShare,
    choose_messages,
    find_next_messages,
    mark_losses,
    prepare_messages,
)
from durable_agent_host.agent.run_output import RunOutput
from durable_agent_host.agent.run_result import Stop
from durable_agent_host.agent.stream_progress import NestedStreamBrokenError, StreamProgress
from durable_agent_host.agent.workflow_agents import HostedWorkflow
from durable_agent_host.agent.workflow_questions import WorkflowQuestions, part_path
from durable_agent_host.concurrency.thread_offload import TaskSlice
from durable_agent_host.errors import TurnError
from durable_agent_host.model.call_path import AGENT_RUN, TURN_AGENT, CallPath
from durable_agent_host.model.session import WORKFLOW_STATE


@dataclass
class AgentRuns:
    """The runs of one attempt.

    Attributes:
        start: of the attempt; once they are loaded, its request has the bytes of its files.
        host: returns the agent for a run; a new one each time when the app gave a function that builds it.
        features: of the agent.
        collects: how the turn ends, if that was decided before: only what is in the journal is collected.
        run: the current one; None before the first.
    """

    start: AttemptStart
    host: Callable[[], Awaitable[HostedAgent]]
    features: Sequence[AgentFeature]
    collects: Stop | None
    run: CurrentRun | None = None

    @property
    def parts(self) -> Sequence[RunPart]:
        """The parts of the features in the current run; none before the first."""
        return self.run.parts if self.run is not None else ()

    async def finish(self) -> CurrentRun:
        """Run the agent until it has answered, and return the run in which it has.

        Raises:
            RunStoppedError: a run stops without an answer.
            Exception: raised by the agent, the model or a tool, when another run would not help.
        """
        traffic = TurnTraffic(self.start.bounds)
        TRAFFIC.set(traffic)  # in the context of this task, which ends with the attempt
        EXCHANGES.set(self.start.exchange_recorder)
        try:
            return await self._run_until_complete(traffic)
        finally:  # an abandoned stream would keep its connection until the next garbage collection
            await traffic.close_responses()

    async def _run_until_complete(self, traffic: TurnTraffic) -> CurrentRun:
        attempt = self.start.attempt
        self.start = start = replace(self.start, request=await self.start.load_message(self.start.request))
        losses = LostProviderState(start.request.turn_id)
        breaks: dict[CallPath, int] = {}
        while True:
            self.run = run = self._begin_run(await self.host(), losses, breaks)
            agent, recorded = run.agent, run.journal.recorded
            await attempt.begin_run(
                run.reader or agent.provider, has_journal=agent.has_journal, is_opaque=agent.is_opaque
            )
            traffic.inner_calls = max(traffic.inner_calls, len(recorded.compaction_responses))
            path = AGENT_RUN if agent.is_opaque else TURN_AGENT
            if recorded.workflow_parts:  # after a question, the workflow's agents count anew
                path = part_path(recorded)
            CALL_SCOPE.set(run.new_scope(path))
            try:
                await _run_once(run)
            except NestedStreamBrokenError as error:
                restart = error.restart
            except Exception as error:
                if (restart := await _find_restart(run, error)) is None:
                    raise
            else:
                return run
            await attempt.observers.notify(restart)
            await asyncio.sleep(restart.wait_seconds)
            await attempt.read_again()

    def _begin_run(
        self,
        agent: HostedAgent,
        losses: LostProviderState,
        breaks: dict[CallPath, int],
    ) -> CurrentRun:
        start = self.start
        observers = start.attempt.observers
        journal = start.attempt.new_journal()
        session = DurableSession.restore(start.agent_session, start.request, start.history_session_id)
        pending_calls = PendingCalls(
            start.request.turn_id,
            start.replies,
            journal,
            observers,
            answer_seconds=start.wait_rules.answer_seconds,
        )
        run = CurrentRun(
            start=start,
            agent=agent,
            session=session,
            journal=journal,
            observers=observers,
            session_state=SessionState(session, journal.recorded),
            pending_calls=pending_calls,
            gate=RunGate(pending_calls, collects=self.collects),
            progress=StreamProgress(),
            output=RunOutput(agent.provider),
            losses=losses,
            breaks=breaks,
            includes_error_texts=agent.includes_error_texts,
            new_scope=lambda path: CallScope(journal, path, partial(NestedRun, run, observers)),
            parts=[],
        )
        run.parts.extend([feature.begin_run(run) for feature in self.features])
        return run


async def _run_once(run: CurrentRun) -> None:
    if parts := run.journal.recorded.workflow_parts:
        run.session.state[WORKFLOW_STATE] = parts[-1].result["checkpoint"]
    share = ContentShare()
    try:
        await _stream(run, await prepare_messages(run, share))
    finally:  # the rest of the run is part of cycles, and waits for the collector of garbage
        run.session.transcript = ()
        share.reduce(0)
        for end in [part.end for part in run.parts if part.end is not None]:
            end()


async def _stream(run: CurrentRun, messages: list[Message]) -> None:
    request = run.start.request
    agent = run.agent.for_run(
        request.turn_id,
        _calls_of(run),
        run.output.fold_call,
        (run.reader or run.agent.provider).continuation_messages,
        with_tools=request.enable_tool_calls,
        has_transcript=bool(run.session.transcript),
    )
    for adapt_agent in [part.adapt_agent for part in run.parts if part.adapt_agent is not None]:
        agent = adapt_agent(agent)
    questions = WorkflowQuestions(run, agent) if isinstance(agent, HostedWorkflow) else None
    if questions is not None:
        await questions.resume()
        run.gate.raise_if_waiting()
    if run.agent.is_opaque:
        await _record_agent_start(run)
    run.agent.check_client_tools(request.client_tools)  # those of an MCP server are known by now
    while messages:
        start = len(run.output)
        stretch = TaskSlice()
        apply_result = partial(run.output.apply_result, start) if run.agent.has_middleware else None
        updates = stream_updates(agent, messages, run.session, build_options(request), apply_result)
        async with aclosing(updates):
            async for update in updates:
                if not run.agent.is_workflow:  # other agents of the workflow may go on
                    run.gate.raise_if_waiting()
                await run.collect(update)
                await stretch.pause()
        messages = await find_next_messages(run, messages, start)
    if questions is not None:
        await questions.ask()
    run.gate.raise_if_waiting()


async def _record_agent_start(run: CurrentRun) -> None:
    """Record that an agent without a journal begins; it does not begin a second time unless it allows that."""
    run.gate.raise_if_cancelled()
    recorded_call = run.journal.recorded.tools.get(AGENT_RUN)
    if recorded_call is not None and recorded_call.starts and not run.losses and not run.agent.may_run_again:
        raise TurnError(
            f"the process ended while agent {run.start.request.agent!r} was running, and what it had done is not "
            "known: look before you ask again. The agent has no journal to go on from: "
            f"{run.agent.why_no_journal}"
        )
    await run.journal.tool_started(AGENT_RUN, run.start.request.agent, {})


def _calls_of(run: CurrentRun) -> RunCalls:
    return RunCalls(
        partial(_begin_model_call, run),
        run.journal.next_tool_call,
        partial(chain_tool_call, run),
        partial(run.pending_calls.removed_tools, run.journal.path),
    )


async def _begin_model_call(run: CurrentRun, context: ChatContext, send: Send) -> ModelStream:
    """Choose the messages of the next model call, check that it may be made, and return its stream.

    Raises:
        RunStoppedError: the run is no longer wanted.
    """
    run.gate.raise_if_waiting()
    path, recorded_response = run.journal.next_model_call()
    while recorded_response is not None and (rejection := run.journal.recorded.rejections.get(path)) is not None:
        turn_traffic().started_calls.add(path)
        more_messages = await journal_model_calls(run).pass_over(path, recorded_response, rejection)
        context.messages = [*context.messages, *more_messages]
        path, recorded_response = run.journal.next_model_call()
    is_finished = recorded_response is not None
    turn_traffic().started_calls.add(path)
    messages = await choose_messages(run, context, path, is_replayed=is_finished)
    if not is_finished:
        run.gate.check()
        check_model_call()
        messages = mark_losses(run, messages)
        await run.admit()
        run.gate.raise_if_waiting()
    options = dict(context.options or {})
    return chain_model_call(run, ModelCall(path, context.client, run.agent.provider, messages, options, send))


async def _find_restart(run: CurrentRun, error: Exception) -> RunRestarted | None:
    """Return whether and when the agent is run again after an error: by a feature, or because something is lost.

    With a journal, every finished call is replayed. Without one, a turn is run again only when its first request was
    refused: nothing has been streamed then, and no tool has run.
    """
    for restart_after in [part.restart_after for part in run.parts if part.restart_after is not None]:
        if (restart := await restart_after(error)) is not None:
            return restart
    provider = run.agent.provider if run.reader is None else run.reader.provider
    loss = provider.lost_state(error)
    if loss is None:
        return run.progress.restart
    if (run.output.updates_streamed and run.agent.is_opaque) or run.journal.recorded.workflow_parts:
        return None
    return RunRestarted(loss.reason, 0.0) if run.losses.add(loss, run.session, provider) else None
