"""Checks whether a model's service would accept a stored conversation, and repairs it.

Theory of operation. The checks are repairs: each goes over the conversation, fixes what it finds, and records the
problem and its repair in a `RepairChange`. To verify a conversation is to repair a copy of it and to look at the
changes; so a repaired conversation always verifies. Checks run in an order in which none undoes another's work.

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
from durable_agent_host.codec.extension_data import extension_of
from durable_agent_host.codec.offloaded_text import PLACEHOLDER, with_placeholders
from durable_agent_host.codec.schema_validation import Path, SchemaViolation, format_json_path
from durable_agent_host.codec.session_schema import find_schema_violations, format_violations, shift_list_index
from durable_agent_host.codec.strict_json import value_at
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.repair_rules import RepairRules
from durable_agent_host.model.session import Session, without_overlay
from durable_agent_host.session.repair_items import (
    Json,
    RepairContext,
    ReportChange,
    UnmatchedCalls,
    add_missing_results,
    drop_hosted_calls_without_result,
    drop_repeated_calls,
    drop_results_without_call,
    find_unmatched_calls_in_objects,
    item_id_of,
    name_calls,
    remove_item_id,
    rename_calls,
    repair_items,
    stamp_of,
    stored_contents,
)
from durable_agent_host.session.transcript import unsent_turns


@dataclass(frozen=True)
class Difference:
    """The effect of a repair on an entry.

    Attributes:
        before: the entry, with placeholders for large texts; of any shape.
        after: the same, repaired; None when it is left out.
    """

    before: Any
    after: Mapping[str, Any] | None


ReportDifference = Callable[[Difference], None]


def ignore_differences(_: Difference) -> None:
    """Record nothing."""


def report_differences(before: Sequence[Any], after: Sequence[Any], report_difference: ReportDifference) -> None:
    """Report what a repair has changed, entry by entry."""
    after_index = 0
    for before_index, entry in enumerate(before):
        repaired_entry = after[after_index] if after_index < len(after) else None
        if repaired_entry is not None and (repaired_entry is entry or repaired_entry == entry):
            after_index += 1
        elif repaired_entry is not None and (
            _names(repaired_entry) == _names(entry) or len(before) - before_index <= len(after) - after_index
        ):
            report_difference(Difference(entry, repaired_entry))
            after_index += 1
        else:
            report_difference(Difference(entry, None))


def _names(entry: Any) -> tuple[Any, Any] | None:
    if not isinstance(entry, dict):
        return None
    fields = cast("dict[str, Any]", entry)
    return fields.get("$type"), fields.get("correlationId")


_ROUNDS: Final = 20
"""More rounds than needed: leaving a part out can only make the part around it incomplete."""


def repair_schema(document: dict[str, Any], *, first: int = 0) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Leave out the parts of a document that make it unreadable.

    Returns:
        The document, the same object when it has no fault, and the faults with their places.

    Raises:
        CorruptStateError: nothing in it can be a conversation.
    """
    repairs: list[tuple[str, str]] = []
    for _ in range(_ROUNDS):
        violations = find_schema_violations(document)
        if not violations:
            return document, repairs
        if outside_violations := [violation for violation in violations if not violation.unit]:
            raise CorruptStateError(
                f"the stored session is none: {format_violations(outside_violations)}; nothing was changed"
            )
        located_violations = [_shift_violation(violation, first) for violation in violations]
        repairs += [
            (violation.location, f"{_describe_unit(violation)}it {violation.problem}")
            for violation in located_violations
        ]
        document = _remove_units(document, {violation.unit for violation in violations})
    raise CorruptStateError("the stored session cannot be repaired; nothing was changed")


def _shift_violation(violation: SchemaViolation, first: int) -> SchemaViolation:
    """Count the entries in a fault's paths from the beginning of the conversation."""
    return (
        violation._replace(path=shift_list_index(violation.path, first), unit=shift_list_index(violation.unit, first))
        if first
        else violation
    )


def _describe_unit(violation: SchemaViolation) -> str:
    return "" if violation.unit == violation.path else f"of {format_json_path(violation.unit)}: "


def _remove_units(document: dict[str, Any], units: set[Path]) -> dict[str, Any]:
    """Remove parts, the last ones first, so that the positions of the others stay."""
    repaired_document: Any = json.loads(json.dumps(document))  # copies nesting too deep for other ways
    for unit in sorted(units, key=lambda path: [(isinstance(segment, str), segment) for segment in path], reverse=True):
        parent: Any = repaired_document
        for segment in unit[:-1]:
            parent = parent[segment]
        del parent[unit[-1]]
    return cast("dict[str, Any]", repaired_document)


@dataclass(frozen=True)
class RepairChange:
    """A problem in the conversation, and its repair.

    Attributes:
        location: the turn, message and content, counted from 1.
        problem: what a model's service would reject.
        repair: what makes it acceptable.
    """

    location: str
    problem: str
    repair: str


