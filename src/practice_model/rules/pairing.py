"""Rules between items: calls and outputs, reasoning and its follower, unique ids.

Theory: a request sends `replayed_items`; the service prepends `previous_items` of a previous response or a
conversation. Previous items are valid by construction, so only replayed items can break a rule about reasoning; but a
call may be among the previous items and its output be replayed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

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
from practice_model.store import Store

_INPUT_ONLY = frozenset({"function_call_output", "custom_tool_call_output", "item_reference", "mcp_approval_response"})


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


def check_calls(replayed_items: Sequence[Json], previous_items: Transcript, *, is_strict: bool) -> HttpError | None:
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
            elif is_strict or not (
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
    service_state: Store,
    *,
    is_stored: bool,
    is_strict: bool,
) -> HttpError | None:
    """Return the error for reasoning without its follower, or a stored item without its reasoning."""
    earlier_ids: set[Any] = set()
    for item, next_item in zip(replayed_items, [*replayed_items, None][1:], strict=True):
        issued_item = service_state.issued_items.get(str(item.get("id")))
        if get_item_type(item) == "reasoning" and item.get("id"):
            must_pair = is_stored or bool(issued_item and issued_item.is_stored)
            follower = issued_item.follower if issued_item else None
            if must_pair:
                is_valid = _follows(next_item, follower, is_strict=is_strict)
            else:
                is_valid = not is_strict or _may_follow_with_id(next_item)
            if not is_valid:
                return _input_error(
                    f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
                )
        elif (
            issued_item
            and issued_item.is_stored
            and issued_item.reasoning_id
            and not _is_present(issued_item.reasoning_id, earlier_ids, previous_items)
        ):
            return _input_error(
                f"Item '{item['id']}' of type '{get_item_type(item)}' was provided without its required 'reasoning' "
                f"item: '{issued_item.reasoning_id}'."
            )
        earlier_ids.add(item.get("id"))
    return None


def _is_present(item_id: str, earlier_ids: set[Any], previous_items: Transcript) -> bool:
    return item_id in earlier_ids or previous_items.has_id(item_id)


def _follows(next_item: Json | None, follower: Json | None, *, is_strict: bool) -> bool:
    """Return whether the item after a stored reasoning item is its follower."""
    if follower is None:
        return _may_follow_with_id(next_item)
    if next_item is None:
        return False
    is_same_call = _get_call_id(next_item) == _get_call_id(follower) is not None
    return next_item.get("id") == follower.get("id") or (is_same_call and not is_strict)


def _may_follow_with_id(next_item: Json | None) -> bool:
    """Return whether a model can produce this item right after reasoning; a message needs an id."""
    if next_item is None or get_item_type(next_item) == "reasoning" or get_role(next_item) not in {"", "assistant"}:
        return False
    return get_item_type(next_item) not in _INPUT_ONLY and not _is_message_without_id(next_item)


def _is_message_without_id(item: Json) -> bool:
    return get_role(item) == "assistant" and not item.get("id")


def _get_call_id(item: Mapping[str, Any]) -> str | None:
    return str(item["call_id"]) if get_item_type(item) == "function_call" else None


def _input_error(message: str) -> HttpError:
    return HttpError(400, message, param="input")
