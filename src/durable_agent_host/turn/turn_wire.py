"""Data that crosses the durable boundary during a turn: request and outcome, as plain JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final, cast, get_args

from durable_agent_host.codec.entity_state import (
    decode_budget_usage,
    decode_stats,
    encode_budget_usage,
    encode_stats,
    field_values,
)
from durable_agent_host.codec.session_blobs import decode_sealing, encode_sealing, json_bytes_of
from durable_agent_host.codec.strict_json import value_at
from durable_agent_host.errors import RequestError
from durable_agent_host.model.turn import TurnOutcome, TurnRequest, TurnStatus
from durable_agent_host.turn.turn_events import SEPARATOR, ResponseMessageWire

_ABSENT_WHEN_NONE: Final = ("principal", "tenant", "owner", "traceparent", "stored", "raw")
"""Fields that are left out when they have no value."""
_LARGE: Final = ("message", "response_format", "options", "contents", "client_tools")
"""Fields of a request that may be stored outside of it."""
_OUTCOME_NAMES: Final = {"model_info": "served", "budget_usage": "spent", "attempt_metrics": "work"}
"""Fields of an outcome that have another name in JSON."""
_ALWAYS_PRESENT: Final = frozenset(
    {"turn_id", "status", "text", "entries", "agent_session", "usage", "error", "message_count", "stats"}
    | {"request_hash", "ended_at"}
)
"""Fields of an outcome that are present when empty."""


def encode_turn_request(request: TurnRequest) -> dict[str, Any]:
    """Encode a request as the input of the turn's orchestration.

    Returns:
        A JSON object, with the names of `TurnRequest`.
    """
    wire = {field.name: getattr(request, field.name) for field in fields(TurnRequest)}
    for name in _ABSENT_WHEN_NONE:
        if wire[name] is None:
            del wire[name]
    if not request.resumes:
        del wire["resumes"]
    for name in ("contents", "client_tools"):
        if values := wire.pop(name):
            wire[name] = [dict(value) for value in values]
    return wire


def decode_turn_request(wire: Mapping[str, Any]) -> TurnRequest:
    """Decode a request, ignoring names unknown to this version."""
    return TurnRequest(*field_values(TurnRequest, wire))


def split_request(request: TurnRequest, max_bytes: int) -> tuple[TurnRequest, dict[str, Any] | None]:
    """Split a request that is too large to travel.

    Returns:
        The request without its large fields, and those fields, to be stored; or the same request and None.
    """
    wire = encode_turn_request(request)
    if len(json_bytes_of(wire)) <= max_bytes:
        return request, None
    travelling_request = replace(request, message="", response_format=None, options={}, contents=(), client_tools=())
    return travelling_request, {name: wire[name] for name in _LARGE if name in wire}


def raw_fields(request: TurnRequest) -> dict[str, Any]:
    """Return a redacted request's original fields; `join_request` puts them back."""
    wire = encode_turn_request(request)
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
        A JSON object, with the names of `TurnOutcome`, except ``served``, ``spent`` and ``work``.
    """
    wire = {_OUTCOME_NAMES.get(field.name, field.name): getattr(outcome, field.name) for field in fields(TurnOutcome)}
    wire |= {name: list(wire[name]) for name in ("entries", "pending", "messages")}
    wire["stats"] = encode_stats(outcome.stats)
    if outcome.sealing:
        wire["sealing"] = encode_sealing(outcome.sealing)
    if outcome.budget_usage is not None:
        wire["spent"] = encode_budget_usage(outcome.budget_usage)
    return {
        name: value
        for name, value in wire.items()
        if value or name in _ALWAYS_PRESENT or (name == "overlay" and value is not None)
    }


def decode_turn_outcome(wire: Mapping[str, Any]) -> TurnOutcome:
    """Decode an outcome, ignoring names unknown to this version."""
    return replace(
        TurnOutcome(*field_values(TurnOutcome, wire)),
        stats=decode_stats(wire.get("stats") or {}),
        sealing=decode_sealing(wire["sealing"]) if wire.get("sealing") else None,
        model_info=wire.get("served"),
        budget_usage=decode_budget_usage(wire.get("spent")),
        attempt_metrics=wire.get("work"),
    )


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


def check_turn_outcome(wire: Any) -> None:
    """Check data that becomes a receipt: anyone who may call entities can call the operation.

    Raises:
        RequestError: it is not an outcome; says what is wrong with it.
    """
    check_turn_named(wire)
    if (status := wire.get("status")) not in get_args(TurnStatus):
        raise RequestError(f"the status of a turn's end is {status!r:.100}: one of {', '.join(get_args(TurnStatus))}")
    for name in ("text", "finish_reason", "request_hash", "ended_at", "text_at", "joined_turn_id"):
        if not isinstance(wire.get(name) or "", str):
            raise RequestError(f"{name!r} of a turn's end is no text")
    for name in ("error", "refusal", "agent_session", "overlay", "steered_by"):
        if not isinstance(wire.get(name) or {}, dict):
            raise RequestError(f"{name!r} of a turn's end is no object")
    check_figures(wire)
    error: dict[str, Any] = wire.get("error") or {}
    if not all(isinstance(error.get(name, ""), str) for name in ("type", "message")):
        raise RequestError("'error' of a turn's end has a 'type' or a 'message' that is no text")
    entries: Any = wire.get("entries") or []
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in cast("list[Any]", entries)):
        raise RequestError("'entries' of a turn's end is no list of objects")


def check_figures(wire: Mapping[str, Any]) -> None:
    """Check the figures of a turn's end.

    Raises:
        RequestError: a figure is not a number.
    """
    for name in ("stats", "spent"):
        figures: Any = wire.get(name) or {}
        if not isinstance(figures, dict):
            raise RequestError(f"{name!r} of a turn's end is no object")
        if not all(isinstance(figure, int | float) for figure in cast("dict[str, Any]", figures).values()):
            raise RequestError("'stats' or 'spent' of a turn's end has a figure that is no number")


def check_turn_named(wire: Any) -> None:
    """Check that the input of an operation names its turn.

    Raises:
        RequestError: it does not.
    """
    turn_id = value_at(wire, "turn_id")
    if not isinstance(turn_id, str) or not turn_id:
        raise RequestError("the operation takes an object with the 'turn_id' of a turn, a text")
