"""Apps that were written for upstream's class, after its samples 01 to 08: only the class is another one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests

from tests.durable_agent_host.test_scenarios_mcp import call
from tests.durable_agent_host.test_scenarios_orchestrations import wait_for_end
from tests.kit import AgentHost, PracticeModel, running_host
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "upstream_samples"


@pytest.fixture(scope="module")
def _host(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    folder = tmp_path_factory.mktemp("samples")
    (folder / "said.jsonl").write_text("")
    with running_host(folder / "data", practice_model, app=APP, LEDGER=str(folder / "said.jsonl")) as running:
        yield running


@pytest.fixture
def samples(_host: AgentHost, model: PracticeModel) -> AgentHost:
    """A host with the app."""
    return _host


def start_orchestration(host: AgentHost, name: str, body: Any) -> str:
    """Start an orchestration by the app's own route; gives where its status is."""
    response = requests.post(f"{host.url}/api/start/{name}", json=body)
    assert response.status_code == 202, response.text
    return response.json()["statusQueryGetUri"]


def verdict(*, spam: bool) -> dict[str, str]:
    """A step of the model: what the guard says."""
    return {"text": json.dumps({"is_spam": spam, "reason": "it offers millions"})}


def draft(content: str) -> dict[str, str]:
    """A step of the model: an article."""
    return {"text": json.dumps({"title": "T", "content": content})}


def test_01_a_single_agent(samples: AgentHost):
    """Text and JSON, sessions by session_id and thread_id in body and query, a number among them, and a 202."""
    plain = samples.run("Joker", "Tell me a joke.")
    assert plain.status_code == 200
    assert plain.headers["content-type"].startswith("text/plain")
    assert plain.headers["x-ms-session-id"]
    assert plain.text
    for names in ({"session_id": f"s-{uuid4().hex}"}, {"thread_id": f"t-{uuid4().hex}"}, {"session_id": 20251122}):
        first = samples.run("Joker", {"message": "one"} | names).json()
        assert first["status"] == "success"
        assert first["message_count"] == 2
        assert first["session_id"] == str(next(iter(names.values())))
        again = samples.run("Joker", {"message": "two"}, thread_id=first["session_id"])
        assert again.json()["message_count"] == 4
    later = samples.run("Joker", {"message": "later", "wait_for_response": False})
    assert later.status_code == 202
    assert {"message", "session_id", "correlation_id", "status"} <= later.json().keys()
    assert later.json()["status"] == "accepted"
    assert samples.run("Joker", "").status_code == 400
    assert samples.run("Joker", {"message": "m", "session_id": "a"}, session_id="b").status_code == 400


def test_02_several_agents_with_tools(samples: AgentHost, model: PracticeModel):
    """Each agent calls its own tools."""
    model.plan({"calls": [{"name": "weather_of", "arguments": '{"place":"Rome"}'}]}, {"text": "21 degrees."})
    assert samples.run("WeatherAgent", {"message": "Rome?"}).json()["response"] == "21 degrees."
    model.plan({"calls": [{"name": "tip", "arguments": '{"bill":50,"percent":20}'}]}, {"text": "It is 10."})
    assert samples.run("MathAgent", {"message": "Tip?"}).json()["response"] == "It is 10."
    outputs = [
        item["output"]
        for request in model.requests()
        for item in request["body"]["input"]
        if item["type"] == "function_call_output"
    ]
    assert [json.loads(output) for output in outputs] == [{"place": "Rome", "degrees": 21}, {"tip": 10.0}]


def test_03_a_callback_feeds_a_stream_of_the_app(samples: AgentHost, model: PracticeModel):
    """The app's callback hears every fragment and the end; its own route tells it from a cursor on."""
    model.plan({"text": "Day one is for the old town."}, user_text="plan-a-trip")
    later = samples.run("Joker", {"message": "plan-a-trip", "wait_for_response": False})
    assert later.status_code == 202
    url = f"{samples.url}/api/agent/stream/{later.json()['session_id']}"
    wait_until(lambda: "[DONE]" in requests.get(url).text)
    response = requests.get(url)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-conversation-id"] == later.json()["session_id"]
    events = response.text.strip().split("\n\n")
    text = "".join(event.partition("data: ")[2] for event in events if "event: message" in event)
    assert text == "Day one is for the old town."
    assert "event: done" in events[-1]
    remaining_events = requests.get(url, params={"cursor": "0"}).text.strip().split("\n\n")
    assert remaining_events == events[1:]


