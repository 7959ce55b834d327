"""Files and images over HTTP: in messages, in forms, uploaded before, made by agents, and read again."""

import base64
import hashlib
import json
import os
import select
import socket
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from practice_model.dialects.responses.items import PIXEL as PNG
from tests.durable_agent_host.process_memory import read_memory_bytes
from tests.kit import AgentHost, PracticeModel, running_host

APP = Path(__file__).parent / "apps" / "files"
PIXEL = PNG.partition(",")[2]
GENERATED = {"type": "image_generation_call", "status": "completed", "result": PIXEL}
PICTURE = base64.b64decode(PIXEL)


@pytest.fixture(scope="module")
def _files(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    folder = tmp_path_factory.mktemp("files")
    with running_host(folder, practice_model, app=APP, DURABLE_AGENT_HOST_MAX_UPLOAD_BYTES=str(8 << 20)) as running:
        yield running


@pytest.fixture
def files(_files: AgentHost, model: PracticeModel) -> AgentHost:
    """A host with agents that read and make files."""
    del model
    return _files


def parts_sent(model: PracticeModel, call: int = -1) -> list[dict[str, Any]]:
    """The parts of the last message of a request to the model."""
    return model.requests()[call]["body"]["input"][-1]["content"]


def upload(
    host: AgentHost, session: str, data: bytes, name: str = "", media_type: str = "", *, agent: str = "Reader"
) -> requests.Response:
    """Upload a file as the body of a request."""
    url = f"{host.url}/api/agents/{agent}/sessions/{session}/files"
    headers = {"content-type": media_type} if media_type else {}
    return requests.post(url, data=data, params={"name": name} if name else {}, headers=headers)


def list_files(host: AgentHost, session: str, agent: str = "Reader") -> list[dict[str, Any]]:
    """The files of a session."""
    response = host.get(f"/agents/{agent}/sessions/{session}/files")
    assert response.ok, response.text
    return response.json()["files"]


def test_parts_of_a_message_reach_the_model(files: AgentHost, model: PracticeModel):
    """Text, image, file and audio are sent as the service takes them, and the answer tells the message's text."""
    pdf, wav = base64.b64encode(b"%PDF").decode(), base64.b64encode(b"RIFF").decode()
    message = [
        {"type": "text", "text": "look at "},
        {"type": "image", "url": "https://example.org/a.png", "detail": "low"},
        {"type": "image", "data": PIXEL},
        {"type": "file", "data": pdf, "name": "a.pdf"},
        {"type": "file", "url": "https://example.org/b.pdf"},
        {"type": "file", "data": "YSxi", "media_type": "text/csv"},
        {"type": "file", "file_id": "file-abc"},
        {"type": "audio", "data": wav, "media_type": "audio/wav"},
        {"type": "text", "text": PNG},
    ]
    response = files.run("Reader", {"message": message, "session_id": "parts"})
    assert response.status_code == 200, response.text
    assert response.json()["message"] == f"look at \n{PNG}"
    assert parts_sent(model) == [
        {"type": "input_text", "text": "look at "},
        {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "low"},
        {"type": "input_image", "image_url": PNG, "detail": "auto"},
        {"type": "input_file", "file_data": f"data:application/pdf;base64,{pdf}", "filename": "a.pdf"},
        {"type": "input_file", "file_url": "https://example.org/b.pdf"},
        {"type": "input_file", "file_data": "data:text/csv;base64,YSxi", "filename": "file.csv"},
        {"type": "input_file", "file_id": "file-abc"},
        {"type": "input_audio", "input_audio": {"data": wav, "format": "wav"}},
        {"type": "input_text", "text": PNG},
    ]


def test_a_form_carries_fields_and_files(files: AgentHost, model: PracticeModel):
    """A form is a turn: its fields are those of the JSON body, and its files follow the text."""
    data = os.urandom(3 << 20)
    response = requests.post(
        f"{files.url}/api/agents/Reader/run",
        data={"message": "read", "session_id": "form", "options": '{"temperature": 0.5}'},
        files=[
            ("any", ("C:\\dir\\a.pdf", data, "application/octet-stream")),
            ("more", ("b.png", PICTURE, "image/png")),
        ],
    )
    assert response.status_code == 200, response.text
    assert (response.json()["session_id"], response.json()["message"]) == ("form", "read")
    text, file, image = parts_sent(model)
    assert (text["text"], image["image_url"]) == ("read", PNG)
    assert file["filename"] == "a.pdf"
    assert base64.b64decode(file["file_data"].removeprefix("data:application/pdf;base64,")) == data
    assert model.requests()[-1]["body"]["temperature"] == 0.5
    files_by_id = {item["id"]: item for item in list_files(files, "form")}
    (pdf,) = [item for item in files_by_id.values() if item["name"] == "a.pdf"]
    assert (pdf["id"], pdf["size"], pdf["role"]) == (hashlib.sha256(data).hexdigest(), len(data), "user")
    assert requests.get(pdf["file_url"]).content == data


HEIC = b"\0\0\0\x18ftypheic"


@pytest.mark.parametrize(
    ("media_type", "data", "reason"),
    [
        ("image/heic", HEIC, "(image/heic, photo, 12 bytes) is image/heic: the model"),
        ("image/jpeg", HEIC, "(image/jpeg, photo, 12 bytes) is image/heic: the model"),
        ("image/png", b"II*\0", "(image/png, photo, 4 bytes) is image/tiff: the model"),
        ("image/png", b"<svg/>", "(image/png, photo, 6 bytes) is image/svg+xml: the model"),
        ("image/png", b"\xff\xd8\xff\xe0", "the file (image/png, photo, 4 bytes) is image/jpeg: the model"),
        ("application/pdf", b"\xff\xd8\xff\xe0", "(application/pdf, photo, 4 bytes) is image/jpeg: the model"),
    ],
)
def test_a_file_that_no_service_takes_is_refused(files: AgentHost, model: PracticeModel, media_type, data, reason):
    """It is a 400 that names the file; the model is not called."""
    calls = len(model.requests())
    part = {"type": "file", "media_type": media_type, "data": base64.b64encode(data).decode(), "name": "photo"}
    response = files.run("Reader", {"message": [part]})
    assert (response.status_code, len(model.requests())) == (400, calls), response.text
    assert reason in response.json()["detail"]


@pytest.mark.parametrize(
    ("content_type", "body"),
    [("application/x-www-form-urlencoded", "message=hi&session_id=s"), ("application/xml", "<message>hi</message>")],
)
def test_a_body_of_another_type_is_refused(files: AgentHost, content_type, body):
    """A form without files, and XML, are no messages; a text that curl calls a form is one."""
    url = f"{files.url}/api/agents/Reader/run"
    response = requests.post(url, body, headers={"content-type": content_type})
    assert (response.status_code, "text/plain" in response.json()["detail"]) == (415, True), response.text


def test_an_upload_is_used_by_later_messages(files: AgentHost, model: PracticeModel):
    """An upload has the hash of its bytes as its id, before and after a message uses it, and is stored once."""
    data = os.urandom(40_000)
    first_response = upload(files, "up", data, "a.pdf")
    second_response = upload(files, "up", data, "a.pdf", "application/x-www-form-urlencoded")
    assert (first_response.status_code, second_response.json()) == (201, first_response.json())
    (file,) = first_response.json()["files"]
    assert file["id"] == hashlib.sha256(data).hexdigest()
    assert (file["name"], file["media_type"], file["size"]) == ("a.pdf", "application/pdf", len(data))
    assert requests.get(file["file_url"]).content == data
    for name in (None, "other.pdf"):
        part = {"type": "file", "file_id": file["id"]} | ({"name": name} if name else {})
        response = files.run("Reader", {"message": [{"type": "text", "text": "read"}, part], "session_id": "up"})
        assert response.status_code == 200, response.text
        assert parts_sent(model)[1]["filename"] == name or "a.pdf"
        assert base64.b64decode(parts_sent(model)[1]["file_data"].partition(",")[2]) == data
    (used_file,) = list_files(files, "up")
    assert (used_file["id"], used_file["name"], used_file["size"]) == (file["id"], "other.pdf", len(data))
    state = files.state("Reader", "up")
    assert len(str(state)) < 16_000
    assert str(state).count(file["id"]) == 2


def test_a_file_of_another_session_is_not_found(files: AgentHost):
    """The path of a session reaches only its own files, not those of another session by their id."""
    (file,) = upload(files, "mine", b"secret of mine").json()["files"]
    assert files.run("Reader", {"message": "hi", "session_id": "yours"}).ok
    for path in (
        f"/agents/Reader/sessions/yours/files/{file['id']}",
        f"/agents/Coder/sessions/mine/files/{file['id']}",
    ):
        assert files.get(path).status_code == 404
    for agent, session in (("Reader", "yours"), ("Coder", "mine")):
        message = [{"type": "file", "file_id": file["id"]}]
        response = files.run(agent, {"message": message, "session_id": session})
        assert (response.status_code, "upload it again" in response.json()["detail"]) == (400, True)
    assert list_files(files, "yours") == []
    assert files.get("/agents/Reader/sessions/nobody/files").status_code == 404


def test_a_rehydrated_turn_sends_the_same_bytes(model: PracticeModel, lives: Any):
    """After a crash the model gets every part as before, of images, files and rich tool results."""
    life = lives(APP)
    model.plan({"calls": [{"name": "draw", "arguments": {}}]}, {"text": "done"})
    message = [{"type": "text", "text": "draw"}, {"type": "image", "url": PNG}]
    response = requests.post(
        f"{life.host.url}/api/agents/Reader/run",
        data={"session_id": "cold"},
        files=[("message", (None, json.dumps(message), "application/json")), ("file", ("a.pdf", os.urandom(50_000)))],
        timeout=60,
    )
    assert response.status_code == 200, response.text
    live = model.requests()[-1]["body"]["input"]
    output = next(item for item in live if item["type"] == "function_call_output")["output"]
    assert [part["type"] for part in output] == ["input_text", "input_image", "input_file"]
    host = life.crash()
    assert host.run("Reader", {"message": "and?", "session_id": "cold"}).ok
    assert model.requests()[-1]["body"]["input"][: len(live)] == live


def test_files_of_tools_and_code_can_be_downloaded(files: AgentHost, model: PracticeModel):
    """Contents that tools return come from our copy, files that code wrote from the provider, with names and types."""
    model.plan({"calls": [{"name": "draw", "arguments": {}}]}, {"text": "done"})
    assert files.run("Reader", {"message": "draw", "session_id": "made"}).ok
    table, picture = sorted(list_files(files, "made"), key=lambda item: item["media_type"], reverse=True)
    assert (picture["media_type"], picture["role"], picture["size"]) == ("image/png", "tool", len(PICTURE))
    assert requests.get(picture["file_url"]).content == PICTURE
    assert (table["media_type"], table["size"]) == ("text/csv", 4 * 8192)
    assert requests.get(table["file_url"]).content == b"a,b\n" * 8192

    model.plan({"items": [{"code": "1", "image": True}, {"text": "Here:", "files": ["t.csv", "<b>.html"]}]})
    answer = files.run("Coder", {"message": "calculate", "session_id": "code"}).json()
    assert {"text/csv", "text/html"} <= {file["media_type"] for file in answer["messages"][-1]["files"]}
    written_files = {item["name"]: item for item in list_files(files, "code", "Coder")}
    sheet = requests.get(written_files["t.csv"]["file_url"])
    assert (sheet.text, sheet.headers["content-type"]) == ("written by code: t.csv\n", "text/csv")
    assert written_files["t.csv"]["media_type"] == "text/csv"
    assert written_files["t.csv"]["id"].startswith("cfile_")
    page = requests.get(written_files["<b>.html"]["file_url"])
    assert page.headers["content-disposition"].startswith("attachment; filename=\"_b_.html\"; filename*=UTF-8''")
    assert any(item["media_type"] == "image/png" for item in written_files.values())

    model.plan({"items": [{"item": GENERATED}, {"text": "see"}]})
    assert files.run("Coder", {"message": "paint", "session_id": "paint"}).ok
    (painting,) = list_files(files, "paint", "Coder")
    assert (painting["role"], requests.get(painting["file_url"]).content) == ("assistant", PICTURE)
    requests.post(f"{model.control}/containers/expire")
    expired_response = requests.get(written_files["t.csv"]["file_url"])
    assert (expired_response.status_code, "does not provide" in expired_response.json()["detail"]) == (404, True)


def test_a_file_cannot_become_a_page_of_the_host(files: AgentHost):
    """Pages, scripts and what lies about its name and type are downloads that a browser neither runs nor guesses."""
    assert files.run("Hostile", {"message": "hi", "session_id": "evil"}).ok
    (file,) = list_files(files, "evil", "Hostile")
    responses = [requests.get(file["file_url"])]
    for name, media_type in (("a.html", "text/html"), ("a.svg", "image/svg+xml"), ("a", "application/xhtml+xml")):
        (uploaded_file,) = upload(files, "evil", b"<script>" + name.encode(), name, media_type, agent="Hostile").json()[
            "files"
        ]
        responses.append(requests.get(uploaded_file["file_url"]))
    for response in responses:
        assert response.status_code == 200
        assert response.headers["content-disposition"].startswith("attachment; ")
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in response.headers["content-security-policy"]
        assert not {"set-cookie", "x-evil"} & {name.lower() for name in response.headers}
    assert responses[0].headers["content-type"] == "application/octet-stream"
    (image_file,) = upload(files, "evil", PICTURE, "a.png", agent="Hostile").json()["files"]
    assert requests.get(image_file["file_url"]).headers["content-disposition"].startswith("inline; ")


def test_a_file_has_an_etag(files: AgentHost):
    """What is known is not sent again."""
    (file,) = upload(files, "etag", b"some text", "a.txt").json()["files"]
    full_response = requests.get(file["file_url"])
    assert full_response.headers["content-type"] == "text/plain; charset=utf-8"
    cached_response = requests.get(file["file_url"], headers={"if-none-match": full_response.headers["etag"]})
    assert (cached_response.status_code, cached_response.content, cached_response.headers["etag"]) == (
        304,
        b"",
        full_response.headers["etag"],
    )


def test_files_of_a_session_without_turns_are_deleted(files: AgentHost):
    """A deletion erases and reports them; a second one is a 404, and the id is free for a turn."""
    (file,) = upload(files, "unused", b"canary of a file", "a.txt").json()["files"]
    url = f"{files.url}/api/agents/Reader/sessions/unused"
    deletion = requests.delete(url, timeout=60)
    assert (deletion.status_code, deletion.json()["status"]) == (200, "deleted"), deletion.text
    assert (deletion.json()["erased"]["turns"], deletion.json()["erased"]["pieces"]) == (0, 2)
    assert [requests.get(path, timeout=60).status_code for path in (file["file_url"], f"{url}/files")] == [404, 404]
    assert requests.delete(url, timeout=60).status_code == 404
    assert files.run("Reader", {"message": "hi", "session_id": "unused"}).ok
    assert list_files(files, "unused") == []


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"type": "audio", "url": "https://example.org/a.wav"}, "by URL"),
        ({"type": "audio", "data": "YWJj", "media_type": "audio/ogg"}, "WAV or MP3"),
    ],
)
def test_unsupported_audio_is_rejected(files: AgentHost, model: PracticeModel, part, reason):
    """Audio that the model's service does not take is the caller's mistake; the model is not asked."""
    response = files.run("Reader", {"message": [part], "session_id": "ogg"})
    assert (response.status_code, reason in response.json()["detail"]) == (400, True)
    assert model.requests() == []


