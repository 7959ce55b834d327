"""Agents behind the embedded host's edge: foreign pages, bodies that nobody reads, URLs under the host's own name."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.kit import ROOT, AgentHost, hosted

APP = Path(__file__).parent / "apps" / "routes"
MEBIBYTE = 1 << 20
FOREIGN = {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"}
LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@pytest.fixture(scope="module")
def open_agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """A host with an app whose agents ask for no key."""
    with hosted(tmp_path_factory.mktemp("routes"), None, app=APP) as running:
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
    with hosted(tmp_path / "data", None, app=ROOT, **env) as host:
        assert requests.get(f"{host.url}/api/agents", headers=LINK, timeout=60).status_code == 200
        run = f"{host.url}/api/agents/BugRepro/run"
        assert requests.post(run, data="hi", headers=LINK, timeout=60).status_code == 403
        assert requests.post(run, data="hi", headers={"Origin": "null"}, timeout=60).status_code == 403
        assert requests.post(run, data="hi", headers={"Host": "evil.example"}, timeout=60).status_code == 421


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_urls_are_under_a_name_of_the_host(open_agents: AgentHost, name: str):
    """Turn URLs have the name that the caller used, among the host's own; another's name gets none."""
    port = open_agents.url.rpartition(":")[2]
    run = f"{open_agents.url}/api/agents/Echo/run"
    no_wait = {"x-ms-wait-for-response": "false"}
    answer = requests.post(run, json={"message": "hi"}, headers={"Host": f"{name}:{port}"} | no_wait, timeout=60)
    assert answer.status_code == 202
    urls = re.findall(r"http://[^/\"]+", answer.text)
    assert urls
    assert set(urls) == {f"http://{name}:{port}"}
    refused = requests.post(run, json={"message": "hi"}, headers={"Host": "evil.example"} | no_wait, timeout=60)
    assert refused.status_code == 421
    assert "http://evil" not in refused.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "health", b"200"), ("GET", "agents", b"200"), ("POST", "agents/Echo/run", b"413")],
)
def test_a_body_that_nobody_asked_for_is_not_kept(open_agents: AgentHost, method: str, path: str, status: bytes):
    """A GET does not read its body, and other routes no more than they are allowed; memory stays as it was."""
    before = peak_of(open_agents)
    head = f"{method} /api/{path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    received = b""
    with socket.create_connection(("127.0.0.1", int(open_agents.url.rpartition(":")[2])), timeout=60) as connection:
        try:
            connection.sendall(head.encode())
            for _ in range(1600):
                connection.sendall(chunk)
        except ConnectionError:
            pass
        received = connection.recv(65536)
    assert received[9:12] == status
    assert peak_of(open_agents) - before < 32 * MEBIBYTE


def test_a_document_may_be_larger_than_a_message(open_agents: AgentHost):
    """An import takes more than `run` does: what is refused here is no document, and not too large."""
    body = b" " * (5 * MEBIBYTE) + b"{}"
    assert open_agents.post("/agents/Echo/sessions/large/import", body).status_code == 400
    assert open_agents.post("/agents/Echo/run", body).status_code == 413


def peak_of(host: AgentHost) -> int:
    """The most memory that the process has had, in bytes."""
    status = Path(f"/proc/{host.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024
