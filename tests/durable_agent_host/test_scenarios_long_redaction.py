"""The redaction of long texts holds no other turn up."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import AgentHost, PracticeModel, running_host, start_model, wait_until

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
    with running_host(tmp_path, None, app=APP, MODEL_URL=model.url.removesuffix("/v1")) as running:
        yield running


@pytest.mark.drawn(1)
@pytest.mark.parametrize("redacted_part", ["result", "answer"])
def test_other_turns_continue_while_a_long_text_is_redacted(host: AgentHost, model: PracticeModel, redacted_part: str):
    """A tool's result is redacted when it is shown, and an answer when it is stored."""
    call = {"calls": [{"name": "look_up", "arguments": {}}]}
    model.plan(*([call, {"text": "Found."}] if redacted_part == "result" else [{"text": LONG}]), user_text="Look")
    model.plan({"calls": [{"name": "let_go", "arguments": {}}]}, {"text": "Yes."}, user_text="Go on")
    start_response = host.run("Agent", {"message": "Look", "session_id": "long", "wait_for_response": False})
    assert start_response.status_code == 202, start_response.text
    url = f"{host.url}/api/agents/Agent/sessions/long/turns/{start_response.headers['x-ms-turn-id']}"
    wait_until(lambda: host.get("/waits").text)
    assert host.run("Agent", "Go on", session_id="short").text == "Yes."
    completed_turn = host.end_of_turn(url)
    assert completed_turn["status"] == "completed", completed_turn
