"""Upstream's workflows on our app: their routes work, their agents are not public."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests

from durable_agent_host import AgentClient
from tests.kit import AgentHost, PracticeModel, running_host
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "workflow"
NOT_FOR_CACHES = "private, no-store"
MEBIBYTE = 1024 * 1024


@pytest.fixture(scope="module")
def pipeline(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """A host with a workflow."""
    with running_host(tmp_path_factory.mktemp("workflow"), practice_model, app=APP) as running:
        yield running


def test_a_workflow_runs_through_its_agents(pipeline: AgentHost, model: PracticeModel):
    """Upstream's run route starts the workflow; the second agent is given the first one's answer. Both are outputs."""
    model.plan({"text": "Rain falls."}, agent="You write.")
    model.plan({"text": "Well said."}, agent="You review.")
    url = f"{pipeline.url}/api/workflow/pipeline/run?waitForResponse=true&timeoutSeconds=60"
    response = requests.post(url, data="write about rain", timeout=90)
    assert response.ok, response.text
    assert response.json()["runtimeStatus"] == "Completed"
    assert response.json()["output"] == ["Rain falls.", "Well said."]
    status = pipeline.get(f"/workflow/pipeline/status/{response.json()['instanceId']}").json()
    assert (status["customStatus"], status["output"]) == ({"state": "completed"}, ["Rain falls.", "Well said."])
    own = ("You write.", "You review.")
    bodies = [body for request in model.requests() if (body := request["body"]).get("instructions") in own]
    assert [body["instructions"] for body in bodies] == ["You write.", "You review."]
    assert "Rain falls." in str(bodies[1]["input"])


def test_agents_of_a_workflow_are_not_public(pipeline: AgentHost, model: PracticeModel):
    """Only agents that were given to the app have routes."""
    assert [agent["name"] for agent in pipeline.get("/agents").json()["agents"]] == ["Solo"]
    assert pipeline.run("pipeline-Writer", "hello").status_code == 404
    assert "You write." not in [request["body"].get("instructions") for request in model.requests()]


@pytest.mark.parametrize("text", ["Yes.", "[" * 50_000], ids=["text", "brackets"])
def test_a_workflow_asks_a_person(pipeline: AgentHost, text: str):
    """Upstream's routes run, status and respond work: what was asked is seen, and answered by the URL that it has."""
    url = f"{pipeline.url}/api/workflow/asking"
    start_response = requests.post(f"{url}/run", data="Really?")
    assert start_response.status_code == 202, start_response.text
    status_url = start_response.json()["statusQueryGetUri"]
    assert status_url.startswith(f"{url}/status/")

    def pending_requests():
        return requests.get(status_url).json().get("pendingHumanInputRequests")

    (request,) = wait_until(pending_requests)
    assert request["requestData"] == "Really?"
    response = requests.post(request["respondUrl"], json=text)
    assert response.ok, response.text
    final_status = wait_until(lambda: (now := requests.get(status_url).json())["runtimeStatus"] == "Completed" and now)
    assert f"Really? {text}" in str(final_status["output"])


def test_a_client_answers_a_workflow(pipeline: AgentHost):
    """The client lists a run's question beside those of turns; a text that looks like a number stays a text."""
    run = uuid4().hex
    assert requests.post(f"{pipeline.url}/api/workflow/asking/run?runId={run}", data="How many?").ok
    pending_questions(pipeline, run, 1)

    async def answer() -> None:
        async with AgentClient(pipeline.url) as client:
            (question,) = [call for call in await client.pending() if call.run_id == run]
            assert question.call.schema == {"type": "string"}
            reply = {"call_id": question.call.call_id, "result": "12"}
            await client.answer_run(question.workflow, question.run_id, reply)

    asyncio.run(answer())
    final_status = wait_until(
        lambda: (now := pipeline.get(f"/workflow/asking/status/{run}").json())["runtimeStatus"] == "Completed" and now
    )
    assert final_status["output"] == ["How many? 12"]


