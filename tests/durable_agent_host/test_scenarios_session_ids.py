"""Session ids that HTTP headers and paths cannot carry as they are: every route takes and gives them."""

from urllib.parse import quote, unquote

import pytest
import requests

from tests.durable_agent_host.test_scenarios_streaming import follow, read_all, stream_turn
from tests.kit import AgentHost


@pytest.mark.drawn(1)
@pytest.mark.parametrize("session", ["größer", "😀 雨", " a b;c=d,e "])
def test_a_session_by_any_name(lab: AgentHost, session: str):
    """Turns are run, streamed and read, and the session is listed, kept, repaired, forked and deleted."""
    run = lab.run("Instant", {"message": "hi", "session_id": session})
    assert (run.status_code, run.json()["session_id"]) == (200, session)
    assert unquote(run.headers["x-ms-session-id"]) == unquote(run.headers["x-ms-thread-id"]) == session
    assert run.headers["x-ms-session-id"].isascii()
    with stream_turn(lab, "Instant", "again", session=session) as response:
        events = read_all(response).events
    assert events[0].data["session_id"] == session
    headers = {"x-ms-wait-for-response": "false"}
    later = lab.run("Instant", "later", headers=headers, session_id=session).json()
    assert follow(later["events_url"])[-1].data["session_id"] == session
    assert requests.get(later["turn_url"]).json()["session_id"] == session
    path = f"/agents/Instant/sessions/{quote(session)}"
    assert lab.get(path).json()["session_id"] == session
    assert session in [summary["session_id"] for summary in lab.get("/agents/Instant/sessions").json()["sessions"]]
    export = lab.get(f"{path}/export")
    assert lab.post(f"{path}x/import", export.content).status_code == 201
    assert lab.get(f"{path}/verify").ok
    assert lab.post(f"{path}/repair", b"{}").ok
    fork = requests.post(f"{lab.url}/api{path}/fork", json={"session_id": f"{session}-fork"})
    assert (fork.status_code, unquote(fork.headers["x-ms-session-id"])) == (201, f"{session}-fork")
    assert requests.delete(f"{lab.url}/api{path}").ok
    assert lab.get(path).status_code == 404


@pytest.mark.parametrize("name", ["session_id", "thread_id"])
def test_a_query_names_one_session(lab: AgentHost, name: str):
    """Two values are not read as one id; a comma in one value is a part of it."""
    url = f"{lab.url}/api/agents/Instant/run"
    response = requests.post(f"{url}?{name}=a&{name}=b", data=b"hi")
    assert (response.status_code, f"the query has '{name}' 2 times" in response.text) == (400, True), response.text
    response = requests.post(f"{url}?{name}=a%2Cb", data=b"hi")
    assert (response.status_code, response.headers["x-ms-session-id"]) == (200, "a,b"), response.text


def test_a_blank_session_id_is_refused(lab: AgentHost):
    """Without the id a session begins; an id of nothing, spaces or control characters is a mistake of the caller."""
    api = f"{lab.url}/api/agents/Instant"
    for blank in ("", " ", "%20%20", "%09", "%0A", "%00", "%C2%A0", ".", "%20."):
        decoded = unquote(blank)
        replies = [
            requests.post(f"{api}/run?session_id={blank}", data=b"hi"),
            requests.post(f"{api}/run?session_id=a&thread_id={blank}", data=b"hi"),
            requests.post(f"{api}/run", json={"message": "hi", "session_id": decoded}),
            requests.post(f"{api}/run", json={"message": "hi", "thread_id": decoded, "session_id": "a"}),
            requests.post(f"{api}/sessions/a/fork", json={"session_id": decoded}),
        ]
        if decoded.strip(" \n"):  # a line break in a path leads to no route
            replies += [requests.get(f"{api}/sessions/{blank.replace('.', '%2E')}/verify")]
        for reply in replies:
            assert reply.status_code == 400, (blank, reply.url, reply.text)
            assert "session" in reply.json()["detail"], (blank, reply.text)
