"""Redaction wherever a turn leaves something: other stores, traces, history providers, MCP, forks, values."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from agent_framework import Agent
from azure.storage.blob import BlobServiceClient
from redis import Redis

from durable_agent_host import DurableAgentApp, redact_secrets
from durable_agent_host.errors import RegistrationError
from durable_agent_host.providers.openai import chat_client_from_environment
from tests.durable_agent_host.stored_bytes import read_all_bytes
from tests.durable_agent_host.test_scenarios_mcp import call
from tests.durable_agent_host.test_scenarios_redaction import (
    APP,
    MASK,
    MESSAGE,
    MODEL_SECRETS,
    SECRETS,
    SPOKEN,
    leaks,
    read_views,
    run_streamed,
    sent,
)
from tests.kit import AgentHost, PracticeModel, running_host
from tests.kit_histories import Notebook
from tests.kit_services import turn_log_of
from tests.otlp import Receiver
from tests.processes import wait_until

SCHEMA = {
    "type": "object",
    "properties": {"mail": {"type": "string"}},
    "required": ["mail"],
    "additionalProperties": False,
}


def read_store(kind: str, env: dict[str, str]) -> bytes:
    """Read all that Redis or the storage account holds now."""
    if kind == "redis":
        with contextlib.closing(Redis.from_url(env["DURABLE_AGENT_HOST_TURN_LOG"])) as client:
            entries = [
                client.xrange(key) if client.type(key) == b"stream" else client.dump(key) for key in client.scan_iter()
            ]
        return "\n".join(map(str, entries)).encode()
    with BlobServiceClient.from_connection_string(env["AzureWebJobsStorage"]) as service:
        blobs = []
        for container in service.list_containers():
            client = service.get_container_client(container.name)
            blobs += [client.download_blob(name).readall() for name in client.list_blob_names()]
    return b"\n".join(blobs)


@pytest.mark.drawn(1)
@pytest.mark.parametrize("kind", ["redis", "blob"])
def test_other_stores_and_traces_keep_nothing(
    practice_model: PracticeModel, model: PracticeModel, tmp_path: Path, kind
):
    """A turn log in another store has the texts until the turn has ended; traces and events are redacted."""
    files, session = tmp_path / "files", uuid4().hex
    settings = {"LEDGER": str(tmp_path / "ledger"), "HOLDER": SECRETS["holder"], "IN_ERROR": SECRETS["error"]}
    (tmp_path / "service").mkdir()
    with Receiver() as receiver, turn_log_of(kind, tmp_path / "service") as env:
        settings |= receiver.environment(ENABLE_SENSITIVE_DATA="true", FILES=str(files)) | env
        settings |= {"DURABLE_AGENT_HOST_SEGMENTS": "blob"} if kind == "blob" else {}
        with running_host(tmp_path / "data", practice_model, app=APP, **settings) as host:
            model.plan(*SPOKEN)
            reader, events = run_streamed(host, "Teller", MESSAGE, session)
            assert reader.last is not None
            assert reader.names()[-1] == "turn.completed"
            check_history(host, model, files)
            assert leaks(read_store(kind, env)) == []
            assert leaks(events + read_views(host, "Teller", session)) == []
            turn_id = reader.last.data["turn_id"]
            wait_until(lambda: any(span.name == "invoke_agent Teller" for span in receiver.spans(turn_id)))
            spans = "\n".join(map(str, receiver.spans(turn_id)))
            assert "It is [redacted], says [redacted]" in spans
            assert leaks(spans.encode()) == []
            wait_until(lambda: any("It is [redacted], says [redacted]" in line.text for line in receiver.lines))
            assert leaks("\n".join(line.text for line in receiver.lines).encode()) == []
            output = "".join(host.output)
        assert leaks(read_all_bytes(tmp_path / "data") + output.encode()) == []


def check_history(host: AgentHost, model: PracticeModel, files: Path) -> None:
    """A history provider gets what is kept: what was said, and what another provider has laid before the model."""
    model.reset()
    model.plan(*SPOKEN, {"text": "Fine."})
    session = uuid4().hex
    assert host.run("Filed", {"message": MESSAGE, "session_id": session}).status_code == 200
    assert set(leaks(sent(model))) >= {"message", "holder", "arguments"}
    assert f"The file says {MASK}." in read_all_bytes(files).decode()
    views = json.dumps([host.session("Filed", session), host.state("Filed", session)])
    assert leaks(read_all_bytes(files) + views.encode()) == []
    model.reset()
    model.plan({"text": "Fine."})
    assert host.run("Filed", {"message": "And now?", "session_id": session}).status_code == 200
    assert set(leaks(sent(model))) == {"holder"}, "what is laid before the model now"


@pytest.fixture(scope="module")
def _host(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    folder = tmp_path_factory.mktemp("redaction-places")
    settings = {"LEDGER": str(folder / "ledger"), "HOLDER": SECRETS["holder"], "IN_ERROR": SECRETS["error"]}
    with running_host(folder / "data", practice_model, app=APP, **settings) as running:
        yield running


@pytest.fixture
def host(_host: AgentHost, model: PracticeModel) -> AgentHost:
    """A host that keeps its turn log in SQLite."""
    return _host


def test_mcp_clients_get_it_redacted(host: AgentHost, model: PracticeModel):
    """The result of a tool call, and the problem of one that fails, say what is kept."""
    error = {"error": {"status": 400, "code": "bad", "message": f"{SECRETS['model error']} is no temperature"}}
    model.plan(*SPOKEN, error)
    results = [call(host, "Teller", query=MESSAGE, sessionId=(session := uuid4().hex)) for _ in range(2)]
    assert f"It is {MASK}, says {MASK}" in results[0]["content"][0]["text"]
    assert results[1]["isError"] is True
    assert leaks(json.dumps(results).encode() + read_views(host, "Teller", session)) == []
    assert set(leaks(sent(model))) >= MODEL_SECRETS - {"answer", "citation", "logs"}


def test_structured_responses_and_forks_are_redacted(host: AgentHost, model: PracticeModel):
    """A structured value is redacted like its text; a fork and its model get the redacted conversation."""
    model.plan({"text": json.dumps({"mail": SECRETS["answer"]})})
    body = {"message": MESSAGE, "session_id": (session := uuid4().hex), "response_format": SCHEMA}
    response = host.run("Teller", body)
    assert (response.status_code, response.json()["value"]) == (200, {"mail": MASK})
    fork = host.post(f"/agents/Teller/sessions/{session}/fork", b"{}")
    assert fork.ok, fork.text
    fork_id = fork.json()["session_id"]
    model.reset()
    model.plan({"text": "Fine."})
    again = host.run("Teller", {"message": "And now?", "session_id": fork_id})
    assert again.status_code == 200
    assert leaks(response.content + fork.content + again.content + read_views(host, "Teller", fork_id)) == []
    assert leaks(sent(model)) == []
    assert MASK.encode() in sent(model)


def test_a_provider_that_saves_each_message_immediately_is_rejected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """It would be given what is not to be kept, so such an agent is not hosted with redaction."""
    monkeypatch.setenv("OPENAI_API_KEY", "practice")
    monkeypatch.setenv("OPENAI_MODEL", "practice")
    agent = Agent(
        chat_client_from_environment(),
        name="Filed",
        context_providers=[Notebook(tmp_path, "notebook")],
        require_per_service_call_history_persistence=True,
    )
    with pytest.raises(RegistrationError, match="before it can be redacted"):
        DurableAgentApp(agents=[agent], redact=redact_secrets)
    DurableAgentApp(agents=[agent])
