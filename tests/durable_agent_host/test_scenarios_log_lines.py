"""What the host's log says by default about turns that go wrong: one line each, and nothing of what was said."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
import requests

from tests.durable_agent_host.test_scenarios_journal import Doomed, call, play
from tests.kit import AgentHost, PracticeModel
from tests.processes import wait_until

CANARY = "canary-7f3a"


@pytest.fixture
def doomed(tmp_path: Path, model: PracticeModel) -> Iterator[Doomed]:
    """A host that can end itself at a named point."""
    one = Doomed(tmp_path, model)
    yield one
    one.stop()


def lines(doomed: Doomed, *parts: str) -> list[str]:
    """Give the lines of the running host's log that have all parts."""
    return [line for line in list(doomed.host.output) if all(part in line for part in parts)]


def test_a_failed_turn_is_a_line(doomed: Doomed, model: PracticeModel):
    """It names agent, session, turn, attempt, the error's type and reason; nothing that anybody has said is in it."""
    host = doomed.start(DURABLE_AGENT_HOST_MODEL_RETRY_SECONDS="0.05", DURABLE_AGENT_HOST_MODEL_ATTEMPTS="2")
    for status in (400, 503):
        session = uuid4().hex
        model.plan({"error": {"status": status, "message": f"not {CANARY}"}}, times=2, user_text=f"{CANARY} {status}")
        answer = host.run("Worker", {"message": f"{CANARY} {status}", "session_id": session})
        assert answer.status_code == 502
        named = (answer.headers["x-ms-turn-id"], "agent Worker", session, "attempt 1", " WARNING durable_agent_host")
        wait_until(lambda named=named: lines(doomed, *named, "failed: ProviderError"))
        (line,) = lines(doomed, *named, "failed: ProviderError")
        assert f"rejected the call with {status}" in line
    (retried,) = lines(doomed, "model call failed, again in")
    assert "rejected the call with 503" in retried
    host.stop()
    assert not lines(doomed, CANARY)


@pytest.mark.parametrize("accepts", ["application/json", "text/event-stream"])
def test_a_stop_in_the_middle_of_a_turn_is_told_without_a_traceback(doomed: Doomed, model: PracticeModel, accepts):
    """Who waits gets a 503 that says how to go on, a stream ends; the turn goes on in the host's next life, once."""
    text = "All of it. " * 40
    model.plan({"text": text, "delay_milliseconds": 100}, {"text": text}, user_text="go on")
    host = doomed.start()
    asked, headers = {"message": "go on", "session_id": "s"}, {"Idempotency-Key": uuid4().hex, "Accept": accepts}
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, host, asked, headers)
        wait_until(model.requests)
        time.sleep(0.3)
        assert host.stop() == 0
        answer = waiting.result()
    assert not lines(doomed, "Traceback"), "".join(host.output)
    if accepts == "application/json":
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        assert "same Idempotency-Key" in answer.json()["detail"]
    again = doomed.start().run("Worker", asked, headers=headers | {"Accept": "application/json"})
    assert (again.status_code, again.json()["response"]) == (200, text)


def ask(host: AgentHost, asked: dict[str, str], headers: dict[str, str]) -> requests.Response | None:
    """Run a turn; None when the answer breaks off."""
    try:
        return host.run("Worker", asked, headers=headers)
    except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
        return None


def test_a_recovery_and_a_call_in_doubt_are_lines(doomed: Doomed, model: PracticeModel):
    """After a crash one line says from what the turn goes on, and one for each call that is in doubt, what is done."""
    play(model, {"calls": [call("linger", text=CANARY, seconds=0)]}, {"text": f"{CANARY} is done"})
    turn = doomed.run("Worker", "journal.tool.after_intent", message=f"{CANARY} go")
    assert turn["status"] == "completed"
    named = (turn["turn_id"], "agent Worker", "session 's'", "attempt 2", " WARNING durable_agent_host")
    (recovery,) = lines(doomed, *named, "resumes from")
    assert "1 model calls and 0 tool calls finished and 1 in doubt" in recovery
    (doubt,) = lines(doomed, *named, "in doubt: the model is told")
    assert "linger" in doubt
    doomed.host.stop()
    assert not lines(doomed, CANARY)
