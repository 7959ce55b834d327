"""Changes of CONTRIBUTING.md, "I want to change one thing", tried: each is written in the tests alone.

Others are tried elsewhere: a feature of an agent in `agent/test_features.py`, an operation of the entity and a
compaction strategy in the scenarios of their names.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import openai
import pytest
import requests
from agent_framework import Agent
from agent_framework_openai import OpenAIChatClient

from durable_agent_host.agent.agent_runner import AgentRunner
from durable_agent_host.codec.entity_state import decode_session, encode_session
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.providers.registry import provider_for
from tests.durable_agent_host.hostile_model import HostileModel, events, hostile_model, response_events, stream
from tests.kit import AgentHost, PracticeModel, role_texts, running_host, start_host, wait_until
from tests.null_turn_log import NullTurnLog

# --- a new provider: no source file --------------------------------------------------------------------------


def tiny_turn(text: str, state: Any = None, *, is_registered: bool = True) -> dict[str, Any]:
    """Run a turn of the tiny provider's agent in a new process."""
    request = json.dumps({"state": state, "text": text, "registered": is_registered})
    command = [sys.executable, "-m", "tests.durable_agent_host.tiny_provider"]
    return json.loads(subprocess.run(command, input=request, capture_output=True, text=True, check=True).stdout)


def test_a_new_provider_keeps_its_block_through_a_cold_start():
    """What only its model understands is stored with the session and sent back by the next process."""
    first = tiny_turn("one")
    second = tiny_turn("two", first["state"])
    assert (first["answer"], second["answer"]) == ("Answer 1.", "Answer 2.")
    blocks = [message.get("blocks") for message in second["sent"][-1] if message["role"] == "assistant"]
    assert blocks == [[{"seal": "s-1", "of": [1, None]}]]
    third = tiny_turn("three", second["state"])
    assert [message["blocks"] for message in third["sent"][-1] if message["role"] == "assistant"] == [
        *blocks,
        [{"seal": "s-2", "of": [2, None]}],
    ]


# --- an item of OpenAI that nobody knows: nothing ---------------------------------------------------------------

TAPE = {"type": "tape_call", "id": "tape_1", "provider": "acme", "gone": True, "tape": {"reel": [1, 2]}}


def response_with_tape(text: str, number: int) -> bytes:
    """Write the stream of an answer that has the item before its text."""
    stream_events = response_events(text, f"resp_{number}")
    tape = [{"type": f"response.output_item.{end}", "output_index": 0, "item": TAPE} for end in ("added", "done")]
    for event in stream_events:
        if "output_index" in event:
            event["output_index"] = 1
    stream_events[-1]["response"]["output"].insert(0, TAPE)
    return stream(events(*stream_events[:1], *tape, *stream_events[1:]))


def openai_turn(url: str, session: Session, turn_id: str) -> tuple[Mapping[str, Any], ...]:
    """Run a turn of a process that knows the session from its stored state alone; gives what it adds."""
    cold = decode_session(json.loads(json.dumps(encode_session(session))))

    async def run() -> tuple[Mapping[str, Any], ...]:
        async with openai.AsyncOpenAI(api_key="k", base_url=url) as sdk:
            agent = Agent(OpenAIChatClient(model="m", async_client=sdk), name="A", default_options={"store": False})
            outcome = await AgentRunner("A", agent, provider_for, open_log=NullTurnLog, features=()).run(
                cold, TurnRequest("A", "one", turn_id, "go")
            )
        assert outcome.status == "completed", outcome.error
        return outcome.entries

    return asyncio.run(run())


def sent_items(model: HostileModel) -> Sequence[Mapping[str, Any]]:
    """Read the input of the last request."""
    return json.loads(model.received[-1].body)["input"]


def test_an_item_of_unknown_type_is_stored_once_and_sent_back():
    """Whole, also with fields whose names the host uses itself."""
    with hostile_model() as model:
        model.play(response_with_tape("One.", 1), response_with_tape("Two.", 2))
        entries = openai_turn(model.url, Session(), "turn-1")
        openai_turn(model.url, Session(entries=entries), "turn-2")
        replayed_items = [item for item in sent_items(model) if item.get("type") == TAPE["type"]]
    assert replayed_items == [TAPE]
    assert json.dumps(entries).count('"reel"') == 1


# --- a span around tool calls: one class in one new file, apps/spans/tool_spans.py; no source file ---------------

SPANS = Path(__file__).parent / "apps" / "spans"