def repair_entries(
    entries: Sequence[Mapping[str, Any]], rules: RepairRules, *, first: int = 0, seen: RepairContext | None = None
) -> tuple[tuple[Mapping[str, Any], ...], list[RepairChange]]:
    """Make a conversation acceptable, or a part of one in which every call has its result.

    Returns:
        The entries, unchanged where there was no problem, and the changes in the order in which they were made.
    """
    seen = RepairContext() if seen is None else seen
    changes: list[RepairChange] = []

    def report_change(location: str, problem: str, repair: str) -> None:
        changes.append(RepairChange(location, problem, repair))

    readable = [entry for number, entry in enumerate(entries, first + 1) if _is_readable(entry, number, report_change)]
    copies = [copy.deepcopy(dict(entry)) for entry in readable]
    unsent_turn_ids = unsent_turns(copies)
    sent = [entry for entry in copies if not unsent_turn_ids or entry.get("correlationId") not in unsent_turn_ids]
    for check, holds in _CHECKS:
        if holds(rules):
            check(sent, rules, report_change, seen)
    return tuple(before if entry == before else entry for entry, before in zip(copies, readable, strict=True)), changes


def find_unmatched_calls(entries: Sequence[Mapping[str, Any]]) -> UnmatchedCalls:
    """Return the calls and results of a part of a conversation that belong to other parts."""
    readable = [dict(entry) for number, entry in enumerate(entries, 1) if _is_readable(entry, number, _ignore_change)]
    try:
        return find_unmatched_calls_in_objects(readable)
    except (AttributeError, KeyError, TypeError):  # malformed; the shape is repaired first
        return UnmatchedCalls(frozenset(), frozenset(), frozenset())


def _ignore_change(_location: str, _problem: str, _repair: str) -> None:
    pass


def repair_part(
    entries: Sequence[Mapping[str, Any]],
    rules: RepairRules,
    *,
    first: int,
    seen: RepairContext,
    report_difference: ReportDifference = ignore_differences,
) -> tuple[Sequence[Mapping[str, Any]], list[RepairChange]]:
    """Make a part of a conversation, in which every call has its result, readable and acceptable.

    Returns:
        The entries, unchanged where there was no problem unless one is malformed, and the changes.

    Raises:
        CorruptStateError: it cannot be repaired.
    """
    document: Json = {"schemaVersion": Session.schema_version, "data": {"conversationHistory": list(entries)}}
    document, schema_repairs = repair_schema(document, first=first)
    readable_entries = document["data"]["conversationHistory"]
    repaired_entries, changes = repair_entries(readable_entries, rules, first=first, seen=seen)
    if schema_repairs or changes:
        report_differences(entries, repaired_entries, report_difference)
    return repaired_entries, [
        RepairChange(location, problem, "left out") for location, problem in schema_repairs
    ] + changes


def repair_document(
    state: Any, rules: RepairRules, report_difference: ReportDifference = ignore_differences
) -> tuple[Json, list[RepairChange]]:
    """Make the stored state of a session readable, and its conversation acceptable.

    Returns:
        The repaired state, unchanged where there was no problem, and the changes.

    Raises:
        UnknownSchemaVersionError: a newer or unknown program wrote it, so this version cannot judge it.
        CorruptStateError: nothing in it can be a conversation.
    """
    document, changes = make_document_readable(state)
    entries, more = repair_entries(document["data"]["conversationHistory"], rules)
    document |= {"data": document["data"] | {"conversationHistory": list(entries)}}
    changes += more
    if changes and isinstance(before := state["data"].get("conversationHistory"), list):
        report_differences(cast("list[Any]", before), entries, report_difference)
    session = decode_session(document)
    if changes and (session.overlay or session.sealed.overlay):  # it refers to positions in the unrepaired conversation
        document = encode_session(without_overlay(session))
    return document, changes


def make_document_readable(state: Any) -> tuple[Json, list[RepairChange]]:
    """Make the stored state of a session readable, whether or not a model's service would accept its conversation.

    Returns:
        The repaired state, unchanged where there was no problem, and the changes.

    Raises:
        UnknownSchemaVersionError: a newer or unknown program wrote it, so this version cannot judge it.
        CorruptStateError: nothing in it can be a conversation.
    """
    changes: list[RepairChange] = []
    document = cast("Json", dict(cast("Json", state)) if isinstance(state, dict) else state)
    if isinstance(state, dict) and document.get("schemaVersion") is None and isinstance(document.get("data"), dict):
        document["schemaVersion"] = Session.schema_version
        changes.append(RepairChange("state", "it has no schemaVersion", f"wrote {Session.schema_version}"))
    if not isinstance(state, dict) or not isinstance(document.get("data"), dict):
        decode_session(state)  # reports what is wrong with a value that is not a document
    document, schema_repairs = repair_schema(document)
    decode_session(document)  # refuses an unknown version of our part
    return document, changes + [RepairChange(location, problem, "left out") for location, problem in schema_repairs]


