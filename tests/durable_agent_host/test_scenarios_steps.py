"""What a turn has done, step by step, and how sessions are found: what the inspector shows, as routes."""

from collections.abc import Callable

import requests

from tests.durable_agent_host.conftest import PEOPLE
from tests.durable_agent_host.test_scenarios_approvals import (
    allow,
    approve,
    plan_payments,
    read_ended_turn,
    waiting_turn,
)
from tests.kit import AgentHost, Lives, PracticeModel
from tests.processes import wait_until

LONG_TEXT = "It rains, größer 😀 than ever, and nobody minds. " * 8


def steps_of(url: str, **query: str | int) -> list[dict]:
    """Read a turn's steps."""
    response = requests.get(f"{url}/steps", params=query)
    assert response.ok, response.text
    return response.json()["steps"]


def kinds(steps: list[dict]) -> list[str]:
    """Name the steps."""
    return [f"wait:{step['reason']}" if step["kind"] == "wait" else step["kind"] for step in steps]


def test_a_turn_has_its_steps(people: AgentHost, model: PracticeModel):
    """Waits with question and answer, attempts with what they found, calls with usage and results, retries, the end."""
    error_step = {"error": {"status": 429, "code": "rate_limit", "message": "slow", "retry_after": 0.1}}
    model.plan(plan_payments(12.5), error_step, {"text": "Paid."})
    turn = waiting_turn(people)
    url, (call,) = turn["turn_url"], turn["pending_calls"]
    before = steps_of(url)
    assert kinds(before) == ["wait:queue", "attempt", "model_call", "wait:person"]
    assert (before[1]["ended"], before[-1]["ended_at"]) == ("suspended", None)
    assert approve(turn, allow(call, arguments={"amount": 3}, reason="less")).ok
    wait_until(lambda: read_ended_turn(turn))
    steps = steps_of(url)
    assert kinds(steps) == [*kinds(before), "attempt", "tool_call", "retry", "model_call", "end"]
    _, first, first_call, wait, second, tool, retry, second_call, end = steps
    assert (first["ended"], second["ended"], end["status"]) == ("suspended", "completed", "completed")
    assert (second["found_model_calls"], second["found_tool_calls"]) == (1, 0)
    assert [step["usage"]["total_token_count"] > 0 for step in (first_call, second_call)] == [True, True]
    assert (first_call["position"], second_call["position"], retry["position"]) == (0, 1, 1)
    (question,) = wait["calls"]
    assert (question["arguments"], question["answer"]["arguments"]) == ({"amount": 12.5}, {"amount": 3})
    assert (tool["name"], tool["arguments"], tool["outcome"]) == ("pay", {"amount": 3}, "success")
    assert [attempt["attempt"] for attempt in tool["attempts"]] == [2]
    assert tool["result"].startswith("paid 3")
    assert ("429" in retry["reason"], retry["wait_seconds"] >= 0.1) == (True, True)
    times = [step.get("began_at") or step["at"] for step in steps]
    assert times == sorted(times)
    pages = [requests.get(f"{url}/steps", params={"limit": 4, "cursor": at}).json() for at in (0, 4, 8)]
    assert [step for page in pages for step in page["steps"]] == steps
    assert [page["cursor"] for page in pages] == ["4", "8", None]
    assert requests.get(f"{url}/steps?cursor=x").status_code == 400


def test_a_crash_is_visible_in_the_steps(lives: Callable[..., Lives], model: PracticeModel):
    """The steps show a lost model call, also a silent one, and what the next attempt found; its text is discarded."""
    model.plan(
        {"calls": [{"name": "rest", "arguments": {"seconds": 0.01}}]},
        {"text": LONG_TEXT, "chunk_characters": 6, "delay_milliseconds": 40},
        {"text": "Rested."},
        user_text="rest",
    )
    model.plan({"text": "Hm.", "delay_milliseconds": 20_000}, {"text": "Hm."}, user_text="ponder")
    life = lives(PEOPLE)
    path, silent_path = (
        life.host.run("Rester", {"message": message}, headers={"x-ms-wait-for-response": "false"})
        .json()["turn_url"]
        .removeprefix(life.host.url)
        for message in ("rest", "ponder")
    )
    wait_until(lambda: kinds(steps_of(life.host.url + silent_path))[2:] == ["model_call"], seconds=60)

    def streams() -> bool:
        return any(step.get("characters", 0) > 20 for step in steps_of(life.host.url + path))

    wait_until(streams, seconds=60)
    running = steps_of(life.host.url + path)
    assert kinds(running) == ["wait:queue", "attempt", "model_call", "tool_call", "model_call"]
    assert (running[1]["ended"], running[-1]["outcome"]) == ("running", None)
    url = life.crash().url + path
    wait_until(lambda: requests.get(url).json()["status"] == "completed", seconds=60)
    steps = steps_of(url)
    assert kinds(steps) == [*kinds(running), "attempt", "restart", "model_call", "end"]
    assert [step["ended"] for step in steps if step["kind"] == "attempt"] == ["crashed", "completed"]
    assert [step["outcome"] for step in steps if step["kind"] == "model_call"] == ["completed", "lost", "completed"]
    assert (steps[5]["found_model_calls"], steps[5]["found_tool_calls"]) == (1, 1)
    assert (steps[3]["result"], steps[3]["in_doubt"], len(steps[3]["attempts"])) == ("rested", False, 1)
    wait_until(lambda: kinds(steps_of(life.host.url + silent_path))[-1] == "end", seconds=60)
    steps = steps_of(life.host.url + silent_path)
    assert [(step["attempt"], step["outcome"]) for step in steps if step["kind"] == "model_call"] == [
        (1, "lost"),
        (2, "completed"),
    ]


