"""The gate: every way into the app asks it first, and goes on with the caller that it found."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from durable_agent_host.http.routes import ROUTES
from tests.kit import AgentHost, hosted

APP = Path(__file__).parent / "apps" / "gate"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
FILE = hashlib.sha256(b"hi").hexdigest()
SESSION = ["Echo", "desk"]
SESSION_OF = {"health.read": None, "agents.list": None, "sessions.list": ["Echo", None]}
"""Action → what the gate is asked about; the session for all others."""


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AgentHost, Path]]:
    """A host with an app whose gate notes what it is asked; there is one session with one turn."""
    ledger = tmp_path_factory.mktemp("gate") / "asked.txt"
    with hosted(tmp_path_factory.mktemp("data"), None, app=APP, LEDGER=str(ledger)) as running:
        assert running.run("Echo", "hi", session_id="desk", headers={"idempotency-key": "1"}).ok
        assert running.post("/agents/Echo/sessions/desk/files", b"hi", x_who="ada").ok
        yield running, ledger


def test_a_principal_has_a_rate_of_its_own(tmp_path: Path):
    """Who asks too often is told when to come back; other principals and health are answered meanwhile."""
    settings = {"LEDGER": str(tmp_path / "asked.txt"), "DURABLE_AGENT_HOST_REQUESTS_PER_SECOND": "0.2"}
    with hosted(tmp_path / "data", None, app=APP, **settings) as host:

        def ask(who: str) -> requests.Response:
            return requests.get(f"{host.url}/api/agents", headers={"x-who": who}, timeout=30)

        answers = [ask("ada") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert 0 < int(answers[-1].headers["Retry-After"]) <= 5
        assert ask("ben").status_code == 200
        assert all(host.get("/health").ok for _ in range(5))


def asked(ledger: Path) -> list[Any]:
    """What the gate was asked last."""
    return json.loads(ledger.read_text().splitlines()[-1])


def turn_of(host: AgentHost) -> str:
    return host.session("Echo", "desk")["turns"][0]["turn_id"]


def send(host: AgentHost, method: str, template: str, who: str) -> requests.Response:
    """Send a request to a route."""
    path = template.format(agent="echo", session="desk", turn=turn_of(host), file=FILE)
    query = {"session_id": "desk"} if template.endswith("/run") else {"history": "kept"}
    body = b"{}" if template.endswith(("fork", "import")) else b"hi"
    headers = {"x-who": who}
    return requests.request(method, f"{host.url}/api/{path}", params=query, data=body, headers=headers, timeout=60)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_every_route_asks_the_gate(gated: tuple[AgentHost, Path], route):
    """A caller without access gets 404 or 403, as the gate says, and nothing is done; others get the route's answer."""
    host, ledger = gated
    before = host.state("Echo", "desk")
    denied = send(host, route.method, route.template, "nobody")
    assert (denied.status_code, denied.headers["content-type"]) == (404, "application/problem+json")
    assert asked(ledger) == ["nobody", route.action, SESSION_OF.get(route.action, SESSION)]
    forbidden = send(host, route.method, route.template, "banned")
    assert forbidden.status_code == 403
    assert route.method == "HEAD" or forbidden.json()["detail"] == "you are banned"
    assert host.state("Echo", "desk") == before
    if route.action != "session.delete":
        assert send(host, route.method, route.template, "ada").status_code not in {403, 404}
        assert asked(ledger)[0] == "ada"


def call(host: AgentHost, who: str, **arguments: str) -> dict[str, Any]:
    """Call the agent as an MCP tool."""
    answer = requests.post(
        f"{host.url}/runtime/webhooks/mcp",
        json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "Echo", "arguments": arguments}},
        headers={"accept": "application/json, text/event-stream", "x-who": who, "traceparent": TRACE},
        timeout=60,
    )
    data = next(line for line in answer.text.splitlines() if line.startswith("data:"))
    return json.loads(data.removeprefix("data:"))["result"]


