"""An agent of every kind of client, each with the same tool; all ask the endpoint at ``MODEL_URL``."""

import os
from pathlib import Path

from agent_framework import (
    Agent,
    Message,
    WorkflowBuilder,
    WorkflowExecutor,
)
from agent_framework_anthropic import AnthropicClient
from agent_framework_gemini import GeminiChatClient
from agent_framework_openai import OpenAIChatClient, OpenAIChatCompletionClient
from agent_framework_orchestrations import GroupChatBuilder, SequentialBuilder
from anthropic import AsyncAnthropic
from google import genai
from pydantic import BaseModel

from durable_agent_host import DurableAgentApp
from durable_agent_host_azure_ai_agents import AzureAIAgentsChatClient

URL = os.environ["MODEL_URL"]


def say(words: int) -> str:
    """Say so many words, or as many levels of JSON for a negative number, and leave a line in the file ``EFFECTS``."""
    with Path(os.environ["EFFECTS"]).open("a", encoding="utf-8") as file:
        file.write("said\n")
    if words >= 0:
        return "word " * words
    return "[" * -words if words < -1000 else '{"a":' * -words + "0" + "}" * -words


options = genai.types.HttpOptions(base_url=URL)
clients = {
    "Responses": OpenAIChatClient(model="m", api_key="k", base_url=f"{URL}/v1"),
    "Completions": OpenAIChatCompletionClient(model="m", api_key="k", base_url=f"{URL}/v1"),
    "Claude": AnthropicClient(model="m", anthropic_client=AsyncAnthropic(api_key="k", base_url=URL)),
    "Gemini": GeminiChatClient(model="m", client=genai.Client(api_key="k", vertexai=False, http_options=options)),
    "Agents": AzureAIAgentsChatClient(agent_id="asst_1", endpoint=URL, api_key="k", poll_seconds=0.1),
}


def talker(kind: str, name: str, tool) -> Agent:
    """Make an agent with one kind of client, whose tool the model calls ``say``."""
    options = {"store": False} if kind == "Responses" else {}
    return Agent(clients[kind], "Talk.", name=name, tools=[tool], default_options=options)


class Counted(BaseModel):
    """What an agent answers whose own options ask for it."""

    words: int


def typed(kind: str) -> Agent:
    """Make an agent with a format of its own."""
    agent = talker(kind, f"Typed{kind}", say)
    agent.default_options["response_format"] = Counted
    return agent


def over(inner: Agent, name: str) -> Agent:
    """Make an agent whose tool is another."""
    return talker("Completions", name, inner.as_tool(name="say"))


def team(kind: str):
    """Make a workflow of one agent."""

    def build():
        return SequentialBuilder(participants=[talker(kind, "member", say)]).build().as_agent(f"Team{kind}")

    return build


def chat():
    """Make a group chat, in which an agent says who speaks next."""
    asks = talker("Completions", "asks", say)
    members = [talker("Completions", "first", say), talker("Completions", "second", say)]
    return GroupChatBuilder(participants=members, orchestrator_agent=asks, max_rounds=2).build().as_agent("Chat")


def build_nested_team():
    """Make a workflow in a workflow, of an agent whose tool is a workflow."""
    inner = over(SequentialBuilder(participants=[talker("Completions", "deep", say)]).build().as_agent("Low"), "High")
    within = SequentialBuilder(participants=[inner]).build()
    return SequentialBuilder(participants=[WorkflowExecutor(within, id="within")]).build().as_agent("Nested")


class Sums:
    """A strategy that asks its model a thousand times to sum up."""

    def __init__(self, client, *, stream: bool) -> None:
        self.client, self.streams = client, stream

    async def __call__(self, messages: list[Message]) -> bool:
        """Ask, and leave the messages as they are."""
        for _ in range(1000):
            response = self.client.get_response([Message("user", ["Sum up."])], stream=self.streams)
            await (response.get_final_response() if self.streams else response)
        return False


def summing(name: str, *, stream: bool) -> Agent:
    """Make an agent whose strategy asks a model."""
    strategy = Sums(clients["Completions"], stream=stream)
    return Agent(clients["Completions"], "Talk.", name=name, compaction_strategy=strategy)


nodes = WorkflowBuilder(name="nodes", start_executor=talker("Completions", "node", say)).build()


app = DurableAgentApp(
    workflows=[nodes],
    agents=[
        *(talker(kind, kind, say) for kind in clients),
        *(typed(kind) for kind in clients),
        *(over(talker(kind, "inner", say), f"Over{kind}") for kind in clients),
        *(team(kind) for kind in clients),
        over(over(talker("Completions", "lowest", say), "middle"), "Twice"),
        chat,
        build_nested_team,
        summing("Summing", stream=False),
        over(summing("sums", stream=True), "OverSummingStream"),
    ],
)
