"""Answers that the model's service makes in the background: a cut stream is asked for again, not paid for again."""

import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.durable_agent_host.hostile_model import (
    HostileModel,
    Send,
    events,
    hostile_model,
    http_response,
    response_events,
    stream,
)
from tests.durable_agent_host.sse_client import Event, read_events
from tests.kit import Lives
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "providers"
STREAM_EVENTS = response_events("Hello.", "resp_bg")
COMPLETE_STREAM = stream(events(*STREAM_EVENTS))
NOT_FOUND = http_response(
    b'{"error": {"message": "Response with id \'resp_bg\' not found.", "code": null}}', status=404
)


def refusal(message: str) -> bytes:
    """A refusal of the request, in the service's form."""
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return http_response(json.dumps({"error": error}).encode(), status=400)


@pytest.fixture(scope="module")
def model() -> Iterator[HostileModel]:
    """The app's endpoint."""
    with hostile_model() as running:
        yield running


@pytest.fixture(scope="module")
def lives(model: HostileModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    """A host that can crash."""
    more = {"DURABLE_AGENT_HOST_MODEL_ATTEMPTS": "3"}
    running = Lives(tmp_path_factory.mktemp("background"), None, app=APP, MODEL_URL=model.url, **more)
    yield running
    running.host.stop()


def request_lines(model: HostileModel) -> list[str]:
    """Give what was asked, without the query's order."""
    return [f"{request.method} {request.path.partition('?')[0]}" for request in model.received]


POST, GET = "POST /v1/responses", "GET /v1/responses/resp_bg"


@pytest.mark.drawn(2)
@pytest.mark.parametrize("event_count", [1, 2, 5, len(STREAM_EVENTS) - 1])
def test_a_cut_background_stream_is_retrieved(lives: Lives, model: HostileModel, event_count: int):
    """The service continues the response and returns it by its id; no second one is requested."""
    model.play(
        stream(events(*STREAM_EVENTS[:event_count])), stream(events(*STREAM_EVENTS[:event_count])), COMPLETE_STREAM
    )
    assert lives.host.run("Background", "Hi", session_id=f"cut-{event_count}").text == "Hello."
    assert request_lines(model) == [POST, GET, GET]
    assert "stream=true" in model.received[1].path
    model.play(COMPLETE_STREAM)
    assert lives.host.run("Background", "And now?", session_id=f"cut-{event_count}").text == "Hello."
    assert request_lines(model) == [POST]


def text_of(events: Iterable[Event]) -> str:
    """Join the text of a stream's events."""
    return "".join(event.data["text"] for event in events if event.name == "message.delta")


def beginning(stream_events: Sequence[Any], over: threading.Event) -> Send:
    """Write the first events of a stream, which then stands still."""

    def send(write: Any) -> None:
        write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + events(*stream_events)
        )
        over.wait(60)

    return send


@pytest.mark.drawn(1)
@pytest.mark.parametrize("kept", [6, 9, 12])
def test_a_killed_stream_goes_on(lives: Lives, model: HostileModel, kept: int):
    """After SIGKILL clients get the rest of the text and no restart; the service is asked for the same response."""
    text = "Hello, how are you?"
    stream_events = response_events(text, "resp_bg")
    over = threading.Event()
    session = f"killed-{kept}"
    model.play(beginning(stream_events[:kept], over), stream(events(*stream_events)))
    start_response = lives.host.run("Background", {"message": "Hi", "session_id": session, "wait_for_response": False})
    turn = f"/agents/Background/sessions/{session}/turns/{start_response.headers['x-ms-turn-id']}"
    seen: list[Event] = []
    with suppress(requests.RequestException):
        for event in read_events(requests.get(f"{lives.host.url}/api{turn}/events", stream=True)):
            seen.append(event)
            if text_of(seen) == text[: kept - 3]:
                break
    host = lives.crash()
    over.set()
    after = requests.get(f"{host.url}/api{turn}/events", params={"after": seen[-1].id}, stream=True)
    later = [*read_events(after)]
    assert "turn.restarted" not in [event.name for event in later]
    assert text_of([*seen, *later]) == later[-1].data["response"] == text
    assert request_lines(model) == [POST, GET]
    [answer] = [message for message in host.session("Background", session)["messages"] if message["role"] != "user"]
    [content] = answer["contents"]
    assert content["text"] == text
    whole = [*read_events(requests.get(f"{host.url}/api{turn}/events", stream=True))]
    assert text_of(whole) == text
    model.play(stream(events(*response_events("Fine.", "resp_2"))))
    assert host.run("Background", "And now?", session_id=session).text == "Fine."
    assert json.loads(model.received[0].body)["previous_response_id"] == "resp_bg"


