"""Agents whose conversations are kept by a history provider of the app: what is done with them is done there."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
import requests

from tests.kit import AgentHost, PracticeModel, running_host, start_host
from tests.kit_histories import cosmos_client
from tests.kit_services import cosmos, redis
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "histories"
OWNERS = ("Noted", "Folded", "Filed", "Listed", "Clouded", "CloudFolded")
"""Agents whose provider can delete; of each kind that the guide names, one."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the providers keep what they are given."""
    return tmp_path_factory.mktemp("histories")


async def make_database(port: int) -> None:
    """Make the database that the app's providers use."""
    async with cosmos_client(port) as client:
        await client.create_database("chats")


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """A Redis server and a Cosmos DB emulator."""
    servers = tmp_path_factory.mktemp("servers")
    with redis(servers) as redis_port, cosmos(servers) as cosmos_port:
        asyncio.run(make_database(cosmos_port))
        yield {"REDIS_PORT": redis_port, "COSMOS_PORT": cosmos_port}


@pytest.fixture(scope="module")
def _host(practice_model: PracticeModel, folder: Path, ports, tmp_path_factory) -> Iterator[AgentHost]:
    environment = {"HISTORIES": str(folder)} | {name: str(port) for name, port in ports.items()}
    with running_host(tmp_path_factory.mktemp("data"), practice_model, app=APP, **environment) as running:
        yield running


@pytest.fixture
def host(_host: AgentHost, model: PracticeModel) -> AgentHost:
    """A host with agents that bring their history."""
    return _host


def user_texts(model: PracticeModel) -> list[str]:
    """What the user has said, as the model was last asked."""
    body = model.requests()[-1]["body"]
    return [item["content"][0]["text"] for item in body["input"] if item.get("role") == "user"]


def session_url(host: AgentHost, agent: str, session: str) -> str:
    """Where a session is found."""
    return f"{host.url}/api/agents/{agent}/sessions/{session}"


def run_turns(host: AgentHost, agent: str, session: str, *texts: str) -> list[str]:
    """Run a turn for each text; gives their ids."""
    turns = []
    for text in texts:
        response = host.run(agent, {"message": text, "session_id": session})
        assert response.status_code == 200, response.text
        turns.append(response.headers["x-ms-turn-id"])
    return turns


def plan_tool_call(model: PracticeModel) -> None:
    """Plan a tool call, and a text that follows it."""
    model.plan({"calls": [{"name": "note", "arguments": {"text": "x"}}]}, {"text": "It is noted."})


@pytest.mark.drawn(3)
@pytest.mark.parametrize("agent", OWNERS)
def test_deletion_clears_the_history(host: AgentHost, model: PracticeModel, agent):
    """A session that was deleted starts anew, also at the provider; until then it is a 404."""
    session = uuid4().hex
    run_turns(host, agent, session, "one", "two")
    assert user_texts(model) == ["one", "two"]
    deletion = requests.delete(session_url(host, agent, session))
    body = deletion.json()
    assert (deletion.status_code, body.pop("erased")["turns"]) == (200, 2)
    assert body.pop("erased_from_files_by")
    assert body == {"agent": agent, "session_id": session, "status": "deleted"}
    assert requests.delete(session_url(host, agent, session)).status_code == 404
    run_turns(host, agent, session, "anew")
    assert user_texts(model) == ["anew"]


@pytest.mark.drawn(3)
@pytest.mark.parametrize("agent", OWNERS)
def test_a_session_names_the_provider_of_its_messages(host: AgentHost, model: PracticeModel, agent):
    """It has the turns, and no word of the conversation."""
    session = uuid4().hex
    plan_tool_call(model)
    turns = run_turns(host, agent, session, "the canary sings", "two")
    view = host.session(agent, session)
    assert [turn["turn_id"] for turn in view["turns"]] == turns
    assert (view["message_count"], view["messages"], len(view["kept_by"])) == (4, [], 1)
    stored_json = json.dumps([view, host.state(agent, session)])
    assert "canary" not in stored_json
    assert "noted x" not in stored_json
    assert host.get(f"/agents/{agent}/sessions/{session}/verify").json()["problems"] == []


def test_unsupported_operations_of_a_provider_are_rejected(host: AgentHost, model: PracticeModel, folder: Path):
    """They change nothing; without clear(session_id) the host can delete its own part."""
    session = uuid4().hex
    run_turns(host, "Carved", session, "one")
    url = session_url(host, "Carved", session)
    requests_of_operations = {
        "deleted": ("DELETE", url),
        "exported": ("GET", f"{url}/export"),
        "forked": ("POST", f"{url}/fork"),
        "imported": ("POST", f"{session_url(host, 'Carved', 'copy')}/import"),
    }
    for operation, (method, path) in requests_of_operations.items():
        refusal = requests.request(method, path)
        assert refusal.status_code == 501, refusal.text
        assert f"kept by Carving (stone), and cannot be {operation}" in refusal.json()["detail"]
    host.signal("Carved", session, "reset", None)
    run_turns(host, "Carved", session, "two")
    assert user_texts(model) == ["one", "two"]
    assert host.session("Carved", session)["message_count"] == 4
    deletion = requests.delete(url, params={"history": "kept"})
    assert (deletion.status_code, deletion.json()["kept_by"]) == (200, ["Carving (stone)"])
    assert host.state("Carved", session) is None
    assert (folder / "stone" / f"{session}.jsonl").exists()
    assert requests.delete(url, params={"history": "all"}).status_code == 400


