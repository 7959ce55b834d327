"""Agents behind the embedded host's edge: foreign pages, bodies that nobody reads, URLs under the host's own name."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.kit import ROOT, AgentHost, running_host

APP = Path(__file__).parent / "apps" / "routes"
MEBIBYTE = 1 << 20
FOREIGN = {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"}
LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.fixture(scope="module")
def open_agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """A host with an app whose agents ask for no key."""
    with running_host(tmp_path_factory.mktemp("routes"), None, app=APP) as running:
        yield running


def test_agents_without_keys_stay_closed_to_foreign_pages(open_agents: AgentHost):
    """The host lets any page call anonymous functions, as Core Tools do; the routes of agents are not for them."""
    session = f"{open_agents.url}/api/agents/Echo/sessions/s"
    text = {"content-type": "text/plain"}
    for method, url in [
        ("POST", f"{open_agents.url}/api/agents/Echo/run?session_id=s"),
        ("POST", f"{session}/import"),
        ("POST", f"{session}/fork"),
        ("POST", f"{session}/repair"),
        ("GET", session),
        ("GET", f"{open_agents.url}/api/health"),
        ("DELETE", session),
        ("POST", f"{open_agents.management}/orchestrators/agent_turn/t"),
        ("POST", f"{open_agents.management}/entities/dafx-Echo/s?op=reset"),
    ]:
        answer = requests.request(method, url, data="hi", headers=FOREIGN | text, timeout=60)
        assert answer.status_code == 403, url
        assert "Host.CORS" in answer.json()["detail"]
    assert requests.get(session, timeout=60).status_code == 404
    assert requests.post(f"{open_agents.url}/api/threaded", json=[1], headers=FOREIGN, timeout=60).status_code == 200
    assert requests.get(f"{open_agents.url}/api/agents", headers=LINK, timeout=60).status_code == 403


def test_links_lead_to_agents_that_ask_for_keys(tmp_path: Path):
    """As those of the app of this repository do: reads are shown to a person who follows a link, turns are not run."""
    env = {"OPENAI_API_KEY": "none", "OPENAI_MODEL": "none", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    with running_host(tmp_path / "data", None, app=ROOT, **env) as host:
        assert requests.get(f"{host.url}/api/agents", headers=LINK, timeout=60).status_code == 200
        run = f"{host.url}/api/agents/BugRepro/run"
        assert requests.post(run, data="hi", headers=LINK, timeout=60).status_code == 403
        assert requests.post(run, data="hi", headers={"Origin": "null"}, timeout=60).status_code == 403
        assert requests.post(run, data="hi", headers={"Host": "evil.example"}, timeout=60).status_code == 421


def test_a_document_may_be_larger_than_a_message(open_agents: AgentHost):
    """An import takes more than `run` does: what is refused here is no document, and not too large."""
    body = b" " * (5 * MEBIBYTE) + b"{}"
    assert open_agents.post("/agents/Echo/sessions/large/import", body).status_code == 400
    assert open_agents.post("/agents/Echo/run", body).status_code == 413