@pytest.mark.parametrize("kept", [9, 10])
def test_a_message_that_was_cut_at_its_end_is_not_the_next(lives: Lives, model: HostileModel, kept: int):
    """The last of its text comes with the event of its end; the message behind it is another one."""
    *beginning_events, end = STREAM_EVENTS
    del beginning_events[8]  # the last delta
    _, *later_events, later_end = response_events("Bye.", "resp_2")
    output = [*end["response"]["output"], *later_end["response"]["output"]]
    stream_events = [
        event | {"sequence_number": number}
        for number, event in enumerate(
            (
                *beginning_events,
                *(event | {"output_index": 1} for event in later_events),
                end | {"response": end["response"] | {"output": output}},
            )
        )
    ]
    model.play(stream(events(*stream_events[:kept])), stream(events(*stream_events)))
    answer = lives.host.run("Background", {"message": "Hi", "session_id": f"end-{kept}"})
    assert [message["text"] for message in answer.json()["messages"]] == ["Hello.", "Bye."]
    turn = f"agents/Background/sessions/end-{kept}/turns/{answer.json()['turn_id']}"
    told = [*read_events(requests.get(f"{lives.host.url}/api/{turn}/events", stream=True))]
    assert "turn.restarted" not in [event.name for event in told]
    assert [event.data["text"] for event in told if event.name == "message.completed"] == ["Hello.", "Bye."]


def test_another_answer_restarts_the_text(lives: Lives, model: HostileModel):
    """When the service no longer has the response, clients discard the text of the first one."""
    model.play(stream(events(*STREAM_EVENTS[:6])), NOT_FOUND, stream(events(*response_events("Hi there.", "resp_2"))))
    response = lives.host.run("Background", "Hi", session_id="another")
    assert response.text == "Hi there."
    assert request_lines(model) == [POST, GET, POST]
    turn = f"/agents/Background/sessions/another/turns/{response.headers['x-ms-turn-id']}"
    stream_response = requests.get(f"{lives.host.url}/api{turn}/events", stream=True)
    names = [event.name for event in read_events(stream_response)]
    assert names.count("turn.restarted") == 1


def test_a_cancelled_turn_is_cancelled_at_the_service(lives: Lives, model: HostileModel):
    """A response in the background would be continued, and paid for."""
    over = threading.Event()
    cancelled = http_response(json.dumps(STREAM_EVENTS[-1]["response"] | {"status": "cancelled"}).encode())
    model.play(beginning(STREAM_EVENTS[:6], over), cancelled)
    start_response = lives.host.run("Background", {"message": "Hi", "session_id": "cancel", "wait_for_response": False})
    turn = f"/agents/Background/sessions/cancel/turns/{start_response.headers['x-ms-turn-id']}"
    for event in read_events(requests.get(f"{lives.host.url}/api{turn}/events", stream=True)):
        if event.name == "message.delta":
            assert lives.host.post(f"{turn}/cancel", b"").ok
            break
    wait_until(lambda: lives.host.get(turn).json()["status"] == "cancelled")
    over.set()
    assert request_lines(model) == [POST, "POST /v1/responses/resp_bg/cancel"]


def test_a_response_too_old_to_be_streamed_is_retrieved_at_once(lives: Lives, model: HostileModel):
    """The service streams an answer again for five minutes only, and has it for longer: it is not paid for again."""
    final_response = STREAM_EVENTS[-1]["response"]
    model.play(
        stream(events(*STREAM_EVENTS[:4])),
        refusal("This response can no longer be streamed because it is more than 5 minutes old."),
        http_response(json.dumps(final_response | {"status": "in_progress", "output": []}).encode()),
        http_response(json.dumps(final_response).encode()),
        COMPLETE_STREAM,
    )
    assert lives.host.run("Background", "Hi", session_id="old").text == "Hello."
    assert request_lines(model) == [POST, GET, GET, GET]
    assert lives.host.run("Background", "And now?", session_id="old").text == "Hello."
