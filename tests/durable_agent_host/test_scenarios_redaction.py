"""Redaction: the model gets texts unchanged; they are stored and displayed without their secrets."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests

from tests.durable_agent_host.sse_client import Reader, read_events
from tests.durable_agent_host.stored_bytes import read_all_bytes
from tests.kit import AgentHost, Lives, PracticeModel
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "redaction"
MASK = "[redacted]"


def card(number: int, gap: str = "") -> str:
    """Make a card number."""
    digits = f"4111{number:012d}"
    return gap.join(digits[first : first + 4] for first in range(0, 16, 4))


SECRETS = {
    "message": card(11110001, " "),
    "mail of message": "asker.canary@example.com",
    "reasoning": card(11110002),
    "answer": card(11110003, "-"),
    "bearer in answer": "canary4.abcdef.ghijkl-01234",
    "arguments": card(11110005),
    "holder": "holder.canary@example.com",
    "error": "error.canary@example.com",
    "key in arguments": "sk-proj-canary8abcdefghijklmnop",
    "code": card(11110009),
    "logs": card(11110010),
    "payment": card(11110011),
    "reason": "reason.canary@example.com",
    "model error": "model.canary@example.com",
    "denial": "denial.canary@example.com",
    "crash": card(11110012, " "),
    "after crash": card(11110013),
    "citation": "citation.canary@example.com",
    "long": "long.canary@example.com",
    "steered": "steered.canary@example.com",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the host keeps its data."""
    return tmp_path_factory.mktemp("redaction")


