"""The agent's work in one attempt of a turn: as many runs as it takes, each through the journal."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, cast

from agent_framework import AgentResponse, AgentResponseUpdate, AgentSession, Message, SupportsAgentRun

from durable_agent_host.codec.identity import identify_calls
from durable_agent_host.durable.adapter import ProviderAdapter
from durable_agent_host.durable.attempt import Attempt
from durable_agent_host.durable.hosted import HostedAgent
from durable_agent_host.durable.listener import TurnListener
from durable_agent_host.durable.provider_approvals import answer_requests
from durable_agent_host.durable.retries import RetryPolicy
from durable_agent_host.durable.running import AgentRun, RunStoppedError
from durable_agent_host.errors import TurnError
from durable_agent_host.history.provider import DurableSession, without_carriers
from durable_agent_host.log.journal import Journal, ToolKey
from durable_agent_host.model.provider_item import Forgotten, ItemPart
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.turns.fold import fold_updates
from durable_agent_host.turns.transcript import replay_messages

_LOGGER = logging.getLogger(__name__)
_WHOLE_AGENT = ToolKey(-1, "agent", 0)
"""How the run of an agent without a journal is noted, as if it were one tool call."""


@dataclass(frozen=True)
class RunLimits:
    """How long and how often.

    Attributes:
        turn_seconds: how long the agent may work on a turn, from the start of an attempt.
        retry_policy: for model calls.
    """

    turn_seconds: float = 1800.0
    retry_policy: RetryPolicy = field(default_factory=RetryPolicy)


@dataclass
class AgentWork:
    """What one attempt of a turn does, and what has come of it so far.

    Attributes:
        session: as it was when the turn was granted.
        request: what was asked.
        answers: what persons have decided, by the id under which they were asked.
        was_cancelled: the turn was cancelled while it waited: only what is in the journal is gathered.
        updates: of the current run, each with the position of the open model call that it came from, or None.
        agent_session: the framework's session of the current run.
        lost: what the model's service turned out to have forgotten.
        run: the current one.
        began_at: by `time.perf_counter`.
    """

    hosted: HostedAgent
    provider: ProviderAdapter
    listener: TurnListener
    limits: RunLimits
    attempt: Attempt
    session: Session
    request: TurnRequest
    answers: Mapping[str, Mapping[str, Any]]
    was_cancelled: bool = False
    updates: list[tuple[AgentResponseUpdate, int | None]] = field(
        default_factory=list[tuple[AgentResponseUpdate, int | None]]
    )
    agent_session: DurableSession = field(default_factory=DurableSession)
    lost: list[Forgotten] = field(default_factory=list[Forgotten])
    run: AgentRun | None = None
    began_at: float = field(default_factory=time.perf_counter)

    async def finish(self) -> None:
        """Run the agent to its end.

        Raises:
            RunStoppedError: it waits for a person, was cancelled before, or cannot write its log.
            Exception: what the agent, the model or a tool raised, when another run would not help.
        """
        breaks: dict[int, int] = {}
        while True:
            run = self.run = self._new_run(
                await self.attempt.begin_run(tells_functions=not self.hosted.has_journal), breaks
            )
            try:
                await self._run_once(run)
            except Exception as error:
                if (seconds := self._wait_before_next_run(run, error)) is None:
                    raise
            else:
                return
            if run.broken is not None:
                breaks[run.broken.position] = breaks.get(run.broken.position, 0) + 1
            await asyncio.sleep(seconds)
            await self.attempt.read_again()

    def milliseconds(self) -> float:
        """How long the agent has worked."""
        return round((time.perf_counter() - self.began_at) * 1000, 1)

    def _new_run(self, journal: Journal, breaks: Mapping[int, int]) -> AgentRun:
        self.updates = []
        self.agent_session = _restore_session(self.session, self.request)
        return AgentRun(
            turn_id=self.request.turn_id,
            journal=journal,
            answers=self.answers,
            retry_policy=self.limits.retry_policy,
            explain_error=self.provider.explain_error,
            ended_early=self.provider.ended_early,
            fold=lambda updates: fold_updates(updates, self.provider),
            replay_only=self.was_cancelled,
            drop_continuations=bool(self.lost),
            prepare_messages=self._without_forgotten,
            breaks=dict(breaks),
        )

    async def _run_once(self, run: AgentRun) -> None:
        messages = self._prepare()
        agent = self.hosted.for_run(run, with_tools=self.request.enable_tool_calls)
        if not self.hosted.has_journal:
            await self._note_whole_agent(run.journal)
        while True:
            start = len(self.updates)
            async with aclosing(_updates(agent, messages, self.agent_session, _options(self.request))) as updates:
                async for update in updates:
                    if run.pending:
                        raise RunStoppedError
                    await self._take(run, update)
            if run.pending or (answers := await self._provider_answers(run, messages, start)) is None:
                break
            messages = answers
        if run.pending:
            raise RunStoppedError

    async def _provider_answers(self, run: AgentRun, sent: list[Message], start: int) -> list[Message] | None:
        """Give the messages with which the run goes on after requests for approval of the provider, or None."""
        if not self.hosted.has_journal:
            return None
        said = fold_updates([update for update, _ in self.updates[start:]], self.provider).messages
        answer = await answer_requests(run, said)
        if answer is None:
            return None
        self.updates.append((AgentResponseUpdate(role="user", contents=answer.contents), None))
        said_before = [*self.agent_session.transcript, *sent, *said]
        self.agent_session.transcript = self.provider.as_history(said_before)
        return [answer]

    async def _take(self, run: AgentRun, update: AgentResponseUpdate) -> None:
        is_replayed = run.is_replaying
        if is_replayed:
            update.raw_representation = ItemPart(None)  # nothing joins what was folded before
        self.updates.append((update, run.open_position))
        await self.attempt.tell(update, is_replayed=is_replayed)
        if not is_replayed:
            await self.listener.on_update(self.request, update)

    async def _note_whole_agent(self, journal: Journal) -> None:
        """Note that an agent without a journal begins; it is not begun a second time without a word."""
        known = journal.recorded.tools.get(_WHOLE_AGENT)
        if self.was_cancelled:
            raise RunStoppedError
        if known is not None and known.starts and not self.hosted.may_run_again:
            raise TurnError(
                f"the process ended while agent {self.request.agent!r} was running, and what it had done is not known: "
                "look before you ask again. Agents with a chat client of the framework go on from their journal"
            )
        await journal.tool_started(_WHOLE_AGENT, self.request.agent, {})

    def _wait_before_next_run(self, run: AgentRun, error: Exception) -> float | None:
        """Decide whether the agent is run again after an error, and after how many seconds.

        With a journal, every call that is finished is replayed. Without one, only a turn whose first request was
        refused is run again: nothing has been streamed then, and no tool has run.
        """
        forgotten = self.provider.forgotten_by_service(error)
        if forgotten is None:
            return run.broken.wait_seconds if run.broken is not None else None
        if forgotten in self.lost or (self.updates and not self.hosted.has_journal):
            return None
        if forgotten.what == "continuation" and not self.agent_session.service_session_id:
            return None
        _LOGGER.warning(
            "turn %s: the model's service can no longer use the %s; going on from the stored transcript",
            self.request.turn_id,
            forgotten.what,
        )
        self.lost.append(forgotten)
        return 0.0

    def _prepare(self) -> list[Message]:
        """Give the session its transcript; returns the messages of the run."""
        message = Message(self.request.role, [self.request.message])
        session = self.agent_session
        if self.lost:
            session.service_session_id = None
        if session.service_session_id:
            return [message]
        transcript = self.provider.as_history(replay_messages(self.session.entries))
        identify_calls(transcript, session_id=f"{self.request.agent}@{self.request.session_id}")
        transcript, session.forgotten = self.provider.without_forgotten(transcript, session.forgotten, self.lost)
        if not self.hosted.keeps_items:
            transcript = without_carriers(transcript)
        if not self.hosted.owns_history:
            return [*transcript, message]
        session.transcript = transcript
        return [message]

    def _without_forgotten(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Mark what the service can no longer use, in what the turn itself has produced, too."""
        if not self.lost or self.agent_session.service_session_id:
            return messages
        marked, self.agent_session.forgotten = self.provider.without_forgotten(
            messages, self.agent_session.forgotten, self.lost
        )
        return marked


async def _updates(
    agent: SupportsAgentRun, messages: list[Message], session: AgentSession, options: dict[str, Any]
) -> AsyncGenerator[AgentResponseUpdate]:
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
            await cast("Awaitable[Any]", finish())  # runs the framework's end of a run: providers, the session's id
    finally:
        if callable(close := getattr(running, "close", None)):
            await cast("Awaitable[Any]", close())


def _options(request: TurnRequest) -> dict[str, Any]:
    options = dict(request.options)
    if request.response_format is not None:
        options["response_format"] = dict(request.response_format)
    if not request.enable_tool_calls:
        options.pop("tools", None)
        options["tool_choice"] = "none"
    return options


def _restore_session(session: Session, request: TurnRequest) -> DurableSession:
    if session.agent_session is not None:
        restored = cast("DurableSession", DurableSession.from_dict(dict(session.agent_session)))
    else:
        restored = DurableSession(session_id=request.session_id)
    restored.turn_id = request.turn_id
    return restored
