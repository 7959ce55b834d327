"""A session's knowledge of an ended turn: the only reader of receipts. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from durable_agent_host.codec.approval_records import approvals_of
from durable_agent_host.codec.content import decode_usage
from durable_agent_host.codec.extension_data import extension_of
from durable_agent_host.codec.message import decode_messages, decode_response, options_of, served_by
from durable_agent_host.model.session import Receipt
from durable_agent_host.model.turn import Turn, TurnOutcome, TurnStats
from durable_agent_host.session.external_messages import kept_by
from durable_agent_host.stream.live_events import answer_text
from durable_agent_host.turn.turn_wire import decode_turn_request

ANSWER_GONE: Final[Mapping[str, Any]] = {
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
"""How many hexadecimal digits of a SHA-256 a receipt keeps; 128 bits distinguish any two requests."""


class EndedTurn(NamedTuple):
    """A turn that has a receipt.

    Attributes:
        outcome: as far as the session still knows it; without entries.
        asked: the stored request entry, or None.
        has_lost_answer: it completed, and its answer is no longer part of the session.
        answers: of known persons, by call id.
    """

    outcome: TurnOutcome
    asked: Mapping[str, Any] | None
    has_lost_answer: bool
    answers: Mapping[str, Mapping[str, Any]] = {}


def ended_turn(
    turn_id: str, receipt: Receipt | None, entries: Mapping[int, Mapping[str, Any]], message_count: int
) -> EndedTurn | None:
    """Return how a turn ended, from its receipt and its entries. Guarantee: pure.

    Args:
        turn_id: the turn.
        receipt: of the turn, or None.
        entries: of the turn, complete, by their positions in the conversation, from 1.
        message_count: entries of the conversation.

    Returns:
        How it ended, or None without a receipt.
    """
    if receipt is None:
        return None
    found = {str(entry.get("$type")): entry for entry in entries.values()}
    answered = found.get("response")
    usage: Any = answered.get("usage") if answered else None
    outcome = TurnOutcome(
        turn_id,
        receipt.status,
        text=answer_text(decode_response(answered)) if answered else "",
        usage=decode_usage(usage) if usage else None,
        served=served_by(answered) if answered else None,
        error=receipt.error,
        message_count=max(entries, default=message_count),
        stats=receipt.stats or TurnStats(),
        spent=receipt.spent,
        request_hash=receipt.request_hash,
        ended_at=receipt.ended_at,
        redacted=any(extension_of(entry).get("redacted") is True for entry in entries.values()),
    )
    has_answer = answered is not None and kept_by(answered) is None
    return EndedTurn(
        outcome, found.get("request"), receipt.status == "completed" and not has_answer, approvals_of(answered)
    )


def kept_turn(agent: str, session_id: str, ended: EndedTurn) -> Turn:
    """Return a turn that no longer has an orchestration.

    Guarantee: pure.

    Args:
        agent: the agent's registered name.
        session_id: without the agent's name.
        ended: from its session.

    Returns:
        The turn; one whose answer is gone has failed with the reason.
    """
    asked = ended.asked
    outcome = ended.outcome
    request = {
        "agent": agent,
        "session_id": session_id,
        "turn_id": outcome.turn_id,
        "message": _text_of(asked) if asked else "",
        "options": options_of(asked) if asked else {},
        "response_format": asked.get("responseSchema") if asked else None,
        "created_at": str(asked.get("createdAt") or "") if asked else "",
        "request_hash": outcome.request_hash,
    }
    if ended.has_lost_answer:
        outcome = gone(outcome)
    return Turn(request=decode_turn_request(request), outcome=outcome, answers=ended.answers)


def gone(outcome: TurnOutcome) -> TurnOutcome:
    """Return the outcome of an ended turn whose answer is no longer kept. Guarantee: pure."""
    return replace(outcome, status="failed", text="", error=ANSWER_GONE)


def _text_of(asked: Mapping[str, Any]) -> str:
    contents = [content for message in decode_messages([asked])[:1] for content in message.contents]
    return "\n".join(content.text or "" for content in contents if content.type == "text")


def kept_hash(request_hash: str) -> str:
    """Shorten a request's hash to the part that a receipt keeps. Guarantee: pure."""
    return request_hash[:_HASH_CHARACTERS]


def is_same_request(known_hash: str, request_hash: str) -> bool:
    """Return whether a known turn came from the same request.

    Guarantee: pure.

    Args:
        known_hash: of the known turn: whole, shortened as in a receipt, or empty for callers that gave none.
        request_hash: of the current request, or empty.

    Returns:
        False only when both are known and differ.
    """
    return not (known_hash and request_hash) or kept_hash(known_hash) == kept_hash(request_hash)
