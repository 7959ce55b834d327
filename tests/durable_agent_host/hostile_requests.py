"""Requests that no client sends on purpose: good ones, each with something broken, from a seed."""

import json
import random
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

FIRST_IDS = ("one", "two", "ä ö")
NEW_IDS, RECENT_IDS = 0.01, 20
BEGINNERS = frozenset(
    {"orchestrators", "entities", "run", "import", "fork", "repair", "reset", "files", "mcp", "agent_turn"}
)
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
class RawRequest:
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

    @property
    def is_costly(self) -> bool:
        """Whether it would begin a turn, write to a session or read all sessions if it were whole."""
        if any(name == "details" for name, _ in self.query):
            return True
        return self.method == "DELETE" or (self.method == "POST" and any(part in BEGINNERS for part in self.path))

    def of(self, new_id: str) -> "RawRequest":
        """Give the same request of one session and turn."""
        path = tuple(new_id + part[2:] if part.startswith("ID") else part for part in self.path)
        headers = tuple((name, value.replace("ID", f"key {new_id.encode()!r}")) for name, value in self.headers)
        text = json.dumps(new_id)[1:-1].encode()
        return replace(self, path=path, headers=headers, body=self.body.replace(b'"ID', b'"' + text))

    def encode(self) -> bytes:
        """Write it as HTTP/1.1."""
        lines = [f"{self.method} {self.target} HTTP/1.1", "Host: 127.0.0.1"]
        header_names = {name for name, _ in self.headers}
        if "content-length" not in header_names and "transfer-encoding" not in header_names:
            lines.append(f"content-length: {len(self.body)}")
        lines += [f"{name}: {value}" for name, value in self.headers]
        head = "\r\n".join(lines) + "\r\nConnection: close\r\n\r\n"
        return head.encode("utf-8", "surrogatepass") + self.body


@dataclass(frozen=True)
class Shares:
    """How many of the requests are of which kind, from 0 to 1; the rest are other requests to the app.

    Attributes:
        costly: see `Sent.is_costly`.
        host: are answered by the host itself: management API, admin API.
    """

    costly: float
    host: float


def exchange(port: int, sent: RawRequest) -> tuple[int, bytes]:
    """Send one request; returns the status and the beginning of the answer, 0 when there was none.

    A request that says another length than it has is not whole, and may get none.
    """
    is_complete = not {"content-length", "transfer-encoding"} & {name for name, _ in sent.headers}
    response = b""
    seconds = ANSWER_SECONDS if is_complete else PATIENCE_SECONDS
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection, suppress(ConnectionError):
        with suppress(ConnectionError):
            connection.sendall(sent.encode())
        try:
            while b"\r\n\r\n" not in response or b" 500 " in response[:20]:
                chunk = connection.recv(65536)
                if not chunk:
                    break
                response += chunk
        except TimeoutError:
            assert not is_complete, sent
    status = response.partition(b"\r\n")[0].split()[1:2]
    return int(status[0]) if status else 0, response


def draw(chooser: random.Random, good: Sequence[RawRequest], count: int, shares: Shares) -> list[RawRequest]:
    """Take requests and break each in one to three places; a few stay as they are.

    Sessions and turns get ever new ids, and what reads asks mostly for those that the last writes began. What writes
    past the routes of the agent is followed by what reads it there.
    """
    costly = [sent for sent in good if sent.is_costly]
    hosts = [sent for sent in good if not sent.is_costly and sent.path[1] != "api"]
    app_requests = [sent for sent in good if not sent.is_costly and sent.path[1] == "api"]
    groups = (costly, hosts, app_requests)
    weights = (shares.costly, shares.host, 1 - shares.costly - shares.host)
    readers = [
        sent for sent in app_requests if sent.method == "GET" and "sessions" in sent.path and "events" not in sent.path
    ]
    drawn: list[RawRequest] = []
    ids = list(FIRST_IDS)
    while len(drawn) < count:
        if chooser.random() < NEW_IDS:
            ids.append(f"id-{len(ids)}")
        session_id = chooser.choice(ids[-RECENT_IDS:])
        sent = chooser.choice(chooser.choices(groups, weights)[0]).of(session_id)
        for _ in range(chooser.choice((0, 1, 1, 1, 2, 3))):
            breaks = chooser.choice((_break_path, _break_query, _break_header, _break_body, _break_json, _break_json))
            sent = breaks(chooser, sent)
        drawn.append(sent)
        if sent.is_costly and sent.path[1] == "runtime" and chooser.random() < 0.5:
            drawn += [read.of(session_id) for read in readers]
    return drawn[:count]


def _break_path(chooser: random.Random, sent: RawRequest) -> RawRequest:
    parts = list(sent.path)
    parts[chooser.randrange(1, len(parts))] = chooser.choice(NASTY_TEXTS)
    return replace(sent, path=tuple(parts))


def _break_query(chooser: random.Random, sent: RawRequest) -> RawRequest:
    names = [name for name, _ in sent.query] or ["top", "timeout", "limit", "cursor", "op", "after", "session_id"]
    name = chooser.choice(names)
    other_parameters = tuple(pair for pair in sent.query if pair[0] != name)
    return replace(sent, query=(*other_parameters, (name, chooser.choice(NASTY_TEXTS))))


def _break_header(chooser: random.Random, sent: RawRequest) -> RawRequest:
    name = chooser.choice(NASTY_HEADERS)
    value = chooser.choice([text for text in NASTY_TEXTS if "\r" not in text and "\x00" not in text])
    return replace(sent, headers=(*(pair for pair in sent.headers if pair[0] != name), (name, value)))


def _break_body(chooser: random.Random, sent: RawRequest) -> RawRequest:
    if sent.body and chooser.random() < 0.5:
        body = bytearray(sent.body)
        for _ in range(chooser.randint(1, 4)):
            body[chooser.randrange(len(body))] = chooser.randrange(256)
        return replace(sent, body=bytes(body[: chooser.randint(1, len(body))]))
    return replace(sent, body=chooser.choice(NASTY_BODIES))


def _break_json(chooser: random.Random, sent: RawRequest) -> RawRequest:
    """Replace or remove a value somewhere in the body, also within a string that contains JSON."""
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
    broken_value = _with_broken_value(chooser, value)
    return replace(sent, body=json.dumps(json.dumps(broken_value) if inner else broken_value).encode())


def _with_broken_value(chooser: random.Random, value: Any) -> Any:
    if not value or not isinstance(value, dict | list) or chooser.random() < 0.15:
        return chooser.choice(NASTY_VALUES)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = chooser.choice(keys)
    copy = value.copy()
    if chooser.random() < 0.15:
        del copy[key]
    else:
        copy[key] = _with_broken_value(chooser, value[key])
    return copy
