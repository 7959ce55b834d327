"""Requests of turns, whoever asks."""

import json

import pytest

from durable_agent_host.codec.message import decode_messages, encode_request_entry, options_of
from durable_agent_host.durable.session_entity import read_run_request
from durable_agent_host.errors import RequestError
from durable_agent_host.http.parse import parse_run
from durable_agent_host.model.principal import Principal
from durable_agent_host.model.turn import Caller, TurnRequest
from durable_agent_host.turn.message_input import MessageInput
from durable_agent_host.turn.turn_requests import hash_of, read_turn_request, request_of_client, valid_traceparent
from durable_agent_host.turn.turn_wire import decode_turn_request, encode_turn_request
from tests.durable_agent_host.golden import golden

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
INPUT = {"agent": "Agent", "message": "hi"}


def read(**more) -> TurnRequest:
    return read_turn_request(INPUT | more, instance_id="turn", created_at="now")


def asked(**more) -> TurnRequest:
    given = {"caller": Caller(), "session_id": None, "key": None, "created_at": "now", "request_hash": ""} | more
    ids = iter(["first", "second"])
    return request_of_client("Agent", MessageInput("hi"), new_id=lambda: next(ids), **given)


@pytest.mark.parametrize(
    "value",
    [TRACE, TRACE.replace("00-4", "cc-4"), TRACE.replace("00-4", "cc-4") + "-more", TRACE[:-2] + "00"],
)
def test_a_traceparent_that_names_a_trace_is_kept(value):
    """A valid header is kept to the letter, of a later version without what that appends."""
    assert valid_traceparent(value) == value[:55]
    assert read(traceparent=value).traceparent == value[:55]


@pytest.mark.parametrize(
    "value",
    [
        *(None, "", 5, "x", TRACE[:-1], TRACE + "0", TRACE + "-more", TRACE.upper(), f"{TRACE},{TRACE}", f" {TRACE}"),
        *("ff" + TRACE[2:], TRACE.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32)),
        *(TRACE.replace("00f067aa0ba902b7", "0" * 16), TRACE + "\n", TRACE.replace("0f", "0é")),
    ],
)
def test_a_malformed_traceparent_is_left_out(value):
    """A header that breaks the rules of W3C Trace Context counts as none; it fails no request."""
    assert valid_traceparent(value) is None
    assert read(traceparent=value).traceparent is None


def test_principal_and_trace_travel_with_the_request():
    """What the caller is goes into the orchestration's input and comes back; without it, the input is what it was."""
    request = asked(caller=Caller(Principal("ada", "contoso", frozenset({"clerk"})), TRACE))
    wire = json.loads(json.dumps(encode_turn_request(request)))
    assert (wire["principal"], wire["tenant"], wire["traceparent"]) == ("ada", "contoso", TRACE)
    assert "clerk" not in json.dumps(wire)
    assert read_turn_request(wire, instance_id=request.turn_id, created_at="later").principal == "ada"
    assert decode_turn_request(wire) == request
    assert encode_turn_request(asked()).keys() == golden("turn-request-v1").keys()


def test_a_stored_request_with_a_principal_is_read():
    """The golden request of a known caller is read and written as it is."""
    document = golden("turn-request-v1-caller")
    request = decode_turn_request(document)
    assert (request.principal, request.traceparent) == ("ada", TRACE)
    assert encode_turn_request(request) == document


def test_a_hand_written_input_names_its_principal():
    """An orchestration passes on its own caller; a principal that is no text is refused, and not dropped."""
    assert (read(principal="ada", traceparent=TRACE).principal, read().principal) == ("ada", None)
    with pytest.raises(RequestError, match="principal"):
        read(principal={"name": "ada"})


def test_upstreams_run_names_its_principal():
    """A caller of the entity passes on its own caller, too."""
    request = read_run_request("Agent", "s", INPUT | {"principal": "ada", "traceparent": TRACE})
    assert (request.principal, request.traceparent) == ("ada", TRACE)
    with pytest.raises(RequestError, match="principal"):
        read_run_request("Agent", "s", INPUT | {"principal": 5})


def test_a_key_is_its_principals():
    """The ids that follow from a key are other ones for another principal, tenant or app, and the same for a retry."""
    callers = [Caller(), *(Caller(Principal(*who)) for who in (("ada",), ("bob",), ("ada", "contoso"), ("a", "da")))]
    given = [(caller, secret) for caller in callers for secret in ("s1", "s2")]
    named = [asked(key="k", caller=caller, secret=secret) for caller, secret in given]
    assert len({one.session_id for one in named}) == len({one.turn_id for one in named}) == len(given)
    assert [asked(key="k", caller=caller, secret=secret) for caller, secret in given] == named
    in_one = {asked(key="k", caller=caller, session_id="s").turn_id for caller in callers}
    assert len(in_one) == len(callers)


def test_a_key_names_session_and_turn():
    """The same key is the same turn, of the same session; without one, what is not named is new."""
    assert (asked().session_id, asked().turn_id) == ("first", "second")
    assert (asked(session_id="s").session_id, asked(session_id="s").turn_id) == ("s", "first")
    assert asked(key="k") == asked(key="k")
    assert asked(key="k", session_id="s").turn_id == asked(key="k", session_id="s").turn_id != asked(key="k").turn_id


def test_hashes_are_what_receipts_keep():
    """A retry is known by a hash that may have been stored by an earlier version: it is the same for ever."""
    body = {"message": "grüß dich", "session_id": "s", "response_format": {"type": "object"}}
    body |= {"policy": "reject", "enable_tool_calls": False}
    parsed = parse_run(json.dumps(body).encode(), {"content-type": "application/json"}, {}, max_bytes=1000)
    run = read_run_request("Agent", "s", {"message": "hi", "correlationId": "c", "options": {"a": 1}, "role": "user"})
    assert [parsed.request_hash, run.request_hash, hash_of("grüß \ud83d")] == [
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
