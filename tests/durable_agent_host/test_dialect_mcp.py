"""MCP: its own clients find the agents, call them as tools, answer what they wait for, and read their sessions."""

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests
import yaml
from mcp import Client
from mcp_types import ElicitRequestParams, ElicitResult

from tests.kit import AgentHost, PracticeModel, running_host, start_host
from tests.kit_services import SERVICES, unavailable

APP = Path(__file__).parent / "apps" / "people"
MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
TASKS = {"extensions": {META + "tasks": {}}}
PAY = {"calls": [{"name": "pay", "arguments": {"amount": 3}}]}
SLOW = {"text": "And then. " * 900, "delay_milliseconds": 30, "chunk_characters": 10}


@pytest.fixture(scope="module")
def _site(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    folder = tmp_path_factory.mktemp("mcp")
    with running_host(folder / "data", practice_model, app=APP, LEDGER=str(folder / "ledger.txt")) as host:
        yield host


@pytest.fixture
def site(_site: AgentHost, model: PracticeModel) -> AgentHost:
    """A host with agents whose tools need a person."""
    return _site


def send(site: AgentHost, method: str, *, can: Mapping[str, Any] = {}, **params: Any) -> requests.Response:
    """Send a request of the newest revision; the answer is not read."""
    meta = {META + "protocolVersion": MODERN, META + "clientCapabilities": can, "progressToken": "p"}
    headers = {"mcp-protocol-version": MODERN, "mcp-method": method}
    if target := next((params[name] for name in ("name", "uri", "taskId") if name in params), ""):
        headers["mcp-name"] = target
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params | {"_meta": meta}}
    return requests.post(f"{site.url}/api/mcp", json=body, headers=headers, stream=True)


def result_of(response: requests.Response) -> dict[str, Any]:
    """Read the result, which is the last message of a stream."""
    lines = response.text.splitlines()
    body = next((line.removeprefix("data: ") for line in reversed(lines) if line.startswith("data: ")), response.text)
    return json.loads(body)["result"]


def call(site: AgentHost, query: str, *, can: Mapping[str, Any] = {}, **fields: Any) -> dict[str, Any]:
    """Call the tool Payer."""
    arguments = {"query": query, **fields.pop("arguments", {})}
    return result_of(send(site, "tools/call", can=can, name="Payer", arguments=arguments, **fields))


