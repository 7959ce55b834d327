"""The run of a turn, in one process: attempts that overtake each other, and what crosses from one to the next."""

import asyncio
import json
import logging
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agent_framework import (
    Agent,
    ChatContext,
    ChatMiddleware,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionTool,
    Message,
    ResponseStream,
    tool,
)
from agent_framework_openai import OpenAIChatClient

from durable_agent_host.agent import run_messages
from durable_agent_host.agent.agent_runner import INBOX_NOTIFIER, AgentRunner
from durable_agent_host.agent.observer import Moment, ObservedTurn, TurnObserver
from durable_agent_host.conversation_json import Conversation, encode
from durable_agent_host.features.budgets.feature import BudgetsOfAgent
from durable_agent_host.features.pending_calls.feature import PendingKinds
from durable_agent_host.model.budget import NO_BUDGETS, Budgets
from durable_agent_host.model.ids import turn_log_id
from durable_agent_host.model.log_entry import Inbox
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.providers.registry import provider_for
from durable_agent_host.segments.conversation_lines import import_lines
from durable_agent_host.segments.sqlite_store import SqliteBlobStore
from durable_agent_host.segments.turn_data_storage import NULL_TURN_DATA_STORAGE, TurnDataStorage, session_owner
from durable_agent_host.segments.uploads import Uploads
from durable_agent_host.session.entry_files import FileBytes
from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog
from tests.durable_agent_host.openai_outputs import PNG
from tests.kit import PracticeModel
from tests.null_turn_log import NullTurnLog

REQUEST = TurnRequest("Agent", "session", "turn", "go", created_at="2026-01-01T00:00:00+00:00")


CLIENTS: list[OpenAIChatClient] = []
"""To be closed at the end of a scenario."""


def runner(
    model: PracticeModel,
    log: SqliteTurnLog,
    *tools: Any,
    budgets: Budgets = NO_BUDGETS,
    observers: Sequence[TurnObserver] = (),
    storage: TurnDataStorage = NULL_TURN_DATA_STORAGE,
    **options: Any,
) -> AgentRunner:
    """Host an agent with these tools."""
    client = OpenAIChatClient(model="practice", api_key="practice", base_url=model.url)
    CLIENTS.append(client)
    agent = Agent(client, "Work.", name="Agent", tools=list(tools), default_options={"store": False}, **options)
    features = [BudgetsOfAgent(budgets), PendingKinds()]
    return AgentRunner(
        "Agent", agent, provider_for, observers=observers, open_log=lambda: log, storage=storage, features=features
    )


def scenario(tmp_path: Path, play: Callable[[SqliteTurnLog], Any]) -> None:
    """Play a scenario with a turn log of its own."""

    async def run_scenario() -> None:
        log = SqliteTurnLog(tmp_path / "log.db")
        try:
            await play(log)
        finally:
            await log.close()
            while CLIENTS:
                await CLIENTS.pop().client.close()

    asyncio.run(run_scenario())


def test_a_superseded_attempt_returns_the_outcome_of_the_later_one(tmp_path: Path, model: PracticeModel):
    """A ghost that wakes up after another process has taken its turn over writes nothing, and says the same."""
    started, go_on = asyncio.Event(), asyncio.Event()
    attempts: list[int] = []

    @tool
    async def wait() -> str:
        """Wait, the first time."""
        attempts.append(1)
        started.set()
        await go_on.wait()
        return "from the ghost"

    async def play(log: SqliteTurnLog) -> None:
        model.plan({"calls": [{"name": "wait", "arguments": {}}]}, {"text": "Done."}, {"text": "Never said."})
        agent_runner = runner(model, log, wait)
        ghost = asyncio.create_task(agent_runner.run(Session(), REQUEST))
        await started.wait()
        outcome = await agent_runner.run(Session(), REQUEST)
        go_on.set()
        assert (outcome.status, outcome.text) == ("completed", "Done.")
        assert "outcome of this call is not known" in json.dumps(outcome.entries)
        assert await ghost == outcome
        assert (await agent_runner.run(Session(), REQUEST)) == outcome
        assert len(attempts) == 1
        assert len(model.requests()) == 2

    scenario(tmp_path, play)


