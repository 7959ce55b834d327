"""The practice model in this process, and turns that are run live or from JSON state against it."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import httpx2
import openai
import openai.resources.responses.responses as sdk_responses
from agent_framework import Agent, AgentSession, Message
from agent_framework_openai import OpenAIChatClient
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

from durable_agent_host.agent.agent_runner import AgentRunner
from durable_agent_host.agent.run_result import Cancelled
from durable_agent_host.codec.entity_state import decode_session, encode_session
from durable_agent_host.features.compaction.feature import CompactionOfAgent
from durable_agent_host.features.registry import activity_features
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.providers.openai.provider import RESPONSES
from durable_agent_host.providers.registry import provider_for
from durable_agent_host.session.admission import ReceiptWindow, commit_outcome
from durable_agent_host.stream.fold import ItemReader, fold_updates
from durable_agent_host.turn_log.protocol import TurnLog
from practice_model.rules.requests import Rules
from tests.null_turn_log import NullTurnLog
from tests.stand_ins.recordings import RecordedPlan
from tests.stand_ins.server import StandIns


@dataclass
class Lab:
    """A practice model with fixed ids, and an agent that asks it."""

    provider: ClassVar[ItemReader] = RESPONSES
    default_options: ClassVar[Mapping[str, Any]] = {}
    model: str = "practice-reasoning"
    tools: Sequence[Any] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    rules: Rules = field(default_factory=lambda: Rules(is_strict=True))
    recordings: Path | None = None
    providers: Sequence[Any] = ()
    compaction: Callable[[Any], Any] = lambda client: None
    agent_arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        self.service = StandIns(self.recordings, self.rules, seed="wire")
        self.session = Session()
        self.turns = 0
        self.dies_in = 0
        self.dead = asyncio.Event()

    def plan(self, *steps, times=1, **when):
        """Script the next model calls."""
        self.service.plans.append(RecordedPlan.parse({"steps": list(steps), "times": times, "when": when}))

    @asynccontextmanager
    async def agent(self):
        """Make a new client and a new agent, as a new process does."""
        async with httpx2.AsyncClient(transport=Mortal(self)) as http:
            yield Agent(
                self.client(http),
                "Be brief.",
                name="Lab",
                tools=list(self.tools),
                default_options={**self.default_options, **self.options},
                context_providers=list(self.providers) or None,
                **self.agent_arguments,
            )

    def client(self, http: httpx2.AsyncClient) -> Any:
        """Make the client of an agent."""
        sdk = openai.AsyncOpenAI(api_key="k", base_url="http://model/v1", http_client=http, max_retries=0)
        client = OpenAIChatClient(model=self.model, async_client=sdk)
        client.additional_properties["service"] = "OpenAI"
        return client

    async def cold_turn(self, text: str, open_log: Callable[[], TurnLog] = NullTurnLog) -> TurnOutcome:
        """Run a turn as a process does that knows the session from its JSON state alone."""
        async with self.agent() as agent:
            return await self._turn(self.runner(agent, open_log), text)

    async def waiting_turn(
        self, text: str, open_log: Callable[[], TurnLog], result: Any = None, *, is_cancelled: bool = False
    ) -> TurnOutcome:
        """Run a turn until it waits, then answer its calls with one result or cancel it, as a new process does."""
        async with self.agent() as agent:
            waiting_outcome = await self._attempt(self.runner(agent, open_log), text)
        assert waiting_outcome.status == "suspended", waiting_outcome
        replies = {call["call_id"]: {"result": result} for call in waiting_outcome.pending}
        ending: dict[str, Any] = {"collects": Cancelled()} if is_cancelled else {"replies": replies}
        async with self.agent() as agent:
            return await self._turn(self.runner(agent, open_log), text, **ending)

    async def warm_turns(self, texts: Sequence[str]) -> list[TurnOutcome]:
        """Run turns in one process, with one agent and the session as it is in memory."""
        async with self.agent() as agent:
            runner = self.runner(agent)
            return [await self._turn(runner, text, is_warm=True) for text in texts]

    async def killed_turn(self, text: str, at: int, open_log: Callable[[], TurnLog]) -> TurnOutcome:
        """Abandon a turn when it is about to send a request, and run it again as a new process does.

        Args:
            text: of the user.
            at: which request of the turn, from 1; the turn ends before when it sends fewer.
            open_log: gives the turn log that both attempts write.
        """
        self.dies_in, self.dead = at, asyncio.Event()
        async with self.agent() as agent:
            running = asyncio.create_task(self._turn(self.runner(agent, open_log), text))
            died = asyncio.create_task(self.dead.wait())
            await asyncio.wait({running, died}, return_when=asyncio.FIRST_COMPLETED)
            died.cancel()
            await asyncio.wait({died})
            if not self.dead.is_set():
                self.dies_in = 0
                return await running
            running.cancel()
            await asyncio.wait({running})
        async with self.agent() as agent:
            return await self._turn(self.runner(agent, open_log), text)

    def runner(self, agent: Agent, open_log: Callable[[], TurnLog] = NullTurnLog) -> AgentRunner:
        """Make the runner of a process."""
        features = activity_features(agent, CompactionOfAgent(self.compaction(agent.client)))
        return AgentRunner("Lab", agent, provider_for, open_log=open_log, features=features)

    async def _attempt(self, runner: AgentRunner, text: str, *, is_warm: bool = False, **ending: Any) -> TurnOutcome:
        session = self.session if is_warm else decode_session(json.loads(json.dumps(encode_session(self.session))))
        return await runner.run(session, TurnRequest("Lab", "session-1", f"turn-{self.turns}", text), **ending)

    async def _turn(self, runner: AgentRunner, text: str, *, is_warm: bool = False, **ending: Any) -> TurnOutcome:
        outcome = await self._attempt(runner, text, is_warm=is_warm, **ending)
        self.turns += 1
        self.session, _ = commit_outcome(self.session, outcome, window=ReceiptWindow(keep=1))
        return outcome

    async def live_turns(self, texts: Sequence[str]) -> None:
        """Run turns in one process with one session object and the messages as they were in memory."""
        async with self.agent() as agent:
            runner = AgentRunner("Lab", agent, provider_for, open_log=NullTurnLog, features=activity_features(agent))
            session = None
            history: list[Message] = []
            for text in texts:
                message = Message("user", [text])
                session, updates = await live_turn(runner, session, history, message)
                history += [message, *fold_updates(updates, self.provider).messages]

    async def framework_turns(self, texts: Sequence[str]) -> None:
        """Run turns with the framework alone: its client, its history, one session object."""
        async with self.agent() as agent:
            session = AgentSession(session_id="session-1")
            for text in texts:
                await agent.run(text, stream=True, session=session).get_final_response()

    @property
    def inputs(self) -> list[list[dict[str, Any]]]:
        """The input items of every request that the model got."""
        return [entry["body"]["input"] for entry in self.service.request_log.entries]

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The body of every request that the model got."""
        return [entry["body"] for entry in self.service.request_log.entries]

    @property
    def bodies_of_the_sdk(self) -> list[dict[str, Any]]:
        """The bodies as the SDK writes them when it reads each item of the input."""
        return [sdk_responses.maybe_transform(body, ResponseCreateParamsStreaming) for body in self.bodies]

    @property
    def refusals(self) -> list[Any]:
        """What the service objected to."""
        return [entry["error"] for entry in self.service.request_log.entries if entry["ended"] == "refused"]

    @property
    def endings(self) -> list[str]:
        """How every request ended."""
        return [entry["ended"] for entry in self.service.request_log.entries]


class Mortal(httpx2.ASGITransport):
    """The way to the practice model; a process that dies sends no more on it."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(app=lab.service.app)
        self._lab = lab

    async def handle_async_request(self, request):
        """Send a request, unless the process dies now."""
        self._lab.dies_in -= 1
        if self._lab.dies_in == 0:
            self._lab.dead.set()
            await asyncio.Event().wait()
        return await super().handle_async_request(request)


async def live_turn(runner, session, history, message):
    """Run one turn of a process that keeps everything in memory; give its session and its updates."""
    from durable_agent_host.agent.durable_session import DurableSession

    session = session or DurableSession(session_id="session-1")
    session.transcript = [] if session.service_session_id else list(history)
    stream = runner.hosted.agent.run([message], stream=True, session=session)
    updates = [update async for update in stream]
    await stream.get_final_response()
    return session, updates