def test_an_mcp_tool_asks_the_gate(gated: tuple[AgentHost, Path]):
    """A tool call is a turn, and the gate is asked as for one; a call with a key asks for the session that it names."""
    host, ledger = gated
    assert call(host, "ada", query="hello", sessionId="tool")["content"][0]["text"] == "hello"
    assert asked(ledger) == ["ada", "turn.run", ["Echo", "tool"]]
    keyed = call(host, "ada", query="hello", idempotencyKey="k")["structuredContent"]["sessionId"]
    assert asked(ledger) == ["ada", "turn.run", ["Echo", keyed]]
    for who, said in (("nobody", "no session 'tool'"), ("banned", "you are banned")):
        result = call(host, who, query="again", sessionId="tool")
        assert result["isError"]
        assert said in result["content"][0]["text"]
    assert host.session("Echo", "tool")["message_count"] == 2


def test_routes_of_workflows_ask_the_gate(gated: tuple[AgentHost, Path]):
    """Upstream's routes do nothing for a caller without access; an app's own functions are its own matter."""
    host, ledger = gated
    url = f"{host.url}/api/workflow/shouting"

    def start(who: str) -> requests.Response:
        query, headers = {"wait_for_response": "true"}, {"x-who": who}
        return requests.post(f"{url}/run", params=query, data=b'"hi"', headers=headers, timeout=60)

    assert [start("nobody").status_code, start("banned").status_code] == [404, 403]
    assert asked(ledger) == ["banned", "workflow.run", ["shouting", None]]
    started = start("ada")
    assert started.ok, started.text
    for method, path, action in (
        ("GET", "status/run-1", "workflow.read"),
        ("POST", "respond/run-1/ask", "workflow.respond"),
    ):
        denied = requests.request(method, f"{url}/{path}", headers={"x-who": "banned"}, timeout=60)
        assert (denied.status_code, asked(ledger)) == (403, ["banned", action, ["shouting", "run-1"]])
    assert requests.get(f"{host.url}/api/own", headers={"x-who": "banned"}, timeout=60).text == "banned"


def request_of(host: AgentHost, turn_id: str) -> dict[str, Any]:
    """The input of a turn's orchestration."""
    status = requests.get(f"{host.management}/instances/{turn_id}", params={"showInput": "true"}, timeout=60).json()
    given = status["input"]
    return json.loads(given) if isinstance(given, str) else given


def test_a_turn_carries_its_caller(gated: tuple[AgentHost, Path]):
    """The turn's request has principal and trace of the caller; of an anonymous one without trace it has neither."""
    host, _ = gated
    known = {"principal": "ada", "traceparent": TRACE}
    answer = host.run("Echo", "hi", headers={"x-who": "ada", "TraceParent": TRACE})
    assert request_of(host, answer.headers["x-ms-turn-id"]).items() >= known.items()
    answer = host.run("Echo", "hi", headers={"traceparent": TRACE.upper()})
    assert not request_of(host, answer.headers["x-ms-turn-id"]).keys() & known.keys()
    tool = call(host, "ada", query="hi")["structuredContent"]
    assert request_of(host, tool["turnId"]).items() >= known.items()


def test_turns_of_an_orchestration_carry_its_caller(gated: tuple[AgentHost, Path]):
    """What an orchestration says of its caller goes on with the turns that it runs."""
    host, _ = gated
    known = {"principal": "ada", "traceparent": TRACE}
    status = host.orchestrate("pass_on", known)
    assert status["output"] == "hello", status
    listed = host.get("/agents/Echo/sessions").json()["sessions"]
    turns = [turn["turn_id"] for one in listed for turn in host.session("Echo", one["session_id"])["turns"]]
    carried = [request for turn in turns if (request := request_of(host, turn)).get("orchestration_id")]
    assert len(carried) == 1
    assert carried[0].items() >= known.items()
