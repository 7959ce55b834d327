"""A session of 100 MB: images and tool results of ten megabytes, in and out, at little cost to the host."""

import base64
import hashlib
import json
import random
from pathlib import Path

import pytest
import requests

from tests.durable_agent_host.process_memory import read_memory_bytes
from tests.durable_agent_host.test_scenarios_sessions import command
from tests.kit import ROOT, AgentHost, exported

MEGABYTE = 1024 * 1024
RESULTS = 9
HEAD_BYTES = 32 * 1024
AGENT = "BugRepro"


def reset_peak_memory(host: AgentHost) -> None:
    """Begin to measure anew."""
    Path(f"/proc/{host.process.pid}/clear_refs").write_text("5")


def write_large(file: Path) -> None:
    """A document of 100 MB: nine results of ten megabytes, an image of seven, text of all scripts, and small turns."""
    draw = random.Random(7)
    image = base64.b64encode(draw.randbytes(7 * MEGABYTE)).decode()
    entries = []
    for number in range(300):
        entries.append(entry("request", f"small-{number}", ("user", [{"$type": "text", "text": f"small {number}"}])))
        reply = [{"$type": "text", "text": f"reply {number} " + "wörd \U0001f600" * 100}]
        entries.append(entry("response", f"small-{number}", ("assistant", reply)))
    for number in range(RESULTS):
        turn = f"large-{number}"
        text = f"result {number}: " + 'a line of a "log", é\n' * (10 * MEGABYTE // 21)
        call = {"$type": "functionCall", "callId": f"call_{number}", "name": "echo", "arguments": {"text": "x"}}
        result = {"$type": "functionResult", "callId": f"call_{number}", "result": text}
        response_contents = [{"$type": "text", "text": f"done {number}"}]
        request_contents = [{"$type": "text", "text": f"question {number}"}]
        if not number:
            request_contents.append(
                {"$type": "data", "uri": f"data:image/png;base64,{image}", "mediaType": "image/png"}
            )
        entries.append(entry("request", turn, ("user", request_contents)))
        entries.append(
            entry("response", turn, ("assistant", [call]), ("tool", [result]), ("assistant", response_contents))
        )
    header = {"schemaVersion": "1.1.0", "data": {"conversationHistory": []}, "entryCount": len(entries)}
    file.write_text("\n".join(map(json.dumps, (header, *entries))))


def entry(kind: str, turn: str, *messages: tuple[str, list]) -> dict:
    message_list = [{"role": role, "contents": contents} for role, contents in messages]
    return {"$type": kind, "correlationId": turn, "createdAt": "2026-01-01T00:00:00+00:00", "messages": message_list}


def digest_of(file: Path) -> str:
    """Of the conversation in an exported document."""
    history = exported(file.read_text())["data"]["conversationHistory"]
    return hashlib.sha256(json.dumps(history, sort_keys=True).encode()).hexdigest()


def sessions(host: AgentHost, session: str) -> str:
    return f"{host.url}/api/agents/{AGENT}/sessions/{session}"


@pytest.mark.drawn(0)
def test_a_session_of_a_hundred_megabytes_is_supported(lives, model, tmp_path, capsys):
    """It is imported, read, verified, forked, exported, continued and deleted, and the host's memory stays flat."""
    host = lives(ROOT, OPENAI_STORE="true").host
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    write_large(before)
    assert before.stat().st_size > 100 * MEGABYTE
    assert host.run(AGENT, {"message": "warm up", "thread_id": "other"}).status_code == 200
    start = read_memory_bytes(host, is_peak=True)

    def memory_grown() -> int:
        growth = read_memory_bytes(host, is_peak=True) - start
        reset_peak_memory(host)
        return growth

    def run(action: str, *arguments: str) -> str:
        status, out, errors = command(host, capsys, action, *arguments, agent=AGENT)
        assert status == 0, out + errors
        return out

    assert run("import", "large", str(before)).startswith("large: imported, 618 entries")
    assert memory_grown() < 200 * MEGABYTE
    assert len(json.dumps(host.state(AGENT, "large"))) <= HEAD_BYTES

    newest = requests.get(sessions(host, "large"))
    assert len(newest.content) < 2 * MEGABYTE
    assert newest.json()["message_count"] == 618
    assert newest.json()["left_out"][0]["turn_id"] == "large-8"
    oldest = requests.get(sessions(host, "large"), params={"cursor": "600", "limit": 10}).json()
    assert [len(oldest["messages"]), oldest["messages"][-2]["contents"][0]["text"]] == [10, "small 299"]
    assert oldest["previous"] == "590"

    assert run("verify", "large") == "large: no problems\n"
    assert run("fork", "large", "--as", "copy") == "copy: forked from large, 618 entries\n"
    assert run("fork", "large", "--at-turn", "large-4", "--as", "half") == "half: forked from large, 610 entries\n"
    out = run("fork", "large", "--at-turn", "large-0", "--before", "--as", "anew")
    assert out == "anew: forked from large, 600 entries\n"
    response = host.run(AGENT, {"message": "and now?", "thread_id": "anew"})
    assert response.status_code == 200, response.text
    sent = [item for item in model.requests()[-1]["body"]["input"] if item.get("role") == "user"]
    assert [len(sent), sent[-1]["content"][0]["text"]] == [301, "and now?"]
    assert len(json.dumps(host.state(AGENT, "anew"))) <= HEAD_BYTES

    assert run("delete", "large").startswith("large: ")
    assert requests.get(sessions(host, "large")).status_code == 404
    after.write_bytes(requests.get(sessions(host, "copy/export")).content)
    assert memory_grown() < 200 * MEGABYTE
    assert digest_of(after) == digest_of(before)
