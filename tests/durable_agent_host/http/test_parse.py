"""Requests to values, and the rules that they break."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from durable_agent_host.errors import BodyStalledError, RequestError
from durable_agent_host.http import arriving_bodies
from durable_agent_host.http.parse import BodyLimit, parse_run, read_body
from durable_agent_host.http.problem_details import problem_of_error

JSON = {"content-type": "application/json"}


def parse(body, headers=None, **params):
    """Parse a call: a text as text, anything else as JSON."""
    if isinstance(body, bytes):
        return parse_run(body, headers or {}, params)
    if isinstance(body, str):
        return parse_run(body.encode(), headers or {"content-type": "text/plain"}, params)
    return parse_run(json.dumps(body).encode(), {**JSON, **(headers or {})}, params)


@pytest.mark.parametrize(
    ("content_type", "accept", "wants_json"),
    [
        ("application/json", "", True),
        ("Application/JSON; charset=utf-8", "", True),
        ("application/vnd.x+json", "", True),
        ("text/plain", "application/json", True),
        ("text/plain", "text/html, application/json;q=0.9", True),
        ("text/plain", "text/plain", False),
        ("text/plain", "*/*", False),
    ],
)
def test_content_type_and_accept_choose_the_form_of_the_answer(content_type: str, accept: str, wants_json: bool):
    """A body is JSON when its content type says so; the answer is JSON then, or when the client accepts that."""
    body = b"hi" if content_type == "text/plain" else b'{"message": "hi"}'
    call = parse(body, {"content-type": content_type, "accept": accept})
    assert (call.request.message.text, call.wants_json) == ("hi", wants_json)


async def test_a_body_that_stops_arriving_is_given_up(monkeypatch: pytest.MonkeyPatch):
    """What has arrived is read; a client that sends nothing more gets a 408, and its body counts no longer."""
    monkeypatch.setattr(arriving_bodies, "STALL_SECONDS", 0)

    async def body(size: int, *, is_complete: bool) -> AsyncIterator[bytes]:
        yield b"x" * size
        if not is_complete:
            await asyncio.Event().wait()
        yield b"y"

    bodies = arriving_bodies.ArrivingBodies(200_000)

    async def read(size: int, *, is_complete: bool) -> bytes:
        with bodies.count_body() as count:
            fragments = arriving_bodies.end_stalled(body(size, is_complete=is_complete))
            return await read_body({}, fragments, BodyLimit(200_000), count)

    assert len(await read(100_000, is_complete=True)) == 100_001
    for size in (1, 150_000, 150_000):
        with pytest.raises(BodyStalledError, match="stopped arriving") as caught:
            await read(size, is_complete=False)
        assert problem_of_error(caught.value).status_code == 408


@pytest.mark.parametrize("content_type", ["", "application/x-www-form-urlencoded", "application/octet-stream"])
def test_json_without_its_content_type_is_no_message(content_type: str):
    """An object with a message that is not sent as JSON is refused with what to send; as text it is text."""
    body = b' {"message": "hi", "session_id": "s"}'
    with pytest.raises(RequestError, match=r"application/json, or as text/plain"):
        parse(body, {"content-type": content_type})
    assert parse(body, {"content-type": "text/plain"}).request.message.text == body.decode().strip()
    for text in ('{"other": 1}', '{"message":', '["message"]', "message"):
        assert parse(text, {"content-type": content_type}).request.message.text == text


def test_a_byte_order_mark_is_no_part_of_a_body():
    """Editors write it in front of texts and JSON."""
    assert parse(b"\xef\xbb\xbfhi", {"content-type": "text/plain"}).request.message.text == "hi"
    assert parse(b'\xef\xbb\xbf{"message": "hi"}', JSON).request.message.text == "hi"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "message"),
        ("  \n", "message"),
        (b"caf\xe9", "UTF-8"),
        ({}, "message"),
        ({"message": None}, "Message is required"),
        ({"message": ""}, "Message is required"),
        ({"message": " \t"}, "blank"),
        ({"message": {"text": "hi"}}, "an object"),
        ({"message": ["hi"]}, "part 1 of .message. is a text"),
        ({"message": []}, "empty list"),
        ({"message": 5}, "a number"),
        ({"message": 1.5}, "a number"),
        ({"message": True}, "true or false"),
        ({"message": "\ud83d"}, "surrogate"),
        (["hi"], "not an object"),
        (5, "not an object"),
        (None, "not an object"),
    ],
)
def test_a_body_without_a_message_is_rejected(body, reason):
    """What is no text is no message, and the error names what came."""
    with pytest.raises(RequestError, match=reason):
        parse(body, {"content-type": "text/plain"} if isinstance(body, bytes) else None)


VALID_FIELDS = [
    ({"thread_id": None}, {"session_id": None}),
    ({"session_id": 5, "thread_id": "5"}, {"session_id": "5"}),
    ({"session_id": -3}, {"session_id": "-3"}),
    ({"session_id": 10**20}, {"session_id": "1" + "0" * 20}),
    ({"session_id": 1.5, "thread_id": "1.5"}, {"session_id": "1.5"}),
    ({"role": "user"}, {}),
    ({"policy": "queue"}, {"policy": "queue"}),
    ({"policy": "reject"}, {"policy": "reject"}),
    ({"wait_for_response": 0}, {"wait": False}),
    ({"wait_for_response": 1}, {"wait": True}),
    ({"enable_tool_calls": False}, {"enable_tool_calls": False}),
    ({"enable_tool_calls": "false"}, {"enable_tool_calls": False}),
]


@pytest.mark.parametrize(("fields", "expected"), VALID_FIELDS)
def test_valid_fields_are_accepted(fields, expected):
    """Numbers are ids, and 0 and 1 flags, for clients that were written for upstream."""
    call = parse({"message": "hi"} | fields)
    assert (vars(call) | vars(call.request)).items() >= expected.items()


NAMED_CLASS = {"__response_schema_type__": "pydantic_model", "module": "os", "qualname": "system"}
INVALID_VALUES = {
    "session_id": [["a"], {"a": 1}, True],
    "role": ["system", "banana", "assistant", "tool", "User", "", 5],
    "response_format": ["json", ["a"], 5, {}, True, NAMED_CLASS],
    "policy": ["interrupt!", "", None, 5, ["queue"], {}],
    "enable_tool_calls": ["perhaps", 5, [], {}],
    "wait_for_response": ["perhaps", 5, [], {}],
}
HINTS = {"role": "'user'", "response_format": "dictionary|Dictionary|Python class", "policy": "'queue'"}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in INVALID_VALUES.items() for value in values]
)
def test_invalid_values_are_rejected(name, value):
    """The error names the field, and what it takes."""
    with pytest.raises(RequestError, match=HINTS.get(name, name)) as refusal:
        parse({"message": "hi", name: value})
    assert name in str(refusal.value) or value == NAMED_CLASS


@pytest.mark.parametrize(
    ("value", "should_wait"), [("false", False), ("0", False), ("No", False), ("true", True), ("ON", True)]
)
def test_waiting_is_chosen_by_header_query_or_body(value, should_wait):
    """Whether to wait is asked in three places; the header goes first."""
    assert parse("hi", {"x-ms-wait-for-response": value}).wait is should_wait
    assert parse("hi", wait_for_response=value).wait is should_wait
    assert parse({"message": "hi", "wait_for_response": should_wait}).wait is should_wait
    assert (
        parse({"message": "hi", "wait_for_response": not should_wait}, {"x-ms-wait-for-response": value}).wait
        is should_wait
    )


@pytest.mark.parametrize("key", ["", "  ", "x" * 256, "a\nb"])
def test_an_invalid_idempotency_key_is_rejected(key):
    """A key is 1 to 255 characters."""
    with pytest.raises(RequestError, match="Idempotency-Key"):
        parse("hi", {"idempotency-key": key})


def test_different_requests_have_different_hashes():
    """A retry has the same hash however it is written; another request has another."""
    fields = {"message": "hi", "session_id": "s", "enable_tool_calls": True, "policy": "queue"}
    first = parse(fields)
    retry = parse(dict(reversed(fields.items())), {"idempotency-key": "k", "x-ms-wait-for-response": "false"})
    assert retry.request.request_hash == first.request.request_hash == parse("hi", session_id="s").request.request_hash
    changes = [
        {"message": "ho"},
        {"session_id": "t"},
        {"enable_tool_calls": False},
        {"response_format": {"type": "object"}},
    ]
    hashes = {parse(fields | other).request.request_hash for other in changes} | {first.request.request_hash}
    assert len(hashes) == len(changes) + 1


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("attachments", "parts of 'message'"),
        ("contents", "parts of 'message'"),
        ("messages", "did you mean 'message'"),
        ("sesion_id", "did you mean 'session_id'"),
        ("x", "It takes message, session_id"),
    ],
)
def test_a_field_that_run_does_not_have_is_named(name, hint):
    """Nothing that a client sends is dropped in silence."""
    with pytest.raises(RequestError, match=f"'{name}'.*{hint}"):
        parse({"message": "hi", name: []})


def test_the_hash_covers_parts_files_and_options():
    """Parts, files and options are part of what is asked; a text has the hash that it always had."""
    image = {"type": "image", "url": "https://example.org/a.png"}
    bodies = [
        {"message": "hi"},
        {"message": [{"type": "text", "text": "hi"}, image]},
        {"message": "hi", "options": {"temperature": 0}},
        {"message": "hi", "options": {"temperature": 1}},
    ]
    assert len({parse(body).request.request_hash for body in bodies}) == len(bodies)
    assert parse({"message": [{"type": "text", "text": "hi"}]}).request.request_hash == parse("hi").request.request_hash
    assert (
        parse("hi").request.request_hash == "79ec1d2557bdeedf3e011507e3eabb1f18fd2b93f709b6ebdb1ceedad95df834"
    )  # as the first release hashed it
