"""Checks whether a model's service would accept a stored conversation, and repairs it. Pure.

Theory of operation. The checks are repairs: each goes over the conversation, mends what it finds, and says in a
`Change` what was wrong and what it did. To verify a conversation is to repair a copy of it and to look at the changes;
so a conversation that was repaired always verifies. Checks run in an order in which none undoes another's work.

The rules are those of the service that receives the conversation, and come from its provider as data (`RepairRules`).
Every service requires that a call has its result, and a result its call. A service that knows its own items requires
more: reasoning is followed by the item that it led to, no item comes twice, ids are short. Other services take a
conversation that breaks those rules, and may need what they would take away.
"""

import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from durable_agent_host.codec.compact_entry import pack_entry, unpack_entry
from durable_agent_host.codec.state import decode_session
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.provider_item import LOST_RESULT
from durable_agent_host.model.repair_rules import RepairRules
from durable_agent_host.model.session import Session
from durable_agent_host.session.repair_items import Tell, forget_item_id, item_id_of, mend_items, stamp_of
from durable_agent_host.session.repair_shape import mend_shape
from durable_agent_host.session.stored_contents import Json, extension_of, stored_contents
from durable_agent_host.session.transcript import failed_turns


@dataclass(frozen=True)
class Change:
    """What is wrong at a place of the conversation, and what mends it.

    Attributes:
        place: the turn, message and content, counted from 1.
        problem: what a model's service would not accept.
        repair: what makes it acceptable.
    """

    place: str
    problem: str
    repair: str


def repair_entries(
    entries: Sequence[Mapping[str, Any]], rules: RepairRules
) -> tuple[tuple[Mapping[str, Any], ...], list[Change]]:
    """Make a conversation acceptable.

    Guarantee: pure; repairing what was repaired changes nothing.

    Args:
        entries: as they are stored, oldest first.
        rules: of the service that receives it.

    Returns:
        The entries, those without a problem as they were, and the changes in the order in which they were made.
    """
    changes: list[Change] = []

    def tell(place: str, problem: str, repair: str) -> None:
        changes.append(Change(place, problem, repair))

    readable = [entry for number, entry in enumerate(entries, 1) if _is_readable(entry, number, tell)]
    full = [copy.deepcopy(unpack_entry(entry)) for entry in readable]
    _drop_what_has_no_shape(full, tell)
    failed = failed_turns(full)
    sent = [entry for entry in full if not failed or entry.get("correlationId") not in failed]
    for check, holds in _CHECKS:
        if holds(rules):
            check(sent, rules, tell)
    return tuple(_as_stored(entry, before) for entry, before in zip(full, readable, strict=True)), changes


def repair_document(state: Any, rules: RepairRules) -> tuple[Json, list[Change]]:
    """Make the stored state of a session readable, and its conversation acceptable.

    Guarantee: pure; the argument is not changed.

    Args:
        state: what the entity holds.
        rules: of the service that receives the conversation.

    Returns:
        The state as it should be, the same in all that had no problem, and the changes.

    Raises:
        UnknownSchemaVersionError: a newer or unknown program wrote it, so nobody here knows what would be right.
        CorruptStateError: there is nothing in it that could be a conversation.
    """
    document, changes = mend_document(state)
    entries, more = repair_entries(document["data"]["conversationHistory"], rules)
    return document | {"data": document["data"] | {"conversationHistory": list(entries)}}, changes + more


def mend_document(state: Any) -> tuple[Json, list[Change]]:
    """Make the stored state of a session readable, whatever a model's service would say of its conversation.

    Guarantee: pure; the argument is not changed.

    Args:
        state: what the entity holds.

    Returns:
        The state as it should be, the same in all that had no problem, and the changes.

    Raises:
        UnknownSchemaVersionError: a newer or unknown program wrote it, so nobody here knows what would be right.
        CorruptStateError: there is nothing in it that could be a conversation.
    """
    changes: list[Change] = []
    document = cast("Json", dict(cast("Json", state)) if isinstance(state, dict) else state)
    if isinstance(state, dict) and document.get("schemaVersion") is None and isinstance(document.get("data"), dict):
        document["schemaVersion"] = Session.schema_version
        changes.append(Change("state", "it has no schemaVersion", f"wrote {Session.schema_version}"))
    if not isinstance(state, dict) or not isinstance(document.get("data"), dict):
        decode_session(state)  # says what is wrong with what is no document
    document, told = mend_shape(document)
    decode_session(document)  # refuses a version of our part that is not known
    return document, changes + [Change(place, problem, "left out") for place, problem in told]


def _as_stored(entry: Json, before: Mapping[str, Any]) -> Mapping[str, Any]:
    full = unpack_entry(before)
    if entry == full:
        return before
    return pack_entry(cast("Any", entry)) if full is not before else entry


def _is_readable(entry: Any, number: int, tell: Tell) -> bool:
    problem = "it is no entry of a conversation"
    if isinstance(entry, Mapping):
        found = cast("Mapping[str, Any]", entry)
        if found.get("$type") in ("request", "response") and isinstance(found.get("messages") or [], list):
            try:
                unpack_entry(found)
            except (CorruptStateError, AttributeError, KeyError, TypeError, IndexError):
                problem = "it is packed in a form that cannot be read"
            else:
                return True
        else:
            problem = f"its type {found.get('$type')!r} is not known"
    tell(f"entry {number}", problem, "left out")
    return False