def test_04_an_orchestration_chains_calls(samples: AgentHost, model: PracticeModel):
    """The second call knows the first one's session and answer."""
    model.plan({"text": "Learning is good."}, {"text": "Learning is bliss."}, agent="You write.")
    assert wait_for_end(start_orchestration(samples, "chain", {}))["output"] == "Learning is bliss."
    second = json.dumps(model.requests()[1]["body"])
    assert "Improve this: Learning is good." in second


def test_05_an_orchestration_asks_two_agents_at_once(samples: AgentHost, model: PracticeModel):
    """Both answers come back, each from its agent."""
    model.plan({"text": "Motion."}, agent="You know physics.")
    model.plan({"text": "Reactions."}, agent="You know chemistry.")
    status = wait_for_end(start_orchestration(samples, "both", "What is temperature?"))
    assert status["output"] == {"physicist": "Motion.", "chemist": "Reactions."}


@pytest.mark.parametrize("spam", [True, False])
def test_06_an_orchestration_branches_on_a_structured_response(samples: AgentHost, model: PracticeModel, spam):
    """The agent's value has the type that was asked for, and decides which way it goes."""
    model.plan(verdict(spam=spam), agent="You detect spam.")
    model.plan(draft("Dear customer"), agent="You write.")
    status = wait_for_end(start_orchestration(samples, "sort_letter", {"content": "You have won"}))
    expected_output = "Email marked as spam: it offers millions" if spam else "Email sent: Dear customer"
    assert status["output"] == expected_output, status


def test_07_a_person_rejects_and_approves(samples: AgentHost, model: PracticeModel):
    """The orchestration waits with its status shown, rewrites after a rejection, and publishes after an approval."""
    model.plan(draft("First try"), draft("Second try"), agent="You write.")
    url = start_orchestration(samples, "reviewed", {"topic": "seas", "attempts": 3, "seconds": 600})
    approve = url.replace("/status/", "/approve/")

    def is_waiting(attempt: int) -> bool:
        return f"#{attempt}" in str(requests.get(url).json()["workflowStatus"])

    wait_until(lambda: is_waiting(1))
    assert requests.post(approve, json={"approved": False, "feedback": "More waves"}).ok
    wait_until(lambda: is_waiting(2))
    assert requests.post(approve, json={"approved": True, "feedback": ""}).ok
    status = wait_for_end(url)
    assert status["output"] == {"content": "Second try"}, status
    assert status["workflowStatus"] == "Content published."
    assert "Rewrite: More waves" in json.dumps(model.requests()[1]["body"])


def test_08_agents_are_mcp_tools(samples: AgentHost, model: PracticeModel):
    """One agent is a tool and a route, one a tool alone, the others are no tools."""
    model.plan({"text": "Buy a fern."}, agent="You advise on plants.")
    result = call(samples, "PlantAdvisor", query="Which plant?", sessionId="green")
    assert result["content"][0]["text"] == "Buy a fern."
    assert result["structuredContent"]["sessionId"] == "green"
    assert samples.run("PlantAdvisor", "hello").status_code == 404
    assert samples.run("StockAdvisor", {"message": "hello"}).status_code == 200
    response = requests.post(
        f"{samples.url}/runtime/webhooks/mcp",
        json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        headers={"accept": "application/json, text/event-stream"},
    )
    tools = {tool["name"]: tool for tool in json.loads(response.text.partition("data:")[2])["result"]["tools"]}
    assert set(tools) == {"StockAdvisor", "PlantAdvisor"}
    assert tools["PlantAdvisor"]["description"] == "Get plant recommendations."
    assert tools["PlantAdvisor"]["inputSchema"]["required"] == ["query"]
    assert {"query", "sessionId", "idempotencyKey"} == set(tools["PlantAdvisor"]["inputSchema"]["properties"])