def test_upstream_routes_reject_invalid_requests(pipeline: AgentHost):
    """A run without a body, an unknown instance, and an answer that is not JSON get upstream's status codes."""
    url = f"{pipeline.url}/api/workflow/asking"
    assert requests.post(f"{url}/run").status_code == 400
    assert requests.get(f"{url}/status/nobody").status_code == 404
    assert requests.post(f"{url}/respond/nobody/nothing", json="Yes.").status_code == 404


def test_upstreams_routes_have_a_limit(pipeline: AgentHost):
    """A body of more than 4 MiB is refused with 413, declared or not, before anything starts; one of 4 MiB is not."""
    for path in ("asking/run?runId=large", "asking/respond/large/nothing"):
        for body in (b"x" * (4 * MEBIBYTE + 1), iter([b"x" * MEBIBYTE] * 5)):
            rejection = requests.post(f"{pipeline.url}/api/workflow/{path}", data=body)
            assert (rejection.status_code, rejection.headers["content-type"]) == (413, "application/problem+json")
            assert "DURABLE_AGENT_HOST_MAX_REQUEST_BYTES" in rejection.json()["detail"]
            assert rejection.headers["cache-control"] == NOT_FOR_CACHES
    assert pipeline.get("/workflow/asking/status/large").status_code == 404
    accepted_response = pipeline.post("/workflow/pipeline/run", json.dumps({"x": "x" * (4 * MEBIBYTE - 9)}).encode())
    assert accepted_response.status_code == 202, accepted_response.text


@pytest.mark.parametrize("name", ["breaking", "outer"])
def test_a_failed_run_has_its_reason_and_no_stack(pipeline: AgentHost, name: str):
    """Neither where the run waits nor in the status, also of a workflow within a workflow; tokens are masked."""
    url = f"{pipeline.url}/api/workflow/{name}"
    run_response = requests.post(
        f"{url}/run?waitForResponse=true&timeoutSeconds=60", data="db?api_key=sk-proj-s3cr3t-k3y00", timeout=90
    )
    status = requests.get(f"{url}/status/{run_response.json()['instanceId']}")
    for response in (run_response, status):
        assert response.json()["runtimeStatus"] == "Failed"
        assert "'dafx-breaking-breaker' failed: ConnectionError: no store at db?api_key=" in response.json()["error"]
        assert response.json()["error"].endswith("it is away")
        for hidden in ("s3cr3t-k3y", "Traceback", "Stack", "File", ".py", "Result: Failure"):
            assert hidden not in response.text
    assert status.json()["output"] == status.json()["error"]
    stored = requests.get(
        f"{pipeline.management}/instances/{run_response.json()['instanceId']}?showHistory=true&showHistoryOutput=true"
    ).json()
    failures = [event for event in stored["historyEvents"] if "Failed" in json.dumps(event)]
    assert len(failures) > 1
    assert "s3cr3t-k3y" not in json.dumps([stored["output"], failures])
    assert status.json()["customStatus"] == {"state": "failed"}


def test_a_run_starts_once_until_it_has_ended(pipeline: AgentHost):
    """A second start under the same id is a conflict; after the end, it starts the run anew, as upstream does."""
    run, ask = uuid4().hex, {"data": "Really?", "timeout": 60}
    url = f"{pipeline.url}/api/workflow/asking"
    assert requests.post(f"{url}/run?runId={run}", **ask).status_code == 202
    (request,) = pending_questions(pipeline, run, 1)
    again = requests.post(f"{url}/run?runId={run}", **ask)
    assert (again.status_code, again.headers["content-type"]) == (409, "application/problem+json")
    assert again.headers["cache-control"] == NOT_FOR_CACHES
    assert f"{run!r} has not ended" in again.json()["detail"]
    assert pending_questions(pipeline, run, 1)[0]["requestId"] == request["requestId"]
    assert requests.post(request["respondUrl"], json="Yes.").ok
    wait_until(lambda: pipeline.get(f"/workflow/asking/status/{run}").json()["runtimeStatus"] == "Completed")
    assert requests.post(f"{url}/run?runId={run}", **ask).status_code == 202
    assert pending_questions(pipeline, run, 1)[0]["requestId"] != request["requestId"]