def _drop_what_has_no_shape(entries: list[Json], tell: Tell) -> None:
    for entry in entries:
        kept: list[Json] = []
        for number, message in enumerate(cast("list[Any]", entry.get("messages") or []), 1):
            place = f"turn {entry.get('correlationId')}, message {number}"
            shaped = isinstance(message, dict) and isinstance(cast("Json", message).get("role"), str)
            contents: Any = cast("Json", message).get("contents") if shaped else None
            if not isinstance(contents, list):
                tell(place, "it has no role or no contents", "left out")
                continue
            objects = [cast("Json", content) for content in cast("list[Any]", contents) if isinstance(content, dict)]
            if len(objects) < len(cast("list[Any]", contents)):
                tell(place, "it has a content that is no object", "left that content out")
                message["contents"] = objects
            kept.append(cast("Json", message))
        if "messages" in entry:
            entry["messages"] = kept


def _name_calls(entries: list[Json], _rules: RepairRules, tell: Tell) -> None:
    """Give calls without an id one."""
    for number, found in enumerate(stored_contents(entries)):
        if found.type == "functionCall" and not (isinstance(found.call_id, str) and found.call_id):
            new = f"call_{hashlib.sha256(f'{number}'.encode()).hexdigest()[:24]}"
            tell(found.place, "the call has no id", f"named it {new}")
            found.content["callId"] = new


def _rename_calls(entries: list[Json], rules: RepairRules, tell: Tell) -> None:
    """Shorten ids of calls and of items; the same id gets the same new one, and a call keeps its result."""
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


def _drop_repeated_calls(entries: list[Json], _rules: RepairRules, tell: Tell) -> None:
    """Take away calls that were made before under the same id and have no result in between."""
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


def _drop_repeated_items(entries: list[Json], rules: RepairRules, tell: Tell) -> None:
    seen: set[str] = set()
    last_reasoning: str | None = None
    for found in stored_contents(entries):
        reasoning = extension_of(found.content).get("id") if found.type == "reasoning" else None
        item_id = item_id_of(found.content, rules) if found.type == "functionCall" else reasoning
        if reasoning is not None and reasoning == last_reasoning:
            continue  # the parts of one item stand behind each other
        last_reasoning = reasoning
        if not isinstance(item_id, str):
            continue
        if item_id not in seen:
            seen.add(item_id)
        elif reasoning is not None:
            tell(found.place, f"item {item_id} comes twice", "left the second one out")
            found.remove()
            last_reasoning = None
        else:
            tell(found.place, f"item {item_id} comes twice", "took the item's id away from the second one")
            forget_item_id(found.content, rules)


def _drop_results_without_call(entries: list[Json], _rules: RepairRules, tell: Tell) -> None:
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


def _add_missing_results(entries: list[Json], _rules: RepairRules, tell: Tell) -> None:
    answered: list[str] = []
    awaiting = {
        _asked_about(found.content) for found in stored_contents(entries) if found.type == "functionApprovalRequest"
    }
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


def _drop_unanswered_hosted_calls(entries: list[Json], _rules: RepairRules, tell: Tell) -> None:
    """Take away calls of the provider's own tools that nothing answers: no service takes them in an ended turn."""
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


_HOSTED_RESULTS: Final = frozenset({"functionResult", "mcpServerToolResult"})


def _hosted_call_id(content: Json) -> Any:
    inner: Any = content.get("content")
    return cast("Json", inner).get("call_id") if isinstance(inner, dict) else content.get("callId")


def _asked_about(content: Json) -> Any:
    request: Any = content.get("content")
    asked: Any = cast("Json", request).get("function_call") if isinstance(request, dict) else None
    return cast("Json", asked).get("call_id") if isinstance(asked, dict) else None


def _runs_elsewhere(content: Json) -> bool:
    ours = extension_of(content)
    return bool(ours.get("hosted") or ours.get("informational_only"))


def _drop_lonely_reasoning(entries: list[Json], rules: RepairRules, tell: Tell) -> None:
    """Take away reasoning that nothing of the model's follows, within its response."""
    for entry in entries:
        is_followed = False
        for found in reversed(list(stored_contents([entry]))):
            if found.type == "reasoning":
                if not is_followed:
                    tell(found.place, "the reasoning is not followed by what it led to", "left it out")
                    found.remove()
            elif found.type in rules.never_sent and stamp_of(found) is None:
                continue
            elif found.message["role"] == "assistant" and not _is_empty(found.content):
                is_followed = True
            elif found.message["role"] != "assistant":
                is_followed = False


def _drop_empty_messages(entries: list[Json], _rules: RepairRules, tell: Tell) -> None:
    for entry in entries:
        kept: list[Json] = []
        messages = cast("list[Json]", entry.get("messages") or [])
        for number, message in enumerate(messages, 1):
            if all(_is_empty(content) for content in message["contents"]):
                place = f"turn {entry.get('correlationId')}, message {number}"
                tell(place, "it says nothing", "left it out")
            else:
                kept.append(message)
        if len(kept) < len(messages):
            entry["messages"] = kept


def _is_empty(content: Json) -> bool:
    return content.get("$type") == "text" and not content.get("text") and not extension_of(content)


def _always(_rules: RepairRules) -> bool:
    return True


def _of_items(rules: RepairRules) -> bool:
    return rules.knows_items


def _without_items(rules: RepairRules) -> bool:
    return not rules.knows_items


_CHECKS: Final[tuple[tuple[Callable[[list[Json], RepairRules, Tell], None], Callable[[RepairRules], bool]], ...]] = (
    (mend_items, _of_items),
    (_name_calls, _always),
    (_rename_calls, _of_items),
    (_drop_repeated_calls, _always),
    (_drop_unanswered_hosted_calls, _without_items),
    (_drop_results_without_call, _always),
    (_add_missing_results, _always),
    (_drop_repeated_items, _of_items),
    (_drop_lonely_reasoning, _of_items),
    (_drop_empty_messages, _always),
)
"""A check, and the rules for which it holds."""