def test_only_allowed_options_are_accepted(files: AgentHost, model: PracticeModel):
    """An allowed option reaches the model and is recorded with the turn; another one is a 400 that names it."""
    options = {"temperature": 0.25, "model": "practice-2"}
    response = files.run("Reader", {"message": "hi", "options": options, "session_id": "options"})
    assert response.status_code == 200, response.text
    body = model.requests()[-1]["body"]
    assert (body["temperature"], body["model"]) == (0.25, "practice-2")
    assert files.turn(response)["options"] == options
    (request_entry, _) = files.state("Reader", "options")["data"]["conversationHistory"]
    assert request_entry["extensionData"]["durableAgentHost"]["options"] == options
    requests.delete(f"{files.management}/instances/{response.headers['x-ms-turn-id']}")
    assert files.turn(response)["options"] == options
    for agent, invalid_options, reason in (
        ("Reader", {"temprature": 1}, "'temprature' is not allowed: did you mean 'temperature'"),
        ("Reader", {"model": "gpt-9"}, 'allowed are "practice", "practice-2"'),
        ("Strict", {"temperature": 1}, "this agent allows none"),
        ("Reader", ["temperature"], "an object"),
    ):
        rejection = files.run(agent, {"message": "hi", "options": invalid_options})
        assert (rejection.status_code, reason in rejection.json()["detail"]) == (400, True), rejection.text


