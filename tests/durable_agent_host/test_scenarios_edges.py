"""What callers may not do, what agents should not, and that none of it touches anybody else."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import requests

from tests.kit import AgentHost, PracticeModel, start_host
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "edges"


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file in which agents and tools leave traces."""
    return tmp_path_factory.mktemp("edges") / "ledger.txt"


@pytest.fixture(scope="module")
def _edges(practice_model: PracticeModel, traces: Path) -> Iterator[AgentHost]:
    """A host that logs all that is not for debugging."""
    host = start_host(traces.parent / "data", practice_model, app=APP, options=["-v"], LEDGER=str(traces))
    yield host
    host.stop()


@pytest.fixture
def edges(_edges: AgentHost, model: PracticeModel, traces: Path) -> AgentHost:
    """The host, the model with nothing scripted, and no traces."""
    traces.write_text("")
    return _edges


def call_tool(host: AgentHost, query: str) -> str:
    """Call the agent ``Odd`` as an MCP tool; gives what was answered."""
    params = {"name": "Odd", "arguments": {"query": query}}
    response = requests.post(
        f"{host.url}/runtime/webhooks/mcp",
        json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
        headers={"accept": "application/json, text/event-stream"},
    )
    return response.text


def test_no_user_content_is_logged_at_any_level_but_debug(edges: AgentHost):
    """Whichever way a message comes, and however its turn ends, a log at INFO has nothing of it."""
    secret = "mandrill"
    body = {"message": f"the secret is {secret}"}
    assert edges.run("Odd", body).ok
    assert edges.run("Linker", body | {"session_id": "linker"}).ok
    assert edges.run("Odd", f"the secret is {secret}", headers={"Accept": "text/event-stream"}).ok
    assert edges.run("Odd", body | {"role": "system"}).status_code == 400
    assert secret in call_tool(edges, f"the secret is {secret}")
    session = f"s-{uuid4().hex}"
    edges.signal("Odd", session, "run", body | {"correlationId": "c"})
    wait_until(lambda: secret in json.dumps(edges.state("Odd", session)))
    call_input = {"entity": ["dafx-Odd", session], "inputs": [body | {"correlationId": "d"}]}
    assert edges.orchestrate("call_entity", call_input)["runtimeStatus"] == "Completed"
    log = wait_until(
        lambda: (log_text := "".join(edges.output)) and "POST /api/agents/Odd/run" in log_text and log_text
    )
    assert secret not in log


def test_a_value_that_json_cannot_hold_fails_its_own_turn_only(edges: AgentHost):
    """The turn is a 502 that names the position of the value, the next one runs, and others are unaffected."""
    session = f"s-{uuid4().hex}"
    assert edges.run("Odd", {"message": "first", "session_id": session}).ok
    response = edges.run("Odd", {"message": "unstorable", "session_id": session})
    assert response.status_code == 502, response.text
    assert "additional_properties" in response.json()["detail"]
    assert edges.run("Odd", {"message": "then", "session_id": session}).json()["response"] == "3: then"


def test_a_value_that_json_cannot_hold_fails_its_own_call_only(edges: AgentHost, traces: Path):
    """Of calls that come to the entity in one batch, the others are answered, and stored once."""
    session = f"s-{uuid4().hex}"
    inputs = [{"message": text, "correlationId": text} for text in ("a", "unstorable", "b")]
    status = edges.orchestrate("call_entity", {"entity": ["dafx-Odd", session], "inputs": inputs})
    first, failed_output, last = status["output"]
    assert (first, last) == ("1: a", "3: b")
    assert failed_output.startswith("failed: "), failed_output
    assert [turn["status"] for turn in edges.session("Odd", session)["turns"]] == ["completed", "failed", "completed"]
    assert edges.session("Odd", session)["message_count"] == 4
    assert traces.read_text().split() == ["a", "unstorable", "b"]


def test_a_type_error_about_streams_is_a_failure(edges: AgentHost, traces: Path):
    """An agent that raises it has failed: it is not run again without streaming."""
    response = edges.run("Odd", {"message": "TypeError"})
    assert response.status_code == 502, response.text
    assert "unexpected keyword argument" in response.json()["detail"]
    assert traces.read_text().split() == ["TypeError"]


