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


def test_it_prints_its_url_serves_and_stops_cleanly(tmp_path):
    """One line when it is ready, exit status 0 on SIGTERM, the requests in the file."""
    log = tmp_path / "requests.jsonl"
    with Server(*COMMAND, "--port", "0", "--requests", str(log)) as model:
        body = {"model": "practice", "input": "Hello"}
        answer = httpx2.post(f"{model.url}/responses", json=body, headers={"authorization": "Bearer x"})
        assert answer.json()["status"] == "completed"
        assert model.stop() == 0
        assert re.fullmatch(r"Practice model ready: http://127\.0\.0\.1:\d+/v1\n", model.text)
    assert json.loads(log.read_text())["body"] == body


def test_it_stops_while_a_stream_is_running():
    """A slow stream does not hold it up."""
    with Server(*COMMAND, "--port", "0") as model:
        root = model.url.removesuffix("/v1")
        step = {"text": "x" * 1000, "chunk_characters": 1, "delay_milliseconds": 50}
        httpx2.post(f"{root}/practice/plans", json={"steps": [step]})
        body = {"model": "practice", "input": "Hello", "stream": True}
        headers = {"authorization": "Bearer x"}
        with httpx2.Client() as client, client.stream("POST", f"{root}/v1/responses", json=body, headers=headers):
            assert model.stop() == 0


def refusal(*arguments):
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    return done.stderr


def test_short_answers_are_not_held_back():
    """Its socket names TCP, so that asyncio sends every event at once."""
    with _listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_a_port_in_use_is_said_in_one_sentence():
    """With the next step, without a stack trace."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refusal("--port", str(port))
    assert said == (
        f"Port {port} on 127.0.0.1 cannot be used (Address already in use): use another --port, or 0 for a free one.\n"
    )


@pytest.mark.parametrize(("exists", "words"), [(False, "does not exist"), (True, "holds no recordings")])
def test_a_recordings_folder_of_no_use_is_said_in_one_sentence(tmp_path, exists, words):
    """Missing, or without recordings."""
    folder = tmp_path if exists else tmp_path / "missing"
    said = refusal("--port", "0", "--recordings", str(folder))
    assert words in said
    assert said.count("\n") == 1


def test_a_requests_file_that_cannot_be_written_is_said_in_one_sentence(tmp_path):
    """Its folder has to exist."""
    assert "create it first" in refusal("--port", "0", "--requests", str(tmp_path / "no" / "requests.jsonl"))
