"""Living with upstream: its stored sessions, its readers, and orchestrations that were written against it."""

import copy
import json
from uuid import uuid4

import pytest
import requests
from agent_framework_durabletask import DurableAgentState

from tests.durable_agent_host.golden import golden
from tests.kit import AgentHost, PracticeModel
from tests.processes import wait_until


def test_a_session_that_upstream_stored_is_carried_on(lab: AgentHost, model: PracticeModel):
    """The model sees the turns that upstream stored, and upstream's entries stay as they were."""
    document = golden("session-upstream-1.1")
    lab.put_state("Ledger", "upstream", document)
    response = lab.run("Ledger", {"message": "What did I say before?", "session_id": "upstream"})
    assert response.status_code == 200, response.text
    assert "hello world" in response.json()["response"]
    assert response.json()["message_count"] == 4
    call = next(item for item in model.requests()[0]["body"]["input"] if item["type"] == "function_call")
    assert (call["call_id"], call["arguments"]) == ("call_1", '{"text": "hello world"}')
    state = lab.state("Ledger", "upstream")
    assert state["data"]["conversationHistory"][:2] == document["data"]["conversationHistory"]


@pytest.mark.parametrize("name", ["session-upstream-1.0", "session-upstream-1.2", "session-dotnet-1.1"])
def test_sessions_of_other_versions_are_carried_on(lab: AgentHost, model: PracticeModel, name):
    """Schema 1.0 and 1.2, and what .NET stores, go on under the same id, and nothing in them is touched."""
    document, session = golden(name), f"s-{uuid4().hex}"
    lab.put_state("Ledger", session, document)
    assert lab.get(f"/agents/Ledger/sessions/{session}/verify").json()["problems"] == []
    response = lab.run("Ledger", {"message": "Go on", "session_id": session})
    assert response.status_code == 200, response.text
    now = lab.state("Ledger", session)
    assert now["schemaVersion"] == document["schemaVersion"]
    assert now["data"]["conversationHistory"][:2] == document["data"]["conversationHistory"]
    assert {key: now[key] for key in document if key != "data"} == {k: v for k, v in document.items() if k != "data"}
    sent = {item["type"] for item in model.requests()[0]["body"]["input"]}
    assert {"message", "function_call", "function_call_output"} <= sent


def test_stored_sessions_are_readable_by_upstream(lab: AgentHost):
    """Upstream's own class reads the entity's state and finds the answer by the turn's id."""
    response = lab.run("Ledger", {"message": 'charge with {"amount": 4}'})
    state = DurableAgentState.from_dict(lab.state("Ledger", response.json()["session_id"]))
    upstream_response = state.try_get_agent_response(response.json()["turn_id"])
    assert upstream_response.text == response.json()["response"]
    assert state.message_count == response.json()["message_count"]
    assert upstream_response.usage_details["total_token_count"] == response.json()["usage"]["total_token_count"]


