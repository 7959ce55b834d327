"""Workflows that were written for upstream's class, after its samples 09 to 13: only the class is another one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests

from tests.kit import AgentHost, PracticeModel, hosted
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "upstream_workflows"


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the notifier writes."""
    return tmp_path_factory.mktemp("notes") / "url.txt"


@pytest.fixture(scope="module")
def _host(practice_model: PracticeModel, notes: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    with hosted(tmp_path_factory.mktemp("workflows"), practice_model, app=APP, LEDGER=str(notes)) as running:
        yield running


@pytest.fixture
def flows(_host: AgentHost, model: PracticeModel) -> AgentHost:
    """A host with the app."""
    return _host


def result(host: AgentHost, name: str, body: str) -> dict[str, Any]:
    """Run a workflow, and wait for its end."""
    url = f"{host.url}/api/workflow/{name}/run?waitForResponse=true&timeoutSeconds=60"
    answer = requests.post(url, data=body, timeout=90)
    assert answer.ok, answer.text
    assert answer.json()["runtimeStatus"] == "Completed", answer.text
    return answer.json()


def asked(host: AgentHost, name: str, submission: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """Start a workflow, and wait until it asks a person; gives where its status is, and what it asks."""
    started = requests.post(f"{host.url}/api/workflow/{name}/run", json=submission, timeout=60)
    assert started.status_code == 202, started.text
    url = started.json()["statusQueryGetUri"]
    (question,) = wait_until(lambda: requests.get(url, timeout=60).json().get("pendingHumanInputRequests"), 60)
    return url, question


def ended(url: str) -> dict[str, Any]:
    """Wait for a workflow."""

    def look() -> dict[str, Any] | None:
        now = requests.get(url, timeout=60).json()
        return now if now["runtimeStatus"] not in {"Running", "Pending"} else None

    return wait_until(look, 60)


def plan_letter(model: PracticeModel, *, spam: bool) -> None:
    """Script what the guard and the assistant say."""
    model.plan({"text": json.dumps({"is_spam": spam, "reason": "it offers millions"})}, agent="You detect spam.")
    model.plan({"text": json.dumps({"response": "Dear customer"})}, agent="You answer letters.")


@pytest.mark.parametrize("name", ["shared_state", "agents_only"])
@pytest.mark.parametrize("spam", [True, False])
def test_09_and_10_a_letter_is_sorted(flows: AgentHost, model: PracticeModel, name, spam):
    """Conditions on edges send a letter one way or the other, with its text in the shared state or in messages."""
    plan_letter(model, spam=spam)
    output = result(flows, name, "You have won a prize")["output"]
    assert output == (["Email marked as spam: it offers millions"] if spam else ["Email sent: Dear customer"])
    if name == "shared_state" and not spam:
        assert "Answer this: You have won a prize" in json.dumps(model.requests()[1]["body"])


def test_11_executors_and_agents_run_in_parallel(flows: AgentHost, model: PracticeModel):
    """Fan-out and fan-in of executors, of agents, and of both at once."""
    model.plan({"text": "glad"}, agent="You feel moods.")
    model.plan({"text": "sea, sun"}, agent="You find keywords.")
    model.plan({"text": "All is well."}, agent="You sum up.")
    output = result(flows, "parallel", "A day at sea")["output"]
    assert output == ["statistics: keywords: sea, sun | mood: glad\nsummary: All is well."]
    heard = [json.dumps(request["body"]["input"]) for request in model.requests()[:2]]
    assert all("A day at sea (letters 12, words 4)" in one for one in heard)


@pytest.mark.parametrize("approved", [True, False])
def test_12_a_person_decides(flows: AgentHost, model: PracticeModel, approved):
    """The workflow shows what an agent said, waits, and goes on with the person's answer."""
    model.plan({"text": "Looks harmless."}, agent="You moderate.")
    url, question = asked(flows, "moderation", {"content_id": f"c-{uuid4().hex[:6]}", "body": "Hello all"})
    assert "Question" in json.dumps(question["requestData"])
    assert "Hello all" in json.dumps(model.requests()[0]["body"])
    bad = requests.post(question["respondUrl"], data="{", headers={"content-type": "application/json"}, timeout=60)
    assert bad.status_code == 400
    assert requests.post(question["respondUrl"], json={"approved": approved, "notes": "ok"}, timeout=60).ok
    (output,) = ended(url)["output"]
    assert output.endswith(f"{'APPROVED' if approved else 'REJECTED'}: ok")


def test_13_a_person_decides_within_a_workflow_of_a_workflow(flows: AgentHost, notes: Path):
    """The inner workflow's question is seen and answered at the outer one, also by the URL that its notifier built."""
    notes.unlink(missing_ok=True)
    url, question = asked(flows, "composed", {"content_id": "c-1", "body": "Hello all"})
    assert question["requestId"] == "review_sub~0~ask-c-1"
    built = wait_until(lambda: notes.exists() and notes.read_text())
    assert built.rpartition("/")[2].replace("%7E", "~") == question["requestId"]
    assert requests.post(question["respondUrl"], json={"approved": True, "notes": "fine"}, timeout=60).ok
    assert ended(url)["output"] == ["c-1 PUBLISHED: fine"]
    assert requests.post(f"{flows.url}/api/workflow/human_review/run", json={}, timeout=60).status_code == 404


def test_health_lists_the_agents_of_workflows(flows: AgentHost):
    """Agents of workflows are counted, and have no routes."""
    health = flows.get("/health").json()
    assert {agent["name"] for agent in health["agents"]} >= {"shared_state-guard", "parallel-mood"}
    assert not any(agent["http_endpoint_enabled"] for agent in health["agents"])
    assert flows.get("/agents").status_code == 200
