"""Model calls are kept over every client, and nothing of them can be read in the files of an app that encrypts."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.durable_agent_host.scripted import ScriptedService, scripted_service
from tests.durable_agent_host.test_scenarios_model_calls import call_of, calls_of, turn_url
from tests.durable_agent_host.test_scenarios_other_providers import AGENTS, OTHERS, calling, saying
from tests.kit import AgentHost, running_host

KEYS = "DURABLE_AGENT_HOST_ENCRYPTION_KEYS"
CANARY = "canary-of-calls-4712"


@pytest.fixture(scope="module")
def served() -> Iterator[ScriptedService]:
    """The service of the agents' clients."""
    with scripted_service() as service:
        yield service


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the host's data."""
    return tmp_path_factory.mktemp("calls")


@pytest.fixture(scope="module")
def host(served: ScriptedService, folder: Path) -> Iterator[AgentHost]:
    """An app that encrypts what it stores."""
    env = {"SERVICE_URL": served.url, "LEDGER": str(folder.parent / "ledger.txt")}
    with running_host(
        folder, None, app=OTHERS, **env, **{KEYS: f"k={base64.b64encode(bytes(32)).decode()}"}
    ) as running:
        yield running


@pytest.mark.parametrize("agent", AGENTS)
def test_requests_and_answers_of_every_client_are_kept(host: AgentHost, served: ScriptedService, folder: Path, agent):
    """Two turns with a tool: the bodies are those that the service got, the answers have what it said."""
    words = [f"{CANARY} first {agent}", f"{CANARY} second {agent}", f"{CANARY} third {agent}"]
    urls: list[str] = []
    for answers in (
        [calling(agent, "look_up", {"word": words[0]}), saying(agent, words[1])],
        [saying(agent, words[2])],
    ):
        served.play(*answers)
        asked = {"message": f"{CANARY} asks", "session_id": f"calls-{agent}"}
        urls.append(turn_url(host, host.run(agent, asked)))
    listed = [(url, one) for url in urls for one in calls_of(url)]
    assert [(one["outcome"], one["status"]) for _, one in listed] == [("completed", 200)] * 3
    calls = [call_of(url, one["name"]) for url, one in listed]
    assert [call["request"]["body"] for call in calls] == served.bodies[-3:]
    for call, said in zip(calls, words, strict=True):
        shown = requests.get(call["answer"]["url"], timeout=30).text
        assert said in shown.replace(chr(92), ""), shown
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert len(files) > 3
    assert not [str(file) for file in files if CANARY.encode() in file.read_bytes()]


@pytest.mark.parametrize("agent", AGENTS)
def test_a_refused_call_of_every_client_shows_what_the_service_said(host: AgentHost, agent):
    """A service that fails is a failed call with its status, and the request is there."""
    refused = host.run(agent, {"message": f"{CANARY} asks", "session_id": f"refused-{agent}"})
    assert refused.status_code == 502, refused.text
    headers = refused.headers
    url = f"{host.url}/api/agents/{agent}/sessions/refused-{agent}/turns/{headers['x-ms-turn-id']}"
    calls = calls_of(url)
    assert calls
    assert {(one["outcome"], one["status"]) for one in calls} == {("failed", 500)}
    assert CANARY in str(call_of(url, calls[-1]["name"])["request"]["body"])
