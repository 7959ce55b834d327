"""A failed turn keeps what it did, is continued by the next one, and resumes from its journal."""

import json
from collections.abc import Iterator

import pytest
import requests

from tests.durable_agent_host.sse_client import read_events
from tests.durable_agent_host.test_scenarios_journal import CrashingHost, call
from tests.kit import AgentHost, PracticeModel

AGENTS = pytest.mark.parametrize("agent", ["Worker", "Kept", "Thinker", "KeptThinker"])
DOWN = {"error": {"status": 503, "message": "down"}}


@pytest.fixture(scope="module")
def _hasty(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrashingHost]:
    host = CrashingHost(tmp_path_factory.mktemp("hasty"), practice_model)
    host.start(DURABLE_AGENT_HOST_MODEL_ATTEMPTS="3")
    yield host
    host.stop()


@pytest.fixture
def hasty(_hasty: CrashingHost, model: PracticeModel) -> CrashingHost:
    """A host that makes three attempts in a short time; without traces."""
    _hasty.clear_traces()
    return _hasty


def run_with_key(host: AgentHost, agent: str, key: str, message: str = "go") -> requests.Response:
    """Run a turn in the session of the key."""
    return host.run(agent, {"message": message, "session_id": key}, headers={"Idempotency-Key": key})


def fail_turn(host: AgentHost, model: PracticeModel, agent: str, key: str, message: str = "go") -> str:
    """Run a turn that fails after a tool, with the tokens of its first call; gives its URL."""
    model.plan({"reasoning": "Well.", "calls": [call("identify")]}, *[DOWN] * 3)
    response = run_with_key(host, agent, key, message)
    problem = response.json()
    assert (response.status_code, problem["turn_status"]) == (502, "failed")
    assert problem["usage"]["output_token_count"] > 0
    assert problem["detail"].endswith("POST <turn_url>/resume, or the same Idempotency-Key, continues this turn")
    return problem["turn_url"]


def roles(host: AgentHost, agent: str, session: str) -> list[str]:
    """The roles of the messages of a session, which has no problems."""
    url = f"{host.url}/api/agents/{agent}/sessions/{session}"
    assert requests.get(f"{url}/verify").json()["problems"] == []
    return [message["role"] for message in host.session(agent, session)["messages"]]


def keys(hasty: CrashingHost) -> set[str]:
    """The idempotency keys of the calls that have run, each once."""
    runs = [line.split() for line in hasty.traces]
    assert all(attempt == "1" for _, attempt in runs)
    found = {key for key, _ in runs}
    assert len(found) == len(runs)
    return found


@pytest.mark.drawn(2)
@AGENTS
def test_the_next_turn_continues_from_a_failed_one(hasty: CrashingHost, model: PracticeModel, agent):
    """Session, export and the next request have the call with its result, and the reason of the failure."""
    host, session = hasty.host, f"next-{agent}"
    url = fail_turn(host, model, agent, session)
    turn = requests.get(url).json()
    assert (turn["status"], turn["error"]["retryable"]) == ("failed", True)
    assert turn["usage"]["output_token_count"] > 0
    assert roles(host, agent, session) == ["user", "assistant", "tool", "assistant"]
    [key] = keys(hasty)
    assert key in requests.get(f"{host.url}/api/agents/{agent}/sessions/{session}/export").text
    model.reset()
    model.plan({"text": "I know."})
    assert host.run(agent, {"message": "on", "session_id": session}).json()["response"] == "I know."
    [sent] = model.requests()
    assert "previous_response_id" not in sent["body"]
    assert key in json.dumps(sent["body"]["input"])
    assert "This turn failed here" in json.dumps(sent["body"]["input"])
    resumed = requests.post(f"{url}/resume")
    assert resumed.status_code == 409
    assert "a later turn of the session has begun: what this turn did is part" in resumed.json()["detail"]


@pytest.mark.drawn(2)
@AGENTS
def test_a_turn_resumes_by_hand_and_by_its_key(hasty: CrashingHost, model: PracticeModel, agent):
    """Same turn, same key of its effect; it fails again, then its answer replaces what the failures had left."""
    host, session = hasty.host, f"again-{agent}"
    model.plan({"text": "Welcome."})
    host.run(agent, {"message": "A long message. " * 500, "session_id": session})
    url = fail_turn(host, model, agent, session)  # its entries are sealed together with the first turn's
    [key] = keys(hasty)
    created_at = requests.get(url).json()["created_at"]
    first = list(read_events(requests.get(f"{url}/events", stream=True)))
    assert first[-1].name == "turn.failed"
    model.plan(*[DOWN] * 3)
    again = run_with_key(host, agent, session)
    assert (again.status_code, requests.get(url).json()["created_at"]) == (502, created_at)
    copy = requests.post(f"{host.url}/api/agents/{agent}/sessions/{session}/fork").json()["session_id"]
    model.plan({"text": "Done."})
    assert requests.post(f"{url}/resume").status_code == 202
    turn = host.end_of_turn(url)
    assert (turn["status"], turn["response"]) == ("completed", "Done.")
    assert roles(host, agent, session) == ["user", "assistant", "user", "assistant", "tool", "assistant"]
    assert "This turn failed" not in json.dumps(host.session(agent, session))
    assert [end["status"] for end in host.session(agent, session)["turns"]] == ["completed"] * 2
    assert "This turn failed" in json.dumps(host.session(agent, copy))
    later = list(read_events(requests.get(f"{url}/events", headers={"Last-Event-ID": str(first[-1].id)}, stream=True)))
    assert [event.name for event in later if event.name.startswith(("turn.", "tool."))] == ["turn.completed"]
    assert run_with_key(host, agent, session).json()["response"] == "Done."
    assert requests.post(f"{url}/resume").status_code == 409
    assert keys(hasty) == {key}
    for name in (session, copy):
        model.plan({"text": "On."})
        assert host.run(agent, {"message": "on", "session_id": name}).json()["response"] == "On."


def test_a_turn_that_fails_before_an_effect_leaves_nothing(hasty: CrashingHost, model: PracticeModel):
    """The conversation is as it was; the same key runs a failure of the service again, and no other one."""
    host = hasty.host
    for key, status, error in (("brief", 200, DOWN), ("final", 502, {"error": {"status": 400, "message": "no"}})):
        model.reset()
        model.plan(*[error] * 3)
        assert run_with_key(host, "Worker", key).status_code == 502
        assert roles(host, "Worker", key) == []
        model.reset()
        assert run_with_key(host, "Worker", key).status_code == status
        assert len(model.requests()) == (status == 200)
    assert hasty.traces == []
