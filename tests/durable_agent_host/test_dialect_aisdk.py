"""Pages of the AI SDK: the package's own chat runs turns, answers what they wait for, and comes back."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from durable_agent_host.agent_client import TurnEvent
from durable_agent_host.protocols.aisdk.events import UIMessageStream, ending_of
from tests.kit import AgentHost, PracticeModel, running_host

APP = Path(__file__).parent / "apps" / "people"
SERVICES = Path(__file__).parents[1] / "services"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the host's data."""
    return tmp_path_factory.mktemp("aisdk")


@pytest.fixture(scope="module")
def _site(practice_model: PracticeModel, data: Path) -> Iterator[AgentHost]:
    with running_host(data, practice_model, app=APP, LEDGER=str(data / "ledger.txt")) as host:
        yield host


@pytest.fixture
def site(_site: AgentHost, model: PracticeModel) -> AgentHost:
    """A host with agents whose tools need a person or a page."""
    return _site


@pytest.fixture(scope="module")
def seen(_site: AgentHost, practice_model: PracticeModel) -> dict[str, Any]:
    """What pages see in each case of the script, all run at once; they refuse a chunk that they do not know."""
    practice_model.reset()

    def plan(user_text: str, *steps: dict[str, Any]) -> None:
        practice_model.plan(*steps, user_text=user_text)

    def calls(*names: str) -> dict[str, Any]:
        arguments = {"pay": {"amount": 3}, "locate": {"precise": True}, "rest": {"seconds": 0}}
        return {"calls": [{"name": name, "arguments": arguments[name]} for name in names]}

    plan("first question", {"items": [{"reasoning": "Hm."}, {"text": "An answer."}]})
    plan("second question", {"items": [{"text": "I rest."}, calls("rest")]}, {"text": "Rested."})
    plan("pay and locate", calls("pay", "locate", "rest"), {"text": "Paid in Bonn."})
    plan("pay too much", calls("pay"), {"text": "Not paid."})
    plan("then that", {"text": "That."})
    for text, colours in (("one", ("red", "rose")), ("two", ("blue", "green", "white")), ("three", ("black",))):
        for colour in colours:
            plan(f"colour {text}", {"text": colour})
    plan("colour four", {"text": "grey"})
    plan("colour five", {"text": "gold"})
    plan("pay or not", calls("pay"), {"text": "Done."})
    plan("long story", {"text": "Once upon a time. " * 20, "delay_milliseconds": 30, "chunk_characters": 12})
    plan("endless story", {"text": "And then. " * 900, "delay_milliseconds": 30, "chunk_characters": 10})
    plan("fail now", {"error": {"status": 400, "code": "bad", "message": "no such model"}})
    plan("fail now", {"text": "Now it works."})
    command = ["node", "aisdk.mjs", f"{_site.url}/api/ai/Guide"]
    run = subprocess.run(command, check=False, cwd=SERVICES, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_a_chat_streams_text_reasoning_and_tools(seen: dict[str, Any]):
    """Each turn is a message; its last chunk has what it used."""
    case = seen["text"]
    assert case["text"] == "I rest.|Rested."
    assert case["ends"] == ["stop", "stop"]
    assert case["shapes"] == [
        ["user", "file", "text"],
        ["assistant", "step-start", "reasoning:done", "text:done"],
        ["user", "text"],
        ["assistant", "step-start", "text:done", "rest:output-available", "text:done"],
    ]
    assert case["metadata"]["usage"]["output_token_count"] > 0
    shapes = [[part.removesuffix(":done") for part in shape if part != "step-start"] for shape in case["shapes"]]
    assert case["stored"] == shapes


def test_a_page_answers_what_a_turn_waits_for(seen: dict[str, Any]):
    """One post has the results of the page's tools and the decisions; the same message goes on."""
    case = seen["approved"]
    assert case["ends"] == ["tool-calls", "stop"]
    assert case["shape"] == [
        *["assistant", "step-start", "pay:output-available", "locate:output-available", "rest:output-available"],
        *["step-start", "data-call.answered", "text:done"],
    ]
    outputs = [[{"amount": 3}, "paid 3.0"], [{"precise": True}, {"town": "Bonn"}], [{"seconds": 0}, "rested"]]
    assert (case["tools"], case["count"], case["errors"]) == (outputs, 2, [])
    assert case["called"] == ["pay", "locate"]


def test_a_page_that_is_reloaded_shows_what_a_turn_waits_for(seen: dict[str, Any]):
    """The resumed stream has the answer so far and the questions."""
    waiting = seen["approved"]["waiting"]
    assert waiting[:3] == ["assistant", "step-start", "pay:approval-requested"]
    assert [part.split(":")[0] for part in waiting[3:]] == ["locate", "rest"]


def test_a_denied_call_is_shown_as_denied(seen: dict[str, Any]):
    """It is answered behind another message, which says that it waits, and is answered next."""
    case = seen["denied"]
    assert case["behind"] == ["assistant", "step-start", "data-turn.queued"]
    assert case["shape"] == ["assistant", "step-start", "pay:output-denied", "step-start", "text:done"]
    assert (case["isNext"], case["errors"]) == (True, [])


def test_regenerated_answers_and_edited_messages_are_branches(seen: dict[str, Any], site: AgentHost):
    """A page goes on from what it shows, also an older one; a page that is reloaded has the newest branch."""
    case = seen["branches"]
    assert case["texts"] == ["red", "blue", "green", "white", "black", "grey", "rose", "gold"]
    assert case["stored"] == ["colour one", "rose", "pay or not"]
    assert (case["resumed"], case["counts"]) == ("Done.", [4, 4, 4])
    assert (set(case["ends"]), case["errors"]) == ({"stop"}, [])
    endings = {"": ["blue", "colour five", "gold"], "~2": ["white"], "~3": ["black", "colour four", "grey"]}
    for branch, ending in endings.items():
        session = requests.get(f"{site.url}/api/agents/Guide/sessions/branches{branch}").json()
        stored = [message["contents"][0]["text"] for message in session["messages"]]
        assert [*stored[:2], *stored[3:]] == ["colour one", "red", *ending]
    assert case["alone"][0] == 400
    assert "'messages'" in case["alone"][1]


def test_a_stream_that_was_cut_is_resumed_from_its_beginning(seen: dict[str, Any]):
    """By the page that lost it and by one that is opened; once the turn has ended there is nothing to resume."""
    case = seen["cut"]
    assert len(case["begun"]) < len(case["text"]) == 20 * len("Once upon a time. ")
    assert case["same"]
    assert case["ends"] == [None, "stop"]
    assert case["again"] == 204


def test_a_turn_is_stopped(seen: dict[str, Any]):
    """The message keeps what was written, and a page's automatic answers do not continue it."""
    assert seen["stopped"] == {"status": 204, "ends": ["interrupted"], "errors": [], "again": 204}


def test_errors_reach_the_page_as_text(seen: dict[str, Any]):
    """A refused request by its status, a failed turn by its stream; both can be tried again."""
    case = seen["refused"]
    assert "'colour'" in case["errors"][0]
    assert "no such model" in case["failed"][0]
    assert case["text"] == "Now it works."


def chunks_of(response: requests.Response) -> list[dict[str, Any]]:
    """Read the chunks of a stream; the last line says that it is complete."""
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def post(site: AgentHost, chat_id: str, text: str, **fields: Any) -> requests.Response:
    """Post a user's message, alone."""
    message = {"id": f"u-{text}", "role": "user", "parts": [{"type": "text", "text": text}]}
    return requests.post(f"{site.url}/api/ai/Guide", json={"id": chat_id, "message": message} | fields)


def test_a_message_that_is_posted_twice_is_one_turn(site: AgentHost, model: PracticeModel):
    """Its stream is the same, chunk by chunk; an id with another text is refused."""
    model.plan({"items": [{"reasoning": "Hm."}, {"text": "One answer."}]})
    first, second = (chunks_of(post(site, "twice", "nächstes")) for _ in range(2))
    assert first == second
    assert len(model.requests()) == 1
    other = {"id": "u-nächstes", "role": "user", "parts": [{"type": "text", "text": "other"}]}
    assert post(site, "twice", "", message=other).text.startswith("message id 'u-nächstes' was used")


def test_a_page_brings_its_tools_and_is_told_what_a_run_does_not_take(site: AgentHost, model: PracticeModel):
    """Further fields of the body are those of a run; what names the session or the key is the message's own."""
    model.plan({"calls": [{"name": "show_map", "arguments": {"city": "Rome"}}]})
    chunks = chunks_of(post(site, "tools", "show it", client_tools=[{"name": "show_map"}]))
    assert [chunk["type"] for chunk in chunks[2:]] == ["tool-input-available", "finish-step", "finish"]
    assert chunks[-1]["finishReason"] == "tool-calls"
    names = ("agent", "session_id", "thread_id", "idempotency_key", "role", "wait_for_response", "self", "colour")
    bodies: list[Any] = [{name: value} for name in names for value in ("x", False, None)]
    bodies += [{"id": 3}, {"message": {"id": "u"}}, {"messages": []}, {"trigger": "other"}, {"messageId": 3}]
    bodies += [{"client_tools": [{"name": "pay"}]}, {"policy": "now"}]
    bodies += [{"message": {"id": "\ud800", "role": "user", "parts": [{"type": "text", "text": "no"}]}}]
    for body in bodies:
        refused = post(site, "tools", "no", **body)
        assert (refused.status_code, refused.headers["content-type"]) == (400, "text/plain; charset=utf-8"), body
        assert next(iter(body)) in refused.text
    for chat_id in ("chat~1", "c" * 121):
        refused = post(site, chat_id, "no")
        assert (refused.status_code, repr(chat_id) in refused.text) == (400, True)
    for data in ("[1]", "null"):
        assert "an object" in requests.post(f"{site.url}/api/ai/Guide", data=data).text
    assert requests.post(f"{site.url}/api/ai/Nobody", json={"id": "c", "message": {}}).status_code in {400, 404}
    assert requests.get(f"{site.url}/api/ai/Guide/no-chat/stream").status_code == 204


def test_an_answer_that_decides_nothing_is_refused(site: AgentHost, model: PracticeModel):
    """So are two answers to a call; it waits for its answer as before."""
    model.plan({"calls": [{"name": "pay", "arguments": {"amount": 3}}]}, {"text": "Paid."})
    start, _, call, *_ = chunks_of(post(site, "answers", "pay"))

    def answer(*parts: dict[str, Any]) -> requests.Response:
        message = {"id": start["messageId"], "role": "assistant", "parts": [{"type": "step-start"}, *parts]}
        return post(site, "answers", "", message=message, messageId=message["id"])

    part = {"state": "approval-responded", "toolCallId": call["toolCallId"]}
    approved = {**part, "approval": {"approved": True}}
    denied = {**part, "approval": {"approved": False}}
    result = {**part, "state": "output-available", "output": "paid"}
    error = {**part, "state": "output-error"}
    nameless = {**approved, "toolCallId": None}
    unsure = {**part, "approval": {"approved": "yes"}}
    for parts in ([part], [unsure], [approved, denied], [result], [error], [nameless]):
        refused = answer(*parts)
        assert refused.status_code == 400, refused.text
    messages = [{"id": start["messageId"], "role": "assistant", "parts": []}, {"id": "u", "role": "user", "parts": []}]
    body = {"id": "answers", "messages": messages, "trigger": "regenerate-message"}
    assert "not complete" in requests.post(f"{site.url}/api/ai/Guide", json=body).text
    assert chunks_of(answer(approved))[-1]["finishReason"] == "stop"


def event(number: int, kind: str, /, **data: Any) -> TurnEvent:
    """Make an event of a turn."""
    return TurnEvent(number, kind, data, "s", "t")


def test_text_that_is_taken_back_resets_the_step():
    """What remains of it is sent again: the text before, and the tool that has run."""
    events = [
        event(1, "turn.started"),
        event(2, "message.started", index=0),
        event(3, "message.delta", text="Let me look."),
        event(4, "message.completed", index=0, citations=[], files=[]),
        event(5, "tool.started", call_id="c", name="look", arguments={}),
        event(6, "tool.completed", call_id="c", outcome="success", result="seen"),
        event(7, "message.delta", text="\n\n"),
        event(8, "message.started", index=1),
        event(9, "message.delta", text="It is r"),
    ]
    stream = UIMessageStream()
    shown = [chunk for item in events for chunk in stream.feed(item)]
    again = stream.feed(event(10, "turn.restarted", discard_from=7))
    assert again == [{"type": "reset-step"}, *shown[1:-2]]
    assert shown[-1] == {"type": "text-delta", "id": "text", "delta": "It is r"}
    assert [chunk["type"] for chunk in stream.feed(event(11, "message.delta", text="It"))] == [
        "text-start",
        "text-delta",
    ]


@pytest.mark.parametrize(
    ("name", "data", "types", "reason"),
    [
        ("turn.completed", {"status": "success", "usage": None}, ["finish"], "stop"),
        ("turn.completed", {"status": "incomplete"}, ["finish"], "length"),
        ("turn.completed", {"status": "refused"}, ["finish"], "content-filter"),
        ("turn.cancelled", {"status": "cancelled"}, ["abort", "finish"], "interrupted"),
        ("turn.failed", {"status": 502, "detail": "why"}, ["error", "finish"], "error"),
    ],
)
def test_a_message_ends_as_its_turn(name: str, data: dict[str, Any], types: list[str], reason: str):
    """An error is said before the end."""
    chunks = ending_of(event(9, name, **data))
    assert ([chunk["type"] for chunk in chunks], chunks[-1]["finishReason"]) == (types, reason)


def test_sources_and_files_follow_their_message():
    """A source of several citations is shown once."""
    link = {"start": 0, "end": 1, "url": "https://a.example", "title": "A"}
    file = {"id": "f", "name": "a.csv", "media_type": None, "file_url": "https://host/f"}
    stream = UIMessageStream()
    stream.feed(event(1, "message.started", index=0))
    chunks = stream.feed(event(2, "message.completed", index=0, text="ab", citations=[link, link], files=[file]))
    assert [chunk["type"] for chunk in chunks] == ["source-url", "file"]
