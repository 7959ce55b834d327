"""What the host's log says by default about turns that go wrong: one line each, and nothing of what was said."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
import requests

from tests.durable_agent_host.test_scenarios_journal import CrashingHost, call, plan_rounds
from tests.kit import AgentHost, PracticeModel
from tests.processes import wait_until

CANARY = "canary-7f3a"


@pytest.fixture
def crashing_host(tmp_path: Path, model: PracticeModel) -> Iterator[CrashingHost]:
    """A host that can end itself at a named point."""
    host = CrashingHost(tmp_path, model)
    yield host
    host.stop()


def lines(crashing_host: CrashingHost, *parts: str) -> list[str]:
    """Give the lines of the running host's log that have all parts."""
    return [line for line in list(crashing_host.host.output) if all(part in line for part in parts)]


def test_a_failed_turn_is_logged(crashing_host: CrashingHost, model: PracticeModel):
    """It names agent, session, turn, attempt, the error's type and reason; nothing that anybody has said is in it."""
    host = crashing_host.start(DURABLE_AGENT_HOST_MODEL_ATTEMPTS="2")
    for status in (400, 503):
        session = uuid4().hex
        model.plan({"error": {"status": status, "message": f"not {CANARY}"}}, times=2, user_text=f"{CANARY} {status}")
        response = host.run("Worker", {"message": f"{CANARY} {status}", "session_id": session})
        assert response.status_code == 502
        line_parts = (
            response.headers["x-ms-turn-id"],
            "agent Worker",
            session,
            "attempt 1",
            " WARNING durable_agent_host",
        )
        wait_until(lambda line_parts=line_parts: lines(crashing_host, *line_parts, "failed: ProviderError"))
        (line,) = lines(crashing_host, *line_parts, "failed: ProviderError")
        assert f"rejected the call with {status}" in line
    (retry_line,) = lines(crashing_host, "model call failed, again in")
    assert "rejected the call with 503" in retry_line
    host.stop()
    assert not lines(crashing_host, CANARY)


def test_a_stop_in_the_middle_of_a_turn_is_reported_without_a_traceback(
    crashing_host: CrashingHost, model: PracticeModel
):
    """A waiting client gets a 503 with a hint, a stream ends with one; the turn resumes in the next process, once."""
    text = "All of it. " * 40
    model.plan({"text": text, "delay_milliseconds": 100}, {"text": text}, user_text="go on")
    host = crashing_host.start()
    body, key = {"message": "go on", "session_id": "s"}, {"Idempotency-Key": uuid4().hex}
    with ThreadPoolExecutor(2) as pool:
        run = pool.submit(ask, host, body, key)
        wait_until(model.requests)
        streamed_run = pool.submit(ask, host, body, key | {"Accept": "text/event-stream"})
        time.sleep(0.3)
        assert host.stop() == 0
        response, stream = run.result(), streamed_run.result()
    assert not lines(crashing_host, "Traceback"), "".join(host.output)
    assert (response.status_code, response.headers["Retry-After"]) == (503, "5")
    assert "try again once it runs" in response.json()["detail"]
    assert ": the host is stopping" in stream.text
    second_response = crashing_host.start().run("Worker", body, headers=key)
    assert (second_response.status_code, second_response.json()["response"]) == (200, text)


def ask(host: AgentHost, body: dict[str, str], headers: dict[str, str]) -> requests.Response | None:
    """Run a turn; None when the answer breaks off."""
    try:
        return host.run("Worker", body, headers=headers)
    except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
        return None


def test_a_recovery_and_a_call_in_doubt_are_logged(crashing_host: CrashingHost, model: PracticeModel):
    """After a crash one line reports the recovery, and one each call in doubt, with its consequence."""
    plan_rounds(model, {"calls": [call("linger", text=CANARY, seconds=0)]}, {"text": f"{CANARY} is done"})
    turn = crashing_host.run("Worker", "journal.tool.after_intent", message=f"{CANARY} go")
    assert turn["status"] == "completed"
    line_parts = (turn["turn_id"], "agent Worker", "session 's'", "attempt 2", " WARNING durable_agent_host")
    (recovery_line,) = lines(crashing_host, *line_parts, "resumes from")
    assert "1 model calls and 0 tool calls finished and 1 in doubt" in recovery_line
    (doubt_line,) = lines(crashing_host, *line_parts, "in doubt: the model is told")
    assert "linger" in doubt_line
    crashing_host.host.stop()
    assert not lines(crashing_host, CANARY)
