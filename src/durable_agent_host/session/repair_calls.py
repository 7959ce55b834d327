"""Checks whether calls and results of a stored conversation match, and repairs them. Pure."""

import hashlib
from typing import Any, Final, NamedTuple, cast

from durable_agent_host.model.provider_item import LOST_RESULT
from durable_agent_host.model.repair_rules import RepairRules
from durable_agent_host.session.repair_items import Seen, Tell, forget_item_id, item_id_of
from durable_agent_host.session.stored_contents import Json, extension_of, stored_contents


class LooseEnds(NamedTuple):
    """Open references between a part of a conversation and the others.

    Attributes:
        calls: ids of calls without a result in it.
        results: ids of results without a call in it.
        asked: calls that it asks a person about.
    """

    calls: frozenset[Any]
    results: frozenset[Any]
    asked: frozenset[Any]


def name_calls(entries: list[Json], _rules: RepairRules, tell: Tell, seen: Seen) -> None:
    """Give an id to calls without one."""
    for number, found in enumerate(stored_contents(entries), seen.contents):
        seen.contents = number + 1
        if found.type == "functionCall" and not (isinstance(found.call_id, str) and found.call_id):
            new = f"call_{hashlib.sha256(f'{number}'.encode()).hexdigest()[:24]}"
            tell(found.place, "the call has no id", f"named it {new}")
            found.content["callId"] = new


def rename_calls(entries: list[Json], rules: RepairRules, tell: Tell, _seen: Seen) -> None:
    """Shorten ids of calls and items; equal ids stay equal, and a call keeps its result."""
    for found in stored_contents(entries):
        if found.type not in ("functionCall", "functionResult"):
            continue
        call_id, item_id = found.call_id, item_id_of(found.content, rules)
        names_item = item_id or found.type == "functionResult"
        most = rules.max_id_characters if names_item else rules.max_bare_call_id_characters
        if isinstance(call_id, str) and len(call_id) > most:
            new = f"call_{hashlib.sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"
            where = found.place
            for other in stored_contents(entries):
                if other.call_id == call_id:
                    other.content["callId"] = new
            tell(where, f"the call's id has {len(call_id)} characters, and {most} are accepted", f"named it {new}")
        if item_id and len(item_id) > rules.max_id_characters:
            tell(found.place, f"the item's id has {len(item_id)} characters", "took it away")
            forget_item_id(found.content, rules)


def drop_repeated_calls(entries: list[Json], _rules: RepairRules, tell: Tell, _seen: Seen) -> None:
    """Remove calls that were made before under the same id and have no result in between."""
    waiting: dict[str, Json] = {}
    for found in stored_contents(entries):
        if found.type == "functionResult":
            waiting.pop(found.call_id, None)
        elif found.type == "functionCall":
            if found.call_id in waiting:
                tell(found.place, f"call {found.call_id} comes twice", "left the second one out")
                found.remove()
            else:
                waiting[found.call_id] = found.content


def drop_results_without_call(entries: list[Json], _rules: RepairRules, tell: Tell, _seen: Seen) -> None:
    """Remove results whose call is missing before them."""
    waiting: set[str] = set()
    for found in stored_contents(entries):
        if found.type == "functionCall":
            waiting.add(found.call_id)
        elif found.type == "functionResult":
            if found.call_id in waiting:
                waiting.discard(found.call_id)
            else:
                tell(found.place, f"the result of {found.call_id!r} has no call before it", "left it out")
                found.remove()


def add_missing_results(entries: list[Json], _rules: RepairRules, tell: Tell, seen: Seen) -> None:
    """Give a result to calls without one, unless a person is asked about them."""
    answered: list[str] = []
    awaiting = seen.asked | asked_about(entries)
    for found in reversed(list(stored_contents(entries))):
        if found.type == "functionResult":
            answered.append(found.call_id)
        elif found.type == "functionCall" and not _runs_elsewhere(found.content) and found.call_id not in awaiting:
            if found.call_id in answered:
                answered.remove(found.call_id)
                continue
            tell(found.place, f"call {found.call_id} has no result", "added a result that says it is not known")
            result = {"$type": "functionResult", "callId": found.call_id, "result": LOST_RESULT}
            messages = cast("list[Json]", found.entry["messages"])
            position = next(n for n, message in enumerate(messages) if message is found.message)
            following = messages[position + 1] if position + 1 < len(messages) else None
            if following is not None and following["role"] == "tool":
                following["contents"] = [result, *following["contents"]]
            else:
                tool: Json = {"role": "tool", "contents": [result]}
                if "createdAt" in found.message:
                    tool["createdAt"] = found.message["createdAt"]
                messages.insert(position + 1, tool)


def drop_unanswered_hosted_calls(entries: list[Json], _rules: RepairRules, tell: Tell, _seen: Seen) -> None:
    """Remove unanswered calls of the provider's own tools: no service accepts them in an ended turn."""
    answered: list[str] = []
    for found in reversed(list(stored_contents(entries))):
        call_id = _hosted_call_id(found.content)
        if found.type in _HOSTED_RESULTS:
            answered.append(call_id)
        elif found.type == "mcpServerToolCall" or (found.type == "functionCall" and _runs_elsewhere(found.content)):
            if call_id in answered:
                answered.remove(call_id)
                continue
            tell(found.place, f"the provider's call {call_id} has no result", "left it out")
            found.remove()


_CALLS: Final = frozenset({"functionCall", "mcpServerToolCall"})
_HOSTED_RESULTS: Final = frozenset({"functionResult", "mcpServerToolResult"})


def _hosted_call_id(content: Json) -> Any:
    inner: Any = content.get("content")
    return cast("Json", inner).get("call_id") if isinstance(inner, dict) else content.get("callId")


def asked_about(entries: list[Json]) -> set[Any]:
    """Return the calls that a person is asked about."""
    return {
        _call_asked_about(found.content)
        for found in stored_contents(entries)
        if found.type == "functionApprovalRequest"
    }


def _call_asked_about(content: Json) -> Any:
    request: Any = content.get("content")
    asked: Any = cast("Json", request).get("function_call") if isinstance(request, dict) else None
    return cast("Json", asked).get("call_id") if isinstance(asked, dict) else None


def _runs_elsewhere(content: Json) -> bool:
    ours = extension_of(content)
    return bool(ours.get("hosted") or ours.get("informational_only"))


def loose_ends_of(entries: list[Json]) -> LooseEnds:
    """Return the calls and results of a part of a conversation that belong to other parts. Guarantee: pure.

    Args:
        entries: each content an object.
    """
    calls: dict[str, int] = {}
    results: set[Any] = set()
    for found in stored_contents(entries):
        call_id = _hosted_call_id(found.content)
        if not isinstance(call_id, str):
            continue
        if found.type in _CALLS:
            calls[call_id] = calls.get(call_id, 0) + 1
        elif found.type in _HOSTED_RESULTS and calls.get(call_id, 0):
            calls[call_id] -= 1
        elif found.type in _HOSTED_RESULTS:
            results.add(call_id)
    open_calls = frozenset(call_id for call_id, left in calls.items() if left)
    return LooseEnds(open_calls, frozenset(results), frozenset(asked_about(entries)))
