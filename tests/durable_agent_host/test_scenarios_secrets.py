"""Secrets that errors quote: they are in no database, answer, event, export or log line."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.durable_agent_host.hostile_model import (
    HostileModel,
    ReceivedRequest,
    events,
    hostile_model,
    http_response,
    stream,
)
from tests.durable_agent_host.hostile_model import response_events as spoken
from tests.durable_agent_host.stored_bytes import read_file_bytes
from tests.kit import AgentHost, running_host
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "providers"
CANARIES = {
    "MODEL_KEY": "canary1-0123456789abcdef0123456789",
    "DB_PASSWORD": "canary2",
    "SIGNING_SECRET": "canary3/with+odd=signs",
    "STORAGE": "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=canary4+abcdefgh==;EndpointSuffix=e",
    "UPSTREAM_URL": "https://someone:canary5pw@upstream.example/path",
}
SECRET_TEXTS = {
    "an OpenAI key": "sk-proj-canary6abcdefghijklmnop",
    "a bearer token": "Bearer canary7.abcdef.ghijkl",
    "a JSON web token": "eyJhbGciOiJIUzI1NiJ9.eyJjYW5hcnk4IjoxfQ.c2lnbmF0dXJlY2FuYXJ5OA",
    "an AWS key": "AKIACANARY9ABCDEFGHI",
    "a signed URL": "https://a.blob.core.windows.net/c?sv=2024&sig=canary10abc%2FdefABCDEFGHIJKLMN%3D",
    "a URL with a password": "redis://:canary11@cache.example:6379/0",
    "an Azure connection string": "Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey=canary12abcdefABCDEFGHIJ=",
    "a token of GitHub": "to=https%3A%2F%2Fx%2Fy%3Fkey%3Dghp_canary13abcdefghijklmnopqrstuvwxyz1",
    "a private key": "-----BEGIN PRIVATE KEY-----\ncanary14\ncanary15\n-----END PRIVATE KEY-----",
}
NEEDLES = [f"canary{index}" for index in range(1, 16)] + ["CANARY9", "eyJjYW5hcnk4IjoxfQ", "c2lnbmF0dXJlY2FuYXJ5OA"]


@pytest.fixture(scope="module")
def model() -> Iterator[HostileModel]:
    """The endpoint of the app's model."""
    with hostile_model() as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the host keeps its data."""
    return tmp_path_factory.mktemp("secrets")


@pytest.fixture(scope="module")
def host(model: HostileModel, folder: Path) -> Iterator[AgentHost]:
    """A host whose settings hold secrets."""
    more = {"DURABLE_AGENT_HOST_MODEL_ATTEMPTS": "2"}
    with running_host(folder, None, app=APP, MODEL_URL=model.url, **CANARIES, **more) as running:
        yield running


def echo(model: HostileModel, status: int) -> Any:
    """Script a refusal that quotes the request and all kinds of secrets."""

    def send(write: Any) -> None:
        request: ReceivedRequest = model.received[-1]
        keys = {name: value for name, value in request.headers.items() if "canary" in value}
        message = f"refused: {keys} {CANARIES} {SECRET_TEXTS}"
        write(
            http_response(json.dumps({"error": {"message": message, "type": "x", "code": "y"}}).encode(), status=status)
        )

    return send


def read_views(host: AgentHost, agent: str, session: str, reply: requests.Response) -> str:
    """Read everything that the host shows of a turn and its session."""
    turn = f"/agents/{agent}/sessions/{session}/turns/{reply.headers['x-ms-turn-id']}"
    paths = (f"/agents/{agent}/sessions/{session}", f"/agents/{agent}/sessions", turn, f"{turn}/events", "/health")
    texts = [host.get(path).text for path in paths]
    instance = reply.headers["x-ms-turn-id"]
    queries = ("?showInput=true&showHistory=true&showHistoryOutput=true", "")
    texts += [requests.get(f"{host.management}/instances/{instance}{query}").text for query in queries]
    return "\n".join([reply.text, str(reply.headers), *texts, json.dumps(host.state(agent, session))])


def assert_nowhere(host: AgentHost, folder: Path, visible_text: str) -> None:
    """Look for every canary in what was shown, in the log and in every file."""
    sources = {"shown": visible_text.encode(), "log": "".join(host.output).encode()}
    sources |= {str(path): read_file_bytes(path) for path in folder.rglob("*") if path.is_file()}
    assert [(needle, source) for needle in NEEDLES for source, data in sources.items() if needle.encode() in data] == []


@pytest.mark.drawn(4)
@pytest.mark.parametrize(
    ("agent", "status"),
    [
        *(("Responses", status) for status in (400, 401, 429, 503)),
        *((agent, 401) for agent in ("Azure", "Completions", "Claude", "Gemini")),
    ],
)
def test_a_service_that_quotes_what_it_was_sent(
    host: AgentHost, model: HostileModel, folder: Path, agent: str, status: int
):
    """A refusal with the key in it fails the turn with the reason, and without the key."""
    model.play(fallback=echo(model, status))
    reply = host.run(agent, "Hello", session_id=f"echo-{status}")
    assert reply.status_code == 502
    assert f"{status}" in reply.json()["detail"]
    assert any("canary1" in value for value in model.received[-1].headers.values())
    assert_nowhere(host, folder, read_views(host, agent, f"echo-{status}", reply))


def test_a_service_that_quotes_secrets_in_its_stream(host: AgentHost, model: HostileModel, folder: Path):
    """An event that tells of a failure is no way around."""
    failure = {"type": "error", "code": "server_error", "message": f"{SECRET_TEXTS} {CANARIES}", "sequence_number": 9}
    model.play(fallback=stream(events(*spoken("Hi")[:4], failure)))
    reply = host.run("Responses", "Hello", session_id="quoted")
    assert reply.status_code == 502
    assert_nowhere(host, folder, read_views(host, "Responses", "quoted", reply))


@pytest.mark.parametrize("agent", ["Responses", "Completions"])
def test_a_tool_that_raises_with_a_password_in_its_text(host: AgentHost, model: HostileModel, folder: Path, agent: str):
    """The model gets that the tool failed, which is stored and displayed; the log has the text without the password."""
    model.play(build_call(agent, "connect", "{}"), build_apology(agent))
    reply = host.run(agent, "Connect", session_id="tool")
    assert reply.text == "Sorry."
    visible_text = read_views(host, agent, "tool", reply)
    assert "Function failed" in visible_text
    assert "db.example" not in visible_text
    assert "Function failed" in model.received[-1].body.decode()
    assert "postgres://admin:[redacted]@db.example/orders" in "".join(host.output)
    assert_nowhere(host, folder, visible_text)
    assert not [path for path in folder.rglob("*") if path.is_file() and b"db.example" in path.read_bytes()]


def test_a_tool_that_fails_is_found_by_its_traceback(host: AgentHost, model: HostileModel):
    """The log has it with file and line of the app, and so has the step, without the words of the exception."""
    agent = "Responses"
    model.play(build_call(agent, "connect", "{}"), build_apology(agent))
    reply = host.run(agent, "Connect", session_id="trace")
    log = "".join(host.output)
    assert 'function_app.py", line 20, in connect' in log
    assert "run_tool.py" not in log.partition("tool connect failed")[2].partition("ConnectionError\n")[0]
    assert log.count("ConnectionError: cannot connect") == log.count("tool connect failed")
    steps = host.get(f"/agents/{agent}/sessions/trace/turns/{reply.headers['x-ms-turn-id']}/steps").json()["steps"]
    (tool,) = [step for step in steps if step["kind"] == "tool_call"]
    location = {"type": "ConnectionError", "file": "function_app.py", "line": 20, "function": "connect"}
    assert (tool["outcome"], tool["raised"]) == ("error", location)
    assert "db.example" not in json.dumps(steps)


def test_a_long_exception_is_logged_in_part(host: AgentHost, model: HostileModel):
    """The log has some thousand characters of the exception, and says how many more there were."""
    model.play(build_call("Responses", "quote", "{}"), build_apology("Responses"))
    assert host.run("Responses", "Quote", session_id="page").text == "Sorry."
    (line,) = [line for line in host.output if "tool quote failed" in line]
    assert len(line) < 4_300
    assert line.rstrip().endswith("... (60,023 characters more)")


def test_an_invalid_query_is_quoted_in_part(host: AgentHost):
    """The caller gets the reason and what to send, in a short message."""
    response = host.get(f"/agents/Responses/sessions?status={'a.' * 5000} ://x@")
    assert response.status_code == 400
    assert len(response.json()["detail"]) < 900
    assert "separated by commas" in response.json()["detail"]


def test_invalid_arguments_are_reported_without_their_text(host: AgentHost, model: HostileModel, folder: Path):
    """What a validator says is one line of the log: nothing of the app has failed."""
    model.play(build_call("Responses", "no_arguments", '{"number": "many"}'), build_apology("Responses"))
    seen = len(host.output)
    reply = host.run("Responses", "Count", session_id="arguments")
    assert reply.text == "Sorry."
    visible_text = read_views(host, "Responses", "arguments", reply)
    assert "Argument parsing failed" in visible_text
    assert "validation error" not in visible_text
    wait_until(lambda: "no_arguments failed" in "".join(host.output[seen:]))
    assert "Traceback" not in "".join(host.output[seen:])
    assert_nowhere(host, folder, visible_text)


def test_an_export_holds_no_secret(host: AgentHost, model: HostileModel, folder: Path):
    """What the command line writes is what is stored."""
    model.play(build_call("Responses", "connect", "{}"), build_apology("Responses"))
    assert host.run("Responses", "Connect", session_id="export").ok
    command = [str(Path(sys.executable).parent / "durable-agent-host"), "sessions", "export", "Responses", "export"]
    done = subprocess.run([*command, "--url", host.url], capture_output=True, text=True, timeout=60, check=False)
    assert "Function failed" in done.stdout, done.stderr
    assert_nowhere(host, folder, done.stdout + done.stderr)


def build_call(agent: str, name: str, arguments: str) -> bytes:
    """Write an answer that calls a tool."""
    if agent == "Completions":
        call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
        choice = {"index": 0, "delta": {"role": "assistant", "tool_calls": [call]}, "finish_reason": "tool_calls"}
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        return stream(events(chunk, "[DONE]"))
    item = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": name, "arguments": arguments}
    created_event, *_, completed_event = spoken("x")
    final_response = completed_event["response"] | {"output": [item | {"status": "completed"}]}
    event_list = [
        created_event,
        {"type": "response.output_item.added", "output_index": 0, "item": item | {"arguments": "", "status": "x"}},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "item_id": "fc_1", "delta": arguments},
        {"type": "response.output_item.done", "output_index": 0, "item": final_response["output"][0]},
        {"type": "response.completed", "response": final_response},
    ]
    return stream(
        events(*(event | {"sequence_number": sequence_number} for sequence_number, event in enumerate(event_list)))
    )


def build_apology(agent: str) -> bytes:
    """Write an answer that says sorry."""
    if agent == "Completions":
        choice = {"index": 0, "delta": {"content": "Sorry."}, "finish_reason": "stop"}
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        return stream(events(chunk, "[DONE]"))
    return stream(events(*spoken("Sorry.", "resp_2")))
