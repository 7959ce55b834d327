"""The table of limits over HTTP: what is just within each of them works, and what is just beyond it is told.

`tests/house/test_limits.py` names the test of each row.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.kit import AgentHost, PracticeModel, hosted

APP = Path(__file__).parent / "apps" / "files"
PREFIX = "DURABLE_AGENT_HOST_"
SETTINGS = {
    "MAX_REQUEST_BYTES": 900_000,
    "MAX_UPLOAD_BYTES": 1_200_000,
    "MAX_IMPORT_BYTES": 700_000,
    "MAX_RECEIPTS": 3,
    "MAX_STREAM_READERS": 2,
    "KEPT_CALL_BYTES": 700_000,
    "KEPT_TURN_BYTES": 1_000_000,
    "MODEL_ATTEMPTS": 45,
    "MODEL_RETRY_SECONDS": 0.001,
    "MODEL_RETRY_MOST_SECONDS": 0.001,
}
AGENT = "/agents/Hostile"
"""Of an agent that needs no model."""


@pytest.fixture(scope="module")
def _bounded(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    settings = {PREFIX + name: str(value) for name, value in SETTINGS.items()}
    with hosted(tmp_path_factory.mktemp("limits"), practice_model, app=APP, **settings) as running:
        yield running


@pytest.fixture
def bounded(_bounded: AgentHost, model: PracticeModel) -> AgentHost:
    """A host whose settings of sizes and numbers are small."""
    del model
    return _bounded


def run(host: AgentHost, body: Any, **headers: str) -> requests.Response:
    """Run a turn."""
    return host.run("Hostile", body, headers=headers)


def upload(host: AgentHost, session: str, data: bytes, name: str = "a.txt") -> requests.Response:
    """Upload the body of a request."""
    url = f"{host.url}/api{AGENT}/sessions/{session}/files"
    return requests.post(url, data=data, params={"name": name}, headers={"content-type": "text/plain"}, timeout=60)


def form(host: AgentHost, session: str, count: int, first: int = 0) -> requests.Response:
    """Upload a form with so many files."""
    files = [("f", (f"{number}.txt", str(number).encode())) for number in range(first, first + count)]
    return requests.post(f"{host.url}/api{AGENT}/sessions/{session}/files", files=files, timeout=60)


def form_with_headers(host: AgentHost, size: int) -> requests.Response:
    """Upload a form whose part has headers of so many bytes, with their ends."""
    head = b'Content-Disposition: form-data; name="f"; filename="a"\r\nX-A: '
    body = b"--B\r\n" + head + b"x" * (size - len(head) - 4) + b"\r\n\r\ndata\r\n--B--\r\n"
    return host.post(f"{AGENT}/sessions/part-headers/files", body, content_type="multipart/form-data; boundary=B")


def form_of_run(host: AgentHost, size: int) -> requests.Response:
    """Run a turn with a form of so many bytes."""
    head = b'--B\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n\r\n'
    body = head + b"x" * (size - len(head) - 9) + b"\r\n--B--\r\n"
    assert len(body) == size
    return host.post(f"{AGENT}/run", body, content_type="multipart/form-data; boundary=B")


def document(host: AgentHost, size: int) -> requests.Response:
    """Import a document of so many bytes."""
    body = json.dumps({"schemaVersion": "1.1.0", "data": {"conversationHistory": []}}).encode()
    return host.post(f"{AGENT}/sessions/document-{size}/import", body.ljust(size), content_type="application/json")


def options(host: AgentHost, size: int) -> requests.Response:
    """Run a turn with options of so many bytes."""
    return run(host, {"message": "hi", "options": {"temperature": "x" * (size - len('{"temperature": ""}'))}})


def image(host: AgentHost, size: int) -> requests.Response:
    """Run a turn with a URL of so many characters."""
    url = "https://example.org/"
    return run(host, {"message": [{"type": "image", "url": url + "x" * (size - len(url))}]})


type Ask = Callable[[AgentHost, int], requests.Response]
TRIED: dict[str, tuple[Ask, int, int, str]] = {
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
    "parts of a form": (lambda host, count: form(host, "parts", count), 300, 400, "300 parts"),
    "headers of a part of a form": (form_with_headers, 8 * 1024, 400, "8192 bytes"),
    "document of `import`": (document, SETTINGS["MAX_IMPORT_BYTES"], 413, "MAX_IMPORT_BYTES"),
    "parts of a message": (
        lambda host, count: run(host, {"message": [{"type": "text", "text": "x"}] * count}),
        256,
        400,
        "256",
    ),
    "URL in a part of a message": (image, 8192, 400, "8192"),
    "id of a session": (lambda host, size: run(host, {"message": "hi", "session_id": "s" * size}), 128, 400, "128"),
    "`Idempotency-Key`": (lambda host, size: run(host, "hi", **{"Idempotency-Key": "k" * size}), 255, 400, "255"),
    "name of a file": (lambda host, size: upload(host, "names", b"x", "n" * size), 255, 400, "255"),
    "`options` of a turn": (options, 4096, 400, "4096 bytes"),
}
"""A limit → how something of a size is sent, the largest size, the status beyond it, and what the problem names."""


@pytest.mark.parametrize("limit", TRIED)
def test_what_is_sent_is_taken_up_to_its_limit(bounded: AgentHost, limit: str):
    """The largest size works; one more is refused with the status of the table and a sentence that names the limit."""
    ask, most, status, named = TRIED[limit]
    taken = ask(bounded, most)
    assert taken.status_code in {200, 201}, taken.text
    refused = ask(bounded, most + 1)
    assert (refused.status_code, refused.headers["content-type"]) == (status, "application/problem+json"), refused.text
    problem = refused.json()
    assert (problem["type"], problem["status"], problem["error"]) == ("about:blank", status, problem["detail"])
    assert named in problem["detail"]
    assert bounded.get("/health").ok


def test_a_session_holds_so_many_uploads(bounded: AgentHost):
    """A thousand that no message has used; the next one is refused, and nothing of them is lost."""
    for first, count in ((0, 300), (300, 300), (600, 300), (900, 100)):
        assert form(bounded, "many", count, first).status_code == 201
    refused = form(bounded, "many", 1, 1000)
    assert (refused.status_code, "1000 uploads" in refused.json()["detail"]) == (400, True)
    assert len(bounded.get(f"{AGENT}/sessions/many/files").json()["files"]) == 1000