@pytest.mark.parametrize("file_id", ["..", ".", "a/../b", "a?b=c", "a#b"])
def test_a_path_is_not_accepted_as_a_file_id(files: AgentHost, file_id: str):
    """A message that names it is a 400 that says where."""
    part = {"type": "file", "file_id": file_id}
    response = files.run("Reader", {"message": [{"type": "text", "text": "look"}, part], "session_id": "paths"})
    assert (response.status_code, "part 2" in response.text) == (400, True), response.text


def test_clients_that_do_not_read_cost_little_memory(files: AgentHost):
    """Forty clients of 7 MB each cost a fraction of it; health responds, and all bytes arrive in the end."""
    body = os.urandom(7 << 20)
    path = f"/sessions/unread/files/{upload(files, 'unread', body).json()['files'][0]['id']}"
    full_response = files.get(f"/agents/Reader{path}")
    assert full_response.headers["content-length"] == str(len(full_response.content))
    before = read_memory_bytes(files)
    clients = [request_without_reading(files, f"/api/agents/Reader{path}") for _ in range(40)]
    for client in clients:
        select.select([client], [], [], 60)  # the answer has begun
    assert files.get("/health").status_code == 200
    assert read_memory_bytes(files) - before < 150 << 20
    for client in clients:
        response = HTTPResponse(client)
        response.begin()
        assert hashlib.sha256(response.read()).digest() == hashlib.sha256(full_response.content).digest()
        client.close()


def request_without_reading(host: AgentHost, path: str) -> socket.socket:
    """Ask for a path, and do not read the answer."""
    address = urlsplit(host.url)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((address.hostname, address.port))
    client.settimeout(60)
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
    return client
