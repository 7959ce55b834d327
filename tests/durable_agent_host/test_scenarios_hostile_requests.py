"""What schemathesis does not send: broken HTTP, bodies that are no JSON, and payloads past the routes of agents."""

import json
import socket
from contextlib import suppress
from http import HTTPStatus
from itertools import product
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
import requests

from durable_agent_host.http.routes import ROUTES
from tests.kit import AgentHost
from tests.processes import wait_until

AGENT = "Instant"
HEADS = (
    b"",
    b"\x00\xff",
    b"GET",
    b"GET /api/agents HTTP/9.9",
    b"GET /api/a\rgents HTTP/1.1",
    b"G\x00T /api/agents HTTP/1.1",
    b"GET //api//agents HTTP/1.1",
    b"GET http://[/api/agents HTTP/1.1",
    b"GET /api/agents?limit=%ff%fe HTTP/1.1",
    *(
        f"GET /api/agents/{AGENT}/sessions/{name} HTTP/1.1".encode()
        for name in ("%zz", "%", "%2f", "%00", "%ff%fe", "%ED%A0%80", "..", "a" * 3000)
    ),
    b"GET /api/agents HTTP/1.1\r\nno header",
    b"GET /api/agents HTTP/1.1\r\ntraceparent: \xff\xfe",
    b"POST /api/agents/Instant/run HTTP/1.1\r\ncontent-length: -1",
    b"POST /api/agents/Instant/run HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2",
    b"POST /api/agents/Instant/run HTTP/1.1\r\ntransfer-encoding: x",
    b"POST /api/agents/Instant/run HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
    b"POST /api/agents/Instant/run HTTP/1.1\r\ncontent-type: multipart/form-data; boundary=\xff\r\ncontent-length: 0",
)
BODIES = (
    b"",
    b"\x00",
    b"\xc3\x28",
    b"\xff\xfe{\x00}\x00",
    b"\xef\xbb\xbf{}",
    b"{",
    b"[" * 100_000,
    b'{"a":' * 3000 + b"1" + b"}" * 3000,
    b'"\\ud800"',
    b"NaN",
    b"-Infinity",
    b"9" * 5000,
    b'{"a":1,"a":2}',
    b'"{}"',
    b'{"__class__": "x", "__module__": "os", "__data__": 1}',
)
VALUES: tuple[Any, ...] = (None, True, 10**30, "", "@x@y", "\ud800", ["x"], {"$type": ["x"]})
TURN = {
    "agent": AGENT,
    "message": "Hello",
    "policy": "queue",
    "contents": [{"$type": "text", "text": "Hello"}],
    "options": {"temperature": 0},
    "created_at": "2026-01-01T00:00:00+00:00",
    "principal": "ada",
}
OPERATIONS = {
    "admit": TURN,
    "run": {"message": "Hello", "correlationId": "c"},
    "commit": {"turn_id": "t", "status": "failed"},
    "release": {"turn_id": "t"},
}
EVENTS = ("answers", "granted", "cancel")


def broken_values(good: dict[str, Any]) -> list[Any]:
    """Give all that stands where an object should, and the object with each of its fields broken."""
    return [*VALUES, *(good | {name: value} for name in good for value in VALUES)]


@pytest.fixture
def sound(lab: AgentHost):
    """A host that has written no traceback when the test is over, and whose sessions are whole."""
    seen = len(lab.output)
    yield lab
    assert requests.get(f"{lab.url}/api/health").ok
    sessions = lab.get(f"/agents/{AGENT}/sessions?details=true&limit=1000").json()["sessions"]
    assert not [session for session in sessions if session["status"] == "unreadable"]
    assert not [line for line in lab.output[seen:] if line.startswith("Traceback")]


def test_broken_http_is_answered(sound: AgentHost):
    """The answer is no failure of the host, or the connection is closed."""
    address = urlsplit(sound.url)
    for head in HEADS:
        response = b""
        with socket.create_connection((address.hostname, address.port), 60) as connection, suppress(ConnectionError):
            connection.sendall(head + b"\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            connection.shutdown(socket.SHUT_WR)
            response = connection.recv(65536)
        assert not response or response.split()[1] in {b"200", b"400", b"404"}, (head, response)


def test_a_body_that_is_no_json_is_answered(sound: AgentHost):
    """Each route that takes a body says what is wrong with it, or does without it."""
    names = {"agent": AGENT, "session": uuid4().hex, "turn": "t", "token": "cb_x", "workflow": "w", "run": "r"}
    templates = [route.template for route in ROUTES if route.bodies]
    for template, body in product(templates, BODIES):
        url = f"{sound.url}/api/{template.format(**names)}"
        response = requests.post(url, data=body, headers={"content-type": "application/json"})
        assert response.status_code < HTTPStatus.INTERNAL_SERVER_ERROR, (url, body[:100], response.text)


def test_an_orchestration_with_any_input_harms_no_read(sound: AgentHost):
    """Whatever somebody starts as a turn, its own URLs and those of its session answer."""
    session = uuid4().hex
    start = f"{sound.management}/orchestrators/agent_turn"
    inputs = [json.dumps(TURN), *broken_values(TURN | {"session_id": session})]
    instances = [requests.post(start, data=json.dumps(value)).json()["id"] for value in inputs]
    for instance in instances:
        url = f"{sound.management}/instances/{instance}"
        wait_until(lambda url=url: requests.get(url).status_code == HTTPStatus.OK)
        for path in ("", "/steps", "/calls", "/events"):
            response = sound.get(f"/agents/{AGENT}/sessions/{session}/turns/{instance}{path}")
            assert response.status_code < HTTPStatus.INTERNAL_SERVER_ERROR, (instance, path, response.text)
    assert sound.get(f"/agents/{AGENT}/sessions/{session}").status_code < HTTPStatus.INTERNAL_SERVER_ERROR


def test_an_entity_with_any_input_stays_whole(sound: AgentHost):
    """Signals and events with broken payloads leave sessions and turns that go on."""
    session = uuid4().hex
    assert sound.run(AGENT, {"message": "Hello", "session_id": session}).ok
    for operation, good in OPERATIONS.items():
        for value in broken_values(good):
            sound.signal(AGENT, session, operation, value)
    turn = sound.run(AGENT, {"message": "Hello", "session_id": uuid4().hex, "wait_for_response": False}).json()
    for event, value in product(EVENTS, VALUES):
        url = f"{sound.management}/instances/{turn['turn_id']}/raiseEvent/{event}"
        assert requests.post(url, json=value).status_code < HTTPStatus.INTERNAL_SERVER_ERROR
    assert sound.run(AGENT, {"message": "Still there", "session_id": session}).ok
