"""Requests of long sessions: what is written beside the loop is what is written on it, and ends as it does."""

import base64
import json
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.durable_agent_host.hostile_model import chat_chunk, events, hostile_model, messages_events, response_events
from tests.kit import AgentHost, PracticeModel, hosted, start_model

APP = Path(__file__).parent / "apps" / "providers"
SHORT, LONG = 20, 90
"""Turns of four messages: 80 are written at once, and 360 in a thread."""
FIELDS = {"Responses": "input", "Completions": "messages", "Claude": "messages", "Gemini": "contents"}
"""Agent → where its requests have the conversation."""

DERIVED_ID = re.compile(r'"fc_[0-9a-f]{32}"')
"""Of a call that came without one; follows from the session's name."""


@pytest.fixture(scope="module")
def model() -> Iterator[PracticeModel]:
    """The service of every agent."""
    running = start_model()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def host(model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """A host with an agent of every kind of client."""
    url = model.url.removesuffix("/v1")
    with hosted(tmp_path_factory.mktemp("long"), None, app=APP, MODEL_URL=url, MODEL_KEY="practice") as running:
        yield running


def document(turns: int) -> str:
    """Write a conversation in which a tool was called in every turn."""
    entries: list[dict[str, Any]] = []
    for number in range(turns):
        about = {"correlationId": f"turn-{number}", "createdAt": "2026-01-01T00:00:00+00:00"}
        call: dict[str, Any] = {"callId": f"call_{number}_", "name": "connect", "arguments": {"to": f"#{number}_"}}
        messages = [
            {"role": "assistant", "contents": [{"$type": "functionCall", **call}]},
            {"role": "tool", "contents": [{"$type": "functionResult", "callId": call["callId"], "result": "é ☃ \\"}]},
            {"role": "assistant", "contents": [{"$type": "text", "text": f"Answer #{number}_"}]},
        ]
        asked = {"role": "user", "contents": [{"$type": "text", "text": f"Question #{number}_"}]}
        entries.append({"$type": "request", **about, "messages": [asked]})
        entries.append({"$type": "response", **about, "messages": messages})
    return json.dumps({"schemaVersion": "1.1.0", "data": {"conversationHistory": entries}})


def sent(host: AgentHost, model: PracticeModel, agent: str, turns: int) -> dict[str, Any]:
    """Continue a conversation of so many turns; gives the body that the model got."""
    return sent_after(host, model, agent, f"of-{turns}", document(turns))


def sent_after(host: AgentHost, model: PracticeModel, agent: str, session: str, whole: str) -> dict[str, Any]:
    """Continue a conversation; gives the body that the model got."""
    imported = host.post(f"/agents/{agent}/sessions/{session}/import", whole.encode())
    assert imported.status_code == 201, imported.text
    model.forget()
    model.plan({"text": "Here you are."})
    answer = host.run(agent, {"message": "Go on.", "session_id": session})
    assert answer.ok, answer.text
    [request] = model.requests()
    return json.loads(DERIVED_ID.sub('"fc_"', json.dumps(request["body"])))


@pytest.mark.parametrize("agent", FIELDS)
def test_a_long_request_is_a_short_one_with_more_turns(host: AgentHost, model: PracticeModel, agent: str):
    """Nothing is lost, moved or added, of the conversation and of all else in the body."""
    short, long = (sent(host, model, agent, turns) for turns in (SHORT, LONG))
    field = FIELDS[agent]
    said = long.pop(field)
    few = short.pop(field)
    assert long == short
    each = (len(said) - len(few)) // (LONG - SHORT)
    first = len(few) - 1 - SHORT * each  # what comes before the conversation
    assert each >= 3
    assert first in {0, 1}
    assert (said[:first], said[-1]) == (few[:first], few[-1])
    assert said[first : len(few) - 1] == few[first:-1]
    one = json.dumps(few[first : first + each])
    assert one.count("0_") >= 4
    turns = [json.dumps(said[first + n * each : first + (n + 1) * each]) for n in range(LONG)]
    assert [turn.replace(f"{n}_", "0_") for n, turn in enumerate(turns)] == [one] * LONG


LONG_TEXT = 'é ☃ \U0001f600 "quoted" \\ \n' * 40_000
LONG_BYTES = random.Random(5).randbytes(900_000)


def large(text: str, data: bytes) -> str:
    """Write a short conversation with a large text, a large result and a large image."""
    picture = {"$type": "data", "uri": f"data:image/png;base64,{base64.b64encode(data).decode()}"}
    asked = [{"$type": "text", "text": f"0 {text}"}, {**picture, "mediaType": "image/png"}]
    call = {"callId": "call_0_", "name": "connect", "arguments": {"to": "x"}}
    messages = [
        {"role": "assistant", "contents": [{"$type": "functionCall", **call}]},
        {"role": "tool", "contents": [{"$type": "functionResult", "callId": "call_0_", "result": f"1 {text}"}]},
        {"role": "assistant", "contents": [{"$type": "text", "text": f"2 {text}"}]},
    ]
    about = {"correlationId": "turn-0", "createdAt": "2026-01-01T00:00:00+00:00"}
    request = {"$type": "request", **about, "messages": [{"role": "user", "contents": asked}]}
    entries = [request, {"$type": "response", **about, "messages": messages}]
    return json.dumps({"schemaVersion": "1.1.0", "data": {"conversationHistory": entries}})


def named(value: Any, names: dict[str, str]) -> Any:
    """Put names in place of long texts, wherever they are; base64 is the same in both of its alphabets."""
    if isinstance(value, str):
        for text, name in names.items():
            value = value.replace(text, name)
        return value
    if isinstance(value, dict):
        return {key: named(one, names) for key, one in value.items()}
    return [named(one, names) for one in value] if isinstance(value, list) else value


def forms_of(data: bytes) -> dict[str, str]:
    """Name an image as it is in a request."""
    return {write(data).decode(): "IMAGE" for write in (base64.b64encode, base64.urlsafe_b64encode)}


@pytest.mark.parametrize("agent", FIELDS)
def test_a_request_of_large_contents_is_one_of_small_contents(host: AgentHost, model: PracticeModel, agent: str):
    """Texts, results of tools and images that are written in parts arrive whole, and so does all around them."""
    long = sent_after(host, model, agent, "large", large(LONG_TEXT, LONG_BYTES))
    short = sent_after(host, model, agent, "small", large("TEXT", b"small"))
    said = json.dumps(named(long, {LONG_TEXT: "TEXT", **forms_of(LONG_BYTES)}))
    assert said.count("TEXT") == 3
    assert said.count("IMAGE") == 1
    assert json.loads(said) == named(short, forms_of(b"small"))


GEMINI = {"candidates": [{"content": {"role": "model", "parts": [{"text": "Hm. "}]}}], "responseId": "r"}
BEGUN = {
    "Responses": events(*response_events("Hm. ")[:-2]),
    "Completions": events(chat_chunk("Hm. ")),
    "Claude": events(*messages_events("Hm. ")[:3]),
    "Gemini": events(GEMINI, named=False),
}
"""Agent → the beginning of a stream."""


@pytest.mark.parametrize("agent", BEGUN)
def test_a_long_request_that_is_cancelled_leaves_no_connection(tmp_path: Path, agent: str):
    """The service writes on until its client has gone, which it has once the turn is cancelled."""
    with hostile_model() as service:
        gone = threading.Event()

        def go_on(write: Callable[[bytes], None]) -> None:
            write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + BEGUN[agent])
            try:
                while True:
                    write(b": on\n\n")
                    time.sleep(0.02)
            except OSError:
                gone.set()

        service.play(go_on)
        with hosted(tmp_path, None, app=APP, MODEL_URL=service.url) as host:
            host.post(f"/agents/{agent}/sessions/long/import", document(LONG).encode()).raise_for_status()
            begun = host.run(agent, {"message": "Go on.", "session_id": "long", "wait_for_response": False})
            turn = f"/agents/{agent}/sessions/long/turns/{begun.headers['x-ms-turn-id']}"
            seen = requests.get(f"{host.url}/api{turn}/events", stream=True, timeout=60)
            assert any("message.delta" in line for line in seen.iter_lines(decode_unicode=True))
            assert not gone.is_set()
            host.post(f"{turn}/cancel", b"").raise_for_status()
            assert host.end_of_turn(f"{host.url}/api{turn}")["status"] == "cancelled"
            assert gone.wait(30)
        assert len(service.received) == 1