def test_a_turn_that_is_cancelled_while_its_file_is_loaded_keeps_the_session(
    tmp_path: Path, model: PracticeModel, monkeypatch: pytest.MonkeyPatch
):
    """It ends as cancelled, with its question; the session keeps its state, and the model is not called."""
    loading, cancel_is_read = asyncio.Event(), asyncio.Event()

    class SlowStore(SqliteBlobStore):
        async def get(self, namespace: str, names: Collection[str]) -> dict[str, bytes]:
            loading.set()
            await cancel_is_read.wait()
            return await super().get(namespace, names)

    async def play(log: SqliteTurnLog) -> None:
        read = log.read_inbox

        async def read_inbox(log_id: str) -> Inbox:
            inbox = await read(log_id)
            if inbox.is_cancel_requested:
                cancel_is_read.set()
            return inbox

        monkeypatch.setattr(log, "read_inbox", read_inbox)
        store = SlowStore(tmp_path / "blobs.db")
        file = FileBytes("a.png", "image/png", b64decode(PNG))
        [upload] = await Uploads(store, "Agent", "session", session_owner("Agent", "session")).add(file)
        contents = ({"$type": "text", "text": "look"}, {"$type": "hostedFile", "fileId": upload.file_id})
        agent_runner = runner(model, log, storage=TurnDataStorage(lambda: store, seen=9, grace_seconds=60))
        session = Session(agent_session={"session_id": "session", "state": {"colour": "red"}})
        turn = asyncio.create_task(agent_runner.run(session, replace(REQUEST, message="", contents=contents)))
        await loading.wait()
        await log.request_cancel(turn_log_id("Agent", "session", "turn"))
        INBOX_NOTIFIER.notify("turn")
        outcome = await turn
        await store.close()
        assert outcome.status == "cancelled"
        assert outcome.agent_session is not None
        assert outcome.agent_session["state"]["colour"] == "red"
        assert [entry["$type"] for entry in outcome.entries] == ["request", "response"]
        assert model.requests() == []

    scenario(tmp_path, play)


def test_long_conversations_share_the_memory_of_a_process(
    tmp_path: Path, model: PracticeModel, monkeypatch: pytest.MonkeyPatch
):
    """A long one waits for the end of another when they would be too much together; a short one goes on."""
    started, go_on, second_asks = asyncio.Event(), asyncio.Event(), asyncio.Event()
    taken_counts: list[int] = []

    class Shared(run_messages.SharedContents):
        async def acquire(self, count: int) -> None:
            if taken_counts:
                second_asks.set()
            await super().acquire(count)
            taken_counts.append(count)

    monkeypatch.setattr(run_messages, "_SHARED_CONTENTS", Shared(4_000))

    @tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await go_on.wait()
        return "done"

    async def body() -> AsyncGenerator[bytes]:
        yield json.dumps(encode(Conversation([Message("user", ["short"] * 3_000)]))).encode()

    async def play(log: SqliteTurnLog) -> None:
        model.plan({"calls": [{"name": "wait", "arguments": {}}]}, *[{"text": "Done."}] * 3)
        store = SqliteBlobStore(tmp_path / "blobs.db")
        agent_runner = runner(model, log, wait, storage=TurnDataStorage(lambda: store, seen=9, grace_seconds=60))
        session = await import_lines(body(), lambda: store, "a" * 32, owner="owner", seen=9)
        first = asyncio.create_task(agent_runner.run(session, REQUEST))
        await started.wait()
        second = asyncio.create_task(agent_runner.run(session, replace(REQUEST, turn_id="second")))
        assert (await agent_runner.run(Session(), replace(REQUEST, turn_id="short"))).status == "completed"
        await second_asks.wait()
        await asyncio.sleep(0)
        assert len(taken_counts) == 1
        go_on.set()
        assert [(await turn).status for turn in (first, second)] == ["completed"] * 2
        assert (await agent_runner.run(session, replace(REQUEST, turn_id="third"))).status == "completed"
        await store.close()

    scenario(tmp_path, play)


