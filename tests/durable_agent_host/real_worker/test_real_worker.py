"""The app under Microsoft's worker library over gRPC, as on Azure, and what only the extension's order shows."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.kit import AgentHost, PracticeModel, clean_environment, model_environment
from tests.processes import wait_until

APP = Path(__file__).parent / "app"


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file in which deferred calls leave their callbacks."""
    file = tmp_path_factory.mktemp("ledger") / "ledger.txt"
    file.touch()
    return file


@pytest.fixture(scope="module")
def host(practice_model: PracticeModel, ledger: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """The stand-in of the host with the app in a worker."""
    data = tmp_path_factory.mktemp("worker")
    settings = {
        "LEDGER": str(ledger),
        "DURABLE_AGENT_HOST_TURN_LOG": f"sqlite:{data}/turn-log.sqlite",
        "DURABLE_AGENT_HOST_SEGMENTS": f"sqlite:{data}/segments.sqlite",
        "DURABLE_AGENT_HOST_APPROVAL_TIMEOUT_SECONDS": "2",
        "DURABLE_TASK_SCHEDULER_CONNECTION_STRING": "Endpoint=http://127.0.0.1:1;Authentication=None",
        "TASKHUB_NAME": "default",
    }
    environment = clean_environment() | model_environment(practice_model, **settings)
    with AgentHost(
        sys.executable, "-m", "tests.durable_agent_host.real_worker.host", str(APP), str(data), env=environment
    ) as running:
        yield running


def begin(host: AgentHost, model: PracticeModel, session: str, *calls: dict[str, Any]) -> str:
    """Start a turn whose model makes these calls; returns its URL when it waits."""
    model.plan({"calls": list(calls)}, {"text": "Done."})
    headers = {"x-ms-wait-for-response": "false"}
    response = host.run("Worker", {"message": session, "session_id": session}, headers=headers)
    url = response.json()["turn_url"]
    wait_until(lambda: requests.get(url).json().get("pending_calls"))
    return url


def race(horse: str, seconds: float) -> dict[str, Any]:
    return {"name": "race", "arguments": {"horse": horse, "seconds": seconds}}


def call_job(host: AgentHost, ledger: Path, horse: str, body: dict[str, Any]) -> None:
    """Call back as a job does."""
    [path] = [line.rpartition(" ")[2] for line in ledger.read_text().splitlines() if line.startswith(f"{horse} ")]
    response = requests.post(f"{host.url}{path}", json=body)
    assert response.ok, response.text


def test_a_turn_runs_in_the_worker(host: AgentHost, model: PracticeModel):
    """Health, a turn with a tool, a stream in blobs, and the timer."""
    assert host.get("/health").json()["status"] == "healthy"
    model.plan({"calls": [{"name": "echo", "arguments": {"text": "hi"}}]}, {"text": "Hello."})
    assert host.run("Worker", {"message": "hi", "session_id": "plain"}).json()["response"] == "Hello."
    model.plan({"text": "one two three four five six", "chunk_characters": 4, "delay_milliseconds": 20})
    url, body = f"{host.url}/api/agents/Worker/run", {"message": "again", "session_id": "plain"}
    with requests.post(url, json=body, headers={"accept": "text/event-stream"}, stream=True) as response:
        assert len(list(response.iter_content(None))) > 2
    timer = requests.post(f"{host.url}/admin/functions/agent_maintenance")
    assert (timer.status_code, timer.text) == (200, "")


@pytest.mark.parametrize("case", ["an answer", "progress", "an unknown answer"])
def test_a_turn_ends_when_a_call_expires_after(host: AgentHost, model: PracticeModel, ledger: Path, case: str):
    """A wait that follows another one ends with the time of its call, as a first one does."""
    calls = (
        [race(case.replace(" ", "-"), 2)] if case == "progress" else [{"name": "pay", "arguments": {"amount": 1}}] * 2
    )
    url = begin(host, model, f"after {case}".replace(" ", "-"), *calls)
    turn = requests.get(url).json()
    if case == "progress":
        call_job(host, ledger, case, {"progress": {"text": "half"}})
    elif case == "an answer":
        answer = {"call_id": turn["pending_calls"][1]["call_id"], "approved": True}
        assert requests.post(f"{url}/answers", json=answer).ok
    else:
        event = f"{host.management}/instances/{turn['turn_id']}/raiseEvent/answers"
        assert requests.post(event, json={"call_id": "none", "approved": True}).status_code == 202
    wait_until(lambda: requests.get(url).json()["status"] == "completed")


def test_an_answer_cancels_all_legs_of_a_long_timer(host: AgentHost, model: PracticeModel, ledger: Path):
    """A wait of two hours has legs of a second here, of three days on Azure Storage; the turn ends with its answer."""
    url = begin(host, model, "legs", race("legs", 7200))
    instance = f"{host.management}/instances/{requests.get(url).json()['turn_id']}?showHistory=true"
    wait_until(lambda: "TimerFired" in requests.get(instance).text)
    call_job(host, ledger, "legs", {"result": "won"})
    wait_until(lambda: requests.get(instance).json()["runtimeStatus"] == "Completed", 10)
    assert requests.get(url).json()["status"] == "completed"


def test_the_access_log_has_no_secrets(host: AgentHost, model: PracticeModel, ledger: Path):
    """No function key, no token of a callback, and no error of the log's own."""
    assert host.get("/agents?code=KEY-OF-FUNCTION").ok
    begin(host, model, "token", race("token", 7200))
    call_job(host, ledger, "token", {"result": "won"})
    wait_until(lambda: "POST /api/callbacks/" in host.text)
    tokens = [line.rpartition("/")[2] for line in ledger.read_text().splitlines()]
    assert [secret for secret in (*tokens, "KEY-OF-FUNCTION", "Logging error") if secret in host.text] == []
