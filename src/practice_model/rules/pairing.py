"""Rules between items: calls and outputs, reasoning and its follower, unique ids. Pure.

Theory: a request sends `replayed` items; the service prepends `kept` items of a previous response or a conversation.
Kept items are valid by construction, so only replayed items can break a rule about reasoning; but a call may be kept
and its output replayed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import kind_of, role_of
from practice_model.dialects.responses.transcript import (
    APPROVAL_REQUEST,
    CALLS,
    Question,
    Transcript,
    answered_by,
    question_of,
)

HOSTED_CALLS = frozenset(
    {"code_interpreter_call", "web_search_call", "file_search_call", "mcp_call", "image_generation_call"}
    | {"tool_search_call"}
)
_INPUT_ONLY = frozenset({"function_call_output", "custom_tool_call_output", "item_reference", "mcp_approval_response"})


class Issued(Protocol):
    """An item that the service issued, with its related items."""

    @property
    def item(self) -> Json:
        """The final item."""
        ...

    @property
    def stored(self) -> bool:
        """Whether its response was stored."""
        ...

    @property
    def reasoning_id(self) -> str | None:
        """The reasoning item that led to it."""
        ...

    @property
    def follower(self) -> Json | None:
        """The item after a reasoning item."""
        ...


class IssuedItems(Protocol):
    """Looks up issued items by id."""

    def issued_item(self, item_id: str) -> Issued | None:
        """Return the item issued under this id."""
        ...


@dataclass(frozen=True)
class ReasoningRules:
    """Inferred rules about reasoning items, not observed; see `Rules`."""

    dropped_hosted_call: bool
    call_needs_id: bool
    unstored_needs_follower: bool
    unstored_message_needs_id: bool


def check_duplicates(replayed: Sequence[Json], kept: Transcript) -> HttpError | None:
    """Return the objection to a duplicate item id."""
    seen: set[str] = set()
    for item in replayed:
        item_id = item.get("id")
        if item_id and (item_id in seen or kept.has_id(item_id)):
            hint = "Remove duplicate items from your input and try again."
            return _refuse(f"Duplicate item found with id {item_id}. {hint}")
        if item_id:
            seen.add(item_id)
    return None


def check_calls(replayed: Sequence[Json], kept: Transcript, *, one_output_per_call: bool) -> HttpError | None:
    """Return the objection to a call of the app's tools without an output, or an output without a call.

    An output belongs to the nearest open call of its id: ids may recur in a later turn.
    """
    waiting = [question for question in kept.open if question[0] in CALLS]
    answered: set[Question] = set()
    for item in replayed:
        question, answer = question_of(item), answered_by(item)
        if question and question[0] in CALLS:
            waiting.append(question)
        elif answer and answer[0] in CALLS:
            if answer in waiting:
                waiting.remove(answer)
                answered.add(answer)
            elif one_output_per_call or not (answer in answered or kept.has_answered(answer)):
                return _refuse(f"No tool call found for {CALLS[answer[0]]} output with call_id {answer[1]}.")
    for kind, call_id in waiting:
        return _refuse(f"No tool output found for {CALLS[kind]} {call_id}.")
    return None


def check_approvals(replayed: Sequence[Json], kept: Transcript) -> HttpError | None:
    """Return the objection to approval requests without an answer."""
    answers = {answered_by(item) for item in replayed}
    asked = [*kept.open, *(question_of(item) for item in replayed)]
    missing = [one[1] for one in asked if one and one[0] == APPROVAL_REQUEST and one not in answers]
    return (
        _refuse(f"The following MCP approval requests do not have an approval: {', '.join(missing)}")
        if missing
        else None
    )


def check_reasoning(
    replayed: Sequence[Json], kept: Transcript, issued: IssuedItems, rules: ReasoningRules, *, stored: bool
) -> HttpError | None:
    """Return the objection to reasoning without its follower, or a stored item without its reasoning.

    Args:
        replayed: the request's input, references resolved.
        kept: items that the service prepends.
        issued: items issued before.
        rules: enabled inferred rules.
        stored: whether the request leaves `store` on.
    """
    for objection in _reasoning_objections(replayed, kept, issued, rules, stored=stored):
        return objection
    return None


def _reasoning_objections(
    replayed: Sequence[Json], kept: Transcript, issued: IssuedItems, rules: ReasoningRules, *, stored: bool
) -> Iterator[HttpError]:
    before: set[Any] = set()
    for item, following in zip(replayed, [*replayed, None][1:], strict=True):
        known = issued.issued_item(str(item.get("id")))
        if kind_of(item) == "reasoning" and item.get("id"):
            pairs = stored or bool(known and known.stored)
            fits = _follows if pairs else _follows_unstored
            if not fits(following, known.follower if known else None, rules):
                yield _refuse(
                    f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
                )
        elif known and known.stored and known.reasoning_id and not _was_before(known.reasoning_id, before, kept):
            yield _refuse(
                f"Item '{item['id']}' of type '{kind_of(item)}' was provided without its required 'reasoning' item: "
                f"'{known.reasoning_id}'."
            )
        before.add(item.get("id"))


def _was_before(item_id: str, before: set[Any], kept: Transcript) -> bool:
    return item_id in before or kept.has_id(item_id)


def _follows(following: Json | None, expected: Json | None, rules: ReasoningRules) -> bool:
    """Return whether the item after a stored reasoning item is its follower."""
    if expected is None:
        return _may_follow(following, rules) and not _is_message_without_id(following)
    if following is not None and following.get("id") == expected.get("id"):
        return True
    if kind_of(expected) in HOSTED_CALLS and not rules.dropped_hosted_call:
        return True
    same_call = following is not None and _call(following) == _call(expected) is not None
    return same_call and not rules.call_needs_id


def _follows_unstored(following: Json | None, _expected: Json | None, rules: ReasoningRules) -> bool:
    if rules.unstored_needs_follower and not _may_follow(following, rules):
        return False
    return not (rules.unstored_message_needs_id and _is_message_without_id(following))


def _may_follow(following: Json | None, rules: ReasoningRules) -> bool:
    """Return whether a model can produce this item right after reasoning."""
    if following is None or kind_of(following) == "reasoning" or role_of(following) not in {"", "assistant"}:
        return not rules.dropped_hosted_call
    return kind_of(following) not in _INPUT_ONLY


def _is_message_without_id(item: Json | None) -> bool:
    return item is not None and role_of(item) == "assistant" and not item.get("id")


def _call(item: Mapping[str, Any]) -> str | None:
    return str(item["call_id"]) if kind_of(item) == "function_call" else None


def _refuse(message: str) -> HttpError:
    return HttpError(400, message, param="input")
