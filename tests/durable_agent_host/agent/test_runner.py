"""The run of a turn, in one process: attempts that overtake each other, and what crosses from one to the next."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_framework import Agent, FunctionInvocationContext, function_middleware, tool
from agent_framework_openai import OpenAIChatClient

from durable_agent_host import current_tool_call
from durable_agent_host.agent.agent_runner import AgentRunner
from durable_agent_host.model.ids import turn_log_id
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.providers.registry import provider_for
from durable_agent_host.turn_log.journal import read_journal
from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog
from tests.kit import PracticeModel

REQUEST = TurnRequest("Agent", "session", "turn", "go", created_at="2026-01-01T00:00:00+00:00")
LOG_ID = turn_log_id("Agent", "session", "turn")


CLIENTS: list[OpenAIChatClient] = []
"""To be closed at the end of a scenario."""


def runner(model: PracticeModel, log: SqliteTurnLog, *tools: Any, **options: Any) -> AgentRunner:
    """Host an agent with these tools."""
    client = OpenAIChatClient(model="practice", api_key="practice", base_url=model.url)
    CLIENTS.append(client)
    agent = Agent(client, "Work.", name="Agent", tools=list(tools), default_options={"store": False}, **options)
    return AgentRunner("Agent", agent, provider_for, open_log=lambda: log)


def scenario(tmp_path: Path, play: Callable[[SqliteTurnLog], Any]) -> None:
    """Play a scenario with a turn log of its own."""

    async def played() -> None:
        log = SqliteTurnLog(tmp_path / "log.db")
        try:
            await play(log)
        finally:
            await log.close()
            while CLIENTS:
                await CLIENTS.pop().client.close()

    asyncio.run(played())


def test_an_attempt_that_is_overtaken_gives_the_other_ones_outcome(tmp_path: Path, model: PracticeModel):
    """A ghost that wakes up after another process has taken its turn over writes nothing, and says the same."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    attempts: list[int] = []

    @tool
    async def wait() -> str:
        """Wait, the first time."""
        attempts.append(1)
        begun.set()
        await go_on.wait()
        return "from the ghost"

    async def play(log: SqliteTurnLog) -> None:
        model.plan({"calls": [{"name": "wait", "arguments": {}}]}, {"text": "Done."}, {"text": "Never said."})
        hosted = runner(model, log, wait)
        ghost = asyncio.create_task(hosted.run(Session(), REQUEST))
        await begun.wait()
        outcome = await hosted.run(Session(), REQUEST)
        go_on.set()
        assert (outcome.status, outcome.text) == ("completed", "Done.")
        assert "outcome of this call is not known" in json.dumps(outcome.entries)
        assert await ghost == outcome
        assert (await hosted.run(Session(), REQUEST)) == outcome
        assert len(attempts) == 1
        assert len(model.requests()) == 2

    scenario(tmp_path, play)


def test_a_turn_whose_log_is_lost_fails_and_runs_nothing_again(tmp_path: Path, model: PracticeModel):
    """A store that was emptied has no successor's answer to wait for, and says nothing of what the tools did."""
    log_of_turn: list[SqliteTurnLog] = []
    runs: list[int] = []

    @tool
    async def empty_the_store() -> str:
        """Do what a restarted Redis without a disk does."""
        runs.append(1)
        await log_of_turn[0].delete(LOG_ID)
        return "done"

    async def play(log: SqliteTurnLog) -> None:
        log_of_turn.append(log)
        model.plan({"calls": [{"name": "empty_the_store", "arguments": {}}]}, {"text": "Never said."})
        outcome = await runner(model, log, empty_the_store).run(Session(), REQUEST)
        assert outcome.status == "failed"
        assert "log of the turn was lost" in json.dumps(outcome.error)
        assert len(runs) == 1

    scenario(tmp_path, play)


