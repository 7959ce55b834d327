"""Data that crosses the durable boundary during a turn: request and outcome, as plain JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from durable_agent_host.codec.session_blobs import json_bytes_of
from durable_agent_host.codec.strict_json import value_at
from durable_agent_host.errors import RequestError
from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.turn.turn_events import SEPARATOR, ResponseMessageWire

_REQUEST: Final = TypeAdapter(TurnRequest)
_OUTCOME: Final = TypeAdapter(TurnOutcome)
TRAVELS_BYTES: Final = 4 * 1024
"""Largest part of a request, answer or response that travels through orchestrations; larger ones go by reference."""
_LARGE: Final = ("message", "response_format", "options", "contents", "client_tools")
"""Fields of a request that may be stored outside of it."""
_ALWAYS_PRESENT: Final = frozenset(
    {"turn_id", "status", "text", "entries", "agent_session", "usage", "error", "message_count", "stats"}
    | {"request_hash", "ended_at"}
)
"""Fields of an outcome that are present when empty."""


def encode_turn_request(request: TurnRequest) -> dict[str, Any]:
    """Encode a request as the input of the turn's orchestration, without fields that have their default.

    Returns:
        A JSON object, with the names of `TurnRequest`.
    """
    return _REQUEST.dump_python(request, mode="json", exclude_defaults=True)


def decode_turn_request(wire: Mapping[str, Any]) -> TurnRequest:
    """Decode a request, ignoring names unknown to this version.

    Raises:
        RequestError: a field is missing, or of another type.
    """
    return validate(_REQUEST, wire)


def validate[T](adapter: TypeAdapter[T], wire: Any) -> T:
    """Read a value from outside as a type.

    Raises:
        RequestError: it does not fit; names the first field that does not.
    """
    try:
        return adapter.validate_python(wire)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)[0]
        location = ".".join(map(str, details["loc"])) or "the input"
        raise RequestError(f"{location[:200]!r} is not valid: {details['msg']}") from None


def split_request(request: TurnRequest) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Encode a request, and split one that is too large to travel.

    Returns:
        The request as JSON without its large fields, and those fields, to be stored; or all of it and None.
    """
    wire = encode_turn_request(request)
    if len(json_bytes_of(wire)) <= TRAVELS_BYTES:
        return wire, None
    small = {name: value for name, value in wire.items() if name not in _LARGE}
    return small | {"message": ""}, _large_fields(wire)


def raw_fields(request: TurnRequest) -> dict[str, Any]:
    """Return a redacted request's original fields; `join_request` puts them back."""
    return _large_fields(encode_turn_request(request))


def _large_fields(wire: Mapping[str, Any]) -> dict[str, Any]:
    return {name: wire[name] for name in _LARGE if name in wire}


def join_request(request: TurnRequest, stored_fields: Mapping[str, Any]) -> TurnRequest:
    """Reassemble a split request."""
    return replace(
        request,
        stored=None,
        raw=None,
        message=stored_fields.get("message", request.message),
        response_format=stored_fields.get("response_format", request.response_format),
        options=stored_fields.get("options", request.options),
        contents=tuple(stored_fields.get("contents") or ()),
        client_tools=tuple(stored_fields.get("client_tools") or ()),
    )


def encode_turn_outcome(outcome: TurnOutcome) -> dict[str, Any]:
    """Encode an outcome as the result of the activity and the output of the orchestration.

    Returns:
        A JSON object, with the names of `TurnOutcome`.
    """
    wire: dict[str, Any] = _OUTCOME.dump_python(outcome)  # mode="json" takes no names with half a character
    wire |= {name: list(wire[name]) for name in ("messages", "entries", "pending")}
    return {
        name: value
        for name, value in wire.items()
        if value or name in _ALWAYS_PRESENT or (name == "overlay" and value is not None)
    }


def decode_turn_outcome(wire: Any) -> TurnOutcome:
    """Decode an outcome, ignoring names unknown to this version.

    Raises:
        RequestError: a field is missing, or of another type.
    """
    return validate(_OUTCOME, wire)


def encode_response_messages(messages: Sequence[ResponseMessageWire], agent: str) -> tuple[Mapping[str, Any], ...]:
    """Return the messages of an outcome without their texts; the turn's own agent is not named as their author."""
    encoded_messages: list[dict[str, Any]] = []
    for message in messages:
        author = message.get("author")
        other_fields: dict[str, Any] = {"citations": message["citations"], "files": message["files"]}
        other_fields |= {"author": author if author != agent else None}
        present_fields = {name: value for name, value in other_fields.items() if value}
        encoded_messages.append({"characters": len(message["text"]), **present_fields})
    is_plain = len(encoded_messages) == 1 and len(encoded_messages[0]) == 1
    return () if is_plain else tuple(encoded_messages)


def decode_response_messages(outcome: TurnOutcome, agent: str) -> list[ResponseMessageWire]:
    """Return the messages of a turn's answer; the turn's own agent is not named as their author."""
    if not outcome.messages:
        return [ResponseMessageWire(text=outcome.text, citations=[], files=[])] if outcome.text else []
    messages: list[ResponseMessageWire] = []
    start = 0
    for stored in outcome.messages:
        end = start + stored["characters"]
        message = ResponseMessageWire(
            text=outcome.text[start:end], citations=stored.get("citations") or [], files=stored.get("files") or []
        )
        if (author := stored.get("author")) and author != agent:
            message["author"] = author
        messages.append(message)
        start = end + len(SEPARATOR)
    return messages


def check_turn_named(wire: Any) -> None:
    """Check that the input of an operation names its turn.

    Raises:
        RequestError: it does not.
    """
    turn_id = value_at(wire, "turn_id")
    if not isinstance(turn_id, str) or not turn_id:
        raise RequestError("the operation takes an object with the 'turn_id' of a turn, a text")
