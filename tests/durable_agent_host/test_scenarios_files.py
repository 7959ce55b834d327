"""Files and images over HTTP: in messages, in forms, uploaded before, made by agents, and read again."""

import base64
import hashlib
import json
import os
import re
import select
import socket
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
import requests
from agent_framework import Content

from durable_agent_host.codec.content import encode_content
from practice_model.dialects.responses.items import PIXEL as PNG
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
    return requests.post(url, data=data, params={"name": name} if name else {}, headers=headers, timeout=60)


def listed(host: AgentHost, session: str, agent: str = "Reader") -> list[dict[str, Any]]:
    """The files of a session."""
    answer = host.get(f"/agents/{agent}/sessions/{session}/files")
    assert answer.ok, answer.text
    return answer.json()["files"]


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
    answer = files.run("Reader", {"message": message, "session_id": "parts"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["message"] == f"look at \n{PNG}"
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


def test_a_form_brings_fields_and_files(files: AgentHost, model: PracticeModel):
    """A form is a turn: its fields are those of the JSON body, and its files follow the text."""
    data = os.urandom(3 << 20)
    answer = requests.post(
        f"{files.url}/api/agents/Reader/run",
        data={"message": "read", "session_id": "form", "options": '{"temperature": 0.5}'},
        files=[("any", ("C:\\dir\\a.pdf", data)), ("more", ("b.png", PICTURE, "image/png"))],
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    assert (answer.json()["session_id"], answer.json()["message"]) == ("form", "read")
    text, file, image = parts_sent(model)
    assert (text["text"], image["image_url"]) == ("read", PNG)
    assert file["filename"] == "a.pdf"
    assert base64.b64decode(file["file_data"].removeprefix("data:application/pdf;base64,")) == data
    assert model.requests()[-1]["body"]["temperature"] == 0.5
    named = {one["id"]: one for one in listed(files, "form")}
    (found,) = [one for one in named.values() if one["name"] == "a.pdf"]
    assert (found["id"], found["size"], found["role"]) == (hashlib.sha256(data).hexdigest(), len(data), "user")
    assert requests.get(found["file_url"], timeout=60).content == data


def test_an_upload_is_used_by_later_messages(files: AgentHost, model: PracticeModel):
    """An upload has the hash of its bytes as its id, before and after a message uses it, and is stored once."""
    data = os.urandom(40_000)
    first, again = upload(files, "up", data, "a.pdf"), upload(files, "up", data, "a.pdf")
    assert (first.status_code, again.json()) == (201, first.json())
    (file,) = first.json()["files"]
    assert file["id"] == hashlib.sha256(data).hexdigest()
    assert (file["name"], file["media_type"], file["size"]) == ("a.pdf", "application/pdf", len(data))
    assert requests.get(file["file_url"], timeout=60).content == data
    for name in (None, "other.pdf"):
        part = {"type": "file", "file_id": file["id"]} | ({"name": name} if name else {})
        answer = files.run("Reader", {"message": [{"type": "text", "text": "read"}, part], "session_id": "up"})
        assert answer.status_code == 200, answer.text
        assert parts_sent(model)[1]["filename"] == name or "a.pdf"
        assert base64.b64decode(parts_sent(model)[1]["file_data"].partition(",")[2]) == data
    (kept,) = listed(files, "up")
    assert (kept["id"], kept["name"], kept["size"]) == (file["id"], "other.pdf", len(data))
    state = files.state("Reader", "up")
    assert len(str(state)) < 16_000
    assert str(state).count(file["id"]) == 2


def test_a_file_of_another_session_is_not_there(files: AgentHost):
    """The path of a session reaches its own files alone, also by an id that is right elsewhere."""
    (file,) = upload(files, "mine", b"secret of mine").json()["files"]
    assert files.run("Reader", {"message": "hi", "session_id": "yours"}).ok
    for path in (
        f"/agents/Reader/sessions/yours/files/{file['id']}",
        f"/agents/Coder/sessions/mine/files/{file['id']}",
    ):
        assert files.get(path).status_code == 404
    for agent, session in (("Reader", "yours"), ("Coder", "mine")):
        message = [{"type": "file", "file_id": file["id"]}]
        answer = files.run(agent, {"message": message, "session_id": session})
        assert (answer.status_code, "upload it again" in answer.json()["detail"]) == (400, True)
    assert listed(files, "yours") == []
    assert files.get("/agents/Reader/sessions/nobody/files").status_code == 404


def test_a_rehydrated_turn_sends_the_same_bytes(model: PracticeModel, lives: Any):
    """After a crash the model gets every part as before, of images, files and rich tool results."""
    life = lives(APP)
    model.plan({"calls": [{"name": "draw", "arguments": {}}]}, {"text": "done"})
    message = [{"type": "text", "text": "draw"}, {"type": "image", "url": PNG}]
    answer = requests.post(
        f"{life.host.url}/api/agents/Reader/run",
        data={"session_id": "cold"},
        files=[
            ("message", (None, json.dumps(message), "application/json")),
            ("file", ("a.pdf", os.urandom(50_000))),
        ],
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    live = model.requests()[-1]["body"]["input"]
    output = next(item for item in live if item["type"] == "function_call_output")["output"]
    assert [part["type"] for part in output] == ["input_text", "input_image", "input_file"]
    host = life.crash()
    assert host.run("Reader", {"message": "and?", "session_id": "cold"}).ok
    assert model.requests()[-1]["body"]["input"][: len(live)] == live


def test_what_tools_and_code_make_is_read_again(files: AgentHost, model: PracticeModel):
    """Contents that tools return come from our copy, files that code wrote from the provider, with names and types."""
    model.plan({"calls": [{"name": "draw", "arguments": {}}]}, {"text": "done"})
    assert files.run("Reader", {"message": "draw", "session_id": "made"}).ok
    table, picture = sorted(listed(files, "made"), key=lambda one: one["media_type"], reverse=True)
    assert (picture["media_type"], picture["role"], picture["size"]) == ("image/png", "tool", len(PICTURE))
    assert requests.get(picture["file_url"], timeout=60).content == PICTURE
    assert (table["media_type"], table["size"]) == ("text/csv", 4 * 8192)
    assert requests.get(table["file_url"], timeout=60).content == b"a,b\n" * 8192

    model.plan({"items": [{"code": "1", "image": True}, {"text": "Here:", "files": ["t.csv", "<b>.html"]}]})
    assert files.run("Coder", {"message": "calculate", "session_id": "code"}).ok
    made = {one["name"]: one for one in listed(files, "code", "Coder")}
    sheet = requests.get(made["t.csv"]["file_url"], timeout=60)
    assert (sheet.text, sheet.headers["content-type"]) == ("written by code: t.csv\n", "text/csv")
    assert made["t.csv"]["id"].startswith("cfile_")
    page = requests.get(made["<b>.html"]["file_url"], timeout=60)
    assert page.headers["content-disposition"].startswith("attachment; filename=\"_b_.html\"; filename*=UTF-8''")
    assert any(one["media_type"] == "image/png" for one in made.values())

    model.plan({"items": [{"item": GENERATED}, {"text": "see"}]})
    assert files.run("Coder", {"message": "paint", "session_id": "paint"}).ok
    (painted,) = listed(files, "paint", "Coder")
    assert (painted["role"], requests.get(painted["file_url"], timeout=60).content) == ("assistant", PICTURE)
    requests.post(f"{model.control}/containers/expire", timeout=60)
    gone = requests.get(made["t.csv"]["file_url"], timeout=60)
    assert (gone.status_code, "does not provide" in gone.json()["detail"]) == (404, True)


def test_a_file_has_one_name(files: AgentHost):
    """The download has the name in the list, also when the file was last sent without one."""
    for part in ({"name": "i.png"}, {}):
        message = [{"type": "text", "text": "look"}, {"type": "image", "data": PIXEL, **part}]
        assert files.run("Reader", {"message": message, "session_id": "one-name"}).ok
    (file,) = listed(files, "one-name")
    read = requests.get(file["file_url"], timeout=60)
    assert (file["name"], read.headers["content-disposition"]) == ("i.png", 'inline; filename="i.png"')


def test_a_file_cannot_become_a_page_of_the_host(files: AgentHost):
    """Pages, scripts and what lies about its name and type are downloads that a browser neither runs nor guesses."""
    assert files.run("Hostile", {"message": "hi", "session_id": "evil"}).ok
    (file,) = listed(files, "evil", "Hostile")
    answers = [requests.get(file["file_url"], timeout=60)]
    for name, media_type in (("a.html", "text/html"), ("a.svg", "image/svg+xml"), ("a", "application/xhtml+xml")):
        (sent,) = upload(files, "evil", b"<script>" + name.encode(), name, media_type, agent="Hostile").json()["files"]
        answers.append(requests.get(sent["file_url"], timeout=60))
    for answer in answers:
        assert answer.status_code == 200
        assert answer.headers["content-disposition"].startswith("attachment; ")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in answer.headers["content-security-policy"]
        assert not {"set-cookie", "x-evil"} & {name.lower() for name in answer.headers}
    assert answers[0].headers["content-type"] == "application/octet-stream"
    (shown,) = upload(files, "evil", PICTURE, "a.png", agent="Hostile").json()["files"]
    assert requests.get(shown["file_url"], timeout=60).headers["content-disposition"].startswith("inline; ")


def test_a_file_has_an_etag_and_a_head(files: AgentHost):
    """What is known is not sent again, and HEAD tells the size."""
    (file,) = upload(files, "etag", b"some text", "a.txt").json()["files"]
    whole = requests.get(file["file_url"], timeout=60)
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    known = requests.get(file["file_url"], headers={"if-none-match": whole.headers["etag"]}, timeout=60)
    assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", whole.headers["etag"])
    head = requests.head(file["file_url"], timeout=60)
    assert (head.status_code, head.headers["content-length"], head.content) == (200, "9", b"")
    assert head.headers["etag"] == whole.headers["etag"]
    assert requests.head(file["file_url"][:-1] + "x", timeout=60).status_code == 404


def test_files_of_a_session_that_has_not_begun_are_deleted(files: AgentHost):
    """A deletion erases them and says so; once more, there is nothing to delete, and the name is free for a turn."""
    (file,) = upload(files, "unused", b"canary of a file", "a.txt").json()["files"]
    url = f"{files.url}/api/agents/Reader/sessions/unused"
    deletion = requests.delete(url, timeout=60)
    assert (deletion.status_code, deletion.json()["status"]) == (200, "deleted"), deletion.text
    assert (deletion.json()["erased"]["turns"], deletion.json()["erased"]["pieces"]) == (0, 2)
    assert [requests.get(place, timeout=60).status_code for place in (file["file_url"], f"{url}/files")] == [404, 404]
    assert requests.delete(url, timeout=60).status_code == 404
    assert files.run("Reader", {"message": "hi", "session_id": "unused"}).ok
    assert listed(files, "unused") == []


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({"type": "audio", "url": "https://example.org/a.wav"}, "by URL"),
        ({"type": "audio", "data": "YWJj", "media_type": "audio/ogg"}, "WAV or MP3"),
    ],
)
def test_what_the_service_never_takes_is_refused(files: AgentHost, model: PracticeModel, part, reason):
    """Audio that the model's service does not take is the caller's mistake; the model is not asked."""
    answer = files.run("Reader", {"message": [part], "session_id": "ogg"})
    assert (answer.status_code, reason in answer.json()["detail"]) == (400, True)
    assert model.requests() == []


def test_options_are_those_that_the_app_allows(files: AgentHost, model: PracticeModel):
    """An allowed option reaches the model and is recorded with the turn; another one is a 400 that names it."""
    options = {"temperature": 0.25, "model": "practice-2"}
    answer = files.run("Reader", {"message": "hi", "options": options, "session_id": "options"})
    assert answer.status_code == 200, answer.text
    body = model.requests()[-1]["body"]
    assert (body["temperature"], body["model"]) == (0.25, "practice-2")
    assert files.turn(answer)["options"] == options
    (asked, _) = files.state("Reader", "options")["data"]["conversationHistory"]
    assert asked["extensionData"]["durableAgentHost"]["options"] == options
    requests.delete(f"{files.management}/instances/{answer.headers['x-ms-turn-id']}", timeout=60)
    assert files.turn(answer)["options"] == options
    for agent, given, said in (
        ("Reader", {"temprature": 1}, "'temprature' is not allowed: did you mean 'temperature'"),
        ("Reader", {"model": "gpt-9"}, 'allowed are "practice", "practice-2"'),
        ("Strict", {"temperature": 1}, "this agent allows none"),
        ("Reader", ["temperature"], "an object"),
    ):
        refused = files.run(agent, {"message": "hi", "options": given})
        assert (refused.status_code, said in refused.json()["detail"]) == (400, True), refused.text


@pytest.mark.parametrize("file_id", ["..", ".", "a/../b", "a?b=c", "a#b"])
def test_what_would_be_another_path_is_no_id_of_a_file(files: AgentHost, file_id: str):
    """A message that names it is a 400 that says where."""
    part = {"type": "file", "file_id": file_id}
    answer = files.run("Reader", {"message": [{"type": "text", "text": "look"}, part], "session_id": "paths"})
    assert (answer.status_code, "part 2" in answer.text) == (400, True), answer.text


def test_what_a_document_names_as_another_path_is_not_there(files: AgentHost, model: PracticeModel):
    """The service's SDK refuses such a path, and the file is a 404."""
    model.plan({"text": "Here."})
    assert files.run("Reader", {"message": "look", "session_id": "to-change"}).ok
    document = files.get("/agents/Reader/sessions/to-change/export").json()
    note = {"type": "citation", "file_id": "..", "additional_properties": {"container_id": ".."}}
    cited = Content("text", text="Here.", annotations=[cast("Any", note)])
    answer = document["data"]["conversationHistory"][1]
    answer["messages"][0]["contents"] = [encode_content(cited)]
    answer.pop("extensionData", None)
    taken = files.post("/agents/Reader/sessions/changed/import", json.dumps(document).encode())
    assert taken.status_code == 201, taken.text
    (file,) = listed(files, "changed")
    connection = HTTPConnection(urlsplit(files.url).netloc, timeout=60)  # which leaves the path as it is
    connection.request("GET", "/api/agents/Reader/sessions/changed/files/%2e%2e")
    read = connection.getresponse()
    assert (file["id"], read.status) == ("..", 404), read.read()
    connection.close()


def memory_of(host: AgentHost) -> int:
    """Bytes of memory that the host's process has now."""
    status = Path(f"/proc/{host.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024


@pytest.mark.parametrize("what", ["file", "session"])
def test_clients_that_do_not_read_cost_little_memory(files: AgentHost, what: str):
    """Forty clients of 7 MB each hold a fraction of it; health answers meanwhile, and all bytes arrive in the end."""
    session = f"unread-{what}"
    body = os.urandom(7 << 20)
    if what == "file":
        path = f"/sessions/{session}/files/{upload(files, session, body).json()['files'][0]['id']}"
    else:
        text = base64.b64encode(body).decode()
        entry = {"$type": "request", "correlationId": "t", "createdAt": "2026-01-01T00:00:00+00:00"}
        entry["messages"] = [{"role": "user", "contents": [{"$type": "text", "text": text}]}]
        document = {"schemaVersion": "1.1.0", "data": {"conversationHistory": [entry]}}
        url = f"{files.url}/api/agents/Reader/sessions/{session}/import"
        assert requests.post(url, json=document, timeout=60).status_code == 201
        path = f"/sessions/{session}"
    whole = files.get(f"/agents/Reader{path}")
    assert whole.headers["content-length"] == str(len(whole.content))
    before = memory_of(files)
    clients = [unread(files, f"/api/agents/Reader{path}") for _ in range(40)]
    for client in clients:
        select.select([client], [], [], 60)  # the answer has begun
    assert files.get("/health").status_code == 200
    assert memory_of(files) - before < 150 << 20
    for client in clients:
        answer = HTTPResponse(client)
        answer.begin()
        assert hashlib.sha256(answer.read()).digest() == hashlib.sha256(whole.content).digest()
        client.close()


def unread(host: AgentHost, path: str) -> socket.socket:
    """Ask for a path, and do not read the answer."""
    address = urlsplit(host.url)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((address.hostname, address.port))
    client.settimeout(60)
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
    return client