@pytest.fixture(scope="module")
def lives(practice_model: PracticeModel, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    """A host that can crash."""
    ledger = tmp_path_factory.mktemp("redaction-ledger") / "began.txt"
    more = {"LEDGER": str(ledger), "HOLDER": SECRETS["holder"], "IN_ERROR": SECRETS["error"]}
    lives = Lives(folder, practice_model, app=APP, **more, DURABLE_AGENT_HOST_MODEL_ATTEMPTS="1")
    yield lives
    lives.host.stop()


def leaks(data: bytes, names: Any = SECRETS) -> list[str]:
    """Name the secrets that stand somewhere, as they were said or as digits."""
    return [name for name in names if SECRETS[name].encode() in data]


def run_streamed(host: AgentHost, agent: str, message: str, session: str) -> tuple[Reader, bytes]:
    """Run a turn as a stream; gives what a client put together, and all that it was sent."""
    headers = {"accept": "text/event-stream"}
    response = requests.post(
        f"{host.url}/api/agents/{agent}/run",
        json={"message": message, "session_id": session},
        headers=headers,
        timeout=60,
        stream=True,
    )
    reader = Reader()
    for event in read_events(response):
        reader.add(event)
    return reader, json.dumps([event.data for event in reader.events], ensure_ascii=False).encode()


def read_views(host: AgentHost, agent: str, session: str) -> bytes:
    """Read all that the host shows of a session."""
    page = host.session(agent, session)
    texts = [json.dumps(page, ensure_ascii=False)]
    for turn in page["turns"]:
        path = f"/agents/{agent}/sessions/{session}/turns/{turn['turn_id']}"
        texts += [host.get(path).text, host.get(f"{path}/events").text]
        query = "?showInput=true&showHistory=true&showHistoryOutput=true"
        texts.append(requests.get(f"{host.management}/instances/{turn['turn_id']}{query}").text)
    command = [str(Path(sys.executable).parent / "durable-agent-host"), "sessions", "export", agent, session]
    done = subprocess.run([*command, "--url", host.url], capture_output=True, text=True, timeout=60, check=True)
    return "\n".join([*texts, done.stdout, done.stderr, json.dumps(host.state(agent, session))]).encode()


def sent(model: PracticeModel) -> bytes:
    """Give all that the model was sent."""
    return json.dumps(model.requests(), ensure_ascii=False).encode()


SPOKEN = (
    {
        "items": [
            {"reasoning": f"The card is {SECRETS['reasoning']}, I think.", "encrypted": True},
            {"text": f"I look. Bearer {SECRETS['bearer in answer']} is a token."},
            {
                "calls": [
                    {"name": "find", "arguments": {"card": SECRETS["arguments"]}},
                    {"name": "broken", "arguments": {"key": SECRETS["key in arguments"]}},
                ]
            },
        ]
    },
    {
        "items": [
            {"code": f"print('{SECRETS['code']}')", "logs": f"{SECRETS['logs']} is valid"},
            {
                "text": f"It is {SECRETS['answer']}, says {SECRETS['citation']}, and nothing else.",
                "files": [f"{SECRETS['citation']}.csv"],
                "citation": True,
            },
        ]
    },
)
MESSAGE = f"Mine is {SECRETS['message']}, write to {SECRETS['mail of message']}"
MODEL_SECRETS = {"message", "mail of message", "reasoning", "arguments", "holder", "code", "logs", "key in arguments"}
MODEL_SECRETS |= {"answer", "citation"}


def test_secrets_reach_the_model_and_nothing_else(lives: Lives, model: PracticeModel, folder: Path):
    """Whoever says a secret, and however a stream is cut: afterwards it is in no file, answer, event, log or export."""
    host, session = lives.host, uuid4().hex
    model.plan(*SPOKEN)
    reader, received_data = run_streamed(host, "Teller", MESSAGE, session)
    assert reader.names()[-1] == "turn.completed"
    assert "turn.restarted" not in reader.names()
    assert len(reader.deltas) > 1
    assert reader.last is not None
    assert reader.last.data["redacted"] is True
    assert reader.text == reader.last.data["response"]
    assert f"It is {MASK}, says {MASK}, and nothing else." in reader.text
    assert set(leaks(sent(model))) >= MODEL_SECRETS - {"answer", "citation", "logs"}
    assert leaks(received_data) == []
    assert leaks(read_views(host, "Teller", session)) == []
    page = host.session("Teller", session)
    assert all(message["redacted"] is True for message in page["messages"])
    wait_until(lambda: leaks(read_all_bytes(folder)) == [])
    assert leaks("".join(host.output).encode()) == []
    model.reset()
    model.plan({"text": "Fine."})
    response = host.run("Teller", {"message": "And now?", "session_id": session})
    assert (response.status_code, response.json()["response"]) == (200, "Fine.")
    assert "redacted" not in response.json()
    assert leaks(sent(model)) == []
    assert MASK.encode() in sent(model)


def test_citations_mark_the_cited_words_of_a_redacted_text(lives: Lives, model: PracticeModel):
    """Secrets of other lengths stand before, between and after them: in the answer, its event and the session."""
    host, session = lives.host, uuid4().hex
    links = ["sandbox:/mnt/data/one.csv", "sandbox:/mnt/data/two.csv"]
    text = f"{SECRETS['answer']} is in {links[0]}, {SECRETS['citation']} in {links[1]}, says {SECRETS['citation']}."
    first = {"text": f"I ask {SECRETS['citation']}."}
    model.plan({"items": [first, {"text": text, "files": ["one.csv", "two.csv"]}], "chunk_characters": 5})
    reader, _ = run_streamed(host, "Teller", "Where?", session)
    assert reader.last is not None
    answer = reader.last.data
    assert [answer["response"][item["start"] : item["end"]] for item in answer["citations"]] == links
    *_, completed = (event.data for event in reader.events if event.name == "message.completed")
    assert [completed["text"][item["start"] : item["end"]] for item in completed["citations"]] == links
    assert answer["messages"][-1] == {name: completed[name] for name in ("text", "citations", "files")}
    *_, content = host.session("Teller", session)["messages"][-1]["contents"]
    cited_words = [
        content["text"][region["start_index"] : region["end_index"]]
        for annotation in content["extensionData"]["durableAgentHost"]["annotations"]
        for region in annotation["annotated_regions"]
    ]
    assert cited_words == links


def test_what_an_agent_within_says_is_redacted(lives: Lives, model: PracticeModel):
    """Its messages are events of the turn, which clients get without secrets."""
    model.plan({"calls": [{"name": "clerk", "arguments": {"task": "go"}}]}, {"text": "Done."}, agent="Ask.")
    model.plan({"text": f"It is {SECRETS['answer']}, says {SECRETS['citation']}."}, agent="Help.")
    reader, received_data = run_streamed(lives.host, "Asks", "go", uuid4().hex)
    (said,) = [event.data for event in reader.events if event.name == "inner"]
    assert (said["event"], said["data"]["text"]) == ("message.completed", f"It is {MASK}, says {MASK}.")
    assert leaks(received_data) == []


def test_the_search_finds_unredacted_secrets(lives: Lives, model: PracticeModel, folder: Path):
    """The search of the test above finds what is there."""
    host, session = lives.host, uuid4().hex
    model.plan(*SPOKEN)
    reader, received_data = run_streamed(host, "Open", MESSAGE, session)
    assert reader.last is not None
    assert "redacted" not in reader.last.data
    assert set(leaks(received_data)) >= MODEL_SECRETS - {"message", "reasoning"}
    assert set(leaks(read_views(host, "Open", session))) >= MODEL_SECRETS
    assert set(leaks(read_all_bytes(folder))) >= MODEL_SECRETS
    assert host.get(f"/agents/Open/sessions/{session}").ok
    assert requests.delete(f"{host.url}/api/agents/Open/sessions/{session}").ok
    wait_until(lambda: leaks(read_all_bytes(folder)) == [])


def test_approvals_are_redacted(lives: Lives, model: PracticeModel, folder: Path):
    """A call that waits is shown redacted, and runs as the model wrote it; what people answer or add is redacted."""
    host, session = lives.host, uuid4().hex
    calls = [{"name": "pay", "arguments": {"card": SECRETS["payment"], "reason": SECRETS["reason"]}} for _ in range(2)]
    model.plan({"calls": calls}, {"text": "Paid."})
    run_response = host.run("Teller", {"message": "Pay", "session_id": session})
    assert run_response.status_code == 202
    assert leaks(run_response.content) == []
    steering = {"message": f"Hurry, {SECRETS['steered']}", "session_id": session, "policy": "steer"}
    steering_response = host.run("Teller", steering)
    assert (steering_response.status_code, leaks(steering_response.content)) == (202, [])
    first_call, second_call = run_response.json()["pending_calls"]
    assert (first_call["arguments"]["card"], first_call["arguments"]["reason"]) == (MASK, MASK)
    shown_calls = [call for call in host.get("/pending").json()["pending_calls"] if call["session_id"] == session]
    assert [call["redacted"] for call in (first_call, second_call, *shown_calls)] == [True] * 4
    path = f"/agents/Teller/sessions/{session}/turns/{run_response.json()['turn_id']}"
    decisions = [
        {
            "call_id": first_call["call_id"],
            "approved": True,
            "arguments": {"card": "none", "reason": SECRETS["denial"]},
        },
        {"call_id": second_call["call_id"], "approved": False, "reason": f"ask {SECRETS['denial']}"},
    ]
    for body in decisions:
        response = host.post(f"{path}/answers", json.dumps(body).encode(), content_type="application/json")
        assert response.ok, response.text
        assert leaks(response.content) == []
        decision = response.json()["answers"][0]
        assert (decision["redacted"], "truncated" in decision) == (True, False)
    final_turn = host.end_of_turn(f"{host.url}/api{path}")
    while final_turn["status"] == "waiting":
        final_turn = host.end_of_turn(f"{host.url}/api{path}")
    assert final_turn["response"] == "Paid."
    views = {answer["call_id"]: answer for answer in final_turn["answers"]}
    assert views[first_call["call_id"]]["arguments"] == {"card": "none", "reason": MASK}
    assert MASK in views[second_call["call_id"]]["reason"]
    steps = host.get(f"{path}/steps").json()["steps"]
    shown = {call["call_id"]: call["answer"] for step in steps for call in step.get("calls", ())}
    assert shown[first_call["call_id"]]["arguments"] == {"card": "none", "reason": MASK}
    export = host.get(f"/agents/Teller/sessions/{session}/export").text
    response_entry = json.loads(export.strip().splitlines()[-1])
    record = response_entry["extensionData"]["durableAgentHost"]["answers"]
    first, second = record[first_call["call_id"]], record[second_call["call_id"]]
    assert first["askedArguments"] == {"card": MASK, "reason": MASK}
    assert (first["arguments"], first["redacted"]) == ({"card": "none", "reason": MASK}, True)
    assert (first["approved"], first["outcome"], len(first["idempotencyKey"])) == (True, "success", 32)
    assert (second["approved"], second["outcome"]) == (False, "denied")
    assert set(leaks(sent(model))) >= {"denial", "steered"}
    assert leaks(read_views(host, "Teller", session)) == []
    wait_until(lambda: leaks(read_all_bytes(folder)) == [])


def test_a_text_that_is_cut_off_is_not_stored(lives: Lives, model: PracticeModel, folder: Path):
    """Nothing finds the beginning of a secret, so of a cancelled turn only complete messages stay."""
    host, session = lives.host, uuid4().hex
    secret = "4111 1111 1111 111"
    items = [{"text": "First."}, {"text": f"card {secret}{'x' * 4000}"}]
    model.plan({"items": items, "chunk_characters": 30, "delay_milliseconds": 800})
    later = {"x-ms-wait-for-response": "false"}
    turn = host.run("Teller", {"message": "Say it.", "session_id": session}, headers=later).json()
    path = f"/agents/Teller/sessions/{session}/turns/{turn['turn_id']}"
    with requests.get(f"{host.url}/api{path}/events", timeout=60, stream=True) as events:
        assert any(b"First." in line for line in events.iter_lines(chunk_size=1))
    assert host.post(f"{path}/cancel", b"").status_code == 202
    final_turn = wait_until(lambda: (turn := host.get(path).json())["status"] == "cancelled" and turn)
    assert final_turn["response"] == "First."
    assert secret.encode() not in read_views(host, "Teller", session)
    wait_until(lambda: secret.encode() not in read_all_bytes(folder))


def test_a_streamed_text_is_sent_when_it_is_complete(lives: Lives, model: PracticeModel):
    """However its words are cut in the model's stream, and whatever the app's function hides."""
    model.plan({"text": "Say word-17 and 4 and 5, twice: word-6 and 7.", "chunk_characters": 2})
    reader, received_data = run_streamed(lives.host, "Words", "What is word-99?", uuid4().hex)
    assert reader.text == "Say (hidden), twice: (hidden)."
    assert reader.names() == [
        *("turn.started", "message.started", "message.delta", "message.completed", "turn.completed")
    ]
    assert reader.last is not None
    assert reader.last.data["message"] == "What is (hidden)?"
    assert "word-99" in sent(model).decode()
    assert b"word-" not in received_data
    model.plan({"text": "word-8 is it."})
    run = {"threadId": uuid4().hex, "runId": "r1", "messages": [{"id": "u1", "role": "user", "content": "And now?"}]}
    answer, repeated = (requests.post(f"{lives.host.url}/api/agui/Words", json=run).text for _ in range(2))
    assert answer == repeated
    assert '"delta":"(hidden) is it."' in answer


def test_a_function_that_fails_fails_the_turn(lives: Lives, model: PracticeModel, folder: Path):
    """The failure is reported, nothing is stored, and the session continues."""
    host, session = lives.host, uuid4().hex
    input_failure = host.run("Stumbles", {"message": "I stumble over 1771", "session_id": session})
    assert input_failure.status_code == 502
    model.plan({"text": "You stumble over 1772."}, {"text": "Fine."})
    output_failure = host.run("Stumbles", {"message": "Hello", "session_id": session})
    assert output_failure.status_code == 502
    for response in (input_failure, output_failure):
        assert "'redact' raised KeyError for a content of type 'text'" in response.json()["detail"]
        assert b"177" not in response.content.replace(session.encode(), b"")
    assert host.session("Stumbles", session)["messages"] == []
    assert host.run("Stumbles", {"message": "Again", "session_id": session}).json()["response"] == "Fine."
    wait_until(lambda: b"stumble over" not in read_all_bytes(folder))


def test_a_page_that_posts_again_after_the_end_gets_the_answer(lives: Lives, model: PracticeModel):
    """The events of the turn are deleted; the steps that the page has are not sent in place of it."""
    host = lives.host
    model.plan({"calls": [{"name": "pay", "arguments": {"card": "c", "reason": "r"}}]}, {"text": "Paid."})
    message = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "pay"}]}

    def chunks_of(message: dict[str, Any]) -> list[dict[str, Any]]:
        response = host.post("/ai/Teller", json.dumps({"id": "page", "message": message}).encode())
        lines = response.text.split("\n\n")[:-2]
        return [json.loads(line.removeprefix("data: ")) for line in lines]

    start, _, call, *_ = chunks_of(message)
    part = {"toolCallId": call["toolCallId"], "state": "approval-responded", "approval": {"approved": True}}
    answer = {"id": start["messageId"], "role": "assistant", "parts": [{"type": "step-start"}, part]}
    assert chunks_of(answer)[-1]["finishReason"] == "stop"
    events = f"/agents/Teller/sessions/page/turns/{start['messageId']}/events"
    wait_until(lambda: "turn.started" not in host.get(events).text)
    for repeated in (message, answer):
        chunks = chunks_of(repeated)
        assert [chunk["type"] for chunk in chunks if "text" not in chunk["type"]] == [
            *("start", "start-step", "finish-step", "finish")
        ]
        assert [chunk["delta"] for chunk in chunks if "delta" in chunk] == ["Paid."]
