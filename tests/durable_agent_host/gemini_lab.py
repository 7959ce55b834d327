"""Turns of an agent with a Gemini client, each run as by a new process, against a practice model over HTTP."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from agent_framework import Agent
from agent_framework_gemini import GeminiChatClient
from google import genai

from durable_agent_host.agent.agent_runner import AgentRunner
from durable_agent_host.codec.entity_state import decode_session, encode_session
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.providers.registry import provider_for
from durable_agent_host.session.admission import ReceiptWindow, commit_outcome
from durable_agent_host.turn_log.protocol import NullTurnLog, TurnLog
from tests.stand_ins.recordings import RecordedPlan
from tests.stand_ins.server import StandIns


@dataclass
class GeminiLab:
    """An agent, its session, and a practice model in this process."""

    model: str = "gemini-3-practice"
    tools: Sequence[Any] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    recordings: Path | None = None
    session: Session = field(default_factory=Session)
    turns: int = 0

    def __post_init__(self):
        self.service = StandIns(seed="wire", recordings=self.recordings)

    def plan(self, *steps: Mapping[str, Any], **when: str) -> None:
        """Script the next model calls."""
        self.service.plans.append(RecordedPlan.parse({"steps": list(steps), "when": when}))

    def agent(self) -> Agent:
        """Make a new client and a new agent, as a new process does."""
        transport = httpx.ASGITransport(app=self.service.app)
        options = {"base_url": "http://model/gemini", "async_client_args": {"transport": transport}}
        client = GeminiChatClient(model=self.model, client=genai.Client(api_key="practice", http_options=options))
        return Agent(client, "Be brief.", name="Lab", tools=list(self.tools), default_options=dict(self.options))

    async def cold_turn(self, text: str, open_log: Callable[[], TurnLog] = NullTurnLog) -> TurnOutcome:
        """Run a turn as a process does that knows the session from its JSON state alone."""
        session = decode_session(json.loads(json.dumps(encode_session(self.session))))
        return await self._turn(AgentRunner("Lab", self.agent(), provider_for, open_log=open_log), session, text)

    async def warm_turns(self, texts: Sequence[str]) -> list[TurnOutcome]:
        """Run turns in one process, with one agent and the session as it is in memory."""
        runner = AgentRunner("Lab", self.agent(), provider_for)
        return [await self._turn(runner, self.session, text) for text in texts]

    async def _turn(self, runner: AgentRunner, session: Session, text: str) -> TurnOutcome:
        outcome = await runner.run(session, TurnRequest("Lab", "session-1", f"turn-{self.turns}", text))
        self.turns += 1
        self.session, _ = commit_outcome(self.session, outcome, window=ReceiptWindow(keep=1))
        return outcome

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The requests that were answered, with their answers."""
        return [entry for entry in self.service.request_log.entries if entry["status"] == 200]

    @property
    def contents(self) -> list[list[dict[str, Any]]]:
        """The contents of every request, in one form."""
        return [plain(entry["body"]["contents"]) for entry in self.service.request_log.entries]


def plain(value: Any, name: str = "") -> Any:
    """Write JSON of the API in one form: names in camel case, base64 in one alphabet."""
    if isinstance(value, dict):
        return {camel(key): value[key] if key == "args" else plain(value[key], camel(key)) for key in value}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if name in {"thoughtSignature", "data"} and isinstance(value, str):
        return value.replace("-", "+").replace("_", "/")
    return value


def camel(name: str) -> str:
    """Write a name in camel case."""
    head, *tail = name.split("_")
    return head + "".join(word.capitalize() for word in tail)


def accepted_parts(chunks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Write the parts of an answer as a client sends them back that drops nothing.

    Source: the rule of https://ai.google.dev/gemini-api/docs/thought-signatures: a part with a signature is never
    joined with another; pieces of text without one are one text.
    """
    parts: list[dict[str, Any]] = []
    for part in chunks:
        before = parts[-1] if parts else {}
        if part == {"text": ""}:
            continue
        if (
            isinstance(part.get("text"), str)
            and before.keys() == part.keys()
            and not {"thoughtSignature"} & part.keys()
        ):
            parts[-1] = {**before, "text": before["text"] + part["text"]}
        else:
            parts.append(dict(part))
    return parts
