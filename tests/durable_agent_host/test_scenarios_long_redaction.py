"""The redaction of long texts holds no other turn up."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kit import AgentHost, PracticeModel, hosted, start_model, wait_until

APP = Path(__file__).parent / "apps" / "slow_redaction"
LONG = "word " * 100_000


@pytest.fixture
def model() -> Iterator[PracticeModel]:
    """The service of the agent."""
    running = start_model()
    yield running
    running.stop()


@pytest.fixture
def host(model: PracticeModel, tmp_path: Path) -> Iterator[AgentHost]:
    """A host whose app waits in its redaction of a long text until another turn has called a tool."""
    with hosted(tmp_path, None, app=APP, MODEL_URL=model.url.removesuffix("/v1")) as running:
        yield running


@pytest.mark.parametrize("where", ["result", "answer"])
def test_other_turns_go_on_while_a_long_text_is_redacted(host: AgentHost, model: PracticeModel, where: str):
    """A tool's result is redacted when it is shown, and an answer when it is stored."""
    call = {"calls": [{"name": "look_up", "arguments": {}}]}
    model.plan(*([call, {"text": "Found."}] if where == "result" else [{"text": LONG}]), user_text="Look")
    model.plan({"calls": [{"name": "let_go", "arguments": {}}]}, {"text": "Yes."}, user_text="Go on")
    started = host.run("Agent", {"message": "Look", "session_id": "long", "wait_for_response": False})
    assert started.status_code == 202, started.text
    url = f"{host.url}/api/agents/Agent/sessions/long/turns/{started.headers['x-ms-turn-id']}"
    wait_until(lambda: host.get("/waits").text)
    assert host.run("Agent", "Go on", session_id="short").text == "Yes."
    ended = host.end_of_turn(url)
    assert ended["status"] == "completed", ended


@pytest.mark.parametrize(("tool", "status"), [("note", "completed"), ("send", "waiting_for_approval")])
def test_other_turns_go_on_while_long_arguments_are_redacted(
    host: AgentHost, model: PracticeModel, tool: str, status: str
):
    """They are redacted when the call is shown, also to the person who is asked."""
    model.plan({"calls": [{"name": tool, "arguments": {"text": LONG}}]}, {"text": "Done."}, user_text="Look")
    model.plan({"calls": [{"name": "let_go", "arguments": {}}]}, {"text": "Yes."}, user_text="Go on")
    started = host.run("Agent", {"message": "Look", "session_id": "long", "wait_for_response": False})
    wait_until(lambda: host.get("/waits").text)
    assert host.run("Agent", "Go on", session_id="short").text == "Yes."
    wait_until(lambda: host.turn(started)["status"] == status)


def test_other_turns_go_on_while_a_long_request_is_redacted(host: AgentHost, model: PracticeModel):
    """It is redacted before the turn begins."""
    model.plan({"text": "Long."}, user_text="word")
    model.plan({"calls": [{"name": "let_go", "arguments": {}}]}, {"text": "Yes."}, user_text="Go on")
    with ThreadPoolExecutor() as threads:
        begun = threads.submit(host.run, "Agent", LONG, session_id="long")
        wait_until(lambda: host.get("/waits").text)
        assert host.run("Agent", "Go on", session_id="short").text == "Yes."
    assert begun.result().text == "Long."


@pytest.mark.parametrize("part", ["steps", "calls/{call}", "calls/{call}/request", "test"])
def test_other_turns_go_on_while_somebody_looks_at_a_long_text(host: AgentHost, model: PracticeModel, part: str):
    """What a turn did, and what it sent, is redacted when it is shown."""
    model.plan({"calls": [{"name": "look_up", "arguments": {}}]}, {"text": "Found."}, user_text="Look")
    model.plan({"calls": [{"name": "let_go", "arguments": {}}]}, {"text": "Yes."}, user_text="Go on")
    started = host.run("Agent", {"message": "Look", "session_id": "long", "wait_for_response": False})
    wait_until(lambda: host.get("/waits").text)
    assert host.run("Agent", "Go on", session_id="short").text == "Yes."
    turn = f"/agents/Agent/sessions/long/turns/{started.headers['x-ms-turn-id']}"
    assert host.end_of_turn(f"{host.url}/api{turn}")["status"] == "completed"
    call = host.get(f"{turn}/calls").json()["calls"][-1]["name"]
    model.plan({"calls": [{"name": "let_go", "arguments": {}}]}, {"text": "Yes."}, user_text="Go on")
    host.get("/wait-again").raise_for_status()
    with ThreadPoolExecutor() as threads:
        shown = threads.submit(host.get, f"{turn}/{part.format(call=call)}")
        wait_until(lambda: host.get("/waits").text)
        assert host.run("Agent", "Go on", session_id="short").text == "Yes."
    assert shown.result().status_code in {200, 409}  # the text is too long to be kept whole, so there is no test of it
