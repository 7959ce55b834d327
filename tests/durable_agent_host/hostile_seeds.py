"""Good requests to every route of host and app, which the fuzzer breaks."""

import hashlib
import json
from dataclasses import replace
from typing import Any

from tests.durable_agent_host.hostile_requests import RawRequest

MANAGEMENT = "/runtime/webhooks/durabletask"
JSON = "application/json"


def _start(name: str, body: Any, query: tuple[tuple[str, str], ...] = ()) -> RawRequest:
    path = ("", *MANAGEMENT.strip("/").split("/"), "orchestrators", name, "ID")
    return RawRequest("POST", path, query, (("content-type", JSON),), json.dumps(body).encode())


def _manage(method: str, path: str, body: bytes = b"", **query: str) -> RawRequest:
    headers = (("content-type", JSON),) if body else ()
    return RawRequest(method, ("", *f"{MANAGEMENT}/{path}".strip("/").split("/")), tuple(query.items()), headers, body)


def _agent(method: str, path: str, body: Any = None, **headers: str) -> RawRequest:
    data = b"" if body is None else json.dumps(body).encode()
    extra_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    all_headers = {"content-type": JSON} | extra_headers if body is not None else extra_headers
    return RawRequest(method, ("", "api", *path.split("/")), (), tuple(all_headers.items()), data)


def _body(method: str, path: str, content_type: str, body: bytes) -> RawRequest:
    return replace(_agent(method, path, content_type=content_type), body=body)