def make_head_readable(state: Any) -> tuple[Json, list[RepairChange]]:
    """Make the head of a session with parts outside of it readable; see `make_document_readable`.

    A malformed entry with large texts outside of it is left out completely.

    Returns:
        The repaired state, unchanged where there was no problem, and the changes.

    Raises:
        UnknownSchemaVersionError: a newer or unknown program wrote it, so this version cannot judge it.
        CorruptStateError: nothing in it can be a conversation.
    """
    data = value_at(state, "data")
    entries = value_at(data, "conversationHistory")
    if not isinstance(entries, list):
        return make_document_readable(state)
    short_entries = [_with_placeholders_or_unchanged(entry) for entry in cast("list[Any]", entries)]
    repaired_document, changes = make_document_readable(
        {**state, "data": {**data, "conversationHistory": short_entries}}
    )
    readable_entries: list[Any] = []
    remaining_pairs = [*zip(short_entries, cast("list[Any]", entries), strict=True)]
    for entry in repaired_document["data"]["conversationHistory"]:
        index = next((index for index, (short_entry, _) in enumerate(remaining_pairs) if short_entry == entry), None)
        if index is not None:
            readable_entries.append(remaining_pairs[index][1])
            remaining_pairs = remaining_pairs[index + 1 :]
        elif PLACEHOLDER not in json.dumps(entry):
            readable_entries.append(entry)
    return {
        **repaired_document,
        "data": {**repaired_document["data"], "conversationHistory": readable_entries},
    }, changes


def _with_placeholders_or_unchanged(entry: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    try:
        return with_placeholders(cast("Json", entry))
    except (CorruptStateError, AttributeError):
        return cast("Json", entry)


def _is_readable(entry: Any, number: int, report_change: ReportChange) -> bool:
    problem = "it is no entry of a conversation"
    if isinstance(entry, Mapping):
        fields = cast("Mapping[str, Any]", entry)
        if fields.get("$type") in ("request", "response") and isinstance(fields.get("messages") or [], list):
            return True
        problem = f"its type {fields.get('$type')!r} is not known"
    report_change(f"entry {number}", problem, "left out")
    return False


def _drop_repeated_items(
    entries: list[Json], rules: RepairRules, report_change: ReportChange, context: RepairContext
) -> None:
    seen = context.calls
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
            report_change(found.location, f"item {item_id} comes twice", "left the second one out")
            found.remove()
            last_reasoning = None
        else:
            report_change(found.location, f"item {item_id} comes twice", "took the item's id away from the second one")
            remove_item_id(found.content, rules)


def _drop_lonely_reasoning(
    entries: list[Json], rules: RepairRules, report_change: ReportChange, _seen: RepairContext
) -> None:
    """Remove reasoning that no output of the model follows within its response, unless the response was cut there."""
    for entry in entries:
        is_followed = extension_of(entry).get("finishReason") == "length"
        for found in reversed(list(stored_contents([entry]))):
            if found.type == "reasoning":
                if not is_followed:
                    report_change(found.location, "the reasoning is not followed by what it led to", "left it out")
                    found.remove()
            elif found.type in rules.never_sent and stamp_of(found) is None:
                continue
            elif found.message["role"] == "assistant" and not _is_empty(found.content):
                is_followed = True
            elif found.message["role"] != "assistant":
                is_followed = False


def _drop_empty_messages(
    entries: list[Json], _rules: RepairRules, report_change: ReportChange, _seen: RepairContext
) -> None:
    for entry in entries:
        remaining_messages: list[Json] = []
        messages = cast("list[Json]", entry.get("messages") or [])
        for number, message in enumerate(messages, 1):
            if all(_is_empty(content) for content in message["contents"]):
                location = f"turn {entry.get('correlationId')}, message {number}"
                report_change(location, "it says nothing", "left it out")
            else:
                remaining_messages.append(message)
        if len(remaining_messages) < len(messages):
            entry["messages"] = remaining_messages


def _is_empty(content: Json) -> bool:
    return content.get("$type") == "text" and not content.get("text") and not extension_of(content)


def _always(_rules: RepairRules) -> bool:
    return True


def _has_items(rules: RepairRules) -> bool:
    return rules.knows_items


def _has_no_items(rules: RepairRules) -> bool:
    return not rules.knows_items


_CHECKS: Final[
    tuple[
        tuple[Callable[[list[Json], RepairRules, ReportChange, RepairContext], None], Callable[[RepairRules], bool]],
        ...,
    ]
] = (
    (repair_items, _has_items),
    (name_calls, _always),
    (rename_calls, _has_items),
    (drop_repeated_calls, _always),
    (drop_hosted_calls_without_result, _has_no_items),
    (drop_results_without_call, _always),
    (add_missing_results, _always),
    (_drop_repeated_items, _has_items),
    (_drop_lonely_reasoning, _has_items),
    (_drop_empty_messages, _always),
)
"""A check, and the rules under which it applies."""
