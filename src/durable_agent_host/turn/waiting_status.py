"""What a turn shows while it waits for answers (its orchestration's custom status), and their answers.

Durable Functions accepts 16 KiB of it (UTF-16), and encryption adds a third. Arguments that do not fit are left out;
the turn's events have them.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from durable_agent_host.codec.strict_json import has_python_class, is_nested_too_deeply, object_at, read_json
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.pending_call import DECISIONS

# The id of a question to a person: the call's id, unless it could be confused with another question.
#
# Call ids come from the model's service, and a person's answer is matched by the question's id. So two questions of a
# turn never have the same id, whatever ids the calls have: otherwise the answer to a harmless call would approve
# another one.

BUDGET_PREFIX: Final = "budget-"
"""Prefix of ids of budget questions; see `durable_agent_host.turn.budget_checks.LimitExceeded`."""

CALLBACK_SUFFIX: Final = ":callback"
"""Suffix of ids of calls that wait for their callback, where people may have been asked about the same call."""

_GENERATED_ID: Final = re.compile(
    rf"\A{BUDGET_PREFIX}|\A(?:m[0-9]+|[ta]:[^/]*)/|@[0-9]+\.[0-9]+\Z|:[0-9]+(?:\.[0-9]+)?\Z|{CALLBACK_SUFFIX}\Z"
)


def pending_call_id(path: CallPath, number: int, changes: int, *, is_repeated: bool) -> str:
    """Return the id of a pending call; two of a turn have different ids.

    Returns:
        The call's id; followed by its place when it is repeated or looks like an id made here; the path of a call of an
        agent within the turn's agent; from the second question on, also followed by the number, and after a change by
        both numbers.
    """
    suffix = f":{number}.{changes}" if changes else f":{number}" if number else ""
    if path.is_nested:
        return f"{path}{suffix}"
    needs_position = is_repeated or _GENERATED_ID.search(path.call_id) is not None
    position_suffix = f"@{path.position}.{path.occurrence}" if needs_position else ""
    return f"{path.call_id}{position_suffix}{suffix}"


_MAX_CHARACTERS: Final = 5800
"""Of the custom status as JSON: twice as many bytes, encrypted, are less than 16 KiB."""
MAX_VISIBLE: Final = 25
"""Maximum calls, and answers, shown at once. As calls are answered, later ones move up."""
_HOST_FIELDS: Final = frozenset({"by", "at", "stored", "digest", "redacted", "truncated"})
_LONG_FIELDS: Final = ("arguments", "reason", "schema", "progress", "result", "error")


def encode_pending(
    pending: Sequence[Mapping[str, Any]],
    replies: Mapping[str, Mapping[str, Any]],
    postponement: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Encode which calls wait and which answers have arrived, or until when the turn is postponed, and why.

    Returns:
        ``{pending, answers}``, and ``postponed``. A call whose arguments or reason do not fit has ``truncated: true``
        instead.
    """
    newest_replies = dict(list(replies.items())[-MAX_VISIBLE:])
    calls = [dict(call) for call in pending[:MAX_VISIBLE]]
    replies_json = {call_id: dict(answer) for call_id, answer in newest_replies.items()}
    status: dict[str, Any] = {"pending": calls, "answers": replies_json}
    if postponement is not None:
        status["postponed"] = postponement
    for group in (calls, list(replies_json.values())):
        _shorten(group, status, _MAX_CHARACTERS)
    return status


def shortened_calls(pending: Sequence[Mapping[str, Any]], max_characters: int) -> tuple[dict[str, Any], ...]:
    """Shorten waiting calls, so that they can travel; the turn's events have them in full.

    Returns:
        The same calls; the largest have ``truncated: true`` instead of arguments and reason.
    """
    calls = [dict(call) for call in pending]
    _shorten(calls, calls, max_characters)
    return tuple(calls)


def _shorten(entries: list[dict[str, Any]], container: Any, max_characters: int) -> None:
    for entry in sorted(entries, key=_size, reverse=True):
        if _size(container) <= max_characters:
            return
        if any(entry.get(name) for name in _LONG_FIELDS):
            entry.update({name: None for name in _LONG_FIELDS if name in entry} | {"truncated": True})


type TurnWaitState = tuple[tuple[Mapping[str, Any], ...], dict[str, Mapping[str, Any]], Mapping[str, Any] | None]
"""Calls that wait, answers by call id, and until when the turn is postponed."""


def decode_pending(status: Any) -> TurnWaitState:
    """Decode what `encode_pending` has encoded.

    Returns:
        Calls that wait, answers by call id, and until when the turn is postponed, or None.
    """
    if not isinstance(status, dict):
        return (), {}, None
    fields = cast("dict[str, Any]", status)
    return tuple(fields.get("pending") or ()), dict(fields.get("answers") or {}), fields.get("postponed")


def without_foreign_names(payload: Any, is_own: Callable[[Mapping[str, Any]], bool]) -> list[Any]:
    """Leave out of the answers of an event what only this host may say: who gave them, when, and where the rest is."""
    filtered_replies: list[Any] = []
    for approval in _answer_list(payload):
        fields = object_at(approval)
        filtered_replies.append(
            fields if is_own(fields) else {name: fields[name] for name in fields.keys() - _HOST_FIELDS}
        )
    return filtered_replies


def parse_replies(payload: Any) -> list[tuple[str, dict[str, Any]]]:
    """Parse the payload of the event that answers calls; malformed answers are left out.

    Returns:
        Call ids and their answers, in the order of the payload.
    """
    replies: list[tuple[str, dict[str, Any]]] = []
    for fields_or_other in _answer_list(payload):
        if not isinstance(fields_or_other, dict):
            continue
        fields = cast("dict[str, Any]", fields_or_other)
        call_id = fields.get("call_id")
        if is_nested_too_deeply(fields) or has_python_class(fields):
            continue
        if not isinstance(call_id, str) or (answer := _parse_answer(fields)) is None:
            continue
        answer |= {name: fields[name] for name in _HOST_FIELDS if fields.get(name)}
        replies.append((call_id, answer))
    return replies


def _parse_answer(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a decision, a result, an error or progress; None for something else."""
    if isinstance(is_approved := fields.get("approved"), bool):
        reason = fields.get("reason")
        arguments = fields.get("arguments")
        return {
            "approved": is_approved,
            "reason": reason if isinstance(reason, str) else None,
            "arguments": cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else None,
        }
    if "error" in fields:
        return {"error": fields["error"]}
    if "progress" in fields:
        return {"progress": fields["progress"]}
    return {"result": fields["result"]} if "result" in fields else None


def expired_answer(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return what stands for the answer of a pending call that nobody has answered in time."""
    reason = f"no answer before {call['expires_at']}"
    if call["kind"] in DECISIONS:
        return {"approved": False, "reason": reason, "arguments": None, "expired": True}
    return {"error": reason, "expired": True}


def _answer_list(payload: Any) -> list[Any]:
    if isinstance(payload, str):
        payload = read_json(payload) or []
    return cast("list[Any]", payload) if isinstance(payload, list) else [payload]


def _size(value: Any) -> int:
    return len(json.dumps(value))
