"""The command line: a real process."""

import json
import re
import socket
import subprocess
import sys

import httpx2
import pytest

from practice_model.__main__ import _listen
from tests.processes import Server

COMMAND = [sys.executable, "-m", "practice_model"]


def test_it_prints_its_url_serves_its_plans_and_stops_cleanly(tmp_path):
    """One line when it is ready, exit status 0 on SIGTERM, the answers of a file of plans."""
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "- when: price\n  steps:\n  - calls: [{name: price, arguments: {item: pen}}]\n  - text: Two euros.\n"
    )
    with Server(*COMMAND, "--port", "0", "--plan", str(plan)) as model:
        tools = [{"type": "function", "name": "price", "parameters": {"type": "object", "properties": {}}}]

        def ask(text):
            body = {"model": "practice", "input": text, "tools": tools}
            response = httpx2.post(f"{model.url}/responses", json=body, headers={"authorization": "Bearer x"})
            return response.json()["output"][0]

        call = ask("The price?")
        assert (call["name"], json.loads(call["arguments"])) == ("price", {"item": "pen"})
        assert ask("Another question")["content"][0]["text"].startswith("You asked")
        assert ask("The price!")["content"][0]["text"] == "Two euros."
        assert model.stop() == 0
        assert re.fullmatch(r"Practice model ready: http://127\.0\.0\.1:\d+/v1\n", model.text)


def test_it_stops_while_a_stream_is_running():
    """A slow stream does not delay it."""
    with Server(*COMMAND, "--port", "0") as model:
        root = model.url.removesuffix("/v1")
        step = {"text": "x" * 1000, "chunk_characters": 1, "delay_milliseconds": 50}
        httpx2.post(f"{root}/practice/plans", json={"steps": [step]})
        body = {"model": "practice", "input": "Hello", "stream": True}
        headers = {"authorization": "Bearer x"}
        with httpx2.Client() as client, client.stream("POST", f"{root}/v1/responses", json=body, headers=headers):
            assert model.stop() == 0


def run_and_fail(*arguments):
    process = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == 1
    return process.stderr


def test_short_responses_are_not_delayed():
    """Its socket has IPPROTO_TCP, so asyncio sends every event immediately."""
    with _listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_a_port_in_use_is_reported_in_one_sentence():
    """With the next step, without a stack trace."""
    with socket.create_server(("127.0.0.1", 0)) as occupied_socket:
        port = occupied_socket.getsockname()[1]
        error_output = run_and_fail("--port", str(port))
    assert error_output == (
        f"Port {port} on 127.0.0.1 cannot be used (Address already in use): use another --port, or 0 for a free one.\n"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- steps: [{txt: a}]", "Unknown keys in the plan: ['txt']"),
        ("steps", "A plan is a JSON object with 'steps'"),
        ("- [", "has no list of plans"),
        ("7", "has no list of plans"),
    ],
)
def test_a_file_without_plans_is_reported(tmp_path, text, reason):
    """The key that is wrong, or what is missing; nothing starts."""
    plan = tmp_path / "plan.yaml"
    plan.write_text(text)
    assert reason in run_and_fail("--port", "0", "--plan", str(plan))
