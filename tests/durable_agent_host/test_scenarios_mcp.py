"""Agents as MCP tools, over the host's MCP endpoint: a tool call is a turn."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests

from tests.kit import AgentHost, running_host

APP = Path(__file__).parent / "apps" / "mcp_tools"


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """A host with agents that are MCP tools; they need no model."""
    with running_host(tmp_path_factory.mktemp("mcp"), None, app=APP) as running:
        yield running


def call(host: AgentHost, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool and give the result."""
    response = requests.post(
        f"{host.url}/runtime/webhooks/mcp",
        json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}},
        headers={"accept": "application/json, text/event-stream"},
    )
    assert response.ok, response.text
    data = next(line for line in response.text.splitlines() if line.startswith("data:"))
    return json.loads(data.removeprefix("data:"))["result"]


def test_a_tool_call_is_a_turn_of_its_session(tools: AgentHost):
    """Calls with one sessionId are one conversation, which the HTTP routes show too."""
    assert call(tools, "Counting", query="first", sessionId="desk")["content"][0]["text"] == "1: first"
    assert call(tools, "Counting", query="second", sessionId="@Counting@desk")["content"][0]["text"] == "3: second"
    session = tools.session("Counting", "desk")
    assert session["message_count"] == 4
    assert [turn["status"] for turn in session["turns"]] == ["completed", "completed"]


def test_a_failed_turn_is_a_failed_tool_call(tools: AgentHost):
    """The client gets the reason immediately and does not wait for a timeout."""
    result = call(tools, "Failing", query="print", sessionId="paper")
    assert result["isError"] is True
    assert "the printer is on fire" in result["content"][0]["text"]
    assert tools.session("Failing", "paper")["message_count"] == 0


def test_a_tool_call_without_a_query_names_the_argument(tools: AgentHost):
    """The answer names the argument."""
    result = call(tools, "Counting", query=" ")
    assert result["isError"] is True
    assert "query" in result["content"][0]["text"]


@pytest.mark.parametrize(
    ("query", "reason"),
    [("half \ud83d", "unicode"), ("long " * 1_000_000, "4194304 are allowed"), (["hi"], "'query'")],
    ids=["half a character", "too long", "no text"],
)
def test_an_invalid_query_is_rejected(tools: AgentHost, query: Any, reason: str):
    """The call is rejected immediately with the reason that `run` gives; no session is created."""
    name = f"refused-{uuid4().hex}"
    result = call(tools, "Counting", query=query, sessionId=name)
    assert (result["isError"], reason in result["content"][0]["text"]) == (True, True), result
    assert tools.get(f"/agents/Counting/sessions/{name}").status_code == 404


def test_tool_calls_with_one_key_are_one_turn(tools: AgentHost):
    """A client that calls again under its idempotencyKey gets the first call's answer; another query is refused."""
    first = call(tools, "Counting", query="hello", sessionId="keyed", idempotencyKey="k-1")
    again = call(tools, "Counting", query="hello", sessionId="keyed", idempotencyKey="k-1")
    assert first["content"][0]["text"] == again["content"][0]["text"] == "1: hello"
    assert tools.session("Counting", "keyed")["message_count"] == 2
    other = call(tools, "Counting", query="other", sessionId="keyed", idempotencyKey="k-1")
    assert other["isError"] is True
    assert "k-1" in other["content"][0]["text"]


def test_a_result_names_its_session(tools: AgentHost):
    """A client that passed no session gets its id as text and as data, and continues the session with it."""
    first = call(tools, "Counting", query="hello")
    session = first["structuredContent"]["sessionId"]
    assert first["structuredContent"]["response"] == first["content"][0]["text"] == "1: hello"
    assert session in first["content"][1]["text"]
    assert call(tools, "Counting", query="again", sessionId=session)["content"][0]["text"] == "3: again"
    turns = [turn["turn_id"] for turn in tools.session("Counting", session)["turns"]]
    assert turns[0] == first["structuredContent"]["turnId"]


@pytest.mark.parametrize("name", ["sessionId", "threadId", "idempotencyKey"])
@pytest.mark.parametrize("value", [["x"], {"x": 1}, True])
def test_an_argument_that_is_no_text_names_nothing(tools: AgentHost, name: str, value: Any):
    """It is refused by its name, and not read as the text that Python writes of it."""
    result = call(tools, "Counting", query="hi", **{name: value})
    assert (result["isError"], f"'{name}'" in result["content"][0]["text"]) == (True, True), result


@pytest.mark.parametrize("key", ["k" * 256, "  "], ids=["too long", "blank"])
def test_an_invalid_idempotency_key_is_rejected(tools: AgentHost, key: str):
    """The same limits, in the same words."""
    result = call(tools, "Counting", query="hello", idempotencyKey=key)
    assert (result["isError"], "idempotencyKey has" in result["content"][0]["text"]) == (True, True)
    assert "isError" not in call(tools, "Counting", query="hello", idempotencyKey=key.strip()[:255] or "k")
