"""An agent of every kind of client, each with the same tool; all ask the endpoint at ``MODEL_URL``."""

import asyncio
import json
import os
from pathlib import Path

import httpx
import httpx2
from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    WorkflowBuilder,
    WorkflowExecutor,
)
from agent_framework_anthropic import AnthropicClient
from agent_framework_gemini import GeminiChatClient
from agent_framework_openai import OpenAIChatClient, OpenAIChatCompletionClient
from agent_framework_orchestrations import GroupChatBuilder, SequentialBuilder
from anthropic import AsyncAnthropic
from azure.ai.agents.aio import AgentsClient
from azure.core.credentials import AzureKeyCredential
from azure.core.pipeline.policies import AzureKeyCredentialPolicy
from google import genai
from openai import AsyncOpenAI
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


class Bare(BaseChatClient):
    """A client of the app over httpx, which speaks Chat Completions, without the framework's layers."""

    def __init__(self, **more) -> None:
        super().__init__(**more)
        self.http = httpx.AsyncClient(base_url=URL, timeout=None)

    def _inner_get_response(self, *, messages, stream, options, **_):
        del messages, options
        response = self._build_response_stream(self._updates())
        return response if stream else response.get_final_response()

    async def _updates(self):
        async with self.http.stream("POST", "/own", json={}) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    yield read_chunk(json.loads(line.removeprefix("data: ")))


class Layered(FunctionInvocationLayer, ChatMiddlewareLayer, Bare):
    """The same with layers."""


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


class Opaque(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """A client whose connection nobody sees: it says words for ever, each a little later than the one before."""

    def _inner_get_response(self, *, messages, stream, options, **_):
        del messages, options
        response = self._build_response_stream(self._updates())
        return response if stream else response.get_final_response()

    async def _updates(self):
        while True:
            yield ChatResponseUpdate(contents=[Content.from_text("more " * 1000)], role="assistant")
            await asyncio.sleep(0.001)


def read_chunk(chunk: dict) -> ChatResponseUpdate:
    """Read a chunk of Chat Completions."""
    (choice,) = chunk["choices"]
    delta = choice["delta"]
    contents = [Content.from_text(delta["content"])] if delta.get("content") else []
    for call in delta.get("tool_calls", ()):
        function = call["function"]
        contents.append(Content.from_function_call(call["id"], function["name"], arguments=function["arguments"]))
    return ChatResponseUpdate(contents=contents, role="assistant", finish_reason=choice["finish_reason"])


http = httpx2.AsyncClient(headers={"x-gateway": "1"})
its_own = AsyncOpenAI(api_key="k", base_url=f"{URL}/v1", http_client=http)
key = AzureKeyCredential("k")
policy = AzureKeyCredentialPolicy(key, "api-key")
its_own_agents = AgentsClient(URL, key, authentication_policy=policy)
OWN_CLIENTS = {
    "ItsOwnAgents": (AzureAIAgentsChatClient(agent_id="asst_1", agents_client=its_own_agents, poll_seconds=0.1), [say]),
    "Own": (Layered(), [say]),
    "Bare": (Bare(), []),
    "Unseen": (Opaque(), []),
    "ItsOwnHttp": (OpenAIChatCompletionClient(model="m", async_client=its_own), [say]),
}
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
        summing("SummingStream", stream=True),
        over(summing("sums", stream=False), "OverSumming"),
        over(summing("sums", stream=True), "OverSummingStream"),
        *(Agent(client, "Talk.", name=name, tools=tools) for name, (client, tools) in OWN_CLIENTS.items()),
        *(
            over(Agent(client, "Talk.", name="own", tools=tools), f"Over{name}")
            for name, (client, tools) in OWN_CLIENTS.items()
        ),
    ],
)
