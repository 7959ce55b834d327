"""Rules between items: calls and outputs, reasoning and its follower, unique ids.

Theory: a request sends `replayed_items`; the service prepends `previous_items` of a previous response or a
conversation. Previous items are valid by construction, so only replayed items can break a rule about reasoning; but a
call may be among the previous items and its output be replayed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import get_item_type, get_role
from practice_model.dialects.responses.transcript import (
    APPROVAL_REQUEST,
    CALLS,
    RequestId,
    Transcript,
    get_request_id,
    request_id_of_result,
)

HOSTED_CALLS = frozenset(
    {"code_interpreter_call", "web_search_call", "file_search_call", "mcp_call", "image_generation_call"}
    | {"tool_search_call"}
)
_INPUT_ONLY = frozenset({"function_call_output", "custom_tool_call_output", "item_reference", "mcp_approval_response"})


class IssuedItemInfo(Protocol):
    """An item that the service issued, with its related items."""

    @property
    def item(self) -> Json:
        """The final item."""
        ...

    @property
    def is_stored(self) -> bool:
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


class IssuedItemLookup(Protocol):
    """Looks up issued items by id."""

    def find_issued_item(self, item_id: str) -> IssuedItemInfo | None:
        """Return the item issued under this id."""
        ...


@dataclass(frozen=True)
class ReasoningRules:
    """Inferred rules about reasoning items, not observed; see `Rules`."""

    dropped_hosted_call: bool
    call_needs_id: bool
    unstored_needs_follower: bool
    unstored_message_needs_id: bool


def check_duplicates(replayed_items: Sequence[Json], previous_items: Transcript) -> HttpError | None:
    """Return the error for a duplicate item id."""
    item_ids: set[str] = set()
    for item in replayed_items:
        item_id = item.get("id")
        if item_id and (item_id in item_ids or previous_items.has_id(item_id)):
            hint = "Remove duplicate items from your input and try again."
            return _input_error(f"Duplicate item found with id {item_id}. {hint}")
        if item_id:
            item_ids.add(item_id)
    return None


def check_calls(
    replayed_items: Sequence[Json], previous_items: Transcript, *, one_output_per_call: bool
) -> HttpError | None:
    """Return the error for a call of the app's tools without an output, or an output without a call.

    An output belongs to the nearest open call of its id: ids may recur in a later turn.
    """
    open_calls = [request_id for request_id in previous_items.open if request_id[0] in CALLS]
    completed_calls: set[RequestId] = set()
    for item in replayed_items:
        request_id = get_request_id(item)
        result_request_id = request_id_of_result(item)
        if request_id and request_id[0] in CALLS:
            open_calls.append(request_id)
        elif result_request_id and result_request_id[0] in CALLS:
            if result_request_id in open_calls:
                open_calls.remove(result_request_id)
                completed_calls.add(result_request_id)
            elif one_output_per_call or not (
                result_request_id in completed_calls or previous_items.has_result(result_request_id)
            ):
                return _input_error(
                    f"No tool call found for {CALLS[result_request_id[0]]} output with call_id {result_request_id[1]}."
                )
    for kind, call_id in open_calls:
        return _input_error(f"No tool output found for {CALLS[kind]} {call_id}.")
    return None


def check_approvals(replayed_items: Sequence[Json], previous_items: Transcript) -> HttpError | None:
    """Return the error for approval requests without an approval."""
    approved_ids = {request_id_of_result(item) for item in replayed_items}
    request_ids = [*previous_items.open, *(get_request_id(item) for item in replayed_items)]
    missing_ids = [
        request_id[1]
        for request_id in request_ids
        if request_id and request_id[0] == APPROVAL_REQUEST and request_id not in approved_ids
    ]
    return (
        _input_error(f"The following MCP approval requests do not have an approval: {', '.join(missing_ids)}")
        if missing_ids
        else None
    )


def check_reasoning(
    replayed_items: Sequence[Json],
    previous_items: Transcript,
    issued_items: IssuedItemLookup,
    rules: ReasoningRules,
    *,
    is_stored: bool,
) -> HttpError | None:
    """Return the error for reasoning without its follower, or a stored item without its reasoning."""
    for violation in _find_reasoning_violations(
        replayed_items, previous_items, issued_items, rules, is_stored=is_stored
    ):
        return violation
    return None


def _find_reasoning_violations(
    replayed_items: Sequence[Json],
    previous_items: Transcript,
    issued_items: IssuedItemLookup,
    rules: ReasoningRules,
    *,
    is_stored: bool,
) -> Iterator[HttpError]:
    earlier_ids: set[Any] = set()
    for item, next_item in zip(replayed_items, [*replayed_items, None][1:], strict=True):
        issued_item = issued_items.find_issued_item(str(item.get("id")))
        if get_item_type(item) == "reasoning" and item.get("id"):
            must_pair = is_stored or bool(issued_item and issued_item.is_stored)
            is_valid_follower = _follows if must_pair else _follows_unstored
            if not is_valid_follower(next_item, issued_item.follower if issued_item else None, rules):
                yield _input_error(
                    f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
                )
        elif (
            issued_item
            and issued_item.is_stored
            and issued_item.reasoning_id
            and not _is_present(issued_item.reasoning_id, earlier_ids, previous_items)
        ):
            yield _input_error(
                f"Item '{item['id']}' of type '{get_item_type(item)}' was provided without its required 'reasoning' "
                f"item: '{issued_item.reasoning_id}'."
            )
        earlier_ids.add(item.get("id"))


def _is_present(item_id: str, earlier_ids: set[Any], previous_items: Transcript) -> bool:
    return item_id in earlier_ids or previous_items.has_id(item_id)


def _follows(next_item: Json | None, follower: Json | None, rules: ReasoningRules) -> bool:
    """Return whether the item after a stored reasoning item is its follower."""
    if follower is None:
        return _may_follow(next_item, rules) and not _is_message_without_id(next_item)
    if next_item is not None and next_item.get("id") == follower.get("id"):
        return True
    if get_item_type(follower) in HOSTED_CALLS and not rules.dropped_hosted_call:
        return True
    is_same_call = next_item is not None and _get_call_id(next_item) == _get_call_id(follower) is not None
    return is_same_call and not rules.call_needs_id


def _follows_unstored(next_item: Json | None, _follower: Json | None, rules: ReasoningRules) -> bool:
    if rules.unstored_needs_follower and not _may_follow(next_item, rules):
        return False
    return not (rules.unstored_message_needs_id and _is_message_without_id(next_item))


def _may_follow(next_item: Json | None, rules: ReasoningRules) -> bool:
    """Return whether a model can produce this item right after reasoning."""
    if next_item is None or get_item_type(next_item) == "reasoning" or get_role(next_item) not in {"", "assistant"}:
        return not rules.dropped_hosted_call
    return get_item_type(next_item) not in _INPUT_ONLY


def _is_message_without_id(item: Json | None) -> bool:
    return item is not None and get_role(item) == "assistant" and not item.get("id")


def _get_call_id(item: Mapping[str, Any]) -> str | None:
    return str(item["call_id"]) if get_item_type(item) == "function_call" else None


def _input_error(message: str) -> HttpError:
    return HttpError(400, message, param="input")
