"""Looking after stored sessions: the routes, and the commands that use them, on a running host."""

import json
from uuid import uuid4

import pytest
import requests

from durable_agent_host.cli.main import main
from durable_agent_host.durable.app_secret import signal_purpose
from tests.durable_agent_host.golden import golden
from tests.kit import AgentHost, PracticeModel, exported
from tests.processes import wait_until

BROKEN_CALL = {"$type": "functionCall", "callId": "call_lost", "name": "charge", "arguments": {"amount": 1}}


def broken():
    """A session of upstream with a call that has no result, which a model's service refuses."""
    document = golden("session-upstream-1.1")
    document["data"]["conversationHistory"][1]["messages"][0]["contents"].append(BROKEN_CALL)
    return document


def command(host, capsys, action, *arguments, agent="Ledger"):
    """Run ``durable-agent-host sessions`` in this process; gives status, output and errors."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit_info:
        main(["sessions", action, "--url", host.url, agent, *arguments])
    output = capsys.readouterr()
    return exit_info.value.code, output.out, output.err


def test_session_pages_are_newest_first(lab: AgentHost):
    """The list has every session of the agent once, newest first, and continues at its cursor."""
    names = [f"list-{index}-{uuid4().hex[:6]}" for index in range(3)]
    for name in names:
        lab.run("Raising", {"message": "work", "session_id": name})
    everything = lab.get("/agents/Raising/sessions?limit=1000").json()
    assert everything["cursor"] is None
    session_ids = [session["session_id"] for session in everything["sessions"]]
    assert set(names) <= set(session_ids)
    times = [session["last_used_at"] for session in everything["sessions"]]
    assert times == sorted(times, reverse=True)
    page_ids, cursor = [], ""
    while cursor is not None:
        page = lab.get(f"/agents/raising/sessions?limit=2&cursor={cursor}").json()
        assert len(page["sessions"]) <= 2
        page_ids += [session["session_id"] for session in page["sessions"]]
        cursor = page["cursor"]
    assert page_ids == session_ids
    url = everything["sessions"][0]["session_url"]
    assert requests.get(url).json()["session_id"] == session_ids[0]


@pytest.mark.drawn(3)
@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=many", "limit=-1", "cursor=%25%25", "cursor=abc"])
def test_an_invalid_list_query_is_rejected(lab: AgentHost, query):
    """A limit or cursor that is none is a 400 that names it."""
    response = lab.get(f"/agents/Instant/sessions?{query}")
    assert response.status_code == 400
    assert query.partition("=")[0] in response.json()["detail"]


def test_a_broken_session_is_repaired_and_continues(lab: AgentHost, model: PracticeModel, capsys):
    """Requests contain a closed call; the stored session stays broken until a repair, which saves the original."""
    session = f"broken-{uuid4().hex[:8]}"
    lab.put_state("Ledger", session, broken())
    response = lab.run("Ledger", {"message": "Go on", "session_id": session})
    assert response.status_code == 200, response.text
    outputs = [item for item in model.requests()[-1]["body"]["input"] if item["type"] == "function_call_output"]
    assert any("not known" in output["output"] for output in outputs)

    before = lab.state("Ledger", session)
    assert before["data"]["conversationHistory"][:2] == broken()["data"]["conversationHistory"][:2]
    status, out, _ = command(lab, capsys, "verify", session)
    assert status == 1
    assert "call call_lost has no result" in out
    status, out, _ = command(lab, capsys, "repair", session)
    assert status == 0
    after = lab.state("Ledger", session)["data"]["conversationHistory"]
    assert after[0] == before["data"]["conversationHistory"][0]
    contents = [content for message in after[1]["messages"] for content in message["contents"]]
    assert ("functionResult", "call_lost") in [(content["$type"], content.get("callId")) for content in contents]
    assert "call call_lost has no result. Repair: added a result" in out
    original_id = out.partition("the original is session ")[2].split()[0]
    assert exported(lab.get(f"/agents/Ledger/sessions/{original_id}/export").text) == before
    assert command(lab, capsys, "verify", session)[:2] == (0, f"{session}: no problems\n")
    assert command(lab, capsys, "repair", session)[1] == f"{session}: no changes\n"

    response = lab.run("Ledger", {"message": "Go on", "session_id": session})
    assert response.status_code == 200, response.text
    outputs = [item for item in model.requests()[-1]["body"]["input"] if item["type"] == "function_call_output"]
    assert any("not known" in json.dumps(output) for output in outputs)


def test_a_newer_session_is_not_repaired(lab: AgentHost, capsys):
    """A session of a newer version stays unchanged, and the message says to upgrade."""
    session, document = f"newer-{uuid4().hex[:8]}", golden("session-v1") | {"schemaVersion": "2.0.0"}
    lab.put_state("Ledger", session, document)
    for action in ("verify", "repair"):
        status, _, errors = command(lab, capsys, action, session)
        assert status == 2
        assert "upgrade durable-agent-host" in errors
    assert lab.state("Ledger", session) == document


def test_a_running_session_is_not_repaired(lab: AgentHost):
    """While a turn runs or waits, repair is refused with 409 and changes nothing."""
    session, document = f"running-{uuid4().hex[:8]}", broken()
    document["data"]["extensionData"] = {"durableAgentHost": {"version": 1, "running": "turn-3"}}
    lab.put_state("Ledger", session, document)
    response = lab.post(f"/agents/Ledger/sessions/{session}/repair", b"")
    assert response.status_code == 409
    assert "turn-3" in response.json()["detail"]
    assert lab.state("Ledger", session) == document


def test_a_document_replaces_only_the_version_that_the_caller_read(lab: AgentHost):
    """The entity compares before it writes: a session that has changed in the meantime is not replaced."""
    session = f"changed-{uuid4().hex[:8]}"
    lab.run("Instant", {"message": "one", "session_id": session})
    before = lab.state("Instant", session)
    change = {"document": {"a": 1}, "instead_of": "0" * 32}
    purpose = signal_purpose("dafx-Instant", session, "put_document")
    lab.signal("Instant", session, "put_document", lab.mark(purpose, change))
    lab.run("Instant", {"message": "two", "session_id": session})
    now = lab.state("Instant", session)
    assert now["data"]["conversationHistory"][:2] == before["data"]["conversationHistory"]


def test_a_session_is_exported_and_imported(lab: AgentHost, model: PracticeModel, capsys, tmp_path):
    """An exported session continues under another id with the same conversation; the first is unchanged."""
    first, second, file = f"out-{uuid4().hex[:8]}", f"in-{uuid4().hex[:8]}", tmp_path / "session.json"
    lab.run("Ledger", {"message": 'charge with {"amount": 7}', "session_id": first})
    state = lab.state("Ledger", first)
    file.write_text(command(lab, capsys, "export", first)[1])
    assert exported(file.read_text()) == state
    status, out, _ = command(lab, capsys, "import", second, str(file))
    assert (status, out) == (0, f"{second}: imported, 2 entries\n")
    response = lab.run("Ledger", {"message": "What did I charge?", "session_id": second})
    assert response.status_code == 200, response.text
    assert lab.state("Ledger", first) == state
    status, _, errors = command(lab, capsys, "import", second, str(file))
    assert status == 2
    assert "already" in errors


def test_turns_that_ran_are_not_imported(lab: AgentHost):
    """An exported session that was busy is idle when it is imported: those turns belong to another host."""
    document = golden("session-v1")
    name = f"busy-{uuid4().hex[:8]}"
    response = lab.post(f"/agents/Ledger/sessions/{name}/import", json.dumps(document).encode())
    assert response.status_code == 201, response.text
    extension_data = wait_until(lambda: lab.state("Ledger", name))["data"]["extensionData"]["durableAgentHost"]
    assert "running" not in extension_data
    assert "queue" not in extension_data
    assert extension_data["receipts"] == document["data"]["extensionData"]["durableAgentHost"]["receipts"]


def test_commands_report_errors(lab: AgentHost, capsys):
    """An unknown agent or session, and a host that is not there, are sentences and status 2."""
    assert "no agent 'Nobody'" in command(lab, capsys, "verify", "s", agent="Nobody")[2]
    status, _, errors = command(lab, capsys, "show", "nothing")
    assert status == 2
    assert "no session 'nothing'" in errors
    with pytest.raises(SystemExit) as exit_info:
        main(["sessions", "list", "--url", "http://127.0.0.1:9"])
    assert exit_info.value.code == 2
    assert "no host answers" in capsys.readouterr().err
    with pytest.raises(SystemExit) as exit_info:
        main(["sessions", "show", "a", "b", "--nonsense"])
    assert exit_info.value.code == 2
    assert "--nonsense" in capsys.readouterr().err


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    "change", [{"status": [[]]}, {"status": 5}, {"error": [1]}, {"stats": "x"}, {"spent": ["x"]}, {"endedAt": {}}]
)
def test_an_invalid_receipt_breaks_no_route(lab: AgentHost, change):
    """What others stored as the end of a turn is reported, and the turn is shown without it or not there."""
    session, turn = f"odd-{uuid4().hex[:8]}", uuid4().hex
    lab.run("Ledger", {"message": "hello", "session_id": session})
    state = lab.state("Ledger", session)
    assert state is not None
    state["data"]["extensionData"]["durableAgentHost"]["receipts"][0] |= {"turnId": turn} | change
    lab.put_state("Ledger", session, state)
    path = f"/agents/Ledger/sessions/{session}"
    for suffix in ("", "/events"):
        assert lab.get(f"{path}/turns/{turn}{suffix}").status_code in {200, 404}
    assert lab.get(f"{path}/verify").json()["problems"]


@pytest.mark.drawn(2)
@pytest.mark.parametrize("url", ["zz", "http://[::1", "localhost:7071", "file:///etc/passwd", "http://"])
def test_an_invalid_url_is_reported(capsys, url):
    """One sentence with an example, and status 2; no file is opened."""
    with pytest.raises(SystemExit) as exit_info:
        main(["sessions", "list", "--url", url])
    assert exit_info.value.code == 2
    assert "http://127.0.0.1:7071" in capsys.readouterr().err
