"""Sessions that outgrow their entity: older turns and large contents move out of it, and nothing of them is lost."""

import json

import requests

from durable_agent_host.durable.app_secret import start_purpose
from tests.kit import ROOT, AgentHost

HEAD_BYTES = 32 * 1024
LARGE = 64 * 1024


def entity(host: AgentHost, agent: str, session: str) -> str:
    """What the session's entity holds, as the host's own management API gives it."""
    response = requests.get(f"{host.management}/entities/dafx-{agent}/{session}")
    assert response.ok, response.text
    return response.text


def histories(host: AgentHost) -> list[str]:
    """Input, output and history of every orchestration, as JSON."""
    url = f"{host.management}/instances"
    instance_list = requests.get(url, params={"top": 1000}).json()
    more = {"showHistory": "true", "showHistoryOutput": "true", "showInput": "true"}
    return [requests.get(f"{url}/{instance['instanceId']}", params=more).text for instance in instance_list]


def test_a_conversation_grows_and_its_head_does_not(lives, model):
    """Twenty turns of five kilobytes each: the head stays small, and a cold process sends all of them, in order."""
    life = lives(ROOT, OPENAI_STORE="false")
    message_texts = [f"turn {n}: " + "word" * 1000 for n in range(20)]
    model.plan(*({"text": f"answer {n} " + "reply" * 200} for n in range(21)), times=1)
    for n, text in enumerate(message_texts):
        assert life.host.run("BugRepro", text, thread_id="long").status_code == 200
        if n in {7, 15}:
            life.crash()
        assert len(entity(life.host, "bugrepro", "long")) <= HEAD_BYTES
    warm = model.requests()[-1]["body"]["input"]
    life.crash()
    assert life.host.run("BugRepro", "the last", thread_id="long").status_code == 200
    cold = model.requests()[-1]["body"]["input"]
    assert cold[: len(warm)] == warm
    users = [item["content"][0]["text"] for item in cold if item.get("role") == "user"]
    assert users == [*message_texts, "the last"]


