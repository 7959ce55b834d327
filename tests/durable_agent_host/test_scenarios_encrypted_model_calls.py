"""Model calls are kept over every client, and nothing of them can be read in the files of an app that encrypts."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.durable_agent_host.scripted_service import ScriptedService, scripted_service
from tests.durable_agent_host.test_scenarios_model_calls import call_of, calls_of, turn_url
from tests.durable_agent_host.test_scenarios_other_providers import AGENTS, OTHERS_APP, calling, saying
from tests.kit import AgentHost, running_host

KEYS = "DURABLE_AGENT_HOST_ENCRYPTION_KEYS"
CANARY = "canary-of-calls-4712"


@pytest.fixture(scope="module")
def service() -> Iterator[ScriptedService]:
    """The service of the agents' clients."""
    with scripted_service() as service:
        yield service


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the host's data."""
    return tmp_path_factory.mktemp("calls")


@pytest.fixture(scope="module")
def host(service: ScriptedService, folder: Path) -> Iterator[AgentHost]:
    """An app that encrypts what it stores."""
    env = {"SERVICE_URL": service.url, "LEDGER": str(folder.parent / "ledger.txt")}
    with running_host(
        folder, None, app=OTHERS_APP, **env, **{KEYS: f"k={base64.b64encode(bytes(32)).decode()}"}
    ) as running:
        yield running


@pytest.mark.drawn(2)
@pytest.mark.parametrize("agent", AGENTS)
def test_model_calls_of_every_client_are_recorded(host: AgentHost, service: ScriptedService, folder: Path, agent):
    """Two turns with a tool: the bodies are those that the service got, the answers have what it said."""
    texts = [f"{CANARY} first {agent}", f"{CANARY} second {agent}", f"{CANARY} third {agent}"]
    urls: list[str] = []
    for responses in (
        [calling(agent, "look_up", {"word": texts[0]}), saying(agent, texts[1])],
        [saying(agent, texts[2])],
    ):
        service.play(*responses)
        body = {"message": f"{CANARY} asks", "session_id": f"calls-{agent}"}
        urls.append(turn_url(host, host.run(agent, body)))
    summaries = [(url, summary) for url in urls for summary in calls_of(url)]
    assert [(summary["outcome"], summary["status"]) for _, summary in summaries] == [("completed", 200)] * 3
    calls = [call_of(url, summary["name"]) for url, summary in summaries]
    assert [json.loads(call["request"]["text"]) for call in calls] == service.bodies[-3:]
    for call, text in zip(calls, texts, strict=True):
        assert text in call["answer"]["text"].replace(chr(92), ""), call
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert len(files) > 3
    assert not [str(file) for file in files if CANARY.encode() in file.read_bytes()]