def test_middleware_of_the_app_does_not_run_again_for_a_finished_call(tmp_path: Path, model: PracticeModel):
    """What the app's own function middleware made of a call is what the journal gives back."""
    seen: list[str] = []

    @function_middleware
    async def shout(context: FunctionInvocationContext, call_next: Callable[[], Any]) -> None:
        await call_next()
        seen.append(context.function.name)
        context.result = "LOUD"

    @tool(approval_mode="always_require")
    def ask() -> str:
        """Ask a person."""
        return "asked"

    @tool
    def say() -> str:
        """Say it."""
        return current_tool_call().name

    async def play(log: SqliteTurnLog) -> None:
        calls = [{"name": name, "arguments": {}} for name in ("say", "ask")]
        model.plan({"calls": calls}, {"text": "Done."})
        hosted = runner(model, log, ask, say, middleware=[shout])
        waiting = await hosted.run(Session(), REQUEST)
        assert (waiting.status, waiting.entries, seen) == ("suspended", (), ["say"])
        assert [call["name"] for call in waiting.pending] == ["ask"]
        again = await hosted.run(Session(), REQUEST)
        assert (again.status, again.pending) == ("suspended", waiting.pending)
        answers = {waiting.pending[0]["call_id"]: {"approved": True}}
        assert (await hosted.run(Session(), REQUEST, answers)).text == "Done."
        assert seen == ["say", "ask"]
        assert len(model.requests()) == 2
        assert ask.approval_mode == "always_require"
        events = [
            record.entry.data["event"] for record in (await log.read(LOG_ID)).records if record.entry.kind == "event"
        ]
        told = Counter(name for name in events if not name.endswith(".delta"))
        assert told == {"turn.started": 1, "tool.started": 2, "tool.completed": 2, "approval.requested": 1}

    scenario(tmp_path, play)


def test_a_suspended_turn_that_is_cancelled_keeps_what_it_had(tmp_path: Path, model: PracticeModel):
    """Nothing runs any more; the calls that waited say so in the transcript."""

    @tool(approval_mode="always_require")
    def ask() -> str:
        """Ask a person."""
        raise AssertionError

    @tool
    def say() -> str:
        """Say it."""
        return "said"

    async def play(log: SqliteTurnLog) -> None:
        model.plan({"calls": [{"name": name, "arguments": {}} for name in ("say", "ask")]}, {"text": "Never said."})
        hosted = runner(model, log, ask, say)
        assert (await hosted.run(Session(), REQUEST)).status == "suspended"
        outcome = await hosted.run(Session(), REQUEST, was_cancelled=True)
        assert (outcome.status, outcome.error["type"]) == ("cancelled", "TurnCancelledError")
        results = [
            content["result"]
            for message in outcome.entries[1]["messages"]
            for content in message["contents"]
            if content["$type"] == "functionResult"
        ]
        assert results[0] == "said"
        assert "did not run" in results[1]
        assert len(model.requests()) == 1
        assert (await read_journal(log, LOG_ID)).outcome["status"] == "cancelled"

    scenario(tmp_path, play)


def test_a_cancelled_tool_is_told_of_as_unknown(tmp_path: Path, model: PracticeModel):
    """Clients that saw a tool begin see that nobody knows its end."""
    begun = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait for ever."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    async def play(log: SqliteTurnLog) -> None:
        model.plan({"calls": [{"name": "wait", "arguments": {}}]})
        running = asyncio.create_task(runner(model, log, wait).run(Session(), REQUEST))
        await begun.wait()
        await log.request_cancel(LOG_ID)
        assert (await running).status == "cancelled"
        events = [record.entry.data for record in (await log.read(LOG_ID)).records if record.entry.kind == "event"]
        assert events[-1]["event"] == "tool.completed"
        assert events[-1]["data"]["outcome"] == "unknown"

    scenario(tmp_path, play)


def test_other_arguments_of_a_person_are_checked_and_told(tmp_path: Path, model: PracticeModel):
    """The tool runs with what the person gave, and the model is told; what does not fit is an error of that call."""
    paid: list[int] = []

    @tool(approval_mode="always_require")
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    async def play(log: SqliteTurnLog) -> None:
        model.plan({"calls": [{"name": "pay", "arguments": {"amount": n}} for n in (1, 2, 3)]}, {"text": "Done."})
        hosted = runner(model, log, pay)
        pending = (await hosted.run(Session(), REQUEST)).pending
        given = [{"amount": 10}, {"amount": "many"}, None]
        answers = {
            call["call_id"]: {"approved": True, "arguments": arguments}
            for call, arguments in zip(pending, given, strict=True)
        }
        assert (await hosted.run(Session(), REQUEST, answers)).status == "completed"
        outputs = [
            json.dumps(item["output"])
            for item in model.requests()[-1]["body"]["input"]
            if item["type"] == "function_call_output"
        ]
        assert sorted(paid) == [3, 10]
        assert "changed arguments" in outputs[0]
        assert "Argument parsing failed" in outputs[1]
        assert outputs[2] == '"paid"'

    scenario(tmp_path, play)
