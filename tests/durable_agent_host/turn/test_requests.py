"""Requests of turns, whoever asks."""

import json
from contextlib import suppress

import pytest

from durable_agent_host.codec.message import decode_messages, encode_request_entry, options_of
from durable_agent_host.durable.session_entity import read_run_request
from durable_agent_host.errors import RequestError
from durable_agent_host.http.parse import parse_run
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.turn.turn_requests import hash_of, read_turn_request
from durable_agent_host.turn.turn_wire import decode_turn_request, encode_turn_request
from tests.durable_agent_host.golden import golden

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
INPUT = {"agent": "Agent", "message": "hi"}


def read(**more) -> TurnRequest:
    return read_turn_request(INPUT | more, instance_id="turn", created_at="now")


def test_a_stored_request_with_a_principal_is_read():
    """The golden request of a known caller is read and written as it is."""
    document = golden("turn-request-v1-caller")
    request = decode_turn_request(document)
    assert (request.principal, request.traceparent) == ("ada", TRACE)
    assert encode_turn_request(request) == document


def test_hashes_are_what_receipts_keep():
    """A retry is known by a hash that may have been stored by an earlier version: it is the same for ever."""
    body = {"message": "grüß dich", "session_id": "s", "response_format": {"type": "object"}}
    body |= {"policy": "reject", "enable_tool_calls": False}
    run_request = parse_run(json.dumps(body).encode(), {"content-type": "application/json"}, {})
    run = read_run_request("Agent", "s", {"message": "hi", "correlationId": "c", "options": {"a": 1}, "role": "user"})
    assert [run_request.request.request_hash, run.request_hash, hash_of("grüß \ud83d")] == [
        "6c619ebe6786503b6ea6a7879a88ac74449ac3b6c6b94c4e5a518b26ca411df0",
        "cfba06a4382b91f0b1bf0a97c22b5008db5c6d7497b1ded4b8397fc172e8aa12",
        "10932a619aa44b56c5eea093b7624a9597829d3f10023ce6508858770a663ac3",
    ]


def test_a_request_with_contents_is_read_and_stored():
    """A message of several parts travels, and is stored, as the first version with parts wrote it."""
    document = golden("turn-request-v1-contents")
    request = decode_turn_request(document["request"])
    assert encode_turn_request(request) == document["request"]
    assert encode_request_entry(request) == document["entry"]
    assert options_of(document["entry"]) == request.options == {"temperature": 0.5}
    (message,) = decode_messages([document["entry"]])
    assert [content.type for content in message.contents] == ["text", "data", "uri", "hosted_file"]


def test_an_input_of_wrong_types_is_refused():
    """An orchestration of the app can start a turn with any input: what is no request is refused, field by field."""
    fields = {"turn_id": "turn", "session_id": "s", "traceparent": TRACE, "role": "user"} | read().__dict__
    for name in fields:
        for value in ([], ["x"], {}, {"x": 1}, 1, 1.5, True, "\ud800", float("nan")):
            with suppress(RequestError):
                read(**{name: value})
    for session_id in (["x"], {"x": 1}, 1, " "):
        with pytest.raises(RequestError, match="session"):
            read(session_id=session_id)
