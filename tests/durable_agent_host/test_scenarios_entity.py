"""A subclass of the entity that keeps data of its own."""

import json
import time
from http.client import HTTPConnection
from urllib.parse import quote, urlsplit
from uuid import uuid4

import pytest

from tests.kit import AgentHost
from tests.processes import wait_until


def labels(host: AgentHost, session: str) -> list[str]:
    """What the operation ``label`` of the lab's entity has kept with a session."""
    state = host.state("Instant", session) or {"data": {}}
    host_data = state["data"].get("extensionData", {}).get("durableAgentHost", {})
    return host_data.get("appState", {}).get("labels", [])


def test_data_of_the_app_stays_with_its_session(lab: AgentHost):
    """An operation of the app keeps data before, between and after turns; a reset leaves it."""
    session = f"labelled-{uuid4().hex}"
    for number, label in enumerate(("new", "open", "done")):
        lab.signal("Instant", session, "label", label)
        wait_until(lambda number=number: len(labels(lab, session)) == number + 1)
        assert lab.run("Instant", {"message": label, "session_id": session}).status_code == 200
    assert labels(lab, session) == ["new", "open", "done"]
    lab.signal("Instant", session, "reset", None)
    wait_until(lambda: lab.session("Instant", session)["message_count"] == 0)
    assert labels(lab, session) == ["new", "open", "done"]


def test_data_of_the_app_is_copied_with_the_full_conversation(lab: AgentHost):
    """A full fork and an import have it, the import reports it, and a fork at a turn does not have it."""
    session = f"labelled-{uuid4().hex}"
    first = lab.run("Instant", {"message": "one", "session_id": session}).headers["x-ms-turn-id"]
    lab.run("Instant", {"message": "two", "session_id": session})
    lab.signal("Instant", session, "label", "mine")
    wait_until(lambda: labels(lab, session) == ["mine"])
    path = f"/agents/Instant/sessions/{session}"
    assert lab.post(f"{path}/fork", b'{"session_id": "whole-%s"}' % session.encode()).ok
    assert labels(lab, f"whole-{session}") == ["mine"]
    at_turn = b'{"session_id": "part-%s", "at_turn": "%s"}' % (session.encode(), first.encode())
    assert lab.post(f"{path}/fork", at_turn).ok
    assert labels(lab, f"part-{session}") == []
    document = lab.get(f"{path}/export").content
    response = lab.post(f"/agents/Instant/sessions/copy-{session}/import", document)
    assert response.status_code == 201, response.text
    assert labels(lab, f"copy-{session}") == ["mine"]


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("operation", "payload"),
    [
        ("commit", {"turn_id": 0, "status": "failed"}),
        ("commit", {"turn_id": "odd", "status": {"$type": ["x"]}}),
        ("commit", ["odd"]),
        ("admit", {"turn_id": 5, "policy": "queue"}),
        ("leave", {"turn_id": None}),
    ],
)
def test_an_operation_that_names_no_turn_changes_nothing(lab: AgentHost, operation: str, payload):
    """Callers of the entity cannot write unreadable state; the session continues."""
    session = uuid4().hex
    assert lab.run("Instant", "hi", session_id=session).ok
    before = lab.state("Instant", session)
    call_input = {"session": session, "operation": operation, "payload": payload}
    assert lab.orchestrate("call_session", call_input)["runtimeStatus"] == "Failed"
    assert lab.run("Instant", "and on", session_id=session).ok
    after = lab.state("Instant", session)
    assert before is not None
    assert after is not None
    receipts = after["data"]["extensionData"]["durableAgentHost"]["receipts"]
    assert len(receipts) == len(before["data"]["extensionData"]["durableAgentHost"]["receipts"]) + 1
    assert lab.get(f"/agents/Instant/sessions/{session}/verify").json()["problems"] == []


_INVALID_IDS = [
    *(
        ".",
        "..",
        "../entities",
        "a?b",
        "a#b",
        "a%2Fb",
        " ",
        "\t",
        "\n",
        "\r\n",
        "\x00",
        "\x7f",
        "\x85",
        "\xa0",
        "\u2028",
    ),
    *("\ufeff", "\u3002", "a\tb", "\ta", "a\n", ";", ":", "*", "+", "&", "=", "[", "a b ", "\u00e9", "@dafx-instant@x"),
    *("n" * 5_000, "n" * 200_000, "a\ud800"),
]


@pytest.mark.drawn(6)
@pytest.mark.parametrize("turn_id", _INVALID_IDS, ids=lambda turn_id: f"{turn_id[:20]!a}-{len(turn_id)}")
def test_a_session_with_an_invalid_turn_id_is_readable(lab: AgentHost, turn_id: str):
    """A session that says it runs one is shown, and listed with details: nothing else is asked for."""
    session = f"odd-{uuid4().hex}"
    turn = {"agent": "Instant", "session_id": session, "turn_id": turn_id, "message": "Hi", "policy": "queue"}
    lab.orchestrate("call_session", {"session": session, "operation": "admit", "payload": turn})
    path = f"/agents/Instant/sessions/{session}"
    wait_until(lambda: lab.get(path).ok)
    list_response = lab.get(f"/agents/Instant/sessions?details=true&search={session}")
    assert list_response.status_code == 200, list_response.text
    assert [list_item["session_id"] for list_item in list_response.json()["sessions"]] == [session]


def signal_by_raw_path(host: AgentHost, key: str, operation: str) -> None:
    """Signal an entity under a key that clients would take out of the path."""
    target = urlsplit(host.management)
    connection = HTTPConnection(target.hostname or "", target.port, timeout=60)
    path = f"{target.path}/entities/dafx-Instant/{quote(key, safe='.')}?op={operation}"
    turn = {"turn_id": uuid4().hex, "message": "Hi", "correlationId": uuid4().hex, "policy": "queue"}
    connection.request("POST", path, json.dumps(json.dumps(turn)), {"content-type": "application/json"})
    assert connection.getresponse().status == 202
    connection.close()


@pytest.mark.parametrize("operation", ["reset", "run"])
def test_no_session_is_created_under_an_invalid_name(lab: AgentHost, operation: str):
    """The management API signals any key: what no route could open, delete or verify is not begun, so not listed."""
    invalid_names = [".", "..", " ", "a?b", "a#b", "a%2Fb", "a@b", "x\x01", "n" * 146]
    valid_name = f"good-{uuid4().hex}"
    for name in [*invalid_names, valid_name]:
        signal_by_raw_path(lab, name, operation)
    wait_until(lambda: lab.get(f"/agents/Instant/sessions/{valid_name}").ok)
    time.sleep(1)
    session_ids = [
        list_item["session_id"] for list_item in lab.get("/agents/Instant/sessions?limit=1000").json()["sessions"]
    ]
    assert valid_name in session_ids
    assert not set(invalid_names) & set(session_ids)
