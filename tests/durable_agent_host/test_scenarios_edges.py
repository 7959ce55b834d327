"""What callers may not do, what agents should not, and that none of it touches anybody else."""

import json
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
    answer = requests.post(
        f"{host.url}/runtime/webhooks/mcp",
        json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
        headers={"accept": "application/json, text/event-stream"},
        timeout=30,
    )
    return answer.text


def test_no_user_content_is_logged_at_any_level_but_debug(edges: AgentHost):
    """Whichever way a message comes, and however its turn ends, a log at INFO has nothing of it."""
    secret = "mandrill"
    said = {"message": f"the secret is {secret}"}
    assert edges.run("Odd", said).ok
    assert edges.run("Linker", said | {"session_id": "linker"}).ok
    assert edges.run("Odd", f"the secret is {secret}", headers={"Accept": "text/event-stream"}).ok
    assert edges.run("Odd", said | {"role": "system"}).status_code == 400
    assert secret in call_tool(edges, f"the secret is {secret}")
    session = f"s-{uuid4().hex}"
    edges.signal("Odd", session, "run", said | {"correlationId": "c"})
    wait_until(lambda: secret in json.dumps(edges.state("Odd", session)))
    asked = {"entity": ["dafx-Odd", session], "inputs": [said | {"correlationId": "d"}]}
    assert edges.orchestrate("call_entity", asked)["runtimeStatus"] == "Completed"
    log = wait_until(lambda: (seen := "".join(edges.output)) and "POST /api/agents/Odd/run" in seen and seen)
    assert secret not in log


def test_a_value_that_json_cannot_hold_fails_its_own_turn_only(edges: AgentHost):
    """The turn is a 502 that says where the value stands, the next one goes on, and others are not touched."""
    session = f"s-{uuid4().hex}"
    assert edges.run("Odd", {"message": "first", "session_id": session}).ok
    answer = edges.run("Odd", {"message": "unstorable", "session_id": session})
    assert answer.status_code == 502, answer.text
    assert "additional_properties" in answer.json()["detail"]
    assert edges.run("Odd", {"message": "then", "session_id": session}).json()["response"] == "3: then"


def test_a_value_that_json_cannot_hold_fails_its_own_call_only(edges: AgentHost, traces: Path):
    """Of calls that come to the entity in one batch, the others are answered, and stored once."""
    session = f"s-{uuid4().hex}"
    inputs = [{"message": text, "correlationId": text} for text in ("a", "unstorable", "b")]
    status = edges.orchestrate("call_entity", {"entity": ["dafx-Odd", session], "inputs": inputs})
    first, failed, last = status["output"]
    assert (first, last) == ("1: a", "3: b")
    assert failed.startswith("failed: "), failed
    assert [turn["status"] for turn in edges.session("Odd", session)["turns"]] == ["completed", "failed", "completed"]
    assert edges.session("Odd", session)["message_count"] == 4
    assert traces.read_text().split() == ["a", "unstorable", "b"]


def test_a_type_error_that_speaks_of_streams_is_a_failure(edges: AgentHost, traces: Path):
    """An agent that raises it has failed: it is not run again without streaming."""
    answer = edges.run("Odd", {"message": "TypeError"})
    assert answer.status_code == 502, answer.text
    assert "unexpected keyword argument" in answer.json()["detail"]
    assert traces.read_text().split() == ["TypeError"]


def test_a_link_without_a_media_type_is_kept(edges: AgentHost, model: PracticeModel, traces: Path):
    """An answer and a tool's result that have one are stored as they are, and the conversation goes on."""
    session = f"s-{uuid4().hex}"
    assert edges.run("Odd", {"message": "link", "session_id": session}).ok
    link = edges.session("Odd", session)["messages"][-1]["contents"][-1]
    assert (link["uri"], link.get("mediaType")) == ("https://example.com/thing", None)
    assert edges.run("Odd", {"message": "on", "session_id": session}).json()["response"] == "3: on"
    model.plan({"calls": [{"name": "link", "arguments": {}}]}, {"text": "Linked."}, {"text": "Still here."})
    answer = edges.run("Linker", {"message": "go", "session_id": session})
    assert answer.json()["response"] == "Linked.", answer.text
    assert edges.run("Linker", {"message": "on", "session_id": session}).json()["response"] == "Still here."
    assert traces.read_text().split().count("linked") == 1


@pytest.mark.parametrize("message", ["go", "tire the listener"])
def test_upstreams_callback_is_told_of_updates_and_of_the_answer(
    edges: AgentHost, model: PracticeModel, traces: Path, message
):
    """It is told each piece as it comes and the answer once, by turn and session; what it raises harms nobody."""
    model.plan({"text": "Listen to this.", "chunk_characters": 4})
    turn = edges.run("Linker", {"message": message}).json()
    assert turn["response"] == "Listen to this."
    lines = [json.loads(line) for line in traces.with_suffix(".told").read_text().splitlines()]
    told = [one for one in lines if one["turn"] == turn["turn_id"]]
    assert {(one["agent"], one["session"]) for one in told} == {("Linker", turn["session_id"])}
    pieces = [one["text"] for one in told if one["kind"] == "update" and one["text"]]
    assert len(pieces) > 1
    assert "".join(pieces).startswith("Listen to this.")  # the framework's client ends with the whole text once more
    assert [one["text"] for one in told if one["kind"] == "response"] == ["Listen to this."]


@pytest.mark.parametrize("operation", ["run", "run_agent"])
def test_a_request_names_no_module_to_import(edges: AgentHost, traces: Path, operation):
    """A response format that names a class which the app has not loaded is refused, and nothing is imported."""
    named = {"__response_schema_type__": "pydantic_model", "module": "tempting", "qualname": "Answer"}
    session = f"s-{uuid4().hex}"
    asked = {"message": "hi", "correlationId": "c", "response_format": named}
    status = edges.orchestrate("call_entity", {"entity": ["dafx-Odd", session], "inputs": [asked]})
    assert "tempting.Answer, which this app has not loaded" in status["output"][0]
    edges.signal("Odd", session, operation, asked)
    edges.signal("Odd", session, operation, {"message": "after", "correlationId": "d"})
    wait_until(lambda: "after" in json.dumps(edges.state("Odd", session)))
    assert edges.run("Odd", {"message": "hi", "response_format": named}).status_code == 400
    assert traces.read_text().split() == ["after"]


def test_keys_are_asked_for_but_health_is_open(tmp_path: Path, traces: Path, practice_model: PracticeModel):
    """Where the host asks for keys, agents are closed without one, and health is not."""
    running = start_host(tmp_path, practice_model, app=APP, options=["--enable-auth"], LEDGER=str(traces))
    try:
        health = requests.get(f"{running.url}/api/health", timeout=30)
        assert (health.status_code, health.json()["status"]) == (200, "healthy")
        assert requests.post(f"{running.url}/api/agents/Odd/run", data="hi", timeout=30).status_code == 401
        assert requests.get(f"{running.url}/api/agents/Odd/sessions", timeout=30).status_code == 401
    finally:
        running.stop()