def test_a_slow_function_that_builds_the_agent_holds_up_no_other_turn(tmp_path: Path, model: PracticeModel):
    """It waits for the end of another turn, which takes place."""
    is_building, has_ended = threading.Event(), threading.Event()

    async def play(log: SqliteTurnLog) -> None:
        model.plan({"text": "Done."}, {"text": "Done."})
        plain_runner = runner(model, log)
        agent = plain_runner.agent

        def build() -> Any:
            is_building.set()
            return agent if has_ended.wait(10) else None

        slow_runner = AgentRunner("Agent", agent, provider_for, open_log=NullTurnLog, features=[], new_agent=build)
        slow_turn = asyncio.create_task(slow_runner.run(Session(), replace(REQUEST, turn_id="slow")))
        await asyncio.to_thread(is_building.wait)
        assert (await plain_runner.run(Session(), REQUEST)).status == "completed"
        has_ended.set()
        assert (await slow_turn).status == "completed"

    scenario(tmp_path, play)


def test_changed_arguments_of_an_approval_are_checked_and_reported(tmp_path: Path, model: PracticeModel):
    """The tool runs with what the person gave, and the model is told; unknown arguments are an error of that call."""
    paid: list[int] = []

    @tool(approval_mode="always_require")
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    async def play(log: SqliteTurnLog) -> None:
        model.plan({"calls": [{"name": "pay", "arguments": {"amount": n}} for n in (1, 2, 3)]}, {"text": "Done."})
        agent_runner = runner(model, log, pay)
        pending = (await agent_runner.run(Session(), REQUEST)).pending
        arguments = [{"amount": 10}, {"amount": 4, "amout": 3}, None]
        approvals = {
            call["call_id"]: {"approved": True, "arguments": arguments}
            for call, arguments in zip(pending, arguments, strict=True)
        }
        assert (await agent_runner.run(Session(), REQUEST, approvals)).status == "completed"
        outputs = [
            json.dumps(item["output"])
            for item in model.requests()[-1]["body"]["input"]
            if item["type"] == "function_call_output"
        ]
        assert sorted(paid) == [3, 10]
        assert "changed arguments" in outputs[0]
        assert "did not run" in outputs[1]
        assert "amout" in outputs[1]
        assert outputs[2] == '"paid"'

    scenario(tmp_path, play)


def test_an_approver_changes_a_number_into_true(tmp_path: Path, model: PracticeModel):
    """Python takes them for equal, JSON does not: the tool gets what the person gave."""
    switched: list[Any] = []

    @tool(approval_mode="always_require", schema={"type": "object", "properties": {"on": {}}})
    def switch(on: Any) -> str:
        """Switch."""
        switched.append(on)
        return "switched"

    async def play(log: SqliteTurnLog) -> None:
        model.plan({"calls": [{"name": "switch", "arguments": {"on": 1}}]}, {"text": "Done."})
        agent_runner = runner(model, log, switch)
        (call,) = (await agent_runner.run(Session(), REQUEST)).pending
        approval = {call["call_id"]: {"approved": True, "arguments": {"on": True}}}
        assert (await agent_runner.run(Session(), REQUEST, approval)).status == "completed"
        assert [type(value) for value in switched] == [bool]

    scenario(tmp_path, play)


def test_a_turn_keeps_the_tools_of_its_calls(tmp_path: Path, model: PracticeModel):
    """A deployment removes the tools of waiting calls: a client's result counts, and an approved tool did not run."""
    locate = FunctionTool(name="locate", func=None, input_model={"type": "object", "properties": {}})

    @tool(approval_mode="always_require")
    def pay() -> str:
        """Pay."""
        raise AssertionError

    @tool(name="pay")
    def pay_unasked() -> str:
        """Pay."""
        raise AssertionError

    async def play(log: SqliteTurnLog) -> None:
        calls = [{"name": name, "arguments": {}} for name in ("locate", "pay", "pay")]
        model.plan({"calls": calls}, {"text": "Done."}, {"calls": calls[1:2]}, {"text": "Done."})
        pending = (await runner(model, log, locate, pay).run(Session(), REQUEST)).pending
        answers = ({"result": "Kiel"}, {"approved": True}, {"approved": False})
        replies = {call["call_id"]: answer for call, answer in zip(pending, answers, strict=True)}
        assert (await runner(model, log).run(Session(), REQUEST, replies)).status == "completed"
        request = model.requests()[-1]["body"]
        outputs = [item["output"] for item in request["input"] if item["type"] == "function_call_output"]
        assert outputs[0] == "Kiel"
        assert '"pay" not found' in outputs[1]
        assert "rejected" in outputs[2]
        assert not request.get("tools")
        changed = replace(REQUEST, turn_id="changed")
        (call,) = (await runner(model, log, pay).run(Session(), changed)).pending
        denial = {call["call_id"]: {"approved": False}}
        assert (await runner(model, log, pay_unasked).run(Session(), changed, denial)).status == "completed"

    scenario(tmp_path, play)


