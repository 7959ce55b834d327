"""Requests that no client sends on purpose: good ones, each with something broken, from a seed."""

import hashlib
import json
import random
import socket
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

MANAGEMENT = "/runtime/webhooks/durabletask"
FIRST_IDS = ("one", "two", "ä ö")
JSON = "application/json"
ANSWER_SECONDS = 60
PATIENCE_SECONDS = 0.5

NASTY_TEXTS = (
    "",
    " ",
    "²",
    "٣",
    "-1",
    "0",
    "1e309",
    "NaN",
    "inf",
    "9" * 30,
    "9" * 5000,
    "null",
    "true",
    "[]",
    "{}",
    "\x00",
    "\r",
    "\ud800",
    "\U0010ffff",
    "@",
    "@x@y",
    "..",
    "%",
    "%zz",
    "%2f",
    "%00",
    "%ff%fe",
    "%ED%A0%80",
    "a/b",
    "a\\b",
    "a?b",
    "a#b",
    "a" * 3000,
    "0001-01-01T00:00:00",
    "9999-12-31T23:59:59-23:59",
    "2026-02-30",
    "00000000-0000-0000-0000-000000000000",
    "' OR 1=1 --",
    "${jndi:x}",
    "<script>",
)
NASTY_VALUES: tuple[Any, ...] = (
    *NASTY_TEXTS,
    None,
    True,
    0,
    -1,
    10**30,
    1.5e308,
    [],
    {},
    [[]],
    {"": None},
    [None, 1, "x"],
    {"$type": ["x"]},
    {"__class__": "x", "__module__": "os", "__data__": 1},
)
NASTY_BODIES = (
    b"",
    b" ",
    b"\xff\xfe{\x00}\x00",
    b"\x00",
    b"\xef\xbb\xbf{}",
    b"\xc3\x28",
    b"[" * 100_000,
    b"[" * 3000 + b"]" * 3000,
    b'{"a":' * 3000 + b"1" + b"}" * 3000,
    b'"\\ud800"',
    b'"\\"\\\\ud800\\""',
    b'{"message":"\\udfff"}',
    b"NaN",
    b"-Infinity",
    b"9" * 30,
    b"9" * 5000,
    b'"' + b"9" * 5000 + b'"',
    b"{",
    b'{"a":1,"a":2}',
    b"true",
    b"null",
    b"1",
    b'"null"',
    b'"[]"',
    b'"{}"',
    "{}".encode("utf-16"),
    '"x"'.encode("utf-32"),
)
NASTY_HEADERS = (
    "content-type",
    "accept",
    "idempotency-key",
    "last-event-id",
    "x-ms-continuation-token",
    "x-ms-wait-for-response",
    "traceparent",
    "content-length",
    "transfer-encoding",
    "mcp-session-id",
    "accept-encoding",
    "range",
    "expect",
)


@dataclass(frozen=True)
class Sent:
    """One request: the parts of its path are joined by ``/``, quoted but for what is broken on purpose."""

    method: str
    path: tuple[str, ...]
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    @property
    def target(self) -> str:
        """The request's target."""
        path = "/".join(part if "%" in part else quote(part, safe="@:'", errors="surrogatepass") for part in self.path)
        query = "&".join(
            f"{name}={value if '%' in value else quote(value, errors='surrogatepass')}" for name, value in self.query
        )
        return path + ("?" if query else "") + query

    def encode(self) -> bytes:
        """Write it as HTTP/1.1."""
        lines = [f"{self.method} {self.target} HTTP/1.1", "Host: 127.0.0.1"]
        given = {name for name, _ in self.headers}
        if "content-length" not in given and "transfer-encoding" not in given:
            lines.append(f"content-length: {len(self.body)}")
        lines += [f"{name}: {value}" for name, value in self.headers]
        head = "\r\n".join(lines) + "\r\nConnection: close\r\n\r\n"
        return head.encode("utf-8", "surrogatepass") + self.body


