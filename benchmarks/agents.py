"""The two agents that both benchmark apps host, and the clock that both are measured with."""

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agent_framework import (
    Agent,
    AgentResponse,
    AgentResponseUpdate,
    AgentSession,
    Content,
    ResponseStream,
)
from agent_framework_openai import OpenAIChatClient

MILLISECONDS_FILE = "BENCHMARK_MILLISECONDS_FILE"
"""Environment variable: the file to which every run of an agent appends its milliseconds, a line each."""

Stream = ResponseStream[AgentResponseUpdate, AgentResponse]


class InstantAgent:
    """Answers at once, without a model: all of a turn's time is the host's."""

    id = name = "Instant"
    description = "answers at once"

    def run(self, messages: Any = None, *, stream: bool = False, session: Any = None, **options: Any) -> Stream:
        """Stream one update; hosts that are measured here always ask for a stream."""
        del messages, session, options
        assert stream
        return _timed(ResponseStream(self._updates(), finalizer=AgentResponse.from_updates), time.perf_counter())

    async def _updates(self) -> AsyncIterator[AgentResponseUpdate]:
        yield AgentResponseUpdate(contents=[Content.from_text("An answer of a few words.")], role="assistant")

    def create_session(self, *, session_id: str | None = None) -> AgentSession:
        """Give a session, as the framework's agents do."""
        return AgentSession(session_id=session_id)

    def get_session(self, service_session_id: str, *, session_id: str | None = None) -> AgentSession:
        """Give a session that a service keeps, as the framework's agents do."""
        return AgentSession(service_session_id=service_session_id, session_id=session_id)


class TimedAgent(Agent):
    """An agent of the framework that tells how long each run took, from the call to the final response."""

    def run(self, *arguments: Any, **named: Any) -> Any:
        """Run the agent; hosts that are measured here always ask for a stream."""
        began = time.perf_counter()
        return _timed(super().run(*arguments, **named), began)


def _timed(stream: Stream, began: float) -> Stream:
    def tell(_: AgentResponse) -> None:
        milliseconds = (time.perf_counter() - began) * 1000
        with Path(os.environ[MILLISECONDS_FILE]).open("a") as file:
            file.write(f"{milliseconds}\n")

    return stream.with_result_hook(tell)


def echo(text: str) -> str:
    """Give the text back, word for word."""
    return text


def long_agents(**more: Any) -> list[Any]:
    """Make the agents of the long sessions: ``Stored``, whose service keeps the conversation, and ``Sent``.

    Args:
        more: further arguments of both agents.
    """
    client = _client()
    kept: Any = {"store": True}
    sent: Any = {"store": False}
    return [
        Agent(client, "Answer in a few words.", name="Stored", default_options=kept, **more),
        Agent(client, "Answer in a few words.", name="Sent", default_options=sent, **more),
    ]


def window_agent() -> Any:
    """Make ``Window``, which sends what a strategy of its app leaves of the conversation.

    Its model can be another server's than that of the other agents: the one that ``WINDOW_BASE_URL`` names.
    """
    options: Any = {"store": False}
    client = _client(os.environ.get("WINDOW_BASE_URL"))
    return Agent(client, "Answer in a few words.", name="Window", default_options=options)


def _client(base_url: str | None = None) -> OpenAIChatClient:
    return OpenAIChatClient(
        model=os.environ["OPENAI_MODEL"],
        api_key=os.environ["OPENAI_API_KEY"],
        base_url=base_url or os.environ["OPENAI_BASE_URL"],
    )


def agents() -> list[Any]:
    """Make the agents; the model is the one that the environment names."""
    client = _client()
    options: Any = {"store": False}
    bug_repro = TimedAgent(client, "Use the tools you have.", name="BugRepro", tools=[echo], default_options=options)
    return [InstantAgent(), bug_repro]
