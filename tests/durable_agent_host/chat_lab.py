"""The practice model's Chat Completions in this process, and turns that are run live or from JSON state against it."""

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import openai
from agent_framework import Agent, Message
from agent_framework_openai import OpenAIChatCompletionClient

from durable_agent_host.agent.runner import AgentRunner
from durable_agent_host.providers.chat_completions.provider import CHAT
from durable_agent_host.providers.registry import provider_for
from durable_agent_host.stream.fold import fold_updates
from tests.durable_agent_host.wire_lab import Lab, Mortal, live_turn


@dataclass
class ChatLab(Lab):
    """A practice model with fixed ids, and an agent that asks it for chat completions."""

    host: str = "model"

    @asynccontextmanager
    async def agent(self):
        """Make a new client and a new agent, as a new process does."""
        async with httpx2.AsyncClient(transport=Mortal(self)) as http:
            sdk = openai.AsyncOpenAI(api_key="k", base_url=f"http://{self.host}/v1", http_client=http, max_retries=0)
            client = OpenAIChatCompletionClient(model=self.model, async_client=sdk)
            yield Agent(
                client,
                "Be brief.",
                name="Lab",
                tools=list(self.tools),
                default_options=dict(self.options),
                **self.agent_arguments,
            )

    async def live_turns(self, texts) -> None:
        """Run turns in one process with one session object and the messages as they were in memory."""
        async with self.agent() as agent:
            runner = AgentRunner("Lab", agent, provider_for)
            session = None
            said: list[Message] = []
            for text in texts:
                message = Message("user", [text])
                session, updates = await live_turn(runner, session, said, message)
                said += [message, *fold_updates(updates, CHAT).messages]

    def says(self, *, times: int = 1, **fields: Any) -> None:
        """Script an answer with the fields of a message."""
        self.plan({"item": {"type": "chat.completion.message", **fields}}, times=times)

    def streams(self, *deltas: dict[str, Any], finish: str = "stop", **beside: Any) -> None:
        """Script an answer by its deltas, each an event of its own."""
        ended = [*({"delta": delta} for delta in deltas), {"delta": {}, "finish_reason": finish}]
        chunks = [{"choices": [{"index": 0, "finish_reason": None, **choice}]} for choice in ended]
        self.plan({"items": [{"item": {"type": "chat.completion.chunk", **chunk, **beside}} for chunk in chunks]})

    @property
    def said(self) -> list[list[dict[str, Any]]]:
        """The messages of every request that the model got, without the names of their authors."""
        return [
            [{name: value for name, value in message.items() if name != "name"} for message in body["messages"]]
            for body in self.bodies
        ]

    @property
    def refusals(self) -> list[Any]:
        """What the service objected to."""
        return [entry["error"] for entry in self.service.request_log.entries if entry["ended"] == "refused"]