def test_sessions_are_found(people: AgentHost, model: PracticeModel):
    """By a part of their id, by time, and by how they are; a page says where to look on."""
    model.plan({"text": "Hello."}, times=3)
    for name in ("Find-one", "find-two", "other-find"):
        assert people.run("Talker", {"message": "hi", "session_id": name}).ok
    model.plan(plan_payments(1))
    pending_turn = waiting_turn(people, agent="Talker", session_id="find-waiting")

    def find_sessions(**query: str) -> list[str]:
        page = people.get(f"/agents/Talker/sessions?{'&'.join(f'{k}={v}' for k, v in query.items())}").json()
        return [session["session_id"] for session in page["sessions"]]

    assert set(find_sessions(search="FIND-")) == {"Find-one", "find-two", "find-waiting"}
    assert find_sessions(search="find", status="waiting") == ["find-waiting"]
    assert set(find_sessions(search="find", status="completed,failed")) == {"Find-one", "find-two", "other-find"}
    assert len(find_sessions(search="find", used_from="2020-01-01T00:00:00Z")) == 4
    page = people.get("/agents/Talker/sessions?search=find&status=completed&limit=2").json()
    next_page = people.get(f"/agents/Talker/sessions?search=find&status=completed&cursor={page['cursor']}").json()
    assert len({session["session_id"] for session in page["sessions"] + next_page["sessions"]}) == 3
    (summary,) = people.get("/agents/Talker/sessions?search=find-waiting&details=true").json()["sessions"]
    assert (summary["status"], summary["running_turn_id"]) == ("waiting", pending_turn["turn_id"])
    for wrong in ("status=odd", "details=2", "used_from=soon", "used_from=9999-12-31T23:59:59-23:59"):
        assert people.get(f"/agents/Talker/sessions?{wrong}").status_code == 400
    assert requests.post(f"{pending_turn['turn_url']}/cancel").ok


def test_a_failed_model_call_is_a_step(people: AgentHost, model: PracticeModel):
    """It has the reason; after a retry the call has both steps."""
    model.plan(
        {"error": {"status": 429, "message": "slow", "retry_after": 0.1}},
        {"error": {"status": 400, "message": "no such temperature"}},
        user_text="refuse this",
    )
    response = people.run("Talker", {"message": "refuse this"})
    assert response.status_code == 502
    session, turn = response.headers["x-ms-session-id"], response.headers["x-ms-turn-id"]
    steps = steps_of(f"{people.url}/api/agents/Talker/sessions/{session}/turns/{turn}")
    assert kinds(steps) == ["wait:queue", "attempt", "retry", "model_call", "end"]
    call, end = steps[3:]
    assert (call["outcome"], call["position"], call["attempt"], end["status"]) == ("failed", 0, 1, "failed")
    assert "rejected the call with 400" in call["reason"]
    assert call["ended_at"] is not None


def test_a_tool_that_a_cancel_cut_off_is_not_in_doubt(people: AgentHost, model: PracticeModel):
    """It is cancelled, because nothing crashed."""
    model.plan({"calls": [{"name": "rest", "arguments": {"seconds": 60}}]})
    url = people.run("Rester", {"message": "rest", "wait_for_response": False}).json()["turn_url"]
    wait_until(lambda: "tool_call" in kinds(steps_of(url)))
    assert requests.post(f"{url}/cancel", timeout=30).ok
    wait_until(lambda: requests.get(url, timeout=30).json()["status"] == "cancelled")
    steps = steps_of(url)
    assert kinds(steps) == ["wait:queue", "attempt", "model_call", "tool_call", "end"]
    assert (steps[3]["outcome"], steps[3]["in_doubt"], steps[3]["ended_at"] is None) == ("cancelled", False, False)


def test_a_model_call_that_a_cancel_cut_off_is_not_lost(people: AgentHost, model: PracticeModel):
    """It is cancelled, with the text until then, and is not repeated."""
    model.plan({"text": LONG_TEXT, "chunk_characters": 6, "delay_milliseconds": 60})
    body = {"message": "talk", "wait_for_response": False}
    url = people.run("Talker", body).json()["turn_url"]
    wait_until(lambda: any(step.get("characters", 0) > 12 for step in steps_of(url)))
    assert requests.post(f"{url}/cancel", timeout=30).ok
    wait_until(lambda: requests.get(url, timeout=30).json()["status"] == "cancelled")
    steps = steps_of(url)
    assert kinds(steps) == ["wait:queue", "attempt", "model_call", "end"]
    assert [steps[1]["ended"], steps[2]["outcome"], steps[3]["status"]] == ["cancelled"] * 3
    assert (steps[2]["characters"] > 12, steps[2]["ended_at"] is None) == (True, False)
