"""Long sessions over HTTP and by the commands: read page by page, forked to be run again, verified, repaired."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import requests

from tests.durable_agent_host.test_scenarios_sessions import command
from tests.kit import ROOT, AgentHost, Lives, PracticeModel, running_host

HEAD_BYTES = 32 * 1024
AGENT = "BugRepro"
TURNS = 36


def sessions(host: AgentHost, path: str) -> str:
    return f"{host.url}/api/agents/{AGENT}/sessions/{path}"


@pytest.fixture(scope="module")
def long_session(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A host's data with a session of many turns, the older ones out of the head, one of them large; its turns."""
    data = tmp_path_factory.mktemp("long") / "data"
    practice_model.reset()
    practice_model.plan(*({"text": f"answer {n} " + "word " * 300} for n in range(TURNS)))
    with running_host(data, practice_model, OPENAI_STORE="false") as host:
        responses = [
            host.run(AGENT, {"message": f"question {n} " + "large " * (8000 if n == 3 else 1), "thread_id": "long"})
            for n in range(TURNS)
        ]
    assert {response.status_code for response in responses} == {200}
    return data, [response.headers["x-ms-turn-id"] for response in responses]


@pytest.fixture
def life(lives, long_session, tmp_path) -> Lives:
    """A host with a copy of the long session."""
    shutil.copytree(long_session[0], tmp_path / "0")
    return lives(ROOT, OPENAI_STORE="false")


def texts(host: AgentHost, session: str, *, has_receipts: bool = True) -> list[str]:
    """The users' messages, over all pages, of which each says how the turns on it ended."""
    texts_of_pages, cursor = [], ""
    while cursor is not None:
        page = requests.get(sessions(host, session), params={"limit": 25, "cursor": cursor}).json()
        assert len(page["messages"]) <= 25
        texts_of_pages = [
            *(item["contents"][0]["text"] for item in page["messages"] if item["role"] == "user"),
            *texts_of_pages,
        ]
        if has_receipts:
            page_turns = [*dict.fromkeys(item["turn_id"] for item in page["messages"])]
            assert [item["turn_id"] for item in page["turns"]] == page_turns
        cursor = page["previous"]
    return texts_of_pages


def test_a_long_session_is_read_forked_and_run_again(life, long_session, model, capsys, tmp_path):
    """All its turns are on pages, exports and forks; a turn is edited and run again; the fork outlives the original."""
    host, turns = life.host, long_session[1]
    texts_before = texts(host, "long")
    assert [text.split()[1] for text in texts_before] == [str(n) for n in range(TURNS)]

    status, out, _ = command(host, capsys, "show", "long", "--limit", "4", agent=AGENT)
    assert (status, len(json.loads(out)["messages"])) == (0, 4)

    before = requests.get(sessions(host, "long/export")).text
    arguments = ("--at-turn", turns[10], "--before", "--as", "edited")
    status, out, _ = command(host, capsys, "fork", "long", *arguments, agent=AGENT)
    assert (status, out) == (0, "edited: forked from long, 20 entries\n")
    model.plan({"text": "another answer"})
    assert host.run(AGENT, {"message": "question 10, put differently", "thread_id": "edited"}).status_code == 200
    sent = [item for item in model.requests()[-1]["body"]["input"] if item.get("role") == "user"]
    assert [item["content"][0]["text"] for item in sent] == [*texts_before[:10], "question 10, put differently"]
    assert requests.get(sessions(host, "long/export")).text == before
    response = requests.post(sessions(host, "long/fork"), json={"before": True})
    assert (response.status_code, "at_turn" in response.json()["detail"]) == (400, True)

    file = tmp_path / "long.json"
    file.write_text(command(host, capsys, "export", "long", agent=AGENT)[1])
    assert command(host, capsys, "import", "again", str(file), agent=AGENT)[0] == 0
    assert texts(host, "again") == texts_before
    assert len(json.dumps(host.state(AGENT, "again"))) <= HEAD_BYTES

    assert command(host, capsys, "delete", "long", "--history", "kept", agent=AGENT)[0] == 0
    for turn in turns:
        assert requests.get(sessions(host, f"long/turns/{turn}")).status_code == 404
    assert [text.split(",")[0].strip() for text in texts(host, "edited", has_receipts=False)][-1] == "question 10"
    assert texts(host, "edited", has_receipts=False)[:10] == texts_before[:10]


def test_a_lost_content_is_reported_and_repaired(life, capsys):
    """GET shows the rest, verify names turn and blob, repair leaves the entry out, and the original is kept."""
    namespace = life.host.state(AGENT, "long")["data"]["extensionData"]["durableAgentHost"]["sealed"]["namespace"]
    life.host.kill()
    (file,) = Path(life.data).rglob("segments.sqlite")
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        largest = "SELECT name FROM blobs WHERE namespace = ? ORDER BY size DESC LIMIT 1"
        (large,) = database.execute(largest, (namespace,)).fetchone()
        database.execute("DELETE FROM blobs WHERE namespace = ? AND name = ?", (namespace, large))
    host = life.crash()

    page = requests.get(sessions(host, "long")).json()
    assert len(page["messages"]) == 2 * TURNS
    assert [large in problem["problem"] for problem in page["problems"]] == [True]
    status, out, _ = command(host, capsys, "verify", "long", agent=AGENT)
    assert (status, large in out, "1 problem" in out) == (1, True, True)
    status, out, _ = command(host, capsys, "repair", "long", agent=AGENT)
    assert status == 0, out
    original_id = out.partition("the original is session ")[2].split()[0]
    assert command(host, capsys, "verify", "long", agent=AGENT)[0] == 0
    assert command(host, capsys, "verify", original_id, agent=AGENT)[0] == 1
    assert len(requests.get(sessions(host, "long")).json()["messages"]) == 2 * TURNS - 1
    assert host.run(AGENT, {"message": "go on", "thread_id": "long"}).status_code == 200


def test_an_interrupted_import_leaves_no_session(lives, model):
    """A client that leaves, or a file that ends early, stores nothing; an id is imported once."""
    host = lives(ROOT).host
    entries = [
        {
            "$type": "request",
            "correlationId": f"t{n}",
            "messages": [{"role": "user", "contents": []}],
            "x": "y" * 20_000,
        }
        for n in range(200)
    ]
    header = {"schemaVersion": "1.1.0", "data": {"conversationHistory": []}, "entryCount": len(entries)}
    lines = [json.dumps(line).encode() + b"\n" for line in (header, *entries)]
    body = b"".join(lines)
    for cut_body, problem in ((body[: len(body) // 2], "is not JSON"), (b"".join(lines[:-1]), "its end is missing")):
        response = requests.post(sessions(host, "cut/import"), data=cut_body)
        assert (response.status_code, problem in response.json()["detail"]) == (400, True), response.text

    def leaves():
        yield body[: len(body) // 2]
        raise ConnectionAbortedError

    with pytest.raises((requests.ConnectionError, ConnectionAbortedError)):
        requests.post(sessions(host, "cut/import"), data=leaves())
    assert host.state(AGENT, "cut") is None
    assert requests.post(sessions(host, "cut/import"), data=body).status_code == 201
    second_response = requests.post(sessions(host, "cut/import"), data=body)
    assert (second_response.status_code, "already" in second_response.json()["detail"]) == (409, True)
