"""What a process keeps of turns that have ended."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import AgentHost, PracticeModel, hosted, start_model, wait_until

APP = Path(__file__).parent / "apps" / "kept"
ENTRIES = 300
TURNS = 12


@pytest.fixture(scope="module")
def model() -> Iterator[PracticeModel]:
    """The service of every agent."""
    running = start_model()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def host(model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """A host whose app counts the messages in its memory."""
    with hosted(tmp_path_factory.mktemp("kept"), None, app=APP, MODEL_URL=model.url.removesuffix("/v1")) as running:
        yield running


def document() -> bytes:
    """Write a conversation."""
    entries = [
        {
            "$type": kind,
            "correlationId": f"turn-{number}",
            "createdAt": "2026-01-01T00:00:00+00:00",
            "messages": [{"role": role, "contents": [{"$type": "text", "text": f"{role} {number}"}]}],
        }
        for number in range(ENTRIES // 2)
        for kind, role in (("request", "user"), ("response", "assistant"))
    ]
    return json.dumps({"schemaVersion": "1.1.0", "data": {"conversationHistory": entries}}).encode()


@pytest.mark.parametrize("agent", ["Responses", "Completions", "Claude"])
@pytest.mark.parametrize("ends", ["answered", "failed"])
def test_a_conversation_is_not_kept_after_its_turn(
    host: AgentHost, model: PracticeModel, tmp_path: Path, agent: str, ends: str
):
    """Timers of ended turns stay while an earlier turn runs, and keep their context: no conversation is in it."""
    model.plan({"text": "Slowly.", "until_file": str(tmp_path / "never")}, user_text="Slow")
    slow = host.run(agent, "Slow", headers={"x-ms-wait-for-response": "false"})
    assert slow.status_code == 202, slow.text
    session = f"{agent}-{ends}"
    assert host.post(f"/agents/{agent}/sessions/{session}/import", document()).status_code == 201
    for number in range(TURNS):
        failed = {"error": {"status": 400, "message": "this request is refused"}}
        model.plan(failed if ends == "failed" else {"text": "Here you are."}, user_text=f"Go on, {number}.")
        answer = host.run(agent, {"message": f"Go on, {number}.", "session_id": session})
        assert answer.status_code == (502 if ends == "failed" else 200), answer.text
    wait_until(lambda: int(host.get("/kept").text) < ENTRIES)
    url = f"/agents/{agent}/sessions/{slow.headers['x-ms-session-id']}/turns/{slow.headers['x-ms-turn-id']}"
    assert host.get(url).json()["status"] == "running"
    assert host.post(f"{url}/cancel", b"").ok
