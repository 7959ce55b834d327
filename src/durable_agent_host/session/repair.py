"""Checks whether a model's service would accept a stored conversation, and repairs it. Pure.

Theory of operation. The checks are repairs: each goes over the conversation, fixes what it finds, and records in a
`Change` what was wrong and what it did. To verify a conversation is to repair a copy of it and to look at the changes;
so a repaired conversation always verifies. Checks run in an order in which none undoes another's work.

The rules are those of the service that receives the conversation, and come from its provider as data (`RepairRules`).
Every service requires that a call has its result, and a result its call. A service with its own items requires more:
reasoning is followed by the item that it led to, no item occurs twice, ids are short. Other services accept a
conversation that breaks those rules, and may need what the repairs would remove.
"""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from durable_agent_host.codec.entity_state import decode_session, encode_session
from durable_agent_host.codec.offloaded_text import STAND_IN, stand_in
from durable_agent_host.codec.schema_validation import Fault, Path, place_of
from durable_agent_host.codec.session_schema import document_faults, move_entry, shape_error
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.repair_rules import RepairRules
from durable_agent_host.model.session import Session, without_overlay
from durable_agent_host.session.repair_items import (
    Json,
    LooseEnds,
    Seen,
    Tell,
    add_missing_results,
    drop_repeated_calls,
    drop_results_without_call,
    drop_unanswered_hosted_calls,
    extension_of,
    forget_item_id,
    item_id_of,
    loose_ends_of,
    mend_items,
    name_calls,
    rename_calls,
    stamp_of,
    stored_contents,
)
from durable_agent_host.session.transcript import failed_turns


@dataclass(frozen=True)
class Difference:
    """The effect of a repair on an entry.

    Attributes:
        before: the entry, with placeholders for large texts; of any shape.
        after: the same, repaired; None when it is left out.
    """

    before: Any
    after: Mapping[str, Any] | None


Note = Callable[[Difference], None]


def note_nothing(_: Difference) -> None:
    """Record nothing."""


def note_differences(before: Sequence[Any], after: Sequence[Any], note: Note) -> None:
    """Report what a repair has changed, entry by entry.

    Guarantee: pure except for ``note``.

    Args:
        before: the entries before.
        after: the entries after repair, in the same order; some may be left out.
        note: called for each changed entry.
    """
    place = 0
    for number, entry in enumerate(before):
        now = after[place] if place < len(after) else None
        if now is not None and (now is entry or now == entry):
            place += 1
        elif now is not None and (_names(now) == _names(entry) or len(before) - number <= len(after) - place):
            note(Difference(entry, now))
            place += 1
        else:
            note(Difference(entry, None))


def _names(entry: Any) -> tuple[Any, Any] | None:
    if not isinstance(entry, dict):
        return None
    found = cast("dict[str, Any]", entry)
    return found.get("$type"), found.get("correlationId")


_ROUNDS: Final = 20
"""More rounds than needed: leaving a part out can only make the part around it incomplete."""


def mend_shape(
    document: dict[str, Any], *, first: int = 0, between: Callable[[], object] = lambda: None
) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Leave out the parts of a document that make it unreadable.

    Guarantee: pure; repairing again changes nothing.

    Args:
        document: of a version that this program reads.
        first: position of its first entry in the conversation, from 0.
        between: called before each entry, to let others work.

    Returns:
        The document, the same object when it has no fault, and the faults with their places.

    Raises:
        CorruptStateError: nothing in it can be a conversation.
    """
    told: list[tuple[str, str]] = []
    for _ in range(_ROUNDS):
        faults = document_faults(document, between=between)
        if not faults:
            return document, told
        if beyond := [fault for fault in faults if not fault.unit]:
            raise CorruptStateError(f"the stored session is none: {shape_error(beyond)}; nothing was changed")
        named = [_moved(fault, first) for fault in faults]
        told += [(fault.place, f"{_what(fault)}it {fault.problem}") for fault in named]
        document = _without(document, {fault.unit for fault in faults})
    raise CorruptStateError("the stored session cannot be repaired; nothing was changed")


def _moved(fault: Fault, first: int) -> Fault:
    """Count the entries in a fault's paths from the beginning of the conversation."""
    return fault._replace(path=move_entry(fault.path, first), unit=move_entry(fault.unit, first)) if first else fault


def _what(fault: Fault) -> str:
    return "" if fault.unit == fault.path else f"of {place_of(fault.unit)}: "


def _without(document: dict[str, Any], units: set[Path]) -> dict[str, Any]:
    """Remove parts, the last ones first, so that the positions of the others stay."""
    mended: Any = json.loads(json.dumps(document))  # copies nesting too deep for other ways
    for unit in sorted(units, key=lambda path: [(isinstance(one, str), one) for one in path], reverse=True):
        holder: Any = mended
        for one in unit[:-1]:
            holder = holder[one]
        del holder[unit[-1]]
    return cast("dict[str, Any]", mended)