def exchange(port: int, sent: Sent) -> tuple[int, bytes]:
    """Send one request; returns the status and the beginning of the answer, 0 when there was none.

    A request that says another length than it has is not whole, and may get none.
    """
    is_whole = not {"content-length", "transfer-encoding"} & {name for name, _ in sent.headers}
    answer = b""
    seconds = ANSWER_SECONDS if is_whole else PATIENCE_SECONDS
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection, suppress(ConnectionError):
        with suppress(ConnectionError):
            connection.sendall(sent.encode())
        try:
            while b"\r\n\r\n" not in answer or b" 500 " in answer[:20]:
                piece = connection.recv(65536)
                if not piece:
                    break
                answer += piece
        except TimeoutError:
            assert not is_whole, sent
    status = answer.partition(b"\r\n")[0].split()[1:2]
    return int(status[0]) if status else 0, answer


def _start(name: str, body: Any, query: tuple[tuple[str, str], ...] = ()) -> Sent:
    path = ("", *MANAGEMENT.strip("/").split("/"), "orchestrators", name, "ID")
    return Sent("POST", path, query, (("content-type", JSON),), json.dumps(body).encode())


def _manage(method: str, path: str, body: bytes = b"", **query: str) -> Sent:
    headers = (("content-type", JSON),) if body else ()
    return Sent(method, ("", *f"{MANAGEMENT}/{path}".strip("/").split("/")), tuple(query.items()), headers, body)


def _agent(method: str, path: str, body: Any = None, **headers: str) -> Sent:
    data = b"" if body is None else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    given = {"content-type": JSON} | named if body is not None else named
    return Sent(method, ("", "api", *path.split("/")), (), tuple(given.items()), data)


def _body(method: str, path: str, content_type: str, body: bytes) -> Sent:
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


def seeds(agent: str) -> list[Sent]:
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
        _manage("GET", "instances", createdTimeFrom="2026-01-01T00:00:00Z", createdTimeTo="2036-01-01T00:00:00Z"),
        _manage("DELETE", "instances", createdTimeFrom="2036-01-01T00:00:00Z", runtimeStatus="Completed"),
        _manage("GET", "instances/ID", showHistory="true", showHistoryOutput="true"),
        _manage("DELETE", "instances/ID"),
        _manage("POST", "instances/ID/raiseEvent/approval", json.dumps({"call_id": "c", "approved": True}).encode()),
        _manage("POST", "instances/ID/raiseEvent/granted", b"{}"),
        _manage("POST", "instances/ID/raiseEvent/cancel", b"null"),
        _manage("POST", "instances/ID/terminate", reason="enough"),
        _manage("POST", "instances/ID/suspend", reason="wait"),
        _manage("POST", "instances/ID/resume", reason="go"),
        _manage("POST", "instances/ID/restart", restartWithNewInstanceId="false"),
        _manage("POST", "instances/ID/rewind", reason="again"),
        _manage("GET", "entities", fetchState="true"),
        _manage("GET", entity),
        _manage("POST", entity, json.dumps(json.dumps({"message": "Hi", "correlationId": "ID"})).encode(), op="run"),
        _manage("POST", entity, json.dumps(json.dumps(turn)).encode(), op="admit"),
        _manage("POST", entity, json.dumps(json.dumps({"turn_id": "ID"})).encode(), op="release"),
        _manage("POST", entity, json.dumps(json.dumps({"turn_id": "ID", "status": "failed"})).encode(), op="commit"),
        _manage("POST", entity, b"", op="reset"),
        Sent("GET", ("", "admin", "host", "status")),
        Sent("GET", ("", "admin", "functions", "agent_turn")),
        Sent("POST", ("", "admin", "functions", "agent_turn"), (), (("content-type", JSON),), b'{"input":"x"}'),
        Sent(
            "POST",
            ("", "runtime", "webhooks", "mcp"),
            (),
            (("content-type", JSON), ("accept", f"{JSON}, text/event-stream")),
            json.dumps(call).encode(),
        ),
        _agent("POST", f"agents/{agent}/run", {"message": "Hi", "session_id": "ID", "wait_for_response": False}),
        _agent("POST", f"agents/{agent}/run", {"message": PARTS, "session_id": "ID", "wait_for_response": False}),
        _body("POST", f"agents/{agent}/run", FORM_TYPE, FORM),
        _body("POST", f"{sessions}/ID/files", FORM_TYPE, FORM.replace(b"message", b"f")),
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
        _agent("GET", f"{sessions}/ID"),
        _agent("GET", f"{sessions}/ID/export"),
        _agent("GET", f"{sessions}/ID/verify"),
        _agent("POST", f"{sessions}/ID/repair"),
        _agent("POST", f"{sessions}/ID/import", DOCUMENT),
        _agent("POST", f"{sessions}/ID/fork", {"at_turn": "ID", "session_id": "ID"}),
        _agent("DELETE", f"{sessions}/ID"),
        _agent("GET", turns),
        _agent("GET", turns, last_event_id="1"),
        replace(_agent("GET", f"{turns}/events", last_event_id="1"), query=(("after", "1"),)),
        _agent("POST", f"{turns}/cancel"),
        _agent("POST", f"{turns}/approvals", {"call_id": "c", "approved": True, "reason": "r", "arguments": {}}),
    ]