def test_a_span_around_tool_calls_is_one_class(tmp_path: Path, model: PracticeModel):
    """An observer measures a turn's calls; replays after a SIGKILL and after an approval are marked."""
    calls = [
        {"name": "linger", "arguments": {"seconds": 0.2}},
        {"name": "pay", "arguments": {"amount": 3}},
    ]
    model.plan({"calls": calls}, {"text": "Done."})
    hosts: list[AgentHost] = []

    def start(point: str) -> AgentHost:
        environment = {"SPANS": str(tmp_path / "spans"), "DURABLE_AGENT_HOST_CRASH": point}
        hosts.append(start_host(tmp_path / "data", model, app=SPANS, **environment))
        return hosts[-1]

    try:
        dying = start("journal.tool.after_append")
        headers = {"x-ms-wait-for-response": "false", "Idempotency-Key": uuid4().hex}
        body = {"message": "go", "session_id": "s"}
        with suppress(requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
            dying.run("Measured", body, headers=headers)
        dying.process.wait(60)
        host = start("")
        turn_id = host.run("Measured", body, headers=headers).headers["x-ms-turn-id"]
        turn = f"{host.url}/api/agents/Measured/sessions/s/turns/{turn_id}"
        (pending_call,) = wait_until(lambda: requests.get(turn).json().get("pending_calls"))
        approval = {"call_id": pending_call["call_id"], "approved": True}
        assert requests.post(f"{turn}/answers", json=approval).ok
        wait_until(lambda: requests.get(turn).json()["status"] == "completed")
    finally:
        for host_process in hosts:
            host_process.kill()
    spans: list[dict[str, Any]] = [json.loads(line) for line in (tmp_path / "spans").read_text().splitlines()]
    linger = [span for span in spans if span["tool"] == "linger"]
    assert [span["replayed"] for span in linger] == [False, True, True]
    assert [span["attempt"] for span in linger] == [1, 2, 3]
    assert linger[0]["seconds"] >= 0.2
    assert max(span["seconds"] for span in linger[1:]) < 0.2
    (paid,) = (span for span in spans if span["tool"] == "pay")
    assert (paid["outcome"], paid["replayed"], paid["attempt"]) == ("success", False, 3)


# --- a feature of the app, a store, a route, a live event, a setting, a dialect: apps/exercises; no source file ---

EXERCISES = Path(__file__).parent / "apps" / "exercises"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the app of the exercises has its files."""
    return tmp_path_factory.mktemp("exercises")


@pytest.fixture(scope="module")
def _shop(practice_model: PracticeModel, folder: Path) -> Iterator[AgentHost]:
    env = {
        "REPORTS": str(folder / "reports"),
        "DURABLE_AGENT_HOST_SEGMENTS": f"folder:{folder / 'blobs'}",
        "DURABLE_AGENT_HOST_INSTRUCTIONS": "Sell apples.",
    }
    with running_host(folder / "data", practice_model, app=EXERCISES, **env) as host:
        yield host


@pytest.fixture
def shop(_shop: AgentHost, model: PracticeModel) -> AgentHost:
    """A host with the app of the exercises."""
    return _shop


def test_a_feature_of_the_app_is_told_how_turns_end(shop: AgentHost, folder: Path):
    """Its orchestration and its activity write down what it got."""
    turn_id = shop.run("Shop", "go").headers["x-ms-turn-id"]

    def lines() -> list[Any]:
        texts = (folder / "reports").read_text().splitlines() if (folder / "reports").exists() else ()
        return [line for line in map(json.loads, texts) if line["turn_id"] == turn_id]

    (line,) = wait_until(lines)
    assert (line["agent"], line["status"]) == ("Shop", "completed")


def test_a_store_of_blobs_is_named_by_the_setting(shop: AgentHost, folder: Path):
    """An uploaded file is in its folder, and is read from there."""
    response = shop.post("/agents/Shop/sessions/stored/files?name=list.txt", b"two apples", content_type="text/plain")
    (file,) = response.json()["files"]
    assert "two apples" in [path.read_text(errors="ignore") for path in (folder / "blobs").glob("*/*")]
    assert requests.get(file["file_url"]).content == b"two apples"


def test_a_route_passes_the_gate_and_is_described(shop: AgentHost):
    """It answers as the others do, also for a session that is not there."""
    shop.run("Shop", "go", session_id="long")
    assert shop.get("/agents/Shop/sessions/long/length").json() == {
        "agent": "Shop",
        "session_id": "long",
        "message_count": 2,
    }
    assert shop.get("/agents/Shop/sessions/other/length").status_code == 404
    described = shop.get("/openapi.json").json()["paths"]["/agents/{agent}/sessions/{session}/length"]["get"]
    assert described["summary"] == "how many messages the session has."


def test_a_live_event_is_streamed_and_described(shop: AgentHost, model: PracticeModel):
    """Clients get it after the end of the call that it is about; a client that comes later gets it as well."""
    model.plan({"calls": [{"name": "order", "arguments": {"item": "pears"}}]}, {"text": "Sorry."})
    response = shop.run("Shop", "go", headers={"accept": "text/event-stream"})
    names = [line.removeprefix("event: ") for line in response.text.splitlines() if line.startswith("event: ")]
    assert names[names.index("tool.warned") - 1] == "tool.completed"
    assert '"text":"warning: pears is sold out"' in response.text
    document = shop.get("/openapi.json").text
    assert '"tool.warned"' in document


def test_a_setting_is_a_field_of_a_subclass(shop: AgentHost, model: PracticeModel):
    """The app reads it with the host's own settings."""
    shop.run("Shop", "go")
    (request,) = model.requests()
    assert "Sell apples." in json.dumps(request["body"])


def test_a_dialect_runs_the_same_turns(shop: AgentHost):
    """A client of Chat Completions talks to an agent, whose session has its messages."""
    with openai.OpenAI(api_key="k", base_url=f"{shop.url}/api") as client:
        completion = client.chat.completions.create(
            model="Shop", messages=[{"role": "user", "content": "apples?"}], user="ada"
        )
    answer = completion.choices[0].message.content
    assert role_texts(shop.session("Shop", "ada")) == [("user", "apples?"), ("assistant", answer)]
