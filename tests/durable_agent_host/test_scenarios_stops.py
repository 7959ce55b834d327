"""Processes that die at a turn again and again, and processes that are stopped."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import requests

from durable_agent_host import AgentClient
from tests.durable_agent_host.sse_client import read_events
from tests.durable_agent_host.test_scenarios_nested_agents import use
from tests.kit import AgentHost, PracticeModel, start_host
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "stops"
LATER = {"x-ms-wait-for-response": "false"}
Start = Callable[..., AgentHost]


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """The file to which the tools write."""
    path = tmp_path / "ledger.txt"
    path.touch()
    return path


@pytest.fixture
def start(tmp_path: Path, model: PracticeModel, ledger: Path) -> Iterator[Start]:
    """Start the app on the same data as before."""
    hosts: list[AgentHost] = []

    def start_app(port: int = 0, **env: str) -> AgentHost:
        hosts.append(start_host(tmp_path / "data", model, app=APP, port=port, LEDGER=str(ledger), **env))
        return hosts[-1]

    yield start_app
    for host in hosts:
        host.kill()


def begin(host: AgentHost, agent: str, message: str, session_id: str = "s") -> str:
    """Begin a turn whose key is that of its session, and return the path of its URL."""
    headers = LATER | {"idempotency-key": session_id}
    response = host.run(agent, {"message": message, "session_id": session_id}, headers=headers)
    return response.json()["turn_url"].removeprefix(host.url)


def read_turn(host: AgentHost, path: str) -> dict[str, Any]:
    """Read a turn; its status is "dead" when its host has died, also in the middle of the answer."""
    try:
        return requests.get(host.url + path).json()
    except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
        return {"status": "dead"}


def ended(host: AgentHost, path: str) -> dict[str, Any] | None:
    """Read a turn that has ended, or whose host has died; None while it runs."""
    turn = read_turn(host, path)
    return None if turn["status"] == "running" else turn


def live_until_ended(start: Start, path: str, lives: int) -> tuple[AgentHost, dict[str, Any]]:
    """Start the app again until a turn has ended."""
    for _ in range(lives):
        host = start()
        turn = wait_until(lambda host=host: ended(host, path))
        if turn["status"] != "dead":
            return host, turn
        host.process.wait()
    raise AssertionError(f"the turn has not ended in {lives} lives")


def test_a_turn_that_kills_the_process_fails_and_spares_others(start: Start, model: PracticeModel, ledger: Path):
    """After three deaths it says what was running; a tool that ran beside it each time is not blamed, and ends."""
    model.plan(use("rest", file="bed"), {"text": "Rested."}, user_text="rest")
    model.plan(use("die"), {"text": "Never."}, user_text="die")
    host = start()
    resting = begin(host, "Worker", "rest", "resting")
    wait_until(lambda: "begin bed" in ledger.read_text())
    deadly = begin(host, "Worker", "die", "deadly")
    host.process.wait()
    start().process.wait()  # both run again at once; from now on, one of them at a time
    ledger.with_name("bed").touch()
    host, turn = live_until_ended(start, deadly, lives=3)
    assert turn["status"] == "failed"
    assert "its process died 3 times while the tool 'die' was running" in turn["error"]["message"]
    assert ledger.read_text().splitlines().count("die") == 3
    turn = wait_until(lambda: ended(host, resting))
    assert (turn["status"], turn["response"]) == ("completed", "Rested."), turn["error"]


@pytest.mark.parametrize("way", ["turn", "entity"])
def test_a_message_that_kills_the_process_fails(start: Start, ledger: Path, way: str):
    """Also before any model call, and also for an operation of the entity."""
    host = start()
    if way == "turn":
        path = begin(host, "Poisoned", "x")
    else:
        host.signal("Poisoned", "s", "run", {"message": "x", "correlationId": "c"})
        path = "/api/agents/Poisoned/sessions/s/turns/c"
    host.process.wait()

    def read(host: AgentHost) -> dict[str, Any] | None:
        turn = read_turn(host, path)
        return turn if turn["status"] in {"failed", "dead"} else None

    for _ in range(4):
        host = start()
        turn = wait_until(lambda host=host: read(host))
        if turn["status"] == "failed":
            break
        host.process.wait()
    assert "its process died 3 times while it was about to call its model" in turn["error"]["message"]
    assert ledger.read_text().splitlines().count("poison") == 3


def test_a_stop_waits_for_what_runs(start: Start, model: PracticeModel, ledger: Path):
    """New requests get 503 with Retry-After; the tool ends, and so does its caller's stream."""
    model.plan(use("rest", file="bed"), {"text": "Rested."})
    host = start(FUNCTIONS_HOST_STOP_SECONDS="50")
    names: list[str] = []

    def stream() -> None:
        response = host.run("Worker", {"message": "rest"}, headers={"accept": "text/event-stream"})
        names.extend(event.name for event in read_events(response))

    thread = Thread(target=stream)
    thread.start()
    wait_until(lambda: "begin bed" in ledger.read_text())
    host.process.send_signal(signal.SIGTERM)
    wait_until(lambda: host.get("/health").status_code == 503)
    response = host.get("/health")
    assert ("stopping" in response.json()["detail"], int(response.headers["retry-after"]) > 0) == (True, True)
    ledger.with_name("bed").touch()
    assert host.process.wait() == 0
    thread.join()
    assert names[-1] == "turn.completed"


async def complete(url: str, method: str, message: str, session_id: str = "s") -> str:
    """Run a turn with a client, and return its answer."""
    async with AgentClient(url) as client:
        result = getattr(client, method)("Worker", message, session_id=session_id, idempotency_key=session_id)
        if method == "run":
            return (await result).response
        return [event.data.get("response") async for event in result][-1]


def test_a_stop_is_no_death(start: Start, model: PracticeModel, ledger: Path, caplog: pytest.LogCaptureFixture):
    """What the time of a stop, or a second signal, cuts off resumes at the next start, each time; clients wait for it.

    They wait for a turn, too, that a host that stops has turned away.
    """
    model.plan(use("rest", file="bed"), {"text": "Rested."}, user_text="rest")
    model.plan({"text": "Late."}, user_text="late")
    host = start(FUNCTIONS_HOST_STOP_SECONDS="50")
    path = begin(host, "Worker", "rest")
    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(asyncio.run, complete(host.url, method, "rest")) for method in ("run", "stream")]
        for life in range(2):
            wait_until(lambda life=life: ledger.read_text().count("begin bed") == life + 1)
            response = requests.get(f"{host.url}{path}/events", stream=True)
            host.process.send_signal(signal.SIGTERM)
            if not life % 2:
                wait_until(lambda host=host: host.get("/health").status_code == 503)
                if not life:
                    answers.append(pool.submit(asyncio.run, complete(host.url, "run", "late", "late")))
                    wait_until(lambda: "the connection to the host is lost" in caplog.text)
                host.process.send_signal(signal.SIGINT)
            assert host.process.wait() == 0
            assert "host is stopping" in response.text
            seconds = "50" if life % 2 else "0.1"
            host = start(int(host.url.rpartition(":")[2]), FUNCTIONS_HOST_STOP_SECONDS=seconds)
        ledger.with_name("bed").touch()
        assert [answer.result() for answer in answers] == ["Rested.", "Rested.", "Late."]
    turn = wait_until(lambda: ended(host, path))
    assert (turn["status"], ledger.read_text().count("begin bed")) == ("completed", 3)
    assert ledger.read_text().count("end bed") == 1
