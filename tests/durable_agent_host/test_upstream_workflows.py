"""Workflows that were written for upstream's class, after its samples 11 and 13: only the class is another one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.durable_agent_host.test_scenarios_orchestrations import wait_for_end
from tests.kit import AgentHost, PracticeModel, running_host
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "upstream_workflows"


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the notifier writes."""
    return tmp_path_factory.mktemp("notes") / "url.txt"


@pytest.fixture(scope="module")
def _host(practice_model: PracticeModel, notes: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    with running_host(tmp_path_factory.mktemp("workflows"), practice_model, app=APP, LEDGER=str(notes)) as running:
        yield running


@pytest.fixture
def flows(_host: AgentHost, model: PracticeModel) -> AgentHost:
    """A host with the app."""
    return _host


def result(host: AgentHost, name: str, body: str) -> dict[str, Any]:
    """Run a workflow, and wait for its end."""
    url = f"{host.url}/api/workflow/{name}/run?waitForResponse=true&timeoutSeconds=60"
    response = requests.post(url, data=body, timeout=90)
    assert response.ok, response.text
    assert response.json()["runtimeStatus"] == "Completed", response.text
    return response.json()


def start_until_question(host: AgentHost, name: str, submission: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """Start a workflow, and wait until it asks a person; gives where its status is, and what it asks."""
    response = requests.post(f"{host.url}/api/workflow/{name}/run", json=submission)
    assert response.status_code == 202, response.text
    url = response.json()["statusQueryGetUri"]
    (question,) = wait_until(lambda: requests.get(url).json().get("pendingHumanInputRequests"), 60)
    return url, question


def test_11_executors_and_agents_run_in_parallel(flows: AgentHost, model: PracticeModel):
    """Fan-out and fan-in of executors, of agents, and of both at once."""
    model.plan({"text": "glad"}, agent="You feel moods.")
    model.plan({"text": "sea, sun"}, agent="You find keywords.")
    model.plan({"text": "All is well."}, agent="You sum up.")
    output = result(flows, "parallel", "A day at sea")["output"]
    assert output == ["statistics: keywords: sea, sun | mood: glad\nsummary: All is well."]
    inputs = [json.dumps(request["body"]["input"]) for request in model.requests()[:2]]
    assert all("A day at sea (letters 12, words 4)" in text for text in inputs)


def test_13_a_person_decides_within_a_workflow_of_a_workflow(flows: AgentHost, notes: Path):
    """The inner workflow's question is seen and answered at the outer one, also by the URL that its notifier built."""
    notes.unlink(missing_ok=True)
    url, question = start_until_question(flows, "composed", {"content_id": "c-1", "body": "Hello all"})
    assert question["requestId"] == "review_sub~0~ask-c-1"
    built = wait_until(lambda: notes.exists() and notes.read_text())
    assert built.rpartition("/")[2].replace("%7E", "~") == question["requestId"]
    assert requests.post(question["respondUrl"], json={"approved": True, "notes": "fine"}).ok
    assert wait_for_end(url)["output"] == ["c-1 PUBLISHED: fine"]
    assert requests.post(f"{flows.url}/api/workflow/human_review/run", json={}).status_code == 404


def test_13_the_question_is_a_pending_call(flows: AgentHost):
    """Readable, with a schema that answers must fit, and answered in the form of pending calls."""
    status_url, question = start_until_question(flows, "composed", {"content_id": "c-2", "body": "Hello you"})
    (call,) = flows.get("/pending").json()["pending_calls"]
    assert (call["workflow"], call["kind"], call["name"]) == ("composed", "input", "gate")
    assert call["call_id"] == question["requestId"]
    assert call["arguments"] == {"question": {"content_id": "c-2", "prompt": "Hello you"}}
    assert call["schema"]["required"] == ["approved"]
    for status, answer in (
        (404, {"call_id": "another", "result": {"approved": True}}),
        (400, {"call_id": call["call_id"], "result": {"approved": "perhaps"}}),
        (400, {"call_id": call["call_id"], "error": "I do not know"}),
        (400, {"call_id": call["call_id"], "approved": True}),
        (200, {"call_id": call["call_id"], "result": {"approved": True, "notes": "fine"}}),
    ):
        response = requests.post(call["answer_url"], json=answer)
        assert response.status_code == status, response.text
    assert wait_for_end(status_url)["output"] == ["c-2 PUBLISHED: fine"]
    assert flows.get("/pending").json()["pending_calls"] == []
    late = requests.post(call["answer_url"], json=answer)
    assert late.status_code == 404
