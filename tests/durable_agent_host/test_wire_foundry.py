"""Foundry's clients, which are clients of the Responses API: what they send from stored state alone."""

from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2
import pytest
from agent_framework import Agent, FunctionTool, Message
from agent_framework_openai import OpenAIChatClient

from durable_agent_host.providers.openai.item_mapping import complete_item
from durable_agent_host.providers.openai.provider import RESPONSES
from durable_agent_host.providers.registry import provider_for
from tests.durable_agent_host.wire_lab import Lab, Mortal

pytest.importorskip("agent_framework_foundry", reason="needs the extra foundry")
from agent_framework_foundry import FoundryAgent, FoundryChatClient
from azure.ai.projects.aio import AIProjectClient
from azure.core.credentials import AccessToken


class Credential:
    """Gives a token that the practice model does not look at."""

    async def get_token(self, *_scopes, **_options):
        """Give the token."""
        return AccessToken("k", 4_000_000_000)

    async def close(self):
        """Close nothing."""


class Project(AIProjectClient):
    """A project whose service is the practice model."""

    http: httpx2.AsyncClient

    def get_openai_client(self, **options):
        """Make the client of the Responses API."""
        local = {"base_url": "http://model/v1", "api_key": "k", "http_client": self.http, "max_retries": 0}
        return super().get_openai_client(**(options | local))


@dataclass
class FoundryLab(Lab):
    """An agent by Foundry's clients."""

    has_agent: bool = False

    @asynccontextmanager
    async def agent(self):
        """Make a new client and a new agent, as a new process does."""
        async with (
            httpx2.AsyncClient(transport=Mortal(self)) as http,
            Project("https://example.services.ai.azure.com/api/projects/p", Credential()) as project,
        ):
            project.http = http
            if self.has_agent:
                agent_options = {"agent_name": "Lab", "agent_version": "1", "name": "Lab"}
                yield FoundryAgent(project_client=project, tools=list(self.tools), **agent_options)
            else:
                client = FoundryChatClient(project_client=project, model=self.model)
                yield Agent(client, "Be brief.", name="Lab", tools=list(self.tools), default_options=self.options)


def weather(city: str) -> str:
    """Tell the weather."""
    return f"rain in {city}"


def tool():
    """The tool that the model calls."""
    return FunctionTool(name="weather", func=weather)


async def test_the_chat_client_of_foundry_keeps_its_items():
    """A cold process sends on every turn what a live one does: reasoning, calls with their ids, answers."""
    options = {"store": False, "include": ["reasoning.encrypted_content"]}
    labs = [FoundryLab(tools=[tool()], options=options) for _ in range(2)]
    for lab in labs:
        lab.plan(
            {"reasoning": "Hm.", "calls": [{"name": "weather", "arguments": '{"city":  "Oslo"}'}]}, {"text": "Rain."}
        )
    cold, live = labs
    for text in ("one", "two"):
        outcome = await cold.cold_turn(text)
        assert outcome.error is None, outcome.error
    await live.live_turns(["one", "two"])
    assert cold.bodies == live.bodies
    thought, call = (item for item in cold.inputs[-1] if item.get("type") in {"function_call", "reasoning"})
    assert (bool(thought["encrypted_content"]), call["arguments"]) == (True, '{"city":  "Oslo"}')
    async with cold.agent() as agent:
        assert provider_for(agent.client) is RESPONSES


async def test_reasoning_that_foundry_has_stored_goes_back_to_it_alone():
    """It is not encrypted: the service finds it by its response."""
    thought = {"type": "reasoning", "id": "rs_1", "response_id": "resp_1", "summary": [], "content": []}
    answer = {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}
    history = [
        Message("assistant", [*complete_item([], thought), *complete_item([], answer)]),
        Message("user", ["go on"]),
    ]
    async with FoundryLab().agent() as agent:
        for client, items in ((agent.client, [thought]), (OpenAIChatClient(model="m", api_key="k"), [])):
            options = await RESPONSES.adapt(client)._prepare_options(history, {"store": False})
            assert [item for item in options["input"] if item["type"] == "reasoning"] == items


async def test_an_agent_of_foundry_continues_its_session():
    """Every request names the agent; its session and the response that it continues outlive the process."""
    lab = FoundryLab(tools=[tool()], has_agent=True)
    lab.plan({"calls": [{"name": "weather", "arguments": '{"city": "Oslo"}'}]}, {"text": "Rain."}, {"text": "Yes."})
    for text in ("one", "two"):
        outcome = await lab.cold_turn(text)
        assert outcome.error is None, outcome.error
    assert {body["agent_reference"]["name"] for body in lab.bodies} == {"Lab"}
    first, *later = [body.get("agent_session_id") for body in lab.bodies]
    assert first is None
    assert len(set(later)) == 1
    assert later[0]
    assert lab.bodies[-1]["previous_response_id"]
    assert [item["role"] for item in lab.inputs[-1]] == ["user"]
