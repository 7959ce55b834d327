"""Compaction over HTTP: summaries that survive a kill, windows, and forks."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.durable_agent_host.test_scenarios_journal import CrashingHost, without_ids
from tests.kit import AgentHost, PracticeModel, start_host

APP = Path(__file__).parent / "apps" / "compaction"
TOOL = {"calls": [{"name": "look_up", "arguments": {"word": "a"}}]}


@pytest.fixture(scope="module")
def host(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """A host that runs for all tests of this module that kill none."""
    server = start_host(tmp_path_factory.mktemp("compaction"), practice_model, app=APP)
    yield server
    server.stop()


def is_summary(request: dict[str, Any]) -> bool:
    return "1. [" in str(request["body"]["input"][-1])


def script(model: PracticeModel) -> None:
    """Play summaries to those who ask for one, and answers after a tool to the others."""
    model.plan({"text": "A summary."}, times=None, user_text="1. [")
    model.plan(TOOL, {"text": "An answer."}, by_round=True)


def talk(host: AgentHost, agent: str, session: str, turns: range) -> None:
    for number in turns:
        response = host.run(agent, {"message": f"question {number}", "session_id": session})
        assert response.ok, response.text


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return [content["text"] for message in messages for content in message["contents"] if "text" in content]


@pytest.fixture
def expected_history(host: AgentHost, model: PracticeModel) -> list[dict[str, Any]]:
    """The requests of three turns that nothing happens to."""
    script(model)
    talk(host, "Summing", uuid4().hex, range(3))
    model_requests = model.requests()
    model.reset()
    return model_requests


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("point", "summary_count"),
    [
        ("journal.side_call.before_append", 2),
        ("journal.side_call.after_append", 1),
        ("journal.model.before_append:1", 1),
        ("journal.model.before_append:2", 1),
        ("turn.before_outcome", 1),
    ],
)
def test_a_journaled_summary_is_not_requested_again(point, summary_count, expected_history, tmp_path, model):
    """The host is killed in the turn that sums up; what the model gets then is what it would have got."""
    crashing_host = CrashingHost(tmp_path, model, APP)
    try:
        script(model)
        talk(crashing_host.start(), "Summing", "s", range(2))
        crashing_host.host.stop()
        before = len(model.requests())
        turn = crashing_host.run("Summing", point, message="question 2")
        assert turn["status"] == "completed", turn
        requests = model.requests()
        expected_requests = expected_history[before:]
        assert sum(map(is_summary, expected_requests)) == 1
        assert sum(map(is_summary, requests[before:])) == summary_count
        sent_inputs = [without_ids(request["body"]["input"]) for request in requests[before:]]
        expected_inputs = [without_ids(request["body"]["input"]) for request in expected_requests]
        assert [
            request_input for n, request_input in enumerate(sent_inputs) if request_input not in sent_inputs[:n]
        ] == expected_inputs
    finally:
        crashing_host.stop()


def test_a_summary_whose_service_asks_for_a_long_wait_is_left_out(host, model):
    """Its client does not wait by itself, and is asked once."""
    model.plan({"error": {"status": 429, "message": "slow", "retry_after": 50}}, times=None, user_text="1. [")
    model.plan(TOOL, {"text": "An answer."}, times=None, by_round=True)
    talk(host, "Summing", "slow", range(3))
    pairs = [*pairwise(map(is_summary, model.requests()))]
    assert (True, False) in pairs
    assert (True, True) not in pairs
    assert "question 0" in str(model.requests()[-1]["body"])


def test_an_agent_without_a_strategy_of_its_own_has_that_of_the_app(host, model):
    """The model gets the window."""
    script(model)
    talk(host, "Windowed", "w", range(3))
    assert "question 0" not in str(model.requests()[-1]["body"]["input"])


def summaries_of(model: PracticeModel) -> list[str]:
    """What the model was asked to sum up."""
    return [str(request["body"]["input"]) for request in model.requests() if is_summary(request)]


def test_a_fork_at_an_earlier_turn_rebuilds_its_context(host, model):
    """It begins with all that was said until then, and its summaries know of nothing that was said later."""
    script(model)
    talk(host, "Summing", "whole", range(5))
    page = host.get("/agents/Summing/sessions/whole?limit=100").json()
    at_turn = next(item["turn_id"] for item in page["messages"] if "question 2" in texts([item]))
    body = json.dumps({"session_id": "part", "at_turn": at_turn}).encode()
    assert host.post("/agents/Summing/sessions/whole/fork", body).ok
    model.reset()
    script(model)
    talk(host, "Summing", "part", range(7, 8))
    first, *_ = summaries_of(model)
    assert "question 0" in first
    sent = "".join(str(item["body"]["input"]) for item in model.requests())
    assert "question 7" in sent
    assert "question 3" not in sent


def test_a_cold_process_reads_only_what_the_context_needs(lives, model, tmp_path):
    """A window's turn after a kill needs none of the older parts: without all but the newest, it is what it was."""
    life = lives(APP)
    model.plan({"text": "An answer."}, times=None)
    for number in range(24):
        assert life.host.run("Windowed", {"message": f"{number} " + "word " * 400, "session_id": "w"}).ok
    *older, _newest = life.host.state("Windowed", "w")["data"]["extensionData"]["durableAgentHost"]["sealed"]["refs"]
    life.host.kill()
    [database_file] = tmp_path.rglob("segments.sqlite")
    with closing(sqlite3.connect(database_file)) as file, file:
        deletion = file.executemany("DELETE FROM blobs WHERE name = ?", [(name,) for name, *_ in older])
        assert deletion.rowcount == len(older) > 2
    host = life.crash()
    assert host.run("Windowed", {"message": "24", "session_id": "w"}).ok
    sent = [part["text"][:10] for item in model.requests()[-1]["body"]["input"] for part in item["content"]]
    assert sent == ["24"]


def test_the_window_of_an_agent_within_keeps_its_question(host, model):
    """The framework compacts there; what is left begins with the task."""
    model.plan({"calls": [{"name": "ask", "arguments": {"task": "Look twice."}}]}, {"text": "Done."}, user_text="go")
    model.plan(TOOL, TOOL, {"text": "Seen."}, user_text="Look twice.")
    assert host.run("Outer", "go").ok
    *_, inner, _ = [request["body"]["input"] for request in model.requests()]
    assert [item.get("role") or item["type"] for item in inner] == ["user", "function_call", "function_call_output"]
