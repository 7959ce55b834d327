"""Turns of a client for Anthropic against the practice model in this process, run live or from JSON state."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anthropic
import httpx2
from agent_framework import Agent, Message
from agent_framework_anthropic import AnthropicClient

from durable_agent_host.agent.runner import AgentRunner
from durable_agent_host.model.session import Session
from durable_agent_host.providers.anthropic.provider import ANTHROPIC
from durable_agent_host.providers.registry import provider_for
from durable_agent_host.stream.fold import fold_updates
from practice_model.server import PracticeModel
from tests.durable_agent_host.wire_lab import Lab, Mortal, live_turn


@dataclass
class AnthropicLab(Lab):
    """A practice model with fixed ids, and an agent that asks it by the Messages API."""

    recordings_folder: Path | None = None

    def __post_init__(self):
        self.service = PracticeModel(seed="wire", recordings_folder=self.recordings_folder)
        self.session = Session()
        self.turns = 0
        self.dies_in = 0
        self.dead = asyncio.Event()

    @asynccontextmanager
    async def agent(self):
        """Make a new client and a new agent, as a new process does."""
        async with httpx2.AsyncClient(transport=Mortal(self)) as http:
            sdk = anthropic.AsyncAnthropic(
                api_key="k", base_url="http://model/anthropic", http_client=http, max_retries=0
            )
            yield Agent(
                AnthropicClient(model=self.model, anthropic_client=sdk),
                "Be brief.",
                name="Lab",
                tools=list(self.tools),
                default_options={"max_tokens": 1000, **self.options},
                context_providers=list(self.providers) or None,
                **self.agent_arguments,
            )

    async def live_turns(self, texts):
        """Run turns in one process with one session object and the messages as they were in memory."""
        async with self.agent() as agent:
            runner = AgentRunner("Lab", agent, provider_for)
            session = None
            said = []
            for text in texts:
                message = Message("user", [text])
                session, updates = await live_turn(runner, session, said, message)
                said += [message, *fold_updates(updates, ANTHROPIC).messages]

    @staticmethod
    def bare_client():
        """Make a client that asks nobody."""
        return AnthropicClient(model="m", anthropic_client=anthropic.AsyncAnthropic(api_key="k"))

    async def expire_containers(self):
        """Let the service lose all containers."""
        transport = httpx2.ASGITransport(app=self.service.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://model") as http:
            (await http.post("/practice/anthropic/containers/expire")).raise_for_status()

    @property
    def sent(self):
        """The messages of every request that the model got."""
        return [body["messages"] for body in self.bodies]

    @property
    def refusals(self):
        """What the service has refused."""
        return [entry["error"] for entry in self.service.request_log.entries if entry["ended"] == "refused"]
