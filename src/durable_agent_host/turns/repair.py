"""Whether a stored conversation would be accepted by a model's service, and what would make it so. Pure.

Theory of operation. The checks are repairs: each goes over the conversation, mends what it finds, and says in a
`Change` what was wrong and what it did. To verify a conversation is to repair a copy of it and to look at the changes;
so a conversation that was repaired always verifies. Checks run in an order in which none undoes another's work.

The rules are those of the OpenAI Responses API: a call has its result, a result its call, reasoning is followed by the
item that it led to, no item comes twice, ids have 1 to 64 characters. Other services ask for no less than that.
"""

import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from durable_agent_host.codec.packing import pack_entry, unpack_entry
from durable_agent_host.codec.state import decode_session
from durable_agent_host.codec.wire import EXTENSION
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.provider_item import LOST_RESULT
from durable_agent_host.model.session import Session
from durable_agent_host.turns.repair_items import Tell, mend_items, stamp_of
from durable_agent_host.turns.stored_contents import Json, extension_of, properties_of, stored_contents
from durable_agent_host.turns.transcript import failed_turns

MAX_ID_CHARACTERS: Final = 64
_MAX_CALL_ID_CHARACTERS: Final = MAX_ID_CHARACTERS - len("fc_")
"""The framework's client makes an item id of a call id by putting ``fc_`` in front, when the call has none."""


_NEVER_SENT: Final = frozenset(
    {"codeInterpreterToolCall", "codeInterpreterToolResult", "searchToolCall", "searchToolResult"}
    | {"imageGenerationToolCall", "imageGenerationToolResult"}
)
"""Contents that no client sends back when they stand for no item of their provider."""


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


def repair_entries(entries: Sequence[Mapping[str, Any]]) -> tuple[tuple[Mapping[str, Any], ...], list[Change]]:
    """Make a conversation acceptable.

    Guarantee: pure; repairing what was repaired changes nothing.

    Args:
        entries: as they are stored, oldest first.

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
    for check in _CHECKS:
        check(sent, tell)
    return tuple(_as_stored(entry, before) for entry, before in zip(full, readable, strict=True)), changes


def repair_document(state: Any) -> tuple[Json, list[Change]]:
    """Make the stored state of a session readable, and its conversation acceptable.

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
    document = cast("Json", copy.deepcopy(state))
    if isinstance(state, dict) and document.get("schemaVersion") is None and isinstance(document.get("data"), dict):
        document["schemaVersion"] = Session.schema_version
        changes.append(Change("state", "it has no schemaVersion", f"wrote {Session.schema_version}"))
    extension = extension_of(_data(document))
    for part in [part for part in extension if part != "version" and not _is_readable_part(part, extension[part])]:
        del extension[part]
        changes.append(Change("state", f"its {part} cannot be read", "left out"))
    decode_session(_without_entries(document))
    entries, more = repair_entries(document["data"]["conversationHistory"])
    document["data"]["conversationHistory"] = list(entries)
    return document, changes + more


def _is_readable_part(name: str, part: Any) -> bool:
    data: Json = {"conversationHistory": [], "extensionData": {EXTENSION: {name: part}}}
    try:
        decode_session({"schemaVersion": Session.schema_version, "data": data})
    except CorruptStateError:
        return False
    return True


def _data(document: Any) -> Json:
    data: Any = cast("Json", document).get("data") if isinstance(document, dict) else None
    return cast("Json", data) if isinstance(data, dict) else {}


def _without_entries(document: Json) -> Json:
    """Give the document as it is, without its entries, to see what else is wrong with it."""
    data = _data(document)
    return document | {"data": data | {"conversationHistory": []}} if "conversationHistory" in data else document


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


def _rename_calls(entries: list[Json], tell: Tell) -> None:
    """Shorten ids of calls and of items; the same id gets the same new one, and a call keeps its result."""
    for number, found in enumerate(stored_contents(entries)):
        if found.type not in ("functionCall", "functionResult"):
            continue
        call_id, item_id = found.call_id, _item_id(found.content)
        most = MAX_ID_CHARACTERS if item_id or found.type == "functionResult" else _MAX_CALL_ID_CHARACTERS
        if not isinstance(call_id, str) or not call_id:
            if found.type == "functionCall":
                new = f"call_{hashlib.sha256(f'{number}'.encode()).hexdigest()[:24]}"
                tell(found.place, "the call has no id", f"named it {new}")
                found.content["callId"] = new
        elif len(call_id) > most:
            new = f"call_{hashlib.sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"
            where = found.place
            for other in stored_contents(entries):
                if other.call_id == call_id:
                    other.content["callId"] = new
            tell(where, f"the call's id has {len(call_id)} characters, and {most} are accepted", f"named it {new}")
        if item_id and len(item_id) > MAX_ID_CHARACTERS:
            tell(found.place, f"the item's id has {len(item_id)} characters", "took it away")
            _forget_item_id(found.content)


def _drop_repeated_calls(entries: list[Json], tell: Tell) -> None:
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


def _drop_repeated_items(entries: list[Json], tell: Tell) -> None:
    seen: set[str] = set()
    last_reasoning: str | None = None
    for found in stored_contents(entries):
        reasoning = extension_of(found.content).get("id") if found.type == "reasoning" else None
        item_id = _item_id(found.content) if found.type == "functionCall" else reasoning
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
            _forget_item_id(found.content)


def _drop_results_without_call(entries: list[Json], tell: Tell) -> None:
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


def _add_missing_results(entries: list[Json], tell: Tell) -> None:
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


def _asked_about(content: Json) -> Any:
    request: Any = content.get("content")
    asked: Any = cast("Json", request).get("function_call") if isinstance(request, dict) else None
    return cast("Json", asked).get("call_id") if isinstance(asked, dict) else None


def _runs_elsewhere(content: Json) -> bool:
    ours = extension_of(content)
    return bool(ours.get("hosted") or ours.get("informational_only"))


def _drop_lonely_reasoning(entries: list[Json], tell: Tell) -> None:
    """Take away reasoning that nothing of the model's follows, within its response."""
    for entry in entries:
        is_followed = False
        for found in reversed(list(stored_contents([entry]))):
            if found.type == "reasoning":
                if not is_followed:
                    tell(found.place, "the reasoning is not followed by what it led to", "left it out")
                    found.remove()
            elif found.type in _NEVER_SENT and stamp_of(found) is None:
                continue
            elif found.message["role"] == "assistant" and not _is_empty(found.content):
                is_followed = True
            elif found.message["role"] != "assistant":
                is_followed = False


def _drop_empty_messages(entries: list[Json], tell: Tell) -> None:
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


_CHECKS: Final[tuple[Callable[[list[Json], Tell], None], ...]] = (
    mend_items,
    _rename_calls,
    _drop_repeated_calls,
    _drop_results_without_call,
    _add_missing_results,
    _drop_repeated_items,
    _drop_lonely_reasoning,
    _drop_empty_messages,
)


def _item_id(content: Mapping[str, Any]) -> str | None:
    item_id: Any = properties_of(content).get("fc_id")
    return item_id if isinstance(item_id, str) and item_id else None


def _forget_item_id(content: Json) -> None:
    properties = properties_of(content)
    properties.pop("fc_id", None)
    if isinstance(inner := properties.get("openai"), dict):
        cast("Json", inner).pop("item_id", None)
