"""Recorded streams and bodies of every provider, played over HTTP to an agent: what callers see of each."""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
from agent_framework import Agent, FunctionTool, Message
from agent_framework_anthropic import AnthropicClient
from agent_framework_gemini import GeminiChatClient
from agent_framework_openai import OpenAIChatClient, OpenAIChatCompletionClient
from anthropic import AsyncAnthropic
from google import genai

from durable_agent_host.agent.agent_runner import AgentRunner
from durable_agent_host.features.registry import activity_features
from durable_agent_host.http.response_views import response_view
from durable_agent_host.model.ids import turn_log_id
from durable_agent_host.model.log_entry import EVENT
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import Turn, TurnOutcome, TurnRequest
from durable_agent_host.providers.registry import provider_for
from durable_agent_host.stream.fold import fold_updates
from durable_agent_host.turn.step_reader import StepReader
from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog
from durable_agent_host_azure_ai_agents import AzureAIAgentsChatClient
from practice_model.dialects.responses import event_grammar as responses_grammar
from tests.durable_agent_host.hostile_model import HostileModel, events, http_response, stream
from tests.durable_agent_host.hostile_streams import AGENTS_ROUTES
from tests.durable_agent_host.wire_lab import live_turn
from tests.kit import RECORDINGS
from tests.null_turn_log import NullTurnLog
from tests.stand_ins.anthropic import event_grammar as anthropic_grammar

KINDS = ("openai-responses", "anthropic", "gemini", "chat-completions", "azure-ai-agents")
"""Folder of recordings → what `client_of` makes a client for."""

REQUEST = TurnRequest("Agent", "session", "turn", "go", created_at="2026-01-01T00:00:00+00:00")
CHARACTERS = 60


@dataclass(frozen=True)
class Played:
    """What callers see of one turn.

    Attributes:
        outcome: of the turn.
        body: the JSON answer of ``run``.
        events: name and data of each event of the stream, without those that `client` has discarded.
        steps: of the turn.
    """

    outcome: TurnOutcome
    body: Mapping[str, Any]
    events: Sequence[tuple[str, Mapping[str, Any]]]
    steps: Sequence[Mapping[str, Any]]

    def data(self, *names: str) -> list[Mapping[str, Any]]:
        """Give the data of the events with these names."""
        return [data for name, data in self.events if name in names]


def recorded_files(folder: Path = RECORDINGS) -> list[str]:
    """List the recorded streams, and the bodies of which there is no stream."""
    paths = [path for kind in KINDS for path in (folder / kind).rglob("*") if _events_of(kind, path)]
    return sorted(str(path.relative_to(folder)) for path in paths)


def read_events(name: str, folder: Path = RECORDINGS) -> list[Any]:
    """Read the events of a recording, or make them of a body."""
    return _events_of(name.partition("/")[0], folder / name)


def _events_of(kind: str, path: Path) -> list[Any]:
    if path.suffix == ".jsonl":
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        if kind == "azure-ai-agents":
            return [(line["event"], line["data"]) for line in lines]
        return [line["data"] for line in lines]
    if not path.name.endswith(".response.json"):
        return []
    body = json.loads(path.read_text())
    match kind:
        case "openai-responses" if body.get("object") == "response" and body.get("status") == "completed":
            return responses_grammar.stream_events(body, CHARACTERS)
        case "anthropic" if body.get("type") == "message":
            return anthropic_grammar.stream_events(body, CHARACTERS, {})
        case "gemini" if body.get("candidates"):
            return [body]
        case "chat-completions" if body.get("object") == "chat.completion":
            return [_as_chunk(body)]
        case _:
            return []


def _as_chunk(body: Mapping[str, Any]) -> dict[str, Any]:
    choices = [{"delta": choice["message"], **choice} for choice in body["choices"]]
    choices = [{name: value for name, value in choice.items() if name != "message"} for choice in choices]
    return {**body, "object": "chat.completion.chunk", "choices": choices}


def to_wire(kind: str, recorded_events: Sequence[Any]) -> bytes:
    """Write events as they are on the wire."""
    if kind == "azure-ai-agents":
        return b"".join(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode() for name, data in recorded_events)
    wire = events(*recorded_events, with_names=kind not in {"gemini", "chat-completions"})
    is_ended = kind == "chat-completions" and recorded_events[-1] != "[DONE]"
    return wire + (events("[DONE]") if is_ended else b"")


