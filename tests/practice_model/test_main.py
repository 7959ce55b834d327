"""The command line: a real process."""

import json
import re
import socket
import subprocess
import sys

import httpx2

from practice_model.__main__ import _listen
from tests.processes import Server

COMMAND = [sys.executable, "-m", "practice_model"]


def test_it_prints_its_url_serves_and_stops_cleanly(tmp_path):
    """One line when it is ready, exit status 0 on SIGTERM, the requests in the file."""
    log = tmp_path / "requests.jsonl"
    with Server(*COMMAND, "--port", "0", "--requests", str(log)) as model:
        body = {"model": "practice", "input": "Hello"}
        response = httpx2.post(f"{model.url}/responses", json=body, headers={"authorization": "Bearer x"})
        assert response.json()["status"] == "completed"
        assert model.stop() == 0
        assert re.fullmatch(r"Practice model ready: http://127\.0\.0\.1:\d+/v1\n", model.text)
    assert json.loads(log.read_text())["body"] == body


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


def test_an_unwritable_requests_file_is_reported_in_one_sentence(tmp_path):
    """Its folder must exist."""
    assert "create it first" in run_and_fail("--port", "0", "--requests", str(tmp_path / "no" / "requests.jsonl"))