@pytest.mark.parametrize(("mode", "version"), [("auto", MODERN), ("legacy", "2025-11-25")])
def test_the_client_for_python_calls_an_agent(site: AgentHost, model: PracticeModel, mode: Any, version: str):
    """It negotiates, finds the tools, follows the progress, and answers the question before the payment."""
    model.plan(PAY, {"text": "Paid."})
    model.plan(PAY, {"text": "Not paid."})
    asked: list[str] = []
    progress: list[tuple[float, str | None]] = []
    answers = [ElicitResult(action="accept", content={"approved": True}), ElicitResult(action="decline")]

    async def answer(context: object, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        return answers.pop(0)

    async def note(fraction: float, total: float | None, message: str | None) -> None:
        progress.append((fraction, message))

    async def use() -> tuple[str, list[str], list[Any]]:
        async with Client(f"{site.url}/api/mcp", mode=mode, elicitation_callback=answer) as client:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            results = [
                await client.call_tool("Payer", {"query": f"{mode} {word}"}, progress_callback=note)
                for word in ("yes", "no")
            ]
            return client.protocol_version, tools, results

    negotiated, tools, results = asyncio.run(use())
    assert (negotiated, {"Payer", "Guide"} <= {*tools}) == (version, True)
    assert [result.content[0].text for result in results] == ["Paid.", "Not paid."]
    assert [result.structured_content["status"] for result in results] == ["success", "success"]
    assert len(asked) == 2
    assert asked[0].startswith('pay {"amount":3')
    assert {"pay", "Paid.", "Not paid."} <= {message for _, message in progress}
    if mode == "legacy":  # the answer is no request of its own
        end = next(index for index, (_, message) in enumerate(progress) if message == "Paid.")
        numbers = [number for number, _ in progress[: end + 1]]
        assert numbers == sorted({*numbers})


def test_the_client_for_javascript_calls_an_agent(site: AgentHost, model: PracticeModel):
    """By both revisions; a session that a call has begun is a resource."""
    if not shutil.which("node") or not (SERVICES / "node_modules").exists():
        unavailable("@modelcontextprotocol/client", "install Node.js 20 or newer, then ./scripts/test installs it")
    for mode in ("legacy", "auto"):
        model.plan(PAY, {"text": "Paid."}, user_text=f"js {mode}")
    command = ["node", "mcp.mjs", f"{site.url}/api/mcp"]
    run = subprocess.run(command, check=False, cwd=SERVICES, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    seen = json.loads(run.stdout)
    for case in seen.values():
        assert "Payer" in case["tools"]
        assert case["asked"][0]["requestedSchema"]["required"] == ["approved"]
        assert case["result"]["content"][0]["text"] == "Paid."
        assert case["progress"][-1]["message"] == "Paid."
        assert json.loads(case["contents"][0]["text"])["session_id"] == case["result"]["structuredContent"]["sessionId"]


def test_a_client_that_cannot_ask_gets_where_to_answer(site: AgentHost, model: PracticeModel):
    """The same call continues the turn; another query under its key is refused."""
    model.plan(PAY, {"text": "Paid."})
    session = f"s-{uuid4().hex}"
    arguments = {"sessionId": session, "idempotencyKey": "k"}
    waiting = call(site, "pay", arguments=arguments)
    assert (waiting["isError"], "GET /api/pending" in waiting["content"][0]["text"]) == (True, True)
    turn_id = site.session("Payer", session)["running_turn_id"]
    path = f"/agents/Payer/sessions/{session}/turns/{turn_id}"
    (pending,) = site.get(path).json()["pending_calls"]
    assert site.post(f"{path}/answers", json.dumps({"call_id": pending["call_id"], "approved": True}).encode()).ok
    again = call(site, "pay", arguments=arguments)
    assert (again["content"][0]["text"], again["structuredContent"]["turnId"]) == ("Paid.", turn_id)
    assert "'k'" in call(site, "pay twice", arguments=arguments)["content"][0]["text"]
    assert len(model.requests()) == 2


def test_a_state_of_another_turn_is_refused(site: AgentHost, model: PracticeModel):
    """It names a turn, and gives no more than that: what is not the caller's is not found."""
    model.plan(PAY, {"text": "Paid."})
    can = {"elicitation": {}}
    first = call(site, "pay", can=can)
    assert (first["resultType"], [*first["inputRequests"]]) == ("input_required", [*first["inputRequests"]])
    for state in ("nonsense", first["requestState"] + "0"):
        assert call(site, "pay", can=can, requestState=state)["isError"]
    (call_id,) = first["inputRequests"]
    assert call(site, "pay", can=can, requestState=first["requestState"])["inputRequests"] == first["inputRequests"]
    answers = {call_id: {"action": "accept", "content": {"approved": True}}}
    for _ in range(2):  # the same answer twice is one
        paid = call(site, "pay", can=can, requestState=first["requestState"], inputResponses=answers)
        assert paid["content"][0]["text"] == "Paid."


def test_closing_the_stream_of_a_call_cancels_its_turn(site: AgentHost, model: PracticeModel):
    """A turn that is a task goes on."""
    model.plan(SLOW)
    session = f"s-{uuid4().hex}"
    with send(site, "tools/call", name="Rester", arguments={"query": "endless", "sessionId": session}) as response:
        next(line for line in response.iter_lines() if b"And then" in line)
    (turn,) = ended_turns(site, "Rester", session)
    assert turn["status"] == "cancelled"


def ended_turns(site: AgentHost, agent: str, session: str) -> list[dict[str, Any]]:
    """Wait until no turn of a session runs."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        state = site.session(agent, session)
        if state["running_turn_id"] is None and state["turns"]:
            return state["turns"]
        time.sleep(0.05)
    raise AssertionError("the turn has not ended")


def test_a_client_that_knows_tasks_gets_one(site: AgentHost, model: PracticeModel):
    """It polls, answers, and gets the result that the call would have had."""
    model.plan(PAY, {"text": "Paid."})
    task = call(site, "pay as a task", can=TASKS)
    assert (task["resultType"], task["ttlMs"]) == ("task", None)
    task = polled(site, task["taskId"], "input_required")
    (call_id,) = task["inputRequests"]
    answers = {call_id: {"action": "accept", "content": {"approved": True, "reason": "fine"}}}
    updated = result_of(send(site, "tasks/update", can=TASKS, taskId=task["taskId"], inputResponses=answers))
    assert updated["resultType"] == "complete"
    task = polled(site, task["taskId"], "completed")
    assert task["result"]["content"][0]["text"] == "Paid."
    assert "error" in send(site, "tasks/get", can=TASKS, taskId="a/b/c").json()
    assert send(site, "tasks/get", taskId=task["taskId"]).json()["error"]["code"] == -32021


def test_a_task_is_cancelled(site: AgentHost, model: PracticeModel):
    """Twice does no harm."""
    model.plan(SLOW)
    task = call(site, "endless", can=TASKS)
    for _ in range(2):
        cancelled = result_of(send(site, "tasks/cancel", can=TASKS, taskId=task["taskId"]))
        assert cancelled["resultType"] == "complete"
        polled(site, task["taskId"], "cancelled")


def polled(site: AgentHost, task_id: str, status: str) -> dict[str, Any]:
    """Poll a task until it has a status."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        task = result_of(send(site, "tasks/get", can=TASKS, taskId=task_id))
        if task["status"] == status:
            return task
        time.sleep(0.05)
    raise AssertionError(task)


def test_a_failed_turn_is_a_failed_call(site: AgentHost, model: PracticeModel):
    """With the reason; and so is a call with wrong arguments."""
    model.plan({"error": {"status": 400, "code": "bad", "message": "no such model"}})
    failed = call(site, "fail")
    assert (failed["isError"], "no such model" in failed["content"][0]["text"]) == (True, True)
    assert "'colour'" in call(site, "hi", arguments={"colour": "red"})["content"][0]["text"]
    assert "'query'" in call(site, " ")["content"][0]["text"]


def test_other_messages_are_refused_with_what_is_wrong(site: AgentHost):
    """What is not JSON, a version that is not served, a method and a tool that are not there."""

    def post(body: Any, **headers: str) -> requests.Response:
        return requests.post(
            f"{site.url}/api/mcp", data=body if isinstance(body, str) else json.dumps(body), headers=headers
        )

    assert post("{").json()["error"]["code"] == -32700
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert post(ping).json() == {"jsonrpc": "2.0", "id": 1, "result": {}}
    refused = post(ping, **{"mcp-protocol-version": "1999-01-01"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32022)
    assert refused.json()["error"]["data"]["supported"][0] == MODERN
    assert post({**ping, "id": None}).status_code == 400
    assert post({"jsonrpc": "2.0", "method": "notifications/initialized"}).status_code == 202
    assert send(site, "prompts/list").status_code == 404
    assert send(site, "tools/call", name="Nobody").json()["error"]["code"] == -32602
    assert requests.get(f"{site.url}/api/mcp").status_code == 405


@pytest.mark.parametrize("revision", [MODERN, "2025-11-25"])
def test_the_conformance_suite_finds_nothing_new(site: AgentHost, tmp_path: Path, revision: str):
    """Each check that fails is in the baseline, with the reason; each in the baseline fails."""
    if not shutil.which("node") or not (SERVICES / "node_modules").exists():
        unavailable("@modelcontextprotocol/conformance", "install Node.js 20 or newer, then ./scripts/test installs it")
    baseline = yaml.safe_load((SERVICES / "mcp_conformance_baseline.yml").read_text())
    url = f"{site.url}/api/mcp"
    command = ["node", "mcp_conformance.mjs", "server", "--url", url, "--requirements", revision, "-o", str(tmp_path)]
    run = subprocess.run(command, check=False, cwd=SERVICES, capture_output=True, text=True)
    checks = [check for file in tmp_path.glob("*/checks.json") for check in json.loads(file.read_text())]
    failing = {check["id"] for check in checks if check["status"] == "FAILURE"}
    assert failing == {name for names in baseline[revision].values() for name in names}, run.stdout[-2000:]
    passing = sum(check["status"] == "SUCCESS" for check in checks)
    assert passing >= {MODERN: 100, "2025-11-25": 35}[revision]


def test_a_call_is_repeated_after_a_crash(practice_model: PracticeModel, model: PracticeModel, tmp_path: Path):
    """Its key finds the turn, which goes on in the next process; a host that stops cancels nothing either."""
    hold = tmp_path / "hold"
    model.plan(*[{"text": "Once upon a time.", "until_file": str(hold)}] * 2, {"text": "Twice upon a time."})
    arguments = {"query": "tell", "idempotencyKey": "k"}
    for end in (AgentHost.kill, AgentHost.stop):
        with (
            start_host(tmp_path / "data", practice_model, app=APP, LEDGER=str(tmp_path / "l")) as host,
            send(host, "tools/call", name="Talker", arguments=arguments) as response,
        ):
            lines = response.iter_lines()
            next(line for line in lines if b"Once" in line)
            end(host)
    hold.touch()
    with running_host(tmp_path / "data", practice_model, app=APP, LEDGER=str(tmp_path / "l")) as host:
        result = result_of(send(host, "tools/call", name="Talker", arguments=arguments))
    assert result["content"][0]["text"] == "Twice upon a time."