def test_an_unexpected_answer_is_rejected(pipeline: AgentHost):
    """To a request that was never asked or is answered, and to a run that has ended; each open one can be answered."""
    run = uuid4().hex
    url = f"{pipeline.url}/api/workflow/asking"
    assert requests.post(f"{url}/run?runId={run}", data="One?\nTwo?").status_code == 202
    first, second = pending_questions(pipeline, run, 2)

    def refusal(request_id: str) -> str:
        rejection = requests.post(f"{url}/respond/{run}/{request_id}", json="No.")
        assert (rejection.status_code, rejection.headers["content-type"]) == (404, "application/problem+json")
        return rejection.json()["detail"]

    for never in ("nothing", "asker~0~nothing"):
        assert "pendingHumanInputRequests" in refusal(never)
    assert requests.post(first["respondUrl"], json="Yes.").ok
    assert requests.post(second["respondUrl"], json="No.").ok
    final_status = wait_until(
        lambda: (now := pipeline.get(f"/workflow/asking/status/{run}").json())["runtimeStatus"] == "Completed" and now
    )
    assert sorted(final_status["output"]) == ["One? Yes.", "Two? No."]
    assert "has ended" in refusal(first["requestId"])


def test_an_answered_question_is_no_longer_listed(pipeline: AgentHost):
    """It leaves the list while the run waits for the other; the same answer again is accepted, another one refused."""
    run = uuid4().hex
    assert requests.post(f"{pipeline.url}/api/workflow/asking/run?runId={run}", data="One?\nTwo?").ok
    pending_questions(pipeline, run, 2)

    def listed() -> dict[str, str]:
        calls = pipeline.get("/pending").json()["pending_calls"]
        return {call["arguments"]["question"]: call["call_id"] for call in calls if call.get("run_id") == run}

    def answer(call_id: str, result: str) -> int:
        body = json.dumps({"call_id": call_id, "result": result}).encode()
        return pipeline.post(f"/workflow/asking/respond/{run}", body).status_code

    ids = listed()
    assert answer(ids["Two?"], "Yes.") == 200
    assert listed() == {"One?": ids["One?"]}
    assert (answer(ids["Two?"], "Yes."), answer(ids["Two?"], "No.")) == (200, 409)
    assert answer(ids["One?"], "7") == 200
    final_status = wait_until(
        lambda: (now := pipeline.get(f"/workflow/asking/status/{run}").json())["runtimeStatus"] == "Completed" and now
    )
    assert final_status["output"] == ["One? 7", "Two? Yes."]
    assert (answer(ids["One?"], "7"), answer(ids["One?"], "8"), answer("never", "8")) == (200, 409, 404)


def test_unreadable_bodies_are_rejected(pipeline: AgentHost):
    """With a 400 that says why, not as a failure of the host."""
    for body, reason in ((b"\xff\xfe", "UTF-8"), (b"[" * 100_000, "nested too deeply")):
        rejection = pipeline.post("/workflow/asking/run", body)
        assert (rejection.status_code, reason in rejection.json()["detail"]) == (400, True), rejection.text


def test_an_error_of_upstream_is_a_problem(pipeline: AgentHost):
    """An error of upstream's functions is a 500 like the host's own, and the answer does not say why."""
    run = uuid4().hex
    url = f"/workflow/breaking/run?runId={run}&waitForResponse=true&timeoutSeconds=60"
    for response in (pipeline.post(url, b"mute"), pipeline.get(f"/workflow/breaking/status/{run}")):
        assert (response.status_code, response.headers["content-type"]) == (500, "application/problem+json")
        assert response.headers["cache-control"] == NOT_FOR_CACHES
        assert "the log has the reason" in response.json()["detail"]
        assert "no words" not in response.text


def pending_questions(host: AgentHost, run: str, count: int) -> list[dict[str, Any]]:
    """Wait until a run asks a person so many questions."""

    def poll() -> list[dict[str, Any]] | None:
        questions = host.get(f"/workflow/asking/status/{run}").json().get("pendingHumanInputRequests", [])
        return questions if len(questions) == count else None

    return wait_until(poll)