def test_a_link_without_a_media_type_is_preserved(edges: AgentHost, model: PracticeModel, traces: Path):
    """A response and a tool result that have one are stored unchanged, and the conversation continues."""
    session = f"s-{uuid4().hex}"
    assert edges.run("Odd", {"message": "link", "session_id": session}).ok
    link = edges.session("Odd", session)["messages"][-1]["contents"][-1]
    assert (link["uri"], link.get("mediaType")) == ("https://example.com/thing", None)
    assert edges.run("Odd", {"message": "on", "session_id": session}).json()["response"] == "3: on"
    model.plan({"calls": [{"name": "link", "arguments": {}}]}, {"text": "Linked."}, {"text": "Still here."})
    response = edges.run("Linker", {"message": "go", "session_id": session})
    assert response.json()["response"] == "Linked.", response.text
    assert edges.run("Linker", {"message": "on", "session_id": session}).json()["response"] == "Still here."
    assert traces.read_text().split().count("linked") == 1


@pytest.mark.parametrize("message", ["go", "tire the listener"])
def test_the_upstream_callback_gets_updates_and_the_response(
    edges: AgentHost, model: PracticeModel, traces: Path, message
):
    """It gets each update and the response once, with turn and session; its exceptions have no effect."""
    model.plan({"text": "Listen to this.", "chunk_characters": 4})
    turn = edges.run("Linker", {"message": message}).json()
    assert turn["response"] == "Listen to this."
    lines = [json.loads(line) for line in traces.with_suffix(".told").read_text().splitlines()]
    notifications = [notification for notification in lines if notification["turn"] == turn["turn_id"]]
    assert {(notification["agent"], notification["session"]) for notification in notifications} == {
        ("Linker", turn["session_id"])
    }
    updates = [
        notification["text"]
        for notification in notifications
        if notification["kind"] == "update" and notification["text"]
    ]
    assert len(updates) > 1
    assert "".join(updates).startswith("Listen to this.")  # the framework's client ends with the whole text once more
    assert [notification["text"] for notification in notifications if notification["kind"] == "response"] == [
        "Listen to this."
    ]


@pytest.mark.parametrize("operation", ["run", "run_agent"])
def test_a_request_names_no_module_to_import(edges: AgentHost, traces: Path, operation):
    """A response format that names a class which the app has not loaded is refused, and nothing is imported."""
    response_format = {"__response_schema_type__": "pydantic_model", "module": "tempting", "qualname": "Answer"}
    session = f"s-{uuid4().hex}"
    request = {"message": "hi", "correlationId": "c", "response_format": response_format}
    status = edges.orchestrate("call_entity", {"entity": ["dafx-Odd", session], "inputs": [request]})
    assert "tempting.Answer, which this app has not loaded" in status["output"][0]
    edges.signal("Odd", session, operation, request)
    edges.signal("Odd", session, operation, {"message": "after", "correlationId": "d"})
    wait_until(lambda: "after" in json.dumps(edges.state("Odd", session)))
    assert edges.run("Odd", {"message": "hi", "response_format": response_format}).status_code == 400
    assert traces.read_text().split() == ["after"]


def test_keys_are_required_except_for_health_and_callbacks(tmp_path: Path, traces: Path, practice_model: PracticeModel):
    """Where the host asks for keys, agents and answers are closed without one; health and callbacks are not."""
    running = start_host(tmp_path, practice_model, app=APP, options=["--enable-auth"], LEDGER=str(traces))
    try:
        health = requests.get(f"{running.url}/api/health")
        assert (health.status_code, health.json()["status"]) == (200, "healthy")
        assert requests.post(f"{running.url}/api/agents/Odd/run", data="hi").status_code == 401
        assert requests.get(f"{running.url}/api/agents/Odd/sessions").status_code == 401
        assert requests.post(f"{running.url}/api/callbacks/cb_x", json={"result": 1}).status_code == 404
        answers = f"{running.url}/api/agents/Odd/sessions/s/turns/t/answers"
        assert requests.post(answers, json={"result": 1}, params={"token": "cb_x"}).status_code == 401
        arguments = [sys.executable, "-m", "durable_agent_host", "sessions", "list", "Odd", "--url", running.url]
        listing = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
        assert "Give this command the key: --key KEY" in listing.stderr
    finally:
        running.stop()
