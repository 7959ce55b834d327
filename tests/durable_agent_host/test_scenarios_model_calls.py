"""Requests to the model's service and its responses are stored with the turn and returned unchanged."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import requests

from tests.durable_agent_host.conftest import PEOPLE
from tests.durable_agent_host.test_scenarios_steps import LONG_TEXT, steps_of
from tests.kit import AgentHost, Lives, PracticeModel, running_host
from tests.processes import wait_until

REST_STEP = {"calls": [{"name": "rest", "arguments": {"seconds": 0.01}}]}
CANARY = "canary-of-calls-4711"


def calls_of(url: str) -> list[dict]:
    """List a turn's calls."""
    response = requests.get(f"{url}/calls")
    assert response.ok, response.text
    return response.json()["calls"]


def call_of(url: str, name: str) -> dict:
    """Read a call."""
    response = requests.get(f"{url}/calls/{name}")
    assert response.ok, response.text
    return response.json()


def turn_url(host: AgentHost, response: requests.Response) -> str:
    """Where the turn of an answer is."""
    assert response.ok, response.text
    agent, headers = response.request.path_url.split("/")[3], response.headers
    return f"{host.url}/api/agents/{agent}/sessions/{headers['x-ms-session-id']}/turns/{headers['x-ms-turn-id']}"


def test_recorded_bodies_equal_those_on_the_wire(people: AgentHost, model: PracticeModel):
    """Over turns, tools, a refused request: bodies equal those that the service got and gave."""
    error_step = {"error": {"status": 429, "code": "rate_limit", "message": "slow", "retry_after": 0.1}}
    model.plan(REST_STEP, error_step, {"text": "Rested 😀."}, {"text": "Again."})
    first = turn_url(people, people.run("Rester", {"message": "größer", "session_id": "wire"}))
    second = turn_url(people, people.run("Rester", {"message": "again", "session_id": "wire"}))
    entries = model.requests()
    calls = [(url, summary) for url in (first, second) for summary in calls_of(url)]
    assert [(summary["position"], summary["outcome"], summary["status"]) for _, summary in calls] == [
        (0, "completed", 200),
        (1, "failed", 429),
        (1, "completed", 200),
        (0, "completed", 200),
    ]
    for (url, summary), entry in zip(calls, entries, strict=True):
        call = call_of(url, summary["name"])
        assert (call["request"]["complete"], call["answer"]["complete"]) == (True, True)
        assert json.loads(call["request"]["text"]) == entry["body"]
        if entry["status"] == 200:
            last_event = json.loads(call["answer"]["text"].rstrip().rpartition("data: ")[2])
            assert last_event["response"]["output"] == entry["output"]
        else:
            assert json.loads(call["answer"]["text"])["error"]["code"] == "rate_limit"
    assert requests.get(f"{first}/calls/9.9").status_code == 404


def test_a_crash_leaves_a_lost_call(lives: Callable[..., Lives], model: PracticeModel):
    """A call that was cut off by SIGKILL shows its request."""
    model.plan(REST_STEP, {"text": LONG_TEXT, "chunk_characters": 6, "delay_milliseconds": 60}, {"text": "Rested."})
    life = lives(PEOPLE)
    response = life.host.run("Rester", {"message": "rest"}, headers={"x-ms-wait-for-response": "false"})
    path = response.json()["turn_url"].removeprefix(life.host.url)
    wait_until(lambda: any(step.get("characters", 0) > 20 for step in steps_of(life.host.url + path)), seconds=60)
    url = life.crash().url + path
    wait_until(lambda: requests.get(url).json()["status"] == "completed", seconds=60)
    first, lost, again = calls_of(url)
    assert [call["outcome"] for call in (first, lost, again)] == ["completed", "lost", "completed"]
    assert [call["attempt"] for call in (first, lost, again)] == [1, 1, 2]
    sent = [call_of(url, call["name"])["request"] for call in (lost, again)]
    assert [request["complete"] for request in sent] == [True, True]
    assert sent[0]["text"] == sent[1]["text"]


def test_calls_go_with_the_session(tmp_path: Path, practice_model: PracticeModel, model: PracticeModel):
    """After DELETE nothing of them is in any file, and a session of the same name shares nothing with the first."""
    with running_host(tmp_path / "data", practice_model, app=PEOPLE, LEDGER=str(tmp_path / "ledger.txt")) as host:
        model.plan({"text": "Yes."}, times=3)
        body = {"message": f"{CANARY} " * 40, "session_id": "gone"}
        url = turn_url(host, host.run("Talker", body))
        assert CANARY in json.dumps(call_of(url, "1.0"))
        assert requests.delete(url.partition("/turns/")[0]).ok
        wait_until(lambda: CANARY.encode() not in b"".join(path.read_bytes() for path in files(tmp_path)), seconds=60)
        assert requests.get(f"{url}/calls").status_code == 404
        url = turn_url(host, host.run("Talker", {"message": "hi", "session_id": "gone"}))
        assert call_of(url, "1.0")["request"]["complete"]


def files(folder: Path) -> list[Path]:
    """The files of a folder that hold data."""
    return [path for path in folder.rglob("*") if path.is_file()]


def test_the_recorded_size_is_a_setting(tmp_path: Path, practice_model: PracticeModel, model: PracticeModel):
    """Beyond the bound the end is missing; 0 keeps nothing."""
    model.plan({"text": "Yes."}, times=2)
    digits = "".join(random.Random(1).choices("0123456789", k=5000))
    env = {"LEDGER": str(tmp_path / "ledger.txt"), "DURABLE_AGENT_HOST_KEPT_CALL_BYTES": "1000"}
    with running_host(tmp_path / "some", practice_model, app=PEOPLE, **env) as host:
        url = turn_url(host, host.run("Talker", {"message": digits}))
        sent = call_of(url, "1.0")["request"]
        assert (sent["complete"], len(sent["text"])) == (False, 1000)
        assert sent["text"].startswith('{"model":')
    env["DURABLE_AGENT_HOST_KEPT_CALL_BYTES"] = "0"
    with running_host(tmp_path / "none", practice_model, app=PEOPLE, **env) as host:
        assert calls_of(turn_url(host, host.run("Talker", {"message": "x"}))) == []
