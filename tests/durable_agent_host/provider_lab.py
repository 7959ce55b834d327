"""Turns of one session with a client of each provider, against the practice model in this process."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.client import NOT_FOUND
from typing import Any

import httpx2
from agent_framework import Agent, Content, Message

from durable_agent_host.agent.agent_runner import AgentRunner
from durable_agent_host.codec.entity_state import decode_session, encode_session
from durable_agent_host.features.registry import activity_features
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.providers.registry import provider_for
from durable_agent_host.session.admission import ReceiptWindow, commit_outcome
from durable_agent_host.session.transcript import replay_messages
from durable_agent_host.turn.turn_redactor import Redactor
from durable_agent_host.turn_log.protocol import TurnLog
from durable_agent_host_azure_ai_agents.thread_contents import METADATA
from practice_model.rules.requests import Rules
from tests.null_turn_log import NullTurnLog
from tests.stand_ins.recordings import RecordedPlan
from tests.stand_ins.server import StandIns


@dataclass(frozen=True)
class ClientKind:
    """How to make a client of one provider.

    Attributes:
        make: from a transport to the practice model, httpx2's, and the application behind it.
        options: of the agent.
        hosted_tools: of the client, that the agent has, too.
        keeps_conversation: whether the service keeps the conversation, so that requests have only what is new.
    """

    make: Callable[[httpx2.AsyncClient, Any], Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    hosted_tools: Callable[[Any], list[Any]] = lambda _client: []
    keeps_conversation: bool = False


def _responses(http: httpx2.AsyncClient, _app: Any) -> Any:
    import openai
    from agent_framework_openai import OpenAIChatClient

    sdk = openai.AsyncOpenAI(api_key="k", base_url="http://model/v1", http_client=http, max_retries=0)
    return OpenAIChatClient(model="practice-reasoning", async_client=sdk)


def _anthropic(http: httpx2.AsyncClient, _app: Any) -> Any:
    import anthropic
    from agent_framework_anthropic import AnthropicClient

    sdk = anthropic.AsyncAnthropic(api_key="k", base_url="http://model/anthropic", http_client=http, max_retries=0)
    return AnthropicClient(model="practice-reasoning", anthropic_client=sdk)


def _gemini(_http: httpx2.AsyncClient, app: Any) -> Any:
    import httpx
    from agent_framework_gemini import GeminiChatClient
    from google import genai

    options = {"base_url": "http://model/gemini", "async_client_args": {"transport": httpx.ASGITransport(app=app)}}
    return GeminiChatClient(model="gemini-3-practice", client=genai.Client(api_key="k", http_options=options))


def _chat(http: httpx2.AsyncClient, _app: Any) -> Any:
    import openai
    from agent_framework_openai import OpenAIChatCompletionClient

    sdk = openai.AsyncOpenAI(api_key="k", base_url="http://model/v1", http_client=http, max_retries=0)
    return OpenAIChatCompletionClient(model="practice-reasoning", async_client=sdk)


def _agents(http: httpx2.AsyncClient, _app: Any) -> Any:
    from azure.ai.agents.aio import AgentsClient
    from azure.core.credentials import AzureKeyCredential
    from azure.core.pipeline.policies import AzureKeyCredentialPolicy

    from durable_agent_host_azure_ai_agents import AzureAIAgentsChatClient
    from tests.durable_agent_host.azure_transport import HttpxTransport

    key = AzureKeyCredential("k")
    sdk_options = {"authentication_policy": AzureKeyCredentialPolicy(key, "api-key"), "transport": HttpxTransport(http)}
    sdk = AgentsClient("http://model/agents", key, **sdk_options)
    return AzureAIAgentsChatClient(agent_name="Lab", model="practice-reasoning", agents_client=sdk, poll_seconds=0)


KINDS: dict[str, ClientKind] = {
    "openai": ClientKind(_responses, {"store": False, "include": ["code_interpreter_call.outputs"]}),
    "anthropic": ClientKind(_anthropic, {"max_tokens": 1000}, lambda client: [client.get_code_interpreter_tool()]),
    "gemini": ClientKind(_gemini),
    "chat": ClientKind(_chat),
    "azure-ai-agents": ClientKind(
        _agents,
        hosted_tools=lambda _client: [{"type": "code_interpreter"}],
        keeps_conversation=True,
    ),
}
"""Name in commands and tables → how to make the client."""


@dataclass
class ProviderLab:
    """A practice model, and one session that any client goes on with.

    Attributes:
        tools: of the agent.
        redactor: of what is stored, or None.
        middleware: of the agent.
    """

    tools: Sequence[Any] = ()
    redactor: Redactor | None = None
    middleware: Sequence[Any] = ()

    def __post_init__(self) -> None:
        self.service = StandIns(rules=Rules(is_strict=True), seed="providers")
        self.session = Session()
        self.turns = 0

    def plan(self, *steps: Mapping[str, Any]) -> None:
        """Script the next model calls."""
        self.service.plans.append(RecordedPlan.parse({"steps": list(steps)}))

    @asynccontextmanager
    async def agent(self, kind: str) -> AsyncIterator[Agent]:
        """Make a new client and a new agent, as a new process does."""
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=self.service.app)) as http:
            client_kind = KINDS[kind]
            client = client_kind.make(http, self.service.app)
            tools = [*self.tools, *client_kind.hosted_tools(client)]
            options = dict(client_kind.options)
            middleware = list(self.middleware)
            yield Agent(client, "Be brief.", name="Lab", tools=tools, default_options=options, middleware=middleware)

    async def cold_turn(self, kind: str, text: str, open_log: Callable[[], TurnLog] = NullTurnLog) -> TurnOutcome:
        """Run a turn with a provider's client, as a process does that knows the session from its JSON state alone."""
        session = decode_session(json.loads(json.dumps(encode_session(self.session))))
        async with self.agent(kind) as agent:
            runner = AgentRunner(
                "Lab", agent, provider_for, features=activity_features(agent), open_log=open_log, redactor=self.redactor
            )
            outcome = await runner.run(session, TurnRequest("Lab", "session-1", f"turn-{self.turns}", text))
        self.turns += 1
        self.session, _ = commit_outcome(self.session, outcome, window=ReceiptWindow(keep=1))
        return outcome

    @property
    def messages(self) -> list[Message]:
        """The stored conversation."""
        return replay_messages(decode_session(json.loads(self.document)).entries)

    @property
    def document(self) -> str:
        """The stored session."""
        return json.dumps(encode_session(self.session), ensure_ascii=False)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The body of every request with which the model got something."""
        return [entry["body"] for entry in self.service.request_log.entries if entry["body"] is not None]

    @property
    def refusals(self) -> list[Any]:
        """The errors of rejected requests, except those about a missing thread."""
        rejected_entries = [entry for entry in self.service.request_log.entries if entry["ended"] == "refused"]
        return [entry["error"] for entry in rejected_entries if entry["status"] != NOT_FOUND]

    async def lose_conversation(self) -> None:
        """Let the services forget the conversations that they keep."""
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=self.service.app), base_url="http://model", headers={"api-key": "k"}
        ) as http:
            for thread in (await http.get("/agents/threads")).json()["data"]:
                (await http.delete(f"/agents/threads/{thread['id']}")).raise_for_status()

    def clear_refusals(self) -> None:
        """Leave out of the log what the model has refused until now."""
        self.service.request_log.entries[:] = [
            entry for entry in self.service.request_log.entries if entry["status"] == 200
        ]


def restore_block(contents: Sequence[Content]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Give a message, a call or a step of azure-ai-agents as received, and the step of a message or a call."""
    item = (METADATA.find(contents[0]) or {}).get("item", {})
    return item.get("block"), item.get("step") or {}


def is_message(content: Content) -> bool:
    """Say whether a content starts a message of a thread."""
    return (METADATA.find(content) or {}).get("type") == "message"