class CallsWithoutModel(ChatMiddleware):
    """Answers the first model call itself, with calls of two tools."""

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        """Call the model only once there are results."""
        contents = [content for message in context.messages for content in message.contents]
        if any(content.type == "function_result" for content in contents):
            await call_next()
            return
        context.result = ResponseStream(self.answer(), finalizer=ChatResponse.from_updates)

    @staticmethod
    async def answer() -> AsyncGenerator[ChatResponseUpdate]:
        """Stream the calls."""
        calls = [Content.from_function_call(f"call_{name}", name, arguments="{}") for name in ("book", "sign")]
        yield ChatResponseUpdate(role="assistant", contents=calls, finish_reason="tool_calls")


def test_calls_before_the_first_model_call_run_once(tmp_path: Path, model: PracticeModel):
    """What a middleware has the tools do instead of the model is found in the journal, too."""
    bookings: list[int] = []

    @tool
    def book() -> str:
        """Book."""
        bookings.append(1)
        return "booked"

    @tool(approval_mode="always_require")
    def sign() -> str:
        """Sign."""
        return "signed"

    async def play(log: SqliteTurnLog) -> None:
        model.plan({"text": "Done."})
        agent_runner = runner(model, log, book, sign, middleware=[CallsWithoutModel()])
        pending = (await agent_runner.run(Session(), REQUEST)).pending
        assert [call["name"] for call in pending] == ["sign"]
        approvals = {call["call_id"]: {"approved": True} for call in pending}
        assert (await agent_runner.run(Session(), REQUEST, approvals)).text == "Done."
        assert len(bookings) == 1

    scenario(tmp_path, play)


class Recorder:
    """An observer that keeps what it receives, and may fail."""

    def __init__(self, *, fails: bool = False) -> None:
        self.moments: list[str] = []
        self.fails = fails

    async def observe(self, turn: ObservedTurn, moment: Moment, /) -> None:
        """Keep a moment."""
        assert turn.request is REQUEST
        self.moments.append(type(moment).__name__)
        if self.fails:
            raise ValueError(f"cannot watch {type(moment).__name__}")


def test_an_observer_that_fails_is_logged_once_and_does_not_touch_the_turn(
    tmp_path: Path, model: PracticeModel, caplog: pytest.LogCaptureFixture
):
    """The observers after it are notified all the same."""
    broken, recorder = Recorder(fails=True), Recorder()

    async def play(log: SqliteTurnLog) -> None:
        model.plan({"text": "Done."})
        assert (await runner(model, log, observers=[broken, recorder]).run(Session(), REQUEST)).text == "Done."

    with caplog.at_level(logging.WARNING):
        scenario(tmp_path, play)
    assert recorder.moments == broken.moments
    assert (recorder.moments[0], recorder.moments[-1]) == ("AttemptStarted", "AttemptEnded")
    (line,) = (record.getMessage() for record in caplog.records if "observer" in record.getMessage())
    assert line == (
        "turn turn: observer Recorder failed at AttemptStarted, further failures in this attempt are not logged: "
        "ValueError: cannot watch AttemptStarted"
    )


PROGRAM = """
import asyncio, sys, threading
from durable_agent_host.agent.agent_event_loop import submit

async def which_loop():
    return id(asyncio.get_running_loop())

def first_turn():
    together.wait()
    loops.add(submit(which_loop()).result())

sys.setswitchinterval(1e-6)
loops, together = set(), threading.Barrier(16)
threads = [threading.Thread(target=first_turn) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(loops))
"""


def test_turns_that_arrive_together_share_one_loop():
    """Activities and entities that a restarted process begins at once find one loop: clients are bound to theirs."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "1"
