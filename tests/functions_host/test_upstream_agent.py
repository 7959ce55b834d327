"""Upstream's AgentFunctionApp, unchanged, on this host."""

import json
import threading
from collections.abc import Iterator

import pytest

from tests.functions_host.conftest import MANAGEMENT, Host, StartHost


@pytest.fixture(scope="module")
def upstream(start_host: StartHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    running = start_host("upstream_agent", tmp_path_factory.mktemp("upstream") / "data")
    yield running
    running.stop()


def test_a_conversation_of_two_turns(upstream: Host):
    """The second turn on a session sees the messages of the first."""
    first = upstream.send("POST", "/api/agents/Teller/run", "one", Content_Type="text/plain")
    assert (first.status, first.text) == (200, '[1, "one"]')
    session = first.headers["x-ms-session-id"]
    second = upstream.send("POST", f"/api/agents/Teller/run?thread_id={session}", "two", Content_Type="text/plain")
    assert second.text == '[1, "two"]' or second.json[1] == "two"
    state = upstream.send("GET", f"{MANAGEMENT}/entities/dafx-Teller/{session}").json
    assert len(state["data"]["conversationHistory"]) >= 2


def test_a_slow_agent_does_not_hold_up_another_session(upstream: Host):
    """An entity that runs an agent for seconds leaves other sessions and routes alone."""
    body = {"Content_Type": "text/plain"}
    slow = threading.Thread(target=upstream.send, args=("POST", "/api/agents/Teller/run", "slow"), kwargs=body)
    slow.start()
    assert upstream.send("POST", "/api/agents/Other/run", "quick", **body).status == 200
    assert upstream.send("GET", "/api/health").json["agent_count"] == 2
    assert slow.is_alive()
    slow.join()


def test_an_orchestration_uses_the_durable_agent(upstream: Host):
    """``app.get_agent(context, …)`` works as upstream documents it."""
    output = upstream.result("two_turns")
    assert [text.split(", ", 1)[1] for text in output] == ['"one"]', '"two"]']


def test_an_agent_is_an_mcp_tool(upstream: Host):
    """The agent's tool is listed with its schema, and answers when called."""
    headers = {"Accept": "application/json, text/event-stream", "Content_Type": "application/json"}

    def ask(method: str, **params: object):
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        answer = upstream.send("POST", "/runtime/webhooks/mcp", body, **headers)
        return json.loads(answer.text.partition("data: ")[2])["result"]

    tools = {tool["name"]: tool for tool in ask("tools/list")["tools"]}
    assert set(tools) == {"Teller", "Other"}
    assert tools["Teller"]["inputSchema"]["properties"]["query"]["type"] == "string"
    result = ask("tools/call", name="Teller", arguments={"query": "by tool"})
    assert "isError" not in result, result
    assert "by tool" in result["content"][0]["text"]