FILE_ID = hashlib.sha256(b"hi").hexdigest()
PARTS = [
    {"type": "text", "text": "Hi"},
    {"type": "image", "url": "data:image/png;base64,aGk=", "detail": "low"},
    {"type": "file", "file_id": FILE_ID, "name": "a.pdf", "media_type": "application/pdf"},
    {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
]
FORM_TYPE = "multipart/form-data; boundary=B"
FORM = (
    b'--B\r\nContent-Disposition: form-data; name="message"\r\n\r\nHi\r\n'
    b'--B\r\nContent-Disposition: form-data; name="f"; filename="a.pdf"\r\n'
    b"Content-Type: application/pdf\r\n\r\nhi\r\n"
    b"--B--\r\n"
)
TURN = {"agent": "Assistant", "session_id": "ID", "turn_id": "ID", "message": "Hello", "policy": "queue"}
DOCUMENT = {
    "schemaVersion": "1.1.0",
    "data": {
        "conversationHistory": [
            {
                "$type": "request",
                "correlationId": "c1",
                "createdAt": "2026-01-01T00:00:00+00:00",
                "messages": [{"role": "user", "contents": [{"$type": "text", "text": "Hi"}]}],
            },
            {
                "$type": "response",
                "correlationId": "c1",
                "createdAt": "2026-01-01T00:00:01+00:00",
                "messages": [{"role": "assistant", "contents": [{"$type": "text", "text": "Hello."}]}],
            },
        ]
    },
}


def seeds(agent: str) -> list[RawRequest]:
    """Give good requests to the management API, the admin API, the MCP endpoint and the routes of an agent."""
    turn = TURN | {"agent": agent}
    sessions, turns = f"agents/{agent}/sessions", f"agents/{agent}/sessions/ID/turns/ID"
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": agent, "arguments": {"query": "x"}}}
    entity = f"entities/dafx-{agent}/ID"
    return [
        _start("agent_turn", turn),
        _start("agent_turn", turn),
        _start("agent_turn", json.dumps(turn)),
        _start("agent_turn", turn, (("timeout", "0"), ("version", "1"))),
        _manage("GET", "instances", top="3", runtimeStatus="Running,Completed", instanceIdPrefix="o", showInput="true"),
        _manage(
            "GET", "instances", createdTimeFrom="2026-01-01T00:00:00Z", createdTimeTo="2036-01-01T00:00:00Z", top="3"
        ),
        _manage("DELETE", "instances", createdTimeFrom="2036-01-01T00:00:00Z", runtimeStatus="Completed"),
        _manage("GET", "instances/ID", showHistory="true", showHistoryOutput="true"),
        _manage("DELETE", "instances/ID"),
        _manage("POST", "instances/ID/raiseEvent/answers", json.dumps({"call_id": "c", "approved": True}).encode()),
        _manage("POST", "instances/ID/raiseEvent/granted", b"{}"),
        _manage("POST", "instances/ID/raiseEvent/cancel", b"null"),
        _manage("POST", "instances/ID/terminate", reason="enough"),
        _manage("POST", "instances/ID/suspend", reason="wait"),
        _manage("POST", "instances/ID/resume", reason="go"),
        _manage("POST", "instances/ID/restart", restartWithNewInstanceId="false"),
        _manage("POST", "instances/ID/rewind", reason="again"),
        _manage("GET", "entities", fetchState="true", top="3"),
        _manage("GET", entity),
        _manage("POST", entity, json.dumps(json.dumps({"message": "Hi", "correlationId": "ID"})).encode(), op="run"),
        _manage("POST", entity, json.dumps(json.dumps(turn)).encode(), op="admit"),
        _manage("POST", entity, json.dumps(json.dumps({"turn_id": "ID"})).encode(), op="release"),
        _manage("POST", entity, json.dumps(json.dumps({"turn_id": "ID", "status": "failed"})).encode(), op="commit"),
        _manage("POST", entity, b"", op="reset"),
        RawRequest("GET", ("", "admin", "host", "status")),
        RawRequest("GET", ("", "admin", "functions", "agent_turn")),
        RawRequest("POST", ("", "admin", "functions", "agent_turn"), (), (("content-type", JSON),), b'{"input":"x"}'),
        RawRequest(
            "POST",
            ("", "runtime", "webhooks", "mcp"),
            (),
            (("content-type", JSON), ("accept", f"{JSON}, text/event-stream")),
            json.dumps(call).encode(),
        ),
        _agent("POST", f"agents/{agent}/run", {"message": "Hi", "session_id": "ID", "wait_for_response": False}),
        _agent("POST", f"agents/{agent}/run", {"message": "Pay", "session_id": "ID", "wait_for_response": False}),
        _agent("POST", f"agents/{agent}/run", {"message": PARTS, "session_id": "ID", "wait_for_response": False}),
        _body("POST", f"agents/{agent}/run", FORM_TYPE, FORM),
        _body(
            "POST", f"{sessions}/ID/files", FORM_TYPE, FORM.replace(b'name="message"', b'name="m"; filename="m.txt"')
        ),
        _body("POST", f"{sessions}/ID/files", "image/png", b"hi"),
        _agent("GET", f"{sessions}/ID/files"),
        _agent("GET", f"{sessions}/ID/files/{FILE_ID}", if_none_match='"x"'),
        _agent("HEAD", f"{sessions}/ID/files/{FILE_ID}"),
        _agent(
            "POST",
            f"agents/{agent}/run",
            {"message": "Hi", "session_id": "ID", "policy": "queue", "response_format": {"type": "object"}},
            x_ms_wait_for_response="false",
            idempotency_key="ID",
        ),
        _agent("POST", f"agents/{agent}/run", {"message": "Hi"}, accept="text/event-stream", idempotency_key="k"),
        _agent("GET", "agents"),
        _agent("GET", "health"),
        replace(_agent("GET", sessions), query=(("limit", "3"), ("cursor", "MQ=="))),
        replace(_agent("GET", sessions), query=(("search", "d"), ("status", "completed,failed"), ("details", "true"))),
        replace(_agent("GET", sessions), query=(("used_from", "2026-01-01"), ("used_to", "2036-01-01T00:00:00Z"))),
        _agent("GET", "metrics"),
        _agent("GET", "inspector"),
        _agent("GET", f"{sessions}/ID"),
        replace(_agent("GET", f"{sessions}/ID"), query=(("limit", "2"), ("cursor", "2"))),
        replace(_agent("GET", f"{sessions}/ID"), query=(("view", "context"),)),
        replace(_agent("GET", f"{sessions}/ID/verify"), query=(("view", "diff"),)),
        _agent("GET", f"{sessions}/ID/export"),
        _agent("GET", f"{sessions}/ID/verify"),
        _agent("POST", f"{sessions}/ID/repair"),
        _agent("POST", f"{sessions}/ID-import/import", DOCUMENT),
        _agent("POST", f"{sessions}/ID/fork", {"at_turn": "ID", "session_id": "ID-fork"}),
        _agent("DELETE", f"{sessions}/ID"),
        _agent("DELETE", f"{sessions}/ID-import"),
        _agent("GET", turns),
        _agent("GET", turns, last_event_id="1"),
        _agent("GET", f"{turns}/steps"),
        replace(_agent("GET", f"{turns}/steps"), query=(("limit", "2"), ("cursor", "1"))),
        _agent("GET", f"{turns}/calls"),
        _agent("GET", f"{turns}/calls/1.0"),
        replace(_agent("GET", f"{turns}/events", last_event_id="1"), query=(("after", "1"),)),
        _agent("POST", f"{turns}/cancel"),
        _agent("POST", f"{turns}/resume"),
        _agent("GET", "pending"),
        _agent("POST", "callbacks/TOKEN", {"result": {"text": "done"}}),
        _agent("POST", "workflow/W/respond/RUN", {"call_id": "c", "result": {"text": "done"}}),
        _agent("POST", f"{turns}/answers", [{"call_id": "c", "result": [PARTS[0]]}, {"call_id": "d", "error": "e"}]),
        _agent("POST", f"{turns}/answers", {"call_id": "c", "approved": True, "reason": "r", "arguments": {}}),
    ]
