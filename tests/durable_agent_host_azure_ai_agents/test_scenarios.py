"""Sessions whose conversation is a thread of the Azure AI Agents service, over kills of the host."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.durable_agent_host.sse_client import read_events
from tests.kit import Lives, PracticeModel, start_model
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "agents_service"


@pytest.fixture(scope="module")
def model() -> Iterator[PracticeModel]:
    """The service."""
    running = start_model()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def effects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the tools have left."""
    return tmp_path_factory.mktemp("effects") / "lines"


@pytest.fixture(scope="module")
def lives(model: PracticeModel, effects: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    """A host that can crash."""
    more = {"DURABLE_AGENT_HOST_MODEL_ATTEMPTS": "3"}
    base = model.control.removesuffix("/practice")
    more |= {"MODEL_URL": f"{base}/agents", "RESPONSES_URL": f"{base}/v1", "EFFECTS": str(effects)}
    running = Lives(tmp_path_factory.mktemp("agents"), None, app=APP, **more)
    yield running
    running.host.stop()


@pytest.fixture(autouse=True)
def _fresh(model: PracticeModel) -> None:
    model.reset()


def posted_requests(model: PracticeModel, path_suffix: str) -> list[dict[str, Any]]:
    """Give the POST requests whose path ends so, refused ones too."""
    return [
        request for request in model.requests() if request["method"] == "POST" and request["path"].endswith(path_suffix)
    ]


def start_turn(lives: Lives, agent: str, text: str, session: str) -> str:
    """Start a turn and give its path."""
    body = {"message": text, "session_id": session, "wait_for_response": False}
    turn_id = lives.host.run(agent, body).headers["x-ms-turn-id"]
    return f"/agents/{agent}/sessions/{session}/turns/{turn_id}"


def await_event(lives: Lives, turn: str, name: str) -> None:
    """Follow a turn's events until one comes."""
    with requests.get(f"{lives.host.url}/api{turn}/events", stream=True) as response:
        assert any(line == f"event: {name}" for line in response.iter_lines(decode_unicode=True))


def wait_for_end(lives: Lives, turn: str) -> dict[str, Any]:
    """Wait until a turn has ended."""
    final_statuses = {"completed", "failed", "cancelled"}
    return wait_until(lambda: (view := lives.host.get(turn).json())["status"] in final_statuses and view)


def test_a_thread_carries_the_conversation_over_a_kill(lives: Lives, model: PracticeModel):
    """The second turn goes to the same thread, with its message alone."""
    assert lives.host.run("Worker", "My name is Ada.", session_id="thread").status_code == 200
    lives.crash()
    response = lives.host.run("Worker", "What is my name?", session_id="thread")
    assert "My name is Ada." in response.text
    assert len(posted_requests(model, "/threads")) == 1
    message_requests = posted_requests(model, "/messages")
    assert [request["body"]["content"] for request in message_requests] == ["My name is Ada.", "What is my name?"]
    assert len({request["path"] for request in message_requests}) == 1


@pytest.mark.drawn(1)
@pytest.mark.parametrize("event", ["turn.started", "message.delta"])
def test_a_run_is_attached_to_after_a_kill(lives: Lives, model: PracticeModel, event: str):
    """One message, one run; nothing is cancelled or asked for again."""
    session = f"attach-{event}"
    model.plan({"text": "This answer takes its time. " * 4, "delay_milliseconds": 30, "chunk_characters": 8})
    turn = start_turn(lives, "Worker", "Tell me.", session)
    await_event(lives, turn, event)
    lives.crash()
    view = wait_for_end(lives, turn)
    assert (view["status"], view["response"]) == ("completed", ("This answer takes its time. " * 4))
    events = [*read_events(requests.get(f"{lives.host.url}/api{turn}/events", stream=True))]
    assert "turn.restarted" not in [event.name for event in events]
    assert "".join(event.data["text"] for event in events if event.name == "message.delta") == view["response"]
    assert len(posted_requests(model, "/messages")) == len(posted_requests(model, "/runs")) == 1
    assert not posted_requests(model, "/cancel")


def test_tools_run_once_over_a_kill(lives: Lives, model: PracticeModel, effects: Path):
    """A run that has its tool outputs is resumed, and they are not submitted again."""
    model.plan(
        {"calls": [{"name": "note", "arguments": {"line": "once"}}]},
        {"code": "print(1)", "logs": "1\n", "text": "Done, and slowly so.", "delay_milliseconds": 40},
    )
    turn = start_turn(lives, "Worker", "Note it.", "tools")
    await_event(lives, turn, "tool.completed")
    wait_until(lambda: posted_requests(model, "/submit_tool_outputs"))
    lives.crash()
    assert wait_for_end(lives, turn)["status"] == "completed"
    assert effects.read_text().splitlines().count("once") == 1
    assert len(posted_requests(model, "/submit_tool_outputs")) == len(posted_requests(model, "/runs")) == 1
    [_, response] = lives.host.state("Worker", "tools")["data"]["conversationHistory"]
    kinds = [content["$type"] for message in response["messages"] for content in message["contents"]]
    assert [kind for kind in kinds if "ode" in kind] == ["codeInterpreterToolCall", "codeInterpreterToolResult"]
    assert '"outputs": [{"type": "text", "text": "1\\n"}]' in json.dumps(response)


def test_a_person_decides_during_a_run(lives: Lives, model: PracticeModel, effects: Path):
    """The run takes the output when the approval is there, after a kill as well."""
    model.plan({"calls": [{"name": "careful", "arguments": {"line": "approved"}}]}, {"text": "It is done."})
    turn = start_turn(lives, "Worker", "Be careful.", "careful")
    pending = wait_until(lambda: lives.host.get(turn).json().get("pending_calls"))
    lives.crash()
    response = requests.post(
        f"{lives.host.url}/api{turn}/answers",
        json={"call_id": pending[0]["call_id"], "approved": True},
    )
    assert response.status_code in {200, 202}, response.text
    assert wait_for_end(lives, turn)["response"] == "It is done."
    assert effects.read_text().splitlines().count("approved") == 1
    assert len(posted_requests(model, "/runs")) == 1


def test_a_tool_that_nobody_knows_has_run(lives: Lives, model: PracticeModel):
    """It is told by its type; without an output, too, the conversation is valid."""
    call = {"type": "holodeck", "holodeck": {"scene": "beach"}}
    model.plan({"items": [{"item": call}, {"text": "Nice."}]})
    answer = lives.host.run("Worker", {"message": "Look.", "session_id": "holodeck"}).json()
    assert answer["response"] == "Nice."
    turn = f"/agents/Worker/sessions/holodeck/turns/{answer['turn_id']}"
    (step,) = [step for step in lives.host.get(f"{turn}/steps").json()["steps"] if step["kind"] == "tool_call"]
    assert (step["name"], step["arguments"], step["outcome"]) == ("holodeck", {"scene": "beach"}, "success")
    assert lives.host.get("/agents/Worker/sessions/holodeck/verify").json()["problems"] == []


def test_an_approval_of_an_mcp_tool_carries_its_headers(lives: Lives, model: PracticeModel):
    """Headers go with the run and with the approval, not into the agent's definition."""
    call = {
        "type": "mcp",
        "server_label": "docs",
        "name": "look_up",
        "arguments": "{}",
        "output": "found",
        "approval": True,
    }
    model.plan({"item": call}, {"text": "I have looked it up."})
    turn = start_turn(lives, "Reader", "Look it up.", "mcp")
    pending = wait_until(lambda: lives.host.get(turn).json().get("pending_calls"))
    assert pending[0]["name"] == "look_up"
    url = f"{lives.host.url}/api{turn}/answers"
    requests.post(url, json={"call_id": pending[0]["call_id"], "approved": True}).raise_for_status()
    assert wait_for_end(lives, turn)["response"] == "I have looked it up."
    [run], [submission] = posted_requests(model, "/runs"), posted_requests(model, "/submit_tool_outputs")
    headers = {"X-Docs": "docs-header"}
    resources = run["body"]["tool_resources"]["mcp"]
    assert resources == [{"server_label": "docs", "headers": headers, "require_approval": "always"}]
    approval = {"tool_call_id": pending[0]["call_id"], "approve": True, "headers": headers}
    assert submission["body"]["tool_approvals"] == [approval]
    assert "headers" not in str(run["body"].get("tools"))


def test_a_permanently_failed_run_reports_the_reason(lives: Lives, model: PracticeModel):
    """With the code and the service's words."""
    model.plan({"text": "Well", "fail": {"code": "invalid_prompt", "message": "No."}})
    response = lives.host.run("Worker", "Try.", session_id="for-good")
    assert response.status_code == 502
    assert "invalid_prompt: No" in response.text


def test_an_interrupted_stream_starts_no_second_run(lives: Lives, model: PracticeModel):
    """The run went on at the service; its steps tell the rest."""
    model.plan({"text": "Cut in the middle of this.", "break_after_events": 8, "chunk_characters": 4})
    assert lives.host.run("Worker", "Say it.", session_id="cut").text == "Cut in the middle of this."
    assert len(posted_requests(model, "/runs")) == 1


def test_an_expired_run_continues_in_a_new_thread(lives: Lives, model: PracticeModel, effects: Path):
    """A new thread gets the conversation in words; the tool that has run is not run again."""
    model.plan({"calls": [{"name": "careful", "arguments": {"line": "late"}}]}, {"text": "Better late."})
    turn = start_turn(lives, "Worker", "Wait for me.", "late")
    pending = wait_until(lambda: lives.host.get(turn).json().get("pending_calls"))
    requests.post(f"{model.control}/agents/expire").raise_for_status()
    url = f"{lives.host.url}/api{turn}/answers"
    requests.post(url, json={"call_id": pending[0]["call_id"], "approved": True}).raise_for_status()
    assert wait_for_end(lives, turn)["response"] == "Better late."
    assert effects.read_text().splitlines().count("late") == 1
    assert len(posted_requests(model, "/threads")) == 2


def test_a_thread_is_left_after_a_switch(lives: Lives, model: PracticeModel):
    """It lacks what the fallback has answered; a new thread gets the whole conversation, and is continued."""
    call = {"calls": [{"name": "note", "arguments": {"line": "switched"}}]}
    model.plan(call, *[{"error": {"status": 503}}] * 3, {"text": "Found."}, *[{"text": "Fine."}] * 2)
    for text, answer in (("Note it.", "Found."), ("Next.", "Fine."), ("Last.", "Fine.")):
        assert lives.host.run("Falling", text, session_id="switch").text == answer
    _, thread = posted_requests(model, "/threads")
    assert [word in json.dumps(thread["body"]) for word in ("Note it.", "noted switched", "Found.")] == [True] * 3
    assert [request["body"]["content"] for request in posted_requests(model, "/messages")[1:]] == ["Next.", "Last."]


def test_a_cancelled_turn_cancels_the_run(lives: Lives, model: PracticeModel):
    """A person asked; the next turn is taken."""
    model.plan({"text": "This takes very long. " * 40, "delay_milliseconds": 50, "chunk_characters": 8})
    turn = start_turn(lives, "Worker", "Go on and on.", "cancel")
    await_event(lives, turn, "message.delta")
    requests.post(f"{lives.host.url}/api{turn}/cancel").raise_for_status()
    assert wait_for_end(lives, turn)["status"] == "cancelled"
    assert len(posted_requests(model, "/cancel")) == 1
    assert lives.host.run("Worker", "And now?", session_id="cancel").status_code == 200


def test_a_deleted_thread_is_created_again(lives: Lives, model: PracticeModel):
    """From the stored conversation."""
    lives.host.run("Worker", "I like green.", session_id="gone")
    thread = posted_requests(model, "/messages")[0]["path"].removesuffix("/messages")
    base = model.control.removesuffix("/practice")
    requests.delete(base + thread, headers={"api-key": "k"}).raise_for_status()
    response = lives.host.run("Worker", "What do I like?", session_id="gone")
    assert response.status_code == 200, response.text
    assert "I like green." in response.text


def test_a_failed_turn_cancels_its_pending_run(lives: Lives, model: PracticeModel):
    """A turn that fails while its run waits cancels the run; the next turn is taken."""
    call = {"calls": [{"name": "note", "arguments": {"line": "refused"}}]}
    model.plan(call, {"error": {"status": 400, "message": "These outputs are refused."}})
    response = lives.host.run("Worker", "Note it.", session_id="refused")
    assert response.status_code == 502
    assert "These outputs are refused" in response.text
    assert len(posted_requests(model, "/cancel")) == 1
    model.plan({"text": "Here I am."})
    assert lives.host.run("Worker", "Are you there?", session_id="refused").text == "Here I am."