@dataclass(frozen=True)
class Change:
    """A problem in the conversation, and its repair.

    Attributes:
        place: the turn, message and content, counted from 1.
        problem: what a model's service would reject.
        repair: what makes it acceptable.
    """

    place: str
    problem: str
    repair: str


def repair_entries(
    entries: Sequence[Mapping[str, Any]],
    rules: RepairRules,
    *,
    first: int = 0,
    seen: Seen | None = None,
    between: Callable[[], object] = lambda: None,
) -> tuple[tuple[Mapping[str, Any], ...], list[Change]]:
    """Make a conversation acceptable, or a part of one in which every call has its result.

    Guarantee: pure; repairing again changes nothing.

    Args:
        entries: as stored, oldest first.
        rules: of the service that receives it.
        first: position of the first entry in the conversation, from 0.
        seen: state from the parts before; changed. None for a whole conversation.
        between: called before each entry is copied, to let others work.

    Returns:
        The entries, unchanged where there was no problem, and the changes in the order in which they were made.
    """
    seen = Seen() if seen is None else seen
    changes: list[Change] = []

    def tell(place: str, problem: str, repair: str) -> None:
        changes.append(Change(place, problem, repair))

    readable = [entry for number, entry in enumerate(entries, first + 1) if _is_readable(entry, number, tell)]
    copies: list[dict[str, Any]] = []
    for entry in readable:
        between()
        copies.append(copy.deepcopy(dict(entry)))
    _drop_what_has_no_shape(copies, tell)
    failed = failed_turns(copies)
    sent = [entry for entry in copies if not failed or entry.get("correlationId") not in failed]
    for check, holds in _CHECKS:
        if holds(rules):
            check(sent, rules, tell, seen)
    return tuple(before if entry == before else entry for entry, before in zip(copies, readable, strict=True)), changes


def loose_ends(entries: Sequence[Mapping[str, Any]]) -> LooseEnds:
    """Return the calls and results of a part of a conversation that belong to other parts.

    Guarantee: pure.

    Args:
        entries: as stored, of any shape.
    """
    readable = [entry for number, entry in enumerate(entries, 1) if _is_readable(entry, number, _ignore)]
    copies = [dict(entry) for entry in readable]
    try:
        _drop_what_has_no_shape(copies, _ignore)
        return loose_ends_of(copies)
    except (AttributeError, KeyError, TypeError):  # malformed; the shape is repaired first
        return LooseEnds(frozenset(), frozenset(), frozenset())


def _ignore(_place: str, _problem: str, _repair: str) -> None:
    pass


def repair_part(
    entries: Sequence[Mapping[str, Any]],
    rules: RepairRules,
    *,
    first: int,
    seen: Seen,
    note: Note = note_nothing,
    between: Callable[[], object] = lambda: None,
) -> tuple[Sequence[Mapping[str, Any]], list[Change]]:
    """Make a part of a conversation, in which every call has its result, readable and acceptable.

    Guarantee: pure except for `seen`.

    Args:
        entries: as stored, with their large texts or placeholders.
        rules: of the service that receives the conversation.
        first: position of the first entry in the conversation, from 0.
        seen: state from the parts before; changed.
        note: called with what becomes of the entries.
        between: called before each entry, to let others work.

    Returns:
        The entries, unchanged where there was no problem unless one is malformed, and the changes.

    Raises:
        CorruptStateError: it cannot be repaired.
    """
    document: Json = {"schemaVersion": Session.schema_version, "data": {"conversationHistory": list(entries)}}
    document, told = mend_shape(document, first=first, between=between)
    listed = document["data"]["conversationHistory"]
    mended, changes = repair_entries(listed, rules, first=first, seen=seen, between=between)
    if told or changes:
        note_differences(entries, mended, note)
    return mended, [Change(place, problem, "left out") for place, problem in told] + changes


def repair_document(state: Any, rules: RepairRules, note: Note = note_nothing) -> tuple[Json, list[Change]]:
    """Make the stored state of a session readable, and its conversation acceptable.

    Guarantee: pure; the argument is not changed.

    Args:
        state: the entity's state.
        rules: of the service that receives the conversation.
        note: called with what becomes of the entries.

    Returns:
        The repaired state, unchanged where there was no problem, and the changes.

    Raises:
        UnknownSchemaVersionError: a newer or unknown program wrote it, so this version cannot judge it.
        CorruptStateError: nothing in it can be a conversation.
    """
    document, changes = mend_document(state)
    entries, more = repair_entries(document["data"]["conversationHistory"], rules)
    document |= {"data": document["data"] | {"conversationHistory": list(entries)}}
    changes += more
    if changes and isinstance(before := state["data"].get("conversationHistory"), list):
        note_differences(cast("list[Any]", before), entries, note)
    session = decode_session(document)
    if changes and (session.overlay or session.sealed.overlay):  # it refers to positions in the unrepaired conversation
        document = encode_session(without_overlay(session))
    return document, changes


