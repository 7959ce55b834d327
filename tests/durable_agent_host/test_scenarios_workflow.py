"""Upstream's workflows on our app: their routes work, their agents are not public."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.kit import AgentHost, PracticeModel, hosted
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "workflow"


@pytest.fixture(scope="module")
def pipeline(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """A host with a workflow."""
    with hosted(tmp_path_factory.mktemp("workflow"), practice_model, app=APP) as running:
        yield running


def test_a_workflow_runs_through_its_agents(pipeline: AgentHost, model: PracticeModel):
    """Upstream's run route starts the workflow; the second agent is given the first one's answer."""
    model.plan({"text": "Rain falls."}, agent="You write.")
    model.plan({"text": "Well said."}, agent="You review.")
    url = f"{pipeline.url}/api/workflow/pipeline/run?waitForResponse=true&timeoutSeconds=60"
    answer = requests.post(url, data="write about rain", timeout=90)
    assert answer.ok, answer.text
    assert answer.json()["runtimeStatus"] == "Completed"
    first, second = model.requests()
    assert first["body"]["instructions"] == "You write."
    assert second["body"]["instructions"] == "You review."
    assert "Rain falls." in str(second["body"]["input"])


def test_agents_of_a_workflow_are_not_public(pipeline: AgentHost, model: PracticeModel):
    """Only agents that were given to the app have routes."""
    assert [agent["name"] for agent in pipeline.get("/agents").json()["agents"]] == ["Solo"]
    assert pipeline.run("pipeline-Writer", "hello").status_code == 404
    assert model.requests() == []


def test_a_workflow_asks_a_person(pipeline: AgentHost):
    """Upstream's routes run, status and respond work: what was asked is seen, and answered by the URL that it has."""
    url = f"{pipeline.url}/api/workflow/asking"
    started = requests.post(f"{url}/run", data="Really?", timeout=60)
    assert started.status_code == 202, started.text
    status_url = started.json()["statusQueryGetUri"]
    assert status_url.startswith(f"{url}/status/")

    def asked():
        return requests.get(status_url, timeout=60).json().get("pendingHumanInputRequests")

    (request,) = wait_until(asked)
    assert request["requestData"] == "Really?"
    answered = requests.post(request["respondUrl"], json="Yes.", timeout=60)
    assert answered.ok, answered.text
    ended = wait_until(
        lambda: (now := requests.get(status_url, timeout=60).json())["runtimeStatus"] == "Completed" and now
    )
    assert "Really? Yes." in str(ended["output"])


def test_what_upstreams_routes_refuse(pipeline: AgentHost):
    """A run without a body, an instance that is not there, and an answer that is no JSON are told as upstream does."""
    url = f"{pipeline.url}/api/workflow/asking"
    assert requests.post(f"{url}/run", timeout=60).status_code == 400
    assert requests.get(f"{url}/status/nobody", timeout=60).status_code == 404
    assert requests.post(f"{url}/respond/nobody/nothing", json="Yes.", timeout=60).status_code == 404
