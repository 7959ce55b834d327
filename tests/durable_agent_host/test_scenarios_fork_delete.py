"""Forking and deleting sessions on a running host."""

from uuid import uuid4

import pytest
import requests

from durable_agent_host.cli.main import main
from tests.kit import AgentHost, PracticeModel
from tests.processes import wait_until


def delete(host: AgentHost, agent: str, session: str) -> requests.Response:
    return requests.delete(f"{host.url}/api/agents/{agent}/sessions/{session}")


def fork(host: AgentHost, agent: str, session: str, body: dict | None = None) -> requests.Response:
    return requests.post(f"{host.url}/api/agents/{agent}/sessions/{session}/fork", json=body)


def command(host, capsys, action, *arguments):
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit_info:
        main(["sessions", action, "--url", host.url, *arguments])
    output = capsys.readouterr()
    return exit_info.value.code, output.out, output.err


def test_a_deleted_session_is_not_found(lab: AgentHost, capsys):
    """Session, entity, receipts and turns are not found, the list has it no more, and the id begins anew."""
    session = f"deleted-{uuid4().hex[:8]}"
    first = lab.run("Instant", {"message": "one", "session_id": session}, headers={"Idempotency-Key": session})
    turn = first.headers["x-ms-turn-id"]
    status, out, _ = command(lab, capsys, "delete", "instant", session)
    assert status == 0
    assert out == f"{session}: deleted\n"
    assert lab.state("Instant", session) is None
    for path in ("", "/export", "/verify", f"/turns/{turn}"):
        assert lab.get(f"/agents/Instant/sessions/{session}{path}").status_code == 404
    assert requests.get(f"{lab.management}/instances/{turn}").status_code == 404
    list_items = lab.get("/agents/Instant/sessions?limit=1000").json()["sessions"]
    assert session not in [list_item["session_id"] for list_item in list_items]
    assert delete(lab, "Instant", session).status_code == 404
    assert command(lab, capsys, "delete", "Instant", session)[0] == 2

    second_response = lab.run(
        "Instant", {"message": "two", "session_id": session}, headers={"Idempotency-Key": session}
    )
    assert second_response.status_code == 200
    assert lab.session("Instant", session)["message_count"] == 2


def test_a_session_that_cannot_be_read_can_be_deleted(lab: AgentHost):
    """A state of no shape is no reason to keep it."""
    session = f"corrupt-{uuid4().hex[:8]}"
    lab.put_state("Ledger", session, {"data": 1})
    assert lab.get(f"/agents/Ledger/sessions/{session}").status_code == 409
    assert delete(lab, "Ledger", session).status_code == 200
    assert lab.state("Ledger", session) is None


def test_forking_or_deleting_an_unknown_session_is_a_404(lab: AgentHost):
    """An unknown agent, session or turn is a 404 that names it."""
    session = f"there-{uuid4().hex[:8]}"
    lab.run("Instant", {"message": "one", "session_id": session})
    for ask in (fork, delete):
        for agent, name, missing in (("Nobody", session, "Nobody"), ("Instant", "nothing", "nothing")):
            response = ask(lab, agent, name)
            assert response.status_code == 404
            assert missing in response.json()["detail"]
    response = fork(lab, "Instant", session, {"at_turn": "never"})
    assert response.status_code == 404
    assert "never" in response.json()["detail"]
    for body in ({"at": 1}, {"at_turn": 1}, {"session_id": "a/b"}, ["x"]):
        assert fork(lab, "Instant", session, body).status_code == 400


def test_a_fork_is_a_session_of_its_own(lab: AgentHost, model: PracticeModel, capsys):
    """It has the turns up to the given one and continues from there; neither session affects the other."""
    session = f"forked-{uuid4().hex[:8]}"
    turns = [
        lab.run("Kept", {"message": f"number {number}", "session_id": session}).headers["x-ms-turn-id"]
        for number in (1, 2)
    ]
    before = lab.state("Kept", session)
    status, out, _ = command(lab, capsys, "fork", "Kept", session, "--at-turn", turns[0], "--as", f"{session}-a")
    assert (status, out) == (0, f"{session}-a: forked from {session}, 2 entries\n")
    full_fork = fork(lab, "kept", session)
    assert full_fork.status_code == 201
    assert full_fork.json()["message_count"] == 4
    assert requests.get(full_fork.json()["session_url"]).json()["message_count"] == 4
    assert fork(lab, "Kept", session, {"session_id": f"{session}-a"}).status_code == 409
    assert lab.state("Kept", session) == before

    for fork_id, expected_texts in ((f"{session}-a", ["number 1", "go on"]), (full_fork.json()["session_id"], None)):
        response = lab.run("Kept", {"message": "go on", "session_id": fork_id})
        assert response.status_code == 200, response.text
        body = model.requests()[-1]["body"]
        assert "previous_response_id" not in body
        texts = [item["content"][0]["text"] for item in body["input"] if item.get("role") == "user"]
        assert texts == (expected_texts or ["number 1", "number 2", "go on"])
    assert lab.state("Kept", session) == before

    assert delete(lab, "Kept", f"{session}-a").status_code == 200
    assert lab.get(f"/agents/Kept/sessions/{session}/turns/{turns[0]}").status_code == 200
    assert lab.run("Kept", {"message": "and here", "session_id": session}).status_code == 200


def test_a_session_in_which_a_turn_runs_is_not_deleted(lab: AgentHost, model: PracticeModel):
    """It is a 409 that names the turn, and the turn ends as if nothing had been asked; a fork has what was before."""
    session = f"busy-{uuid4().hex[:8]}"
    assert lab.run("Kept", {"message": "one", "session_id": session}).status_code == 200
    model.plan({"text": "slow " * 20, "delay_milliseconds": 60}, user_text=f"two {session}")
    start_response = lab.run(
        "Kept", {"message": f"two {session}", "session_id": session, "wait_for_response": False}
    ).json()
    wait_until(lambda: lab.session("Kept", session)["running_turn_id"] == start_response["turn_id"])
    response, copy = delete(lab, "Kept", session), fork(lab, "Kept", session)
    assert response.status_code == 409
    assert start_response["turn_id"] in response.json()["detail"]
    assert copy.json()["message_count"] == 2
    wait_until(lambda: lab.session("Kept", session)["running_turn_id"] is None)
    assert lab.session("Kept", session)["message_count"] == 4
    assert delete(lab, "Kept", session).status_code == 200
    assert lab.run("Kept", {"message": "go on", "session_id": copy.json()["session_id"]}).status_code == 200
