"""Retention: unused sessions expire, and the orchestrations of ended turns are purged."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests

from tests.durable_agent_host.test_scenarios_cancel import start
from tests.kit import AgentHost, PracticeModel, running_host
from tests.processes import wait_until

RETENTION = Path(__file__).parent / "apps" / "retention"
A_SECOND = "0.0003"
"""In hours."""


@pytest.fixture(scope="module")
def keeping(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """A host that keeps ended turns for a day."""
    with running_host(tmp_path_factory.mktemp("keeping"), practice_model, app=RETENTION) as running:
        yield running


def maintain(host: AgentHost) -> None:
    """Run the maintenance out of turn; the answer does not wait for its end."""
    response = requests.post(f"{host.url}/admin/functions/agent_maintenance", json={})
    assert response.status_code == 202, response.text


def maintained_until(host: AgentHost, condition: Callable[[], bool]) -> None:
    """Run the maintenance until something is true."""

    def is_done() -> bool:
        maintain(host)
        return condition()

    wait_until(is_done)


def is_deleted(host: AgentHost, agent: str, session: str) -> bool:
    """Whether a session does not exist, for clients and in the store."""
    return host.get(f"/agents/{agent}/sessions/{session}").status_code == 404 and host.state(agent, session) is None


def instance(host: AgentHost, instance_id: str) -> int:
    """Ask for an orchestration; gives the status of the answer."""
    return requests.get(f"{host.management}/instances/{instance_id}").status_code


def turn_view(host: AgentHost, session: str, turn: str) -> dict[str, Any]:
    """How a turn of the agent ``Lasting`` ended, without what the receipt of a failed turn does not have."""
    view = host.get(f"/agents/Lasting/sessions/{session}/turns/{turn}").json()
    return {name: view[name] for name in ("turn_id", "status", "response", "error", "usage", "ended_at", "stats")}


def test_a_session_expires_after_its_agents_ttl(keeping: AgentHost):
    """Sessions of other agents stay; nothing of the expired one is left, and its id begins anew."""
    session = f"s-{uuid4().hex[:8]}"
    turns = {
        agent: keeping.run(agent, {"message": "hello", "session_id": session}).headers["x-ms-turn-id"]
        for agent in ("Brief", "Lasting", "Daily")
    }
    maintained_until(keeping, lambda: is_deleted(keeping, "Brief", session))
    assert keeping.get(f"/agents/Brief/sessions/{session}/turns/{turns['Brief']}").status_code == 404
    assert instance(keeping, turns["Brief"]) == 404
    for agent in ("Lasting", "Daily"):
        assert keeping.session(agent, session)["message_count"] == 2
        assert instance(keeping, turns[agent]) == 200
    again = keeping.run("Brief", {"message": "hello again", "session_id": session})
    assert (again.status_code, again.json()["response"]) == (200, "1: hello again")


def test_a_session_that_is_used_does_not_expire(keeping: AgentHost, model: PracticeModel):
    """A turn that waits for a person is a use, however long it takes; its session expires after its end."""
    session, idle = f"s-{uuid4().hex[:8]}", f"s-{uuid4().hex[:8]}"
    model.plan({"calls": [{"name": "pay", "arguments": {"amount": 1, "to": "me"}}]}, {"text": "Paid."})
    turn = start(keeping, "Payer", "pay", session)
    (call,) = wait_until(lambda: requests.get(turn["turn_url"]).json().get("pending_calls"))
    assert keeping.run("Brief", {"message": "hello", "session_id": idle}).ok
    maintained_until(keeping, lambda: is_deleted(keeping, "Brief", idle))
    maintained_until(keeping, lambda: True)
    approval = {"call_id": call["call_id"], "approved": True}
    assert requests.post(f"{turn['turn_url']}/answers", json=approval).ok
    assert keeping.end_of_turn(turn["turn_url"])["response"] == "Paid."
    maintained_until(keeping, lambda: is_deleted(keeping, "Payer", session))


def test_ended_turns_are_purged_and_the_session_keeps_their_results(practice_model: PracticeModel, tmp_path: Path):
    """The orchestrations of turns go after the retention; status, answer and retries stay, and so do the app's own."""
    with running_host(
        tmp_path, practice_model, app=RETENTION, DURABLE_AGENT_HOST_TURN_RETENTION_HOURS=A_SECOND
    ) as host:
        session = f"s-{uuid4().hex[:8]}"
        body = {"message": "hello", "session_id": session}
        done = host.run("Lasting", body, headers={"Idempotency-Key": session})
        failure = host.run("Lasting", {"message": "fail now", "session_id": session})
        orchestration = host.orchestrate("own", {"session_id": session})
        assert (done.status_code, failure.status_code, orchestration["output"]) == (200, 502, "3: from outside")
        turns = [response.headers["x-ms-turn-id"] for response in (done, failure)]
        turns.append(host.state("Lasting", session)["data"]["conversationHistory"][-1]["correlationId"])
        assert [instance(host, turn) for turn in turns] == [200, 200, 200]
        before = [turn_view(host, session, turn) for turn in turns]
        maintained_until(host, lambda: [instance(host, turn) for turn in turns] == [404, 404, 404])
        assert [turn_view(host, session, turn) for turn in turns] == before
        assert instance(host, orchestration["instanceId"]) == 200
        again = host.run("Lasting", body, headers={"Idempotency-Key": session})
        assert (again.status_code, again.json()["turn_id"]) == (200, turns[0])
        assert again.json()["response"] == done.json()["response"]
        assert host.session("Lasting", session)["message_count"] == 4


def test_without_maintenance_there_is_no_such_function(practice_model: PracticeModel, tmp_path: Path):
    """Where another process does the maintenance, the timer can be omitted."""
    with running_host(tmp_path, practice_model, app=RETENTION, DURABLE_AGENT_HOST_MAINTENANCE_SCHEDULE="off") as host:
        url = f"{host.url}/admin/functions/agent_maintenance"
        assert requests.post(url, json={}).status_code == 404
