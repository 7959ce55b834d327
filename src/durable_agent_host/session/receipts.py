"""A session's knowledge of an ended turn: the only reader of receipts."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from durable_agent_host.codec.content import decode_usage
from durable_agent_host.codec.extension_data import extension_of
from durable_agent_host.codec.message import (
    decode_messages,
    decode_response,
    end_of_entry,
    is_structured,
    options_of,
    replies_of,
    served_by,
)
from durable_agent_host.model.conversation_file import ServiceFilesOf
from durable_agent_host.model.ending import AnswerEnd
from durable_agent_host.model.session import Receipt
from durable_agent_host.model.turn import Turn, TurnOutcome, TurnStats
from durable_agent_host.session.transcript import external_provider_of
from durable_agent_host.stream.response_messages import response_messages
from durable_agent_host.turn.turn_events import SEPARATOR
from durable_agent_host.turn.turn_wire import decode_turn_request, encode_response_messages

RESPONSE_EXPIRED: Final[Mapping[str, Any]] = {
    "type": "AnswerGoneError",
    "message": "this turn has already ended, and its answer is no longer kept: use another key to run it again",
}
"""Why an ended turn has no answer."""

KEY_REUSED: Final[Mapping[str, Any]] = {
    "type": "IdempotencyKeyReusedError",
    "message": "the key of this turn was used for another request: send the same request again, or another key",
}
"""Why an ended turn does not answer another request."""

_HASH_CHARACTERS: Final = 32


class TurnEnd(NamedTuple):
    """A turn that has a receipt.

    Attributes:
        outcome: as far as the session still knows it; without entries.
        request_entry: the stored request entry, or None.
        has_lost_response: it completed, and its answer is no longer part of the session.
        replies: decisions of known persons, by call id.
    """

    outcome: TurnOutcome
    request_entry: Mapping[str, Any] | None
    has_lost_response: bool
    replies: Mapping[str, Mapping[str, Any]] = {}


def turn_end_from_receipt(
    turn_id: str,
    receipt: Receipt | None,
    entries: Mapping[int, Mapping[str, Any]],
    message_count: int,
    service_files: ServiceFilesOf,
) -> TurnEnd | None:
    """Return how a turn ended, from its receipt and its entries.

    Returns:
        How it ended, or None without a receipt.
    """
    if receipt is None:
        return None
    entries_by_type = {str(entry.get("$type")): entry for entry in entries.values()}
    response_entry = entries_by_type.get("response")
    usage: Any = response_entry.get("usage") if response_entry else None
    text, messages = read_answer(response_entry, service_files)
    end = end_of_entry(response_entry) if response_entry and receipt.status == "completed" else AnswerEnd()
    outcome = TurnOutcome(
        turn_id,
        receipt.status,
        finish_reason=end.finish_reason,
        refusal=end.refusal,
        text=text,
        messages=messages,
        usage=decode_usage(usage) if usage else None,
        model_info=served_by(response_entry) if response_entry else None,
        error=receipt.error,
        message_count=max(entries, default=message_count),
        stats=receipt.stats or TurnStats(),
        budget_usage=receipt.budget_usage,
        request_hash=receipt.request_hash,
        ended_at=receipt.ended_at,
        joined_turn_id=receipt.joined_turn_id,
        redacted=any(extension_of(entry).get("redacted") is True for entry in entries.values()),
        is_structured=response_entry is not None and is_structured(response_entry),
    )
    has_answer = response_entry is not None and external_provider_of(response_entry) is None
    return TurnEnd(
        outcome,
        entries_by_type.get("request"),
        receipt.status == "completed" and not has_answer,
        replies_of(response_entry),
    )


def read_answer(
    response_entry: Mapping[str, Any] | None, service_files: ServiceFilesOf
) -> tuple[str, tuple[Mapping[str, Any], ...]]:
    """Return the text of a stored answer and its messages, as an outcome has them; nothing without an entry."""
    messages = response_messages(decode_response(response_entry).messages, service_files) if response_entry else []
    return SEPARATOR.join(message["text"] for message in messages), encode_response_messages(messages, "")


def turn_from_receipt(agent: str, session_id: str, turn_end: TurnEnd) -> Turn:
    """Return a turn that no longer has an orchestration.

    Returns:
        The turn; one whose answer is gone has failed with the reason.
    """
    entry = turn_end.request_entry or {}
    outcome = turn_end.outcome
    request = {
        "agent": agent,
        "session_id": session_id,
        "turn_id": outcome.turn_id,
        "message": _extract_text(entry) if entry else "",
        "options": options_of(entry),
        "response_format": entry.get("responseSchema"),
        "created_at": str(entry.get("createdAt") or ""),
        "request_hash": outcome.request_hash,
    }
    if turn_end.has_lost_response:
        outcome = expired_outcome(outcome)
    return Turn(request=decode_turn_request(request), outcome=outcome, replies=turn_end.replies)


def expired_outcome(outcome: TurnOutcome) -> TurnOutcome:
    """Return the outcome of an ended turn whose answer is no longer kept."""
    return replace(outcome, status="failed", text="", messages=(), error=RESPONSE_EXPIRED)


def _extract_text(request_entry: Mapping[str, Any]) -> str:
    contents = [content for message in decode_messages([request_entry])[:1] for content in message.contents]
    return "\n".join(content.text or "" for content in contents if content.type == "text")


def short_hash(request_hash: str) -> str:
    """Shorten a request's hash to the part that a receipt keeps; 128 bits distinguish any two requests."""
    return request_hash[:_HASH_CHARACTERS]


def is_same_request(known_hash: str, request_hash: str) -> bool:
    """Return whether a known turn came from the same request.

    Returns:
        False only when both are known and differ.
    """
    return not (known_hash and request_hash) or short_hash(known_hash) == short_hash(request_hash)