def test_large_contents_travel_by_reference(lives, model):
    """A large message, a large answer and a large tool result: no orchestration and no entity holds them."""
    life = lives(ROOT)
    text = "long message " * (LARGE // 12)
    model.plan({"calls": [{"name": "echo", "arguments": json.dumps({"text": "e" * LARGE})}]}, {"text": "a" * LARGE})
    first_response = life.host.run("BugRepro", {"message": text, "thread_id": "large"})
    assert first_response.status_code == 200, first_response.text
    assert first_response.json()["response"] == "a" * LARGE
    assert first_response.json()["message"] == text
    assert len(entity(life.host, "bugrepro", "large")) <= HEAD_BYTES
    for history in histories(life.host):
        assert len(history) <= LARGE
        assert "eeeeeeeeeeeeeeeeeeeeeeee" not in history
    life.crash()
    model.plan({"text": "yes"})
    second_response = life.host.run("BugRepro", {"message": "again", "thread_id": "large"})
    assert second_response.json()["response"] == "yes"
    sent = model.requests()[-1]["body"]["input"]
    assert sent[0]["content"][0]["text"] == text
    assert [item["output"] for item in sent if item["type"] == "function_call_output"] == ["e" * LARGE]
    turn = life.host.get(f"/agents/BugRepro/sessions/large/turns/{first_response.json()['turn_id']}").json()
    assert (turn["response"], turn["message"]) == ("a" * LARGE, text)


def test_text_that_resembles_a_reference_is_text(lives, model):
    """What users and models say of references changes nothing of what is stored and sent."""
    life = lives(ROOT)
    placeholder_text = json.dumps(
        {"extensionData": {"durableAgentHost": {"stored": [{"at": ["messages"], "name": "0" * 64}]}}}
    )
    model.plan({"text": placeholder_text}, {"text": "fine"})
    first_response = life.host.run("BugRepro", {"message": placeholder_text, "thread_id": "fake"})
    assert first_response.json().get("response") == placeholder_text, first_response.text
    life.crash()
    assert life.host.run(
        "BugRepro", {"message": placeholder_text, "stored": "0" * 64, "thread_id": "fake"}
    ).status_code in {200, 400}
    users = [item["content"][0]["text"] for item in model.requests()[-1]["body"]["input"] if item.get("role") == "user"]
    assert users[0] == placeholder_text


def test_a_long_imported_session_moves_to_segments(lives, model):
    """A document that holds its whole conversation is carried on, and its head is small after one turn."""
    life = lives(ROOT, OPENAI_STORE="false")
    history = [
        {
            "$type": kind,
            "correlationId": f"old-{n}",
            "createdAt": "2026-01-01T00:00:00+00:00",
            "messages": [{"role": role, "contents": [{"$type": "text", "text": f"{kind} {n} " + "w" * 1000}]}],
        }
        for n in range(150)
        for kind, role in (("request", "user"), ("response", "assistant"))
    ]
    document = {"schemaVersion": "1.1.0", "data": {"conversationHistory": history}}
    path = "/agents/BugRepro/sessions/old/import"
    assert life.host.post(path, json.dumps(document).encode(), content_type="application/json").status_code == 201
    model.plan({"text": "new"})
    assert life.host.run("BugRepro", {"message": "go on", "thread_id": "old"}).json()["message_count"] == 302
    assert len(entity(life.host, "bugrepro", "old")) <= HEAD_BYTES
    life.crash()
    model.plan({"text": "newer"})
    assert life.host.run("BugRepro", {"message": "again", "thread_id": "old"}).json()["message_count"] == 304
    sent = model.requests()[-1]["body"]["input"]
    assert [item["content"][0]["text"].split(" w")[0] for item in sent] == [
        *(f"{kind} {n}" for n in range(150) for kind in ("request", "response")),
        *("go on", "new", "again"),
    ]
    old = life.host.get("/agents/BugRepro/sessions/old/turns/old-3")
    assert old.status_code == 404, old.text  # it never had a receipt


def test_a_completed_turn_is_found_after_its_receipt_moves_to_a_segment(lives, model):
    """A retry of a turn whose receipt and orchestration are gone from their first places gets the same answer."""
    life = lives(ROOT)
    model.plan(*({"text": f"answer {n}"} for n in range(61)))
    first = life.host.run("BugRepro", {"message": "0", "thread_id": "s"}, headers={"Idempotency-Key": "k0"}).json()
    for _ in range(1, 60):
        assert life.host.run("BugRepro", {"message": "m" * 2500, "thread_id": "s"}).status_code == 200
    host_data = json.loads(entity(life.host, "bugrepro", "s"))["data"]["extensionData"]["durableAgentHost"]
    assert first["turn_id"] not in {receipt["turnId"] for receipt in host_data["receipts"]}
    deletion = requests.delete(f"{life.host.management}/instances/{first['turn_id']}")
    assert deletion.ok, deletion.text
    for _ in range(2):
        second_response = life.host.run(
            "BugRepro", {"message": "0", "thread_id": "s"}, headers={"Idempotency-Key": "k0"}
        )
        assert (second_response.json()["response"], second_response.json()["turn_id"]) == ("answer 0", first["turn_id"])
        life.crash()
    reuse_response = life.host.run("BugRepro", {"message": "1", "thread_id": "s"}, headers={"Idempotency-Key": "k0"})
    assert reuse_response.status_code == 422, reuse_response.text
    direct = {"agent": "BugRepro", "session_id": "s", "message": "0", "turn_id": first["turn_id"]}
    start_url = f"{life.host.management}/orchestrators/agent_turn/{first['turn_id']}"
    direct = life.host.mark(start_purpose("agent_turn", first["turn_id"]), direct)
    assert requests.post(start_url, json=direct).status_code == 202
    status = life.host.end_of_turn(f"{life.host.url}/api/agents/BugRepro/sessions/s/turns/{first['turn_id']}")
    assert (status["status"], status["response"]) == ("rejected", None), status  # asked for with another hash
    assert len(model.requests()) == 60