def mend_document(state: Any) -> tuple[Json, list[Change]]:
    """Make the stored state of a session readable, whether or not a model's service would accept its conversation.

    Guarantee: pure; the argument is not changed.

    Args:
        state: the entity's state.

    Returns:
        The repaired state, unchanged where there was no problem, and the changes.

    Raises:
        UnknownSchemaVersionError: a newer or unknown program wrote it, so this version cannot judge it.
        CorruptStateError: nothing in it can be a conversation.
    """
    changes: list[Change] = []
    document = cast("Json", dict(cast("Json", state)) if isinstance(state, dict) else state)
    if isinstance(state, dict) and document.get("schemaVersion") is None and isinstance(document.get("data"), dict):
        document["schemaVersion"] = Session.schema_version
        changes.append(Change("state", "it has no schemaVersion", f"wrote {Session.schema_version}"))
    if not isinstance(state, dict) or not isinstance(document.get("data"), dict):
        decode_session(state)  # reports what is wrong with a value that is not a document
    document, told = mend_shape(document)
    decode_session(document)  # refuses an unknown version of our part
    return document, changes + [Change(place, problem, "left out") for place, problem in told]


def mend_head(state: Any) -> tuple[Json, list[Change]]:
    """Make the head of a session with parts outside of it readable; see `mend_document`.

    A malformed entry with large texts outside of it is left out completely.

    Guarantee: pure; the argument is not changed.

    Args:
        state: the entity's state.

    Returns:
        The repaired state, unchanged where there was no problem, and the changes.

    Raises:
        UnknownSchemaVersionError: a newer or unknown program wrote it, so this version cannot judge it.
        CorruptStateError: nothing in it can be a conversation.
    """
    data: Any = cast("Json", state).get("data") if isinstance(state, dict) else None
    entries: Any = cast("Json", data).get("conversationHistory") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        return mend_document(state)
    judged = [_stood_in(entry) for entry in cast("list[Any]", entries)]
    mended, changes = mend_document({**state, "data": {**data, "conversationHistory": judged}})
    kept: list[Any] = []
    stored = [*zip(judged, cast("list[Any]", entries), strict=True)]
    for entry in mended["data"]["conversationHistory"]:
        place = next((place for place, (stand_in_, _) in enumerate(stored) if stand_in_ == entry), None)
        if place is not None:
            kept.append(stored[place][1])
            stored = stored[place + 1 :]
        elif STAND_IN not in json.dumps(entry):
            kept.append(entry)
    return {**mended, "data": {**mended["data"], "conversationHistory": kept}}, changes


def _stood_in(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    try:
        return stand_in(cast("Json", entry))
    except (CorruptStateError, AttributeError):
        return cast("Json", entry)


def _is_readable(entry: Any, number: int, tell: Tell) -> bool:
    problem = "it is no entry of a conversation"
    if isinstance(entry, Mapping):
        found = cast("Mapping[str, Any]", entry)
        if found.get("$type") in ("request", "response") and isinstance(found.get("messages") or [], list):
            return True
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
            if len(objects) == len(cast("list[Any]", contents)):
                kept.append(cast("Json", message))
                continue
            tell(place, "it has a content that is no object", "left that content out")
            kept.append({**cast("Json", message), "contents": objects})
        if "messages" in entry:
            entry["messages"] = kept


def _drop_repeated_items(entries: list[Json], rules: RepairRules, tell: Tell, known: Seen) -> None:
    seen = known.calls
    last_reasoning: str | None = None
    for found in stored_contents(entries):
        reasoning = extension_of(found.content).get("id") if found.type == "reasoning" else None
        item_id = item_id_of(found.content, rules) if found.type == "functionCall" else reasoning
        if reasoning is not None and reasoning == last_reasoning:
            continue  # the parts of one item are adjacent
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


def _drop_lonely_reasoning(entries: list[Json], rules: RepairRules, tell: Tell, _seen: Seen) -> None:
    """Remove reasoning that no output of the model follows within its response."""
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


def _drop_empty_messages(entries: list[Json], _rules: RepairRules, tell: Tell, _seen: Seen) -> None:
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


_CHECKS: Final[
    tuple[tuple[Callable[[list[Json], RepairRules, Tell, Seen], None], Callable[[RepairRules], bool]], ...]
] = (
    (mend_items, _of_items),
    (name_calls, _always),
    (rename_calls, _of_items),
    (drop_repeated_calls, _always),
    (drop_unanswered_hosted_calls, _without_items),
    (drop_results_without_call, _always),
    (add_missing_results, _always),
    (_drop_repeated_items, _of_items),
    (_drop_lonely_reasoning, _of_items),
    (_drop_empty_messages, _always),
)
"""A check, and the rules under which it applies."""