def client_of(kind: str, url: str) -> tuple[Any, Any]:
    """Make the framework's client of a provider; with what closes its connections."""
    if kind == "azure-ai-agents":
        agents = AzureAIAgentsChatClient(agent_id="asst_1", endpoint=url, api_key="k", poll_seconds=0)
        return agents, agents.sdk.close
    if kind == "anthropic":
        sdk = AsyncAnthropic(api_key="k", base_url=url)
        return AnthropicClient(model="m", anthropic_client=sdk), sdk.close
    if kind == "gemini":
        google = genai.Client(api_key="k", vertexai=False, http_options=genai.types.HttpOptions(base_url=url))
        return GeminiChatClient(model="m", client=google), google.aio.aclose
    sdk = openai.AsyncOpenAI(api_key="k", base_url=url)
    client = OpenAIChatCompletionClient if kind == "chat-completions" else OpenAIChatClient
    return client(model="m", async_client=sdk), sdk.close


def play(
    model: HostileModel,
    kind: str,
    *bodies: bytes,
    tools: Sequence[FunctionTool] = (),
    entries: Sequence[Any] = (),
    **arguments: Any,
) -> Played:
    """Run a turn of an agent, to which the model's service sends these streams, after the entries of earlier turns."""
    script(model, kind, *bodies)
    return asyncio.run(_turn(model.url, kind, tools, Session(entries=tuple(entries)), arguments))


def script(model: HostileModel, kind: str, *bodies: bytes) -> None:
    """Script the answers of a model's service, which refuses further requests."""
    refusal = http_response(b'{"error": {"message": "no more", "type": "invalid_request_error"}}', status=400)
    model.play(*map(stream, bodies), fallback=refusal)
    model.by_path = AGENTS_ROUTES if kind == "azure-ai-agents" else {}


def play_live(model: HostileModel, kind: str, *bodies: bytes) -> tuple[list[Any], Any]:
    """Run a turn for each answer in one process that has everything in memory.

    Returns:
        The updates of the first turn, and the provider that folds them.
    """
    script(model, kind, *bodies)

    async def live_turns() -> tuple[list[Any], Any]:
        async with hosted_agent(kind, model.url) as agent:
            provider = provider_for(agent.client)
            runner, session, history = (
                AgentRunner("Agent", agent, provider_for, open_log=NullTurnLog, features=activity_features(agent)),
                None,
                [],
            )
            turns: list[list[Any]] = []
            for _ in bodies:
                message = Message("user", [REQUEST.message])
                session, updates = await live_turn(runner, session, history, message)
                history += [message, *fold_updates(updates, provider).messages]
                turns.append(updates)
            return turns[0], provider

    return asyncio.run(live_turns())


@asynccontextmanager
async def hosted_agent(kind: str, url: str, tools: Sequence[FunctionTool] = ()) -> AsyncIterator[Agent]:
    """Make an agent of a new process; its service keeps no conversation."""
    client, close = client_of(kind, url)
    options = {"anthropic": {"max_tokens": 100}, "openai-responses": {"store": False}}.get(kind, {})
    try:
        yield Agent(client, "Talk.", name="Agent", default_options=options, tools=list(tools))
    finally:
        await close()


async def _turn(
    url: str, kind: str, tools: Sequence[FunctionTool], session: Session, arguments: Mapping[str, Any]
) -> Played:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        agent = await stack.enter_async_context(hosted_agent(kind, url, tools))
        log = SqliteTurnLog(Path(folder) / "log.db")
        stack.push_async_callback(log.close)
        runner = AgentRunner(
            "Agent", agent, provider_for, features=activity_features(agent), open_log=lambda: log, **arguments
        )
        outcome = await runner.run(session, REQUEST)
        page = await log.read(turn_log_id("Agent", "session", "turn"))
        steps = StepReader(Turn(REQUEST, outcome), {})
        for record in page.records:
            steps.add(record)
    return Played(
        outcome, response_view(REQUEST, outcome, "http://host/api"), list(_client_events(page.records)), steps.steps()
    )


def _client_events(records: Sequence[Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    kept: list[tuple[int, str, Mapping[str, Any]]] = []
    for record in records:
        if record.entry.kind != EVENT:
            continue
        name, data = record.entry.data["event"], record.entry.data["data"]
        if name == "turn.restarted":
            kept = [event for event in kept if event[0] < data["discard_from"]]
        kept.append((record.offset, name, data))
    return ((name, data) for _, name, data in kept)