UNREADABLE = {
    "no version": {"data": {"conversationHistory": [{"$type": "request", "messages": []}]}},
    "newer version": golden("session-v1") | {"schemaVersion": "2.0.0"},
    "unknown entry": {
        "schemaVersion": "1.1.0",
        "data": {"conversationHistory": [{"$type": "summary", "correlationId": "x", "text": "of it all"}]},
    },
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_an_unreadable_session_is_rejected_and_preserved(lab: AgentHost, model: PracticeModel, kind):
    """A session of a newer or unknown kind is a 409 in words, no model is called, and its conversation is untouched."""
    document, session = UNREADABLE[kind], f"s-{uuid4().hex}"
    lab.put_state("Ledger", session, document)
    for _ in range(2):
        response = lab.run("Ledger", {"message": "hi", "session_id": session})
        assert response.status_code == 409, response.text
        assert "nothing was changed" in response.json()["detail"]
    assert model.requests() == []
    now = lab.state("Ledger", session)
    assert now["data"]["conversationHistory"] == document["data"]["conversationHistory"]
    if kind != "unknown entry":
        assert now == document
        assert lab.get(f"/agents/Ledger/sessions/{session}").status_code == 409


def test_unknown_fields_are_preserved(lab: AgentHost, model: PracticeModel):
    """Unknown fields and contents of a session stay in place when a turn is added, and are not sent to the model."""
    document = copy.deepcopy(golden("session-v1-unknown-parts"))
    del document["data"]["conversationHistory"][1]  # the entry of an unknown type, which is refused
    extension_data = document["data"]["extensionData"]["durableAgentHost"]
    for name in ("running", "queue", "agentSession"):
        del extension_data[name]
    session = f"s-{uuid4().hex}"
    lab.put_state("Instant", session, document)
    response = lab.run("Instant", {"message": "hi", "session_id": session})
    assert response.status_code == 200, response.text
    now = lab.state("Instant", session)
    assert now["data"]["conversationHistory"][:2] == document["data"]["conversationHistory"]
    assert now["data"]["extensionData"]["durableAgentHost"]["pinned"] == ["seg-1"]
    assert (now["x-newer"], now["data"]["tomorrow"]) == (True, {"a": [1]})
    plain = copy.deepcopy(golden("session-upstream-1.1"))
    plain["data"]["conversationHistory"][0]["messages"][0]["contents"].append({"$type": "hologram", "depth": 3})
    lab.put_state("Ledger", session, plain)
    response = lab.run("Ledger", {"message": "hi", "session_id": session})
    assert response.status_code == 200, response.text
    first = model.requests()[0]["body"]["input"][0]
    assert first["content"] == [{"type": "input_text", "text": "Please echo 'hello world'"}]
    history = lab.state("Ledger", session)["data"]["conversationHistory"]
    assert history[:2] == plain["data"]["conversationHistory"]


def test_an_orchestration_sees_that_the_agent_failed(lab: AgentHost):
    """A failed agent fails the call of the orchestration, with the reason."""
    status = lab.orchestrate("ask", {"agent": "Raising", "messages": ["work", "magic"]})
    assert status["runtimeStatus"] == "Failed", status
    assert "cannot do magic" in json.dumps(status["output"])


def keys_of(lab, agent):
    """List the sessions that an agent has."""
    entities = requests.get(f"{lab.management}/entities/dafx-{agent}").json()
    return {entity["entityId"]["key"] for entity in entities}


def test_an_orchestration_and_clients_share_a_session(lab: AgentHost):
    """What an orchestration asked is part of the session that HTTP reads and carries on."""
    before = keys_of(lab, "Raising")
    lab.orchestrate("ask", {"agent": "Raising", "messages": ["work"]})
    (key,) = keys_of(lab, "Raising") - before
    assert lab.session("Raising", key)["message_count"] == 2
    response = lab.run("Raising", {"message": "work", "session_id": key})
    assert response.json()["response"] == "worked, 3 seen"


def test_an_orchestration_chooses_its_session(lab: AgentHost):
    """The ids of create_session and get_session are honoured, upstream's form @agent@id included."""
    key = f"desk-{uuid4().hex}"
    ask = {"agent": "Instant", "messages": ["one"], "session_id": key}
    assert lab.orchestrate("ask", ask)["output"] == ["1: one"]
    assert lab.run("Instant", {"message": "two", "session_id": key}).json()["response"] == "3: two"
    assert lab.orchestrate("ask", ask | {"messages": ["three"], "goes_on": True})["output"] == ["5: three"]
    upstreams = ask | {"messages": ["four"], "goes_on": True, "session_id": f"@Instant@{key}"}
    assert lab.orchestrate("ask", upstreams)["output"] == ["7: four"]


@pytest.mark.parametrize(("session_id", "reason"), [("@Kept@x", "belongs to agent 'Kept'"), ("a/b", "character '/'")])
def test_an_invalid_session_id_fails_the_orchestration(lab: AgentHost, session_id, reason):
    """Another agent's session, and an id that no store carries, fail the orchestration with the reason."""
    status = lab.orchestrate("ask", {"agent": "Instant", "messages": ["one"], "session_id": session_id})
    assert status["runtimeStatus"] == "Failed", status
    assert reason in status["output"]


def test_a_reset_clears_the_conversation(lab: AgentHost):
    """Upstream's operation reset empties the session, and the next turn begins anew."""
    lab.run("Instant", {"message": "one", "session_id": "reset-1"})
    lab.signal("Instant", "reset-1", "reset", None)
    wait_until(lambda: not lab.state("Instant", "reset-1")["data"]["conversationHistory"])
    assert lab.run("Instant", {"message": "two", "session_id": "reset-1"}).json()["response"] == "1: two"
