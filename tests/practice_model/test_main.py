"""The command line: a real process."""

import json
import re
import signal
import socket
import subprocess
import sys

import httpx2
import pytest

from practice_model.__main__ import _listen


def start(*arguments):
    command = [sys.executable, "-m", "practice_model", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_it_prints_its_url_serves_and_stops_cleanly(tmp_path):
    """One line when it is ready, exit status 0 on SIGTERM, the requests in the file."""
    log = tmp_path / "requests.jsonl"
    with start("--port", "0", "--requests", str(log)) as process:
        try:
            ready = process.stdout.readline()
            url = re.fullmatch(r"Practice model ready: (http://127\.0\.0\.1:\d+/v1)\n", ready)[1]
            body = {"model": "practice", "input": "Hello"}
            answer = httpx2.post(f"{url}/responses", json=body, headers={"authorization": "Bearer x"})
            assert answer.json()["status"] == "completed"
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
            assert (process.stdout.read(), process.stderr.read()) == ("", "")
        finally:
            process.kill()
    assert json.loads(log.read_text())["body"] == body


def test_it_stops_while_a_stream_is_running():
    """A slow stream does not hold it up."""
    with start("--port", "0") as process:
        try:
            root = process.stdout.readline().split()[-1].removesuffix("/v1")
            step = {"text": "x" * 1000, "chunk_characters": 1, "delay_milliseconds": 50}
            httpx2.post(f"{root}/practice/plans", json={"steps": [step]})
            body = {"model": "practice", "input": "Hello", "stream": True}
            headers = {"authorization": "Bearer x"}
            with httpx2.Client() as client, client.stream("POST", f"{root}/v1/responses", json=body, headers=headers):
                process.send_signal(signal.SIGTERM)
                assert process.wait(10) == 0
        finally:
            process.kill()


def refusal(*arguments):
    with start(*arguments) as process:
        assert process.wait(20) == 1
        return process.stderr.read()


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
        f"Port {port} on 127.0.0.1 cannot be used (Address already in use): give another --port, or 0 for a free one.\n"
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
