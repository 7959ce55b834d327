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
