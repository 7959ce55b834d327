"""What import takes can be used: any document is refused with the place that is wrong, or readable ever after."""

import json
import operator
import re
from functools import reduce
from typing import Any
from uuid import uuid4

import pytest

from tests.durable_agent_host.golden import golden
from tests.durable_agent_host.test_scenarios_sessions import command
from tests.kit import AgentHost

SECOND, HOST = "data.conversationHistory[1]", "data.extensionData.durableAgentHost"
MALFORMED = {
    "turn id": ("data.conversationHistory[0].correlationId", [1]),
    "extension": (f"{SECOND}.extensionData", "x"),
    "type": (f"{SECOND}.messages[0].contents[0].$type", ["text"]),
    "call id": (f"{SECOND}.messages[0].contents[0].callId", [1]),
    "properties": (
        f"{SECOND}.messages[2].contents[0].extensionData.durableAgentHost.additional_properties",
        "x",
    ),
    "session": (f"{HOST}.agentSession", ["s1"]),
    "session's state": (f"{HOST}.agentSession", {"session_id": "s1", "state": {"$content": {}}}),
    "receipt": (f"{HOST}.receipts[0].stats", "heavy"),
    "status": (f"{HOST}.receipts[0].status", "well"),
    "error": (f"{HOST}.receipts[0].error", "No."),
    "role": (f"{SECOND}.messages[1].role", {"a": 1}),
}
"""The place of a part, and what is there instead."""


def malformed_session(part: str) -> dict:
    """A stored session with a part of another shape."""
    document: Any = golden("session-v1-openai")
    place, value = MALFORMED[part]
    *way, last = [int(step) if step.isdigit() else step for step in re.findall(r"[\w$]+", place)]
    reduce(operator.getitem, way, document)[last] = value
    return document


@pytest.mark.parametrize("part", MALFORMED)
def test_a_malformed_document_is_rejected_with_its_path(lab: AgentHost, part):
    """A document of which a part cannot be read is a 400 that names the part, and nothing is stored."""
    name = f"odd-{uuid4().hex}"
    response = lab.post(f"/agents/Instant/sessions/{name}/import", json.dumps(malformed_session(part)).encode())
    assert response.status_code == 400, response.text
    assert MALFORMED[part][0] in response.json()["detail"]
    assert lab.state("Instant", name) is None


@pytest.mark.parametrize("part", MALFORMED)
def test_a_malformed_stored_session_is_readable_reported_and_repaired(lab: AgentHost, capsys, part):
    """A stored part that cannot be read is no 500: GET shows the rest, verify names it, and repair mends it."""
    name = f"odd-{uuid4().hex}"
    lab.put_state("Instant", name, malformed_session(part))
    session_response = lab.get(f"/agents/Instant/sessions/{name}")
    assert session_response.status_code == 200, session_response.text
    assert "hello world" in json.dumps(session_response.json()["messages"])
    assert MALFORMED[part][0] in [problem["place"] for problem in session_response.json()["problems"]]
    assert MALFORMED[part][0] in command(lab, capsys, "show", name, agent="Instant")[1]
    status, out, _ = command(lab, capsys, "verify", name, agent="Instant")
    assert status == 1
    assert MALFORMED[part][0] in out
    assert lab.run("Instant", {"message": "hi", "session_id": name}).status_code in (200, 409)
    assert command(lab, capsys, "repair", name, agent="Instant")[0] == 0
    assert command(lab, capsys, "verify", name, agent="Instant")[0] == 0
    assert lab.run("Instant", {"message": "hi", "session_id": name}).status_code == 200
    assert "problems" not in lab.get(f"/agents/Instant/sessions/{name}").json()


@pytest.mark.parametrize(
    "body",
    [
        b'{"schemaVersion": "1.1.0", "data": {"conversationHistory": [], "x": NaN}}',
        b'{"schemaVersion": "1.1.0", "data": {"conversationHistory": [], "x": %b}}' % (b"1" * 100_000),
        b"",
    ],
    ids=("nan", "digits", "depth"),
)
def test_invalid_json_numbers_are_rejected(lab: AgentHost, body):
    """What Python reads and JSON does not have, too many digits, and depth that nothing can copy, are a 400."""
    body = body or json.dumps(golden("session-v1") | {"deep": 1}).encode().replace(
        b": 1}", b": " + b"[" * 900 + b"]" * 900 + b"}"
    )
    response = lab.post(f"/agents/Instant/sessions/no-{uuid4().hex}/import", body)
    assert response.status_code == 400, response.text
    assert "line 1" in response.json()["detail"]


@pytest.mark.parametrize("document", [{"data": {"conversationHistory": []}}, True, 5])
def test_a_body_that_is_no_export_is_rejected(lab: AgentHost, document: Any):
    """The answer names the line."""
    body = json.dumps(document).encode()
    response = lab.post(f"/agents/Instant/sessions/no-{uuid4().hex}/import", body)
    assert (response.status_code, "line 1" in response.json()["detail"]) == (400, True), response.text


FILES_ELSEWHERE = {
    "file": {"$type": "uri", "uri": "file:///etc/passwd", "mediaType": "image/png"},
    "metadata": {"$type": "data", "uri": "http://169.254.169.254/latest", "mediaType": "image/png"},
    "name": {"$type": "uri", "uri": "HTTP://Metadata.Google.Internal/", "mediaType": None},
    "hosted file": {"$type": "hostedFile", "fileId": "http://[::ffff:127.0.0.1]/a"},
    "result": {
        "$type": "functionResult",
        "callId": "c",
        "result": "",
        "extensionData": {"durableAgentHost": {"items": [{"type": "uri", "uri": "http://2130706433/"}]}},
    },
    "unknown": {"$type": "unknown", "content": {"type": "uri", "uri": "http://localhost/"}},
}


@pytest.mark.parametrize("is_line", [False, True])
@pytest.mark.parametrize("content", FILES_ELSEWHERE)
def test_a_file_at_a_private_address_is_refused(lab: AgentHost, content: str, is_line: bool):
    """A later turn would send a model's service there; the error names line and address, and nothing is stored."""
    name = f"odd-{uuid4().hex}"
    message = {"role": "user", "contents": [FILES_ELSEWHERE[content]]}
    entry = {"$type": "request", "correlationId": "t", "createdAt": "2026-01-01T00:00:00+00:00", "messages": [message]}
    document = {"schemaVersion": "1.1.0", "data": {"conversationHistory": [] if is_line else [entry]}}
    lines = [document, entry] if is_line else [document]
    body = "\n".join(map(json.dumps, lines)).encode()
    response = lab.post(f"/agents/Instant/sessions/{name}/import", body)
    assert response.status_code == 400, response.text
    assert f"line {len(lines)} has a file at" in response.json()["detail"]
    assert lab.state("Instant", name) is None