def draw_all(chooser: random.Random, good: list[Sent], agent: str, count: int) -> list[Sent]:
    """Take requests and break each in one to three places; a few stay as they are.

    Sessions and turns get ever new ids. What writes past the routes of the agent is followed by what reads it there.
    """
    drawn: list[Sent] = []
    ids = list(FIRST_IDS)
    while len(drawn) < count:
        if chooser.random() < 0.1:
            ids.append(f"id-{len(ids)}")
        one = chooser.choice(ids[-20:])
        sent = _with_id(chooser.choice(good), one)
        for _ in range(chooser.choice((0, 1, 1, 1, 2, 3))):
            breaks = chooser.choice((_break_path, _break_query, _break_header, _break_body, _break_json, _break_json))
            sent = breaks(chooser, sent)
        drawn.append(sent)
        if sent.method == "POST" and sent.path[1] == "runtime" and chooser.random() < 0.5:
            readers = (read for read in good if read.method == "GET" and read.path[2:3] == ("agents",))
            drawn += [_with_id(read, one) for read in readers if agent in read.path and "events" not in read.path]
    return drawn[:count]


def _with_id(sent: Sent, one: str) -> Sent:
    path = tuple(one if part == "ID" else part for part in sent.path)
    headers = tuple((name, value.replace("ID", f"key {one.encode()!r}")) for name, value in sent.headers)
    text = json.dumps(one)[1:-1].encode()
    return replace(sent, path=path, headers=headers, body=sent.body.replace(b'"ID', b'"' + text))


def _break_path(chooser: random.Random, sent: Sent) -> Sent:
    parts = list(sent.path)
    parts[chooser.randrange(1, len(parts))] = chooser.choice(NASTY_TEXTS)
    return replace(sent, path=tuple(parts))


def _break_query(chooser: random.Random, sent: Sent) -> Sent:
    names = [name for name, _ in sent.query] or ["top", "timeout", "limit", "cursor", "op", "after", "session_id"]
    name = chooser.choice(names)
    kept = tuple(pair for pair in sent.query if pair[0] != name)
    return replace(sent, query=(*kept, (name, chooser.choice(NASTY_TEXTS))))


def _break_header(chooser: random.Random, sent: Sent) -> Sent:
    name = chooser.choice(NASTY_HEADERS)
    value = chooser.choice([text for text in NASTY_TEXTS if "\r" not in text and "\x00" not in text])
    return replace(sent, headers=(*(pair for pair in sent.headers if pair[0] != name), (name, value)))


def _break_body(chooser: random.Random, sent: Sent) -> Sent:
    if sent.body and chooser.random() < 0.5:
        body = bytearray(sent.body)
        for _ in range(chooser.randint(1, 4)):
            body[chooser.randrange(len(body))] = chooser.randrange(256)
        return replace(sent, body=bytes(body[: chooser.randint(1, len(body))]))
    return replace(sent, body=chooser.choice(NASTY_BODIES))


def _break_json(chooser: random.Random, sent: Sent) -> Sent:
    """Replace a value somewhere in the body, or leave one out; a text that holds JSON is looked into."""
    try:
        value = json.loads(sent.body)
    except (ValueError, RecursionError):
        return _break_body(chooser, sent)
    inner = isinstance(value, str) and chooser.random() < 0.8
    if inner:
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            inner = False
    broken = _broken(chooser, value)
    return replace(sent, body=json.dumps(json.dumps(broken) if inner else broken).encode())


def _broken(chooser: random.Random, value: Any) -> Any:
    if not value or not isinstance(value, dict | list) or chooser.random() < 0.15:
        return chooser.choice(NASTY_VALUES)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = chooser.choice(keys)
    copy = value.copy()
    if chooser.random() < 0.15:
        del copy[key]
    else:
        copy[key] = _broken(chooser, value[key])
    return copy
