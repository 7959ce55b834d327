"""Observers of a turn: what they are told, in which order, and that they cannot touch the turn."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest
from agent_framework import Agent, tool
from agent_framework_openai import OpenAIChatClient

from durable_agent_host.agent.agent_runner import AgentRunner
from durable_agent_host.agent.observer import (
    Moment,
    ObservedTurn,
    UpdateReceived,
)
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.providers.registry import provider_for
from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog
from tests.kit import PracticeModel

REQUEST = TurnRequest("Agent", "session", "turn", "go", created_at="2026-01-01T00:00:00+00:00")


class Recorder:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []

    async def observe(self, turn: ObservedTurn, moment: Moment, /) -> None:
        """Keep a moment."""
        assert turn.request is REQUEST
        self.moments.append(moment)

    def names(self) -> list[str]:
        """The moments but the updates, replayed ones marked."""
        notifications = [notification for notification in self.moments if not isinstance(notification, UpdateReceived)]
        return [
            type(notification).__name__ + (" again" if notification.replayed else "") for notification in notifications
        ]

    def of(self, kind: type[Any]) -> list[Any]:
        """The moments of one class."""
        return [notification for notification in self.moments if isinstance(notification, kind)]


class Broken:
    """An observer that always fails."""

    async def observe(self, turn: ObservedTurn, moment: Moment, /) -> None:
        """Fail."""
        raise ValueError(f"cannot watch {type(moment).__name__}")


@tool
def say(text: str) -> str:
    """Say it."""
    return text


@tool(approval_mode="always_require")
def pay() -> str:
    """Pay."""
    return "paid"


def attempts(
    folder: Path, model: PracticeModel, observers: list[Any], responses: list[dict[str, Any] | None]
) -> list[TurnOutcome]:
    """Run a turn in as many attempts as there are answers; each call that waits is answered by its name."""

    async def run_attempts() -> list[TurnOutcome]:
        log = SqliteTurnLog(folder / "log.db")
        client = OpenAIChatClient(model="practice", api_key="practice", base_url=model.url)
        agent = Agent(client, "Work.", name="Agent", tools=[say, pay], default_options={"store": False})
        runner = AgentRunner("Agent", agent, provider_for, observers=observers, open_log=lambda: log)
        outcomes: list[TurnOutcome] = []
        try:
            for answer in responses:
                calls = outcomes[-1].pending if outcomes else ()
                results = {call["call_id"]: answer for call in calls if answer}
                outcomes.append(await runner.run(Session(), REQUEST, results))
            return outcomes
        finally:
            await log.close()
            await client.client.close()

    return asyncio.run(run_attempts())


def test_an_observer_that_fails_is_logged_once_and_does_not_touch_the_turn(
    tmp_path: Path, model: PracticeModel, caplog: pytest.LogCaptureFixture
):
    """The observers after it are told all the same."""
    model.plan({"text": "Done."})
    recorder = Recorder()
    with caplog.at_level(logging.WARNING):
        (outcome,) = attempts(tmp_path, model, [Broken(), recorder], [None])
    assert outcome.text == "Done."
    assert recorder.names()[-1] == "AttemptEnded"
    (line,) = (record.getMessage() for record in caplog.records if "observer" in record.getMessage())
    assert line == (
        "turn turn: observer Broken failed at AttemptStarted, further failures in this attempt are not logged: "
        "ValueError: cannot watch AttemptStarted"
    )
