"""Upstream's workflows on our app: their routes work, their agents are not public."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.kit import AgentHost, PracticeModel, hosted

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
