"""What callers send to the management API and cannot be read is a 400, and nothing is done."""

import json

import pytest

from tests.functions_host.conftest import MANAGEMENT, Host


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "instances?top=%C2%B2"),
        ("GET", f"instances?top={'9' * 30}"),
        ("GET", "instances?top=-1"),
        ("GET", "instances?top=many"),
        ("GET", "instances?createdTimeFrom=yesterday"),
        ("GET", "instances?createdTimeTo=2026-02-30"),
        ("DELETE", "instances?createdTimeFrom=%00"),
        ("POST", "orchestrators/greet/unread?timeout=soon"),
        ("POST", "orchestrators/greet/unread?timeout=nan"),
        ("POST", "orchestrators/greet/unread?timeout=-1"),
    ],
)
def test_queries(host: Host, method: str, path: str):
    """Numbers and times in the query."""
    answer = host.send(method, f"{MANAGEMENT}/{path}")
    assert answer.status == 400
    assert answer.json["ExceptionType"] == "BadRequestError"
    assert host.send("GET", f"{MANAGEMENT}/instances/unread").status == 404


@pytest.mark.parametrize("token", ["\u00b2", "9" * 30, "abc", "-1", "\u00ff\u00fe"])
def test_continuation_tokens(host: Host, token: str):
    """A token that this API has not given."""
    answer = host.send("GET", f"{MANAGEMENT}/instances", x_ms_continuation_token=token)
    assert answer.status == 400
    assert "x-ms-continuation-token" in answer.json["ExceptionMessage"]


@pytest.mark.parametrize(
    "body",
    [b"{", b"[" * 100_000, b'"\xff"', b'"\xed\xa0\x80"', '"x"'.encode("utf-16"), '{"a": 1}'.encode("utf-32")],
    ids=["cut", "deep and cut", "no UTF-8", "surrogate", "UTF-16", "UTF-32"],
)
def test_bodies(host: Host, body: bytes):
    """Starts and events take JSON in UTF-8."""
    instance = host.run("race", 60)
    json_type = {"Content_Type": "application/json"}
    assert host.send("POST", f"{MANAGEMENT}/orchestrators/greet/unread", body, **json_type).status == 400
    assert host.send("POST", f"{MANAGEMENT}/instances/{instance}/raiseEvent/Go", body, **json_type).status == 400
    assert host.send("GET", f"{MANAGEMENT}/instances/unread").status == 404
    assert host.status(instance)["runtimeStatus"] in {"Running", "Pending"}
    host.send("POST", f"{MANAGEMENT}/instances/{instance}/terminate")


def test_readable_input_is_accepted(host: Host):
    """The mark of UTF-8, and brackets in a text."""
    for body, seen in (
        (b'\xef\xbb\xbf"\\"you\\""', "Hello you"),
        (json.dumps(json.dumps("[" * 2000 + '\\"{')).encode(), "Hello " + "[" * 2000 + '\\"{'),
    ):
        response = host.send("POST", f"{MANAGEMENT}/orchestrators/greet", body)
        assert host.wait(response.json["id"])["output"] == seen


def test_a_name_that_cannot_be_written_fails_the_orchestration(host: Host):
    """An entity of half a character is told to whoever called it, and is not tried for ever."""
    status = host.wait(host.run("calls_entity", "\ud800"))
    assert status["runtimeStatus"] == "Failed"
    assert "half of a surrogate pair" in status["output"]
