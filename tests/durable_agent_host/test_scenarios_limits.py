"""The table of limits over HTTP: what is just within each of them works, and what is just beyond it is told."""

import json
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from tests.kit import AgentHost, PracticeModel, running_host
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "files"
PREFIX = "DURABLE_AGENT_HOST_"
SETTINGS = {
    "MAX_REQUEST_BYTES": 900_000,
    "MAX_UPLOAD_BYTES": 1_200_000,
    "MAX_RECEIPTS": 3,
    "MAX_ARRIVING_BYTES": 2_000_000,
}
AGENT = "/agents/Hostile"
"""Of an agent that needs no model."""


@pytest.fixture(scope="module")
def _limited_host(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    settings = {PREFIX + name: str(value) for name, value in SETTINGS.items()}
    with running_host(tmp_path_factory.mktemp("limits"), practice_model, app=APP, **settings) as running:
        yield running


@pytest.fixture
def limited_host(_limited_host: AgentHost, model: PracticeModel) -> AgentHost:
    """A host whose settings of sizes and numbers are small."""
    del model
    return _limited_host


def run(host: AgentHost, body: Any, **headers: str) -> requests.Response:
    """Run a turn."""
    return host.run("Hostile", body, headers=headers)


def upload(host: AgentHost, session: str, data: bytes, name: str = "a.txt") -> requests.Response:
    """Upload the body of a request."""
    url = f"{host.url}/api{AGENT}/sessions/{session}/files"
    return requests.post(url, data=data, params={"name": name}, headers={"content-type": "text/plain"})


def upload_form(host: AgentHost, session: str, count: int, first: int = 0) -> requests.Response:
    """Upload a form with so many files."""
    files = [("f", (f"{number}.txt", str(number).encode())) for number in range(first, first + count)]
    return requests.post(f"{host.url}/api{AGENT}/sessions/{session}/files", files=files)


def form_of_run(host: AgentHost, size: int) -> requests.Response:
    """Run a turn with a form of so many bytes."""
    head = b'--B\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n\r\n'
    body = head + b"x" * (size - len(head) - 9) + b"\r\n--B--\r\n"
    assert len(body) == size
    return host.post(f"{AGENT}/run", body, content_type="multipart/form-data; boundary=B")


def run_with_options(host: AgentHost, size: int) -> requests.Response:
    """Run a turn with options of so many bytes."""
    return run(host, {"message": "hi", "options": {"user": "x" * (size - len('{"user": ""}'))}})


def run_with_url(host: AgentHost, size: int) -> requests.Response:
    """Run a turn with a URL of so many characters."""
    url = "https://example.org/"
    return run(host, {"message": [{"type": "image", "url": url + "x" * (size - len(url))}]})


type SendSized = Callable[[AgentHost, int], requests.Response]
LIMIT_CASES: dict[str, tuple[SendSized, int, int, str]] = {
    "body that is no form": (
        lambda host, size: host.run("Hostile", "x" * size),
        SETTINGS["MAX_REQUEST_BYTES"],
        413,
        "MAX_REQUEST_BYTES",
    ),
    "upload": (
        lambda host, size: upload(host, "large", b"x" * size),
        SETTINGS["MAX_UPLOAD_BYTES"],
        413,
        "MAX_UPLOAD_BYTES",
    ),
    "form of `run`": (form_of_run, SETTINGS["MAX_UPLOAD_BYTES"], 413, "MAX_UPLOAD_BYTES"),
    "parts of a form": (lambda host, count: upload_form(host, "parts", count), 300, 400, "300 parts"),
    "parts of a message": (
        lambda host, count: run(host, {"message": [{"type": "text", "text": "x"}] * count}),
        256,
        400,
        "256",
    ),
    "URL in a part of a message": (run_with_url, 8192, 400, "8192"),
    "id of a session": (lambda host, size: run(host, {"message": "hi", "session_id": "s" * size}), 128, 400, "128"),
    "`Idempotency-Key`": (lambda host, size: run(host, "hi", **{"Idempotency-Key": "k" * size}), 255, 400, "255"),
    "name of a file": (lambda host, size: upload(host, "names", b"x", "n" * size), 255, 400, "255"),
    "`options` of a turn": (run_with_options, 4096, 400, "4096 bytes"),
}
"""A limit → how something of a size is sent, the largest size, the status beyond it, and what the problem names."""


@pytest.mark.parametrize("limit", LIMIT_CASES)
def test_requests_are_accepted_up_to_each_limit(limited_host: AgentHost, limit: str):
    """The largest size works; one more is refused with the status of the table and a sentence that names the limit."""
    send, max_size, status, limit_name = LIMIT_CASES[limit]
    accepted_response = send(limited_host, max_size)
    assert accepted_response.status_code in {200, 201}, accepted_response.text
    rejection = send(limited_host, max_size + 1)
    assert (rejection.status_code, rejection.headers["content-type"]) == (status, "application/problem+json"), (
        rejection.text
    )
    problem = rejection.json()
    assert (problem["type"], problem["status"], problem["error"]) == ("about:blank", status, problem["detail"])
    assert limit_name in problem["detail"]
    assert limited_host.get("/health").ok


def test_ids_in_paths_are_limited(limited_host: AgentHost):
    """An id that could be one is looked for; a longer one is refused."""
    for path in (f"{AGENT}/sessions/%s", f"{AGENT}/sessions/s/turns/%s"):
        assert limited_host.get(path % ("i" * 128)).status_code == 404
        rejection = limited_host.get(path % ("i" * 129))
        assert (rejection.status_code, "128" in rejection.json()["detail"]) == (400, True)


def test_uploads_of_a_session_are_limited(limited_host: AgentHost):
    """A thousand that no message has used; the next one is refused, and nothing of them is lost."""
    for first, count in ((0, 300), (300, 300), (600, 300), (900, 100)):
        assert upload_form(limited_host, "many", count, first).status_code == 201
    rejection = upload_form(limited_host, "many", 1, 1000)
    assert (rejection.status_code, "1000 uploads" in rejection.json()["detail"]) == (400, True)
    assert len(limited_host.get(f"{AGENT}/sessions/many/files").json()["files"]) == 1000


def begin_body(host: AgentHost, path: str, size: int, sent_bytes: int, caller: str = "") -> socket.socket:
    """Send the beginning of a body, and leave the connection open."""
    target = urlsplit(host.url)
    connection = socket.create_connection((target.hostname, target.port or 80), timeout=60)
    head = f"POST /api{path} HTTP/1.1\r\nHost: {target.netloc}\r\nX-Who: {caller}\r\n"
    head += f"Content-Type: text/plain\r\nContent-Length: {size}\r\n\r\n"
    connection.sendall(head.encode() + b"x" * sent_bytes)
    return connection


def test_incomplete_bodies_are_limited_in_memory(limited_host: AgentHost):
    """Uploads that stop in the middle make the next large one wait, and no short request; their end makes room."""
    path = f"{AGENT}/sessions/arriving/files?name=a.txt"
    connections = [begin_body(limited_host, path, 1_100_000, 1_000_000) for _ in range(2)]
    try:
        wait_until(lambda: upload(limited_host, "arriving", b"y" * 300_000).status_code == 429)
        rejection = upload(limited_host, "arriving", b"y" * 300_000)
        assert (rejection.status_code, rejection.headers["Retry-After"]) == (429, "5")
        assert "MAX_ARRIVING_BYTES" in rejection.json()["detail"]
        assert upload(limited_host, "arriving", b"y" * 60_000, "short.txt").status_code == 201
        assert run(limited_host, {"message": "hi", "session_id": "meanwhile"}).status_code == 200
        connections[0].sendall(b"x" * 100_000)
        assert connections[0].recv(12) == b"HTTP/1.1 201"
        assert upload(limited_host, "arriving", b"y" * 300_000, "later.txt").status_code == 201
    finally:
        for connection in connections:
            connection.close()
    wait_until(lambda: upload(limited_host, "arriving", b"y" * 1_100_000, "last.txt").status_code == 201)
    names = {file["name"] for file in limited_host.get(f"{AGENT}/sessions/arriving/files").json()["files"]}
    assert names == {"a.txt", "short.txt", "later.txt", "last.txt"}


def test_receipts_of_a_session_are_limited(limited_host: AgentHost):
    """An older turn is there as long as its orchestration; then those are left that the session remembers."""
    max_receipts = SETTINGS["MAX_RECEIPTS"]
    path = f"{AGENT}/sessions/remembered"
    turns = [
        run(limited_host, {"message": "hi", "session_id": "remembered"}).headers["x-ms-turn-id"]
        for _ in range(max_receipts + 2)
    ]
    assert [turn["turn_id"] for turn in limited_host.session("Hostile", "remembered")["turns"]] == turns[-max_receipts:]
    assert all(limited_host.get(f"{path}/turns/{turn}").ok for turn in turns)
    for turn in turns:
        assert requests.delete(f"{limited_host.management}/instances/{turn}").ok
    assert [limited_host.get(f"{path}/turns/{turn}").status_code for turn in turns] == [404, 404] + [200] * max_receipts


def test_lists_and_pages_are_limited(limited_host: AgentHost):
    """Fifty sessions in a list, a thousand messages in a page; a cursor leads to the others, and nothing is lost."""
    texts = [{"$type": "text", "text": "hi"}]
    pairs = [
        {
            "$type": kind,
            "correlationId": f"t{number}",
            "createdAt": "2026-01-01T00:00:00+00:00",
            "messages": [{"role": role, "contents": texts}],
        }
        for number in range(501)
        for kind, role in (("request", "user"), ("response", "assistant"))
    ]
    long_document = {"schemaVersion": "1.1.0", "data": {"conversationHistory": pairs}}
    response = limited_host.post("/agents/Strict/sessions/long/import", json.dumps(long_document).encode())
    assert response.status_code == 201, response.text
    newest = limited_host.session("Strict", "long")
    oldest = limited_host.get(f"/agents/Strict/sessions/long?cursor={newest['previous']}").json()
    assert (len(newest["messages"]), len(oldest["messages"]), oldest["previous"]) == (1000, 2, None)

    short_document = json.dumps({"schemaVersion": "1.1.0", "data": {"conversationHistory": pairs[:2]}}).encode()
    with ThreadPoolExecutor(4) as threads:
        list(
            threads.map(
                lambda number: limited_host.post(f"/agents/Strict/sessions/s{number}/import", short_document), range(50)
            )
        )
    page = limited_host.get("/agents/Strict/sessions").json()
    last_page = limited_host.get(f"/agents/Strict/sessions?cursor={page['cursor']}").json()
    assert (len(page["sessions"]), len(last_page["sessions"]), last_page["cursor"]) == (50, 1, None)