def test_a_provider_of_plain_texts_is_supported(host: AgentHost, model: PracticeModel):
    """A provider that keeps words alone: they reach the model."""
    run_turns(host, "Told", uuid4().hex, "one", "two")
    assert user_texts(model) == ["one", "two"]


def test_a_turn_that_its_provider_does_not_take_or_read_fails(host: AgentHost, folder: Path):
    """With the provider's name, and 502."""
    session = uuid4().hex
    run_turns(host, "Moody", session, "one")
    for mood in ("full", "unreadable"):
        (folder / mood).touch()
        failed_response = host.run("Moody", {"message": "lost", "session_id": session})
        (folder / mood).unlink()
        assert failed_response.status_code == 502
    assert "Moody (moody)" in host.session("Moody", session)["turns"][-2]["error"]["message"]


@pytest.mark.drawn(3)
@pytest.mark.parametrize("agent", [*OWNERS, "Kept", "Audited"])
def test_content_of_a_cancelled_turn_is_in_the_history(host: AgentHost, model: PracticeModel, agent):
    """The next turn's model is given the cancelled turn's message, its finished call, and the one that was cut off."""
    session = uuid4().hex
    first_calls = {"calls": [{"name": "note", "arguments": {"text": "x"}}]}
    second_calls = {"calls": [{"name": "dawdle", "arguments": {"text": "y"}}]}
    model.plan(first_calls, second_calls, user_text=f"begin {session}")
    turn = host.run(agent, {"message": f"begin {session}", "session_id": session, "wait_for_response": False}).json()
    wait_until(lambda: "dawdle" in requests.get(f"{turn['turn_url']}/steps").text)
    requests.post(f"{turn['turn_url']}/cancel")
    assert host.end_of_turn(turn["turn_url"])["status"] == "cancelled"
    assert host.run(agent, {"message": "go on", "session_id": session}).status_code == 200
    items = model.requests()[-1]["body"]["input"]
    assert user_texts(model) == [f"begin {session}", "go on"]
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    results = {item["call_id"]: item["output"] for item in items if item["type"] == "function_call_output"}
    assert len(calls) == 2
    assert results[calls[0]] == "noted x"
    assert "cancelled" in str(results[calls[1]])


def test_a_history_in_the_session_state_is_managed_by_the_host(host: AgentHost, model: PracticeModel):
    """The host stands in for InMemoryHistoryProvider: forked whole and at a turn, deleted, and stored once."""
    session = uuid4().hex
    model.plan({"text": "So."}, {"text": "So."})
    first, _ = run_turns(host, "Kept", session, "the canary sings", "two")
    assert json.dumps(host.state("Kept", session)).count("canary") == 1
    url = session_url(host, "Kept", session)
    for body, before in (({}, ["the canary sings", "two"]), ({"at_turn": first}, ["the canary sings"])):
        fork = requests.post(f"{url}/fork", json=body).json()["session_id"]
        run_turns(host, "Kept", fork, "three")
        assert user_texts(model) == [*before, "three"]
    assert requests.delete(url).json()["status"] == "deleted"
    run_turns(host, "Kept", session, "anew")
    assert user_texts(model) == ["anew"]


class CrashingHost:
    """A host that ends itself at a named point, and comes back on the same data."""

    def __init__(self, folder: Path, model: PracticeModel) -> None:
        self.folder, self._model = folder, model
        self._hosts: list[AgentHost] = []

    def start(self, point: str = "") -> AgentHost:
        """Start the host; it ends at the point, or not at all."""
        (self.folder / "histories").mkdir(exist_ok=True)
        settings = {"HISTORIES": str(self.folder / "histories"), "DURABLE_AGENT_HOST_CRASH": point}
        self._hosts.append(start_host(self.folder / "data", self._model, app=APP, **settings))
        return self._hosts[-1]

    def die(self, point: str, method: str, path: str, body: object = None) -> AgentHost:
        """Send a request by which the host ends itself; gives the next one."""
        host = self.start(point)
        with suppress(requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
            requests.request(method, f"{host.url}/api/agents/{path}", json=body)
        host.process.wait(60)
        host.kill()
        return self.start()

    def lines(self, name: str) -> list[str]:
        """What a notebook has."""
        file = self.folder / "histories" / name
        return file.read_text().splitlines() if file.exists() else []

    def stop(self) -> None:
        """End all of it."""
        for host in self._hosts:
            host.kill()


@pytest.fixture
def crashing_host(tmp_path: Path, model: PracticeModel) -> Iterator[CrashingHost]:
    """A host that ends itself at a named point."""
    crashing_host = CrashingHost(tmp_path, model)
    yield crashing_host
    crashing_host.stop()


@pytest.mark.drawn(1)
@pytest.mark.parametrize(("agent", "file"), [("Noted", "notebook/s.jsonl"), ("Filed", "files/s.jsonl")])
def test_a_turn_that_was_saved_before_the_kill_is_saved_once(
    crashing_host: CrashingHost, model: PracticeModel, agent, file
):
    """The provider has the turn and the host dies: the next attempt asks the model nothing and saves nothing again."""
    plan_tool_call(model)
    body = {"message": "one", "session_id": "s", "wait_for_response": False}
    host = crashing_host.die("history.after_save", "POST", f"{agent}/run", body)
    saved_lines = crashing_host.lines(file)
    assert len(saved_lines) == 4
    wait_until(lambda: host.get(f"/agents/{agent}/sessions/s").json()["running_turn_id"] is None)
    assert [turn["status"] for turn in host.session(agent, "s")["turns"]] == ["completed"]
    assert crashing_host.lines(file) == saved_lines
    assert len(model.requests()) == 2
    run_turns(host, agent, "s", "two")
    assert user_texts(model) == ["one", "two"]
