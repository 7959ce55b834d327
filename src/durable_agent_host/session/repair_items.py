"""Checks whether stored contents still make up their provider's items, and repairs them.

The first content of an item has a stamp with its type and id; the others of the same item refer to that id. A stamp is
valid only as long as the contents have what it leaves out.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

from durable_agent_host.codec.extension_data import extension_of
from durable_agent_host.codec.strict_json import object_at, value_at
from durable_agent_host.model.provider_item import LOST_RESULT, PART_OF, STAMP
from durable_agent_host.model.repair_rules import RepairRules

Json = dict[str, Any]


class StoredContent(NamedTuple):
    """A content of an entry, with what contains it.

    Attributes:
        entry: of a conversation.
        message: of that entry.
        content: of that message.
    """

    entry: Json
    message: Json
    content: Json

    @property
    def type(self) -> Any:
        """The content's type, as stored."""
        return self.content.get("$type")

    @property
    def call_id(self) -> Any:
        """For function calls and results, the id of the call."""
        return self.content.get("callId")

    @property
    def location(self) -> str:
        """Its location: the turn, message and content, counted from 1."""
        messages = cast("list[Json]", self.entry["messages"])
        number = next(n for n, message in enumerate(messages, 1) if message is self.message)
        position = next((n for n, content in enumerate(self.message["contents"], 1) if content is self.content), 0)
        message_location = f"turn {self.entry.get('correlationId')}, message {number}"
        return message_location + (f", content {position}" if position else "")

    def remove(self) -> None:
        """Remove it from its message."""
        self.message["contents"] = [content for content in self.message["contents"] if content is not self.content]


def stored_contents(entries: Iterable[Json]) -> Iterator[StoredContent]:
    """Iterate over the contents of entries, in order; they may be removed during iteration.

    Yields:
        Each content with its place.
    """
    for entry in entries:
        for message in list(entry.get("messages") or ()):
            for content in cast("list[Json]", list(message["contents"])):
                yield StoredContent(entry, message, content)


def properties_of(content: Mapping[str, Any]) -> Json:
    """Return a content's ``additional_properties``, which hosted contents keep in their inner object.

    Returns:
        The content's own part, or an empty one.
    """
    inner = object_at(content.get("content"))
    return object_at((inner or extension_of(content)).get("additional_properties"))


ReportChange = Callable[[str, str, str], None]


@dataclass
class RepairContext:
    """The checks' knowledge of the conversation outside the part that they check.

    Attributes:
        pending_approval_call_ids: calls that some part of the conversation asks a person about.
        items: ids of the items before it.
        calls: ids of the items of function calls, and of reasoning, before it.
        contents: how many contents precede it.
    """

    pending_approval_call_ids: AbstractSet[Any] = frozenset()
    items: set[str] = field(default_factory=set[str])
    calls: set[str] = field(default_factory=set[str])
    contents: int = 0


_GOOD_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def repair_items(entries: list[Json], rules: RepairRules, report_change: ReportChange, context: RepairContext) -> None:
    """Repair stamps: of missing or changed contents, with ids that no service accepts, of items that occur twice."""
    seen = context.items
    for group in _groups(entries, report_change):
        stamp = stamp_of(group[0])
        if stamp is None:
            continue
        name = f"item {stamp.get('id')}"
        if not isinstance(stamp.get("type"), str) or "id" not in stamp:
            report_change(
                group[0].location,
                f"{name} has no type or no id",
                "kept its contents without the item",
            )
            _unstamp(group)
            continue
        item_id = stamp.get("id")
        if item_id is None:
            continue
        if not isinstance(item_id, str) or not _GOOD_ID.fullmatch(item_id):
            report_change(group[0].location, f"{name[:80]} has an id that no service takes", "took it away")
            _remove_id(group, stamp, rules)
        elif item_id in seen and stamp.get("type") != "reasoning":
            _drop_second(group, stamp, rules, report_change)
        seen.add(str(item_id))


def stamp_of(content: StoredContent) -> Json | None:
    """Return the stamp of a content that begins a provider's item, or None.

    Returns:
        The stamp itself, not a copy.
    """
    mark: Any = properties_of(content.content).get(STAMP)
    return cast("Json", mark) if isinstance(mark, dict) and content.type != "functionResult" else None


def _groups(entries: list[Json], report_change: ReportChange) -> list[list[StoredContent]]:
    """Group contents into items, each a stamped content with its parts; parts out of place belong to none."""
    groups: list[list[StoredContent]] = []
    for content in stored_contents(entries):
        properties = properties_of(content.content)
        if PART_OF in properties and stamp_of(content) is None and content.type != "functionResult":
            head = groups[-1][0] if groups else None
            stamp = stamp_of(head) if head and head.message is content.message else None
            if stamp is not None and stamp.get("id") == properties[PART_OF]:
                groups[-1].append(content)
                continue
            problem = f"it is part of item {properties[PART_OF]}, which does not stand before it"
            report_change(content.location, problem, "kept it without the item")
            del properties[PART_OF]
        groups.append([content])
    return groups


def _drop_second(group: list[StoredContent], stamp: Json, rules: RepairRules, report_change: ReportChange) -> None:
    if _is_id_optional(stamp, rules):
        report_change(
            group[0].location, f"item {stamp['id']} comes twice", "took the item's id away from the second one"
        )
        _remove_id(group, stamp, rules)
        return
    report_change(group[0].location, f"item {stamp['id']} comes twice", "left the second one out")
    for found in group:
        found.remove()


def _remove_id(group: list[StoredContent], stamp: Json, rules: RepairRules) -> None:
    if not _is_id_optional(stamp, rules):
        _unstamp(group)
        return
    stamp["id"] = None
    for found in group[1:]:
        properties_of(found.content)[PART_OF] = None
    remove_item_id(group[0].content, rules)


def _is_id_optional(stamp: Json, rules: RepairRules) -> bool:
    """Return whether an item may go without its id; of another provider's items, only that provider knows."""
    return stamp.get("provider") == rules.provider and stamp.get("type") in rules.optional_ids


def item_id_of(content: Mapping[str, Any], rules: RepairRules) -> str | None:
    """Return the id of the item that a function call has in its properties.

    Returns:
        The id, or None when the call has none.
    """
    value = value_at(properties_of(content), *(rules.item_id_paths[0] if rules.item_id_paths else ("",)))
    return value if isinstance(value, str) and value else None


def remove_item_id(content: Json, rules: RepairRules) -> None:
    """Remove the id of the item from the properties of a function call."""
    for *way, name in rules.item_id_paths:
        object_at(properties_of(content), *way).pop(name, None)


def _unstamp(group: list[StoredContent]) -> None:
    for found in group:
        properties = properties_of(found.content)
        properties.pop(STAMP, None)
        properties.pop(PART_OF, None)
        if found.type == "text" and not found.content.get("text"):
            found.remove()  # it only carried the item


class UnmatchedCalls(NamedTuple):
    """Open references between a part of a conversation and the others.

    Attributes:
        calls: ids of calls without a result in it.
        results: ids of results without a call in it.
        pending_approval_call_ids: calls that it asks a person about.
    """

    calls: frozenset[Any]
    results: frozenset[Any]
    pending_approval_call_ids: frozenset[Any]


def name_calls(entries: list[Json], _rules: RepairRules, report_change: ReportChange, seen: RepairContext) -> None:
    """Give an id to calls without one."""
    for number, found in enumerate(stored_contents(entries), seen.contents):
        seen.contents = number + 1
        if found.type == "functionCall" and not (isinstance(found.call_id, str) and found.call_id):
            new = f"call_{hashlib.sha256(f'{number}'.encode()).hexdigest()[:24]}"
            report_change(found.location, "the call has no id", f"named it {new}")
            found.content["callId"] = new


def rename_calls(entries: list[Json], rules: RepairRules, report_change: ReportChange, _seen: RepairContext) -> None:
    """Shorten ids of calls and items; equal ids stay equal, and a call keeps its result."""
    for found in stored_contents(entries):
        if found.type not in ("functionCall", "functionResult"):
            continue
        call_id = found.call_id
        item_id = item_id_of(found.content, rules)
        names_item = item_id or found.type == "functionResult"
        max_characters = rules.max_id_characters if names_item else rules.max_bare_call_id_characters
        if isinstance(call_id, str) and len(call_id) > max_characters:
            new = f"call_{hashlib.sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"
            location = found.location
            for other in stored_contents(entries):
                if other.call_id == call_id:
                    other.content["callId"] = new
            report_change(
                location,
                f"the call's id has {len(call_id)} characters, and {max_characters} are accepted",
                f"named it {new}",
            )
        if item_id and len(item_id) > rules.max_id_characters:
            report_change(found.location, f"the item's id has {len(item_id)} characters", "took it away")
            remove_item_id(found.content, rules)


def drop_repeated_calls(
    entries: list[Json], _rules: RepairRules, report_change: ReportChange, _seen: RepairContext
) -> None:
    """Remove calls that were made before under the same id and have no result in between."""
    open_calls: dict[str, Json] = {}
    for found in stored_contents(entries):
        if found.type == "functionResult":
            open_calls.pop(found.call_id, None)
        elif found.type == "functionCall":
            if found.call_id in open_calls:
                report_change(found.location, f"call {found.call_id} comes twice", "left the second one out")
                found.remove()
            else:
                open_calls[found.call_id] = found.content


def drop_results_without_call(
    entries: list[Json], _rules: RepairRules, report_change: ReportChange, _seen: RepairContext
) -> None:
    """Remove results whose call is missing before them."""
    open_call_ids: set[str] = set()
    for found in stored_contents(entries):
        if found.type in {"functionCall", "shellToolCall"}:
            open_call_ids.add(_hosted_call_id(found.content))
        elif found.type == "functionResult":
            if found.call_id in open_call_ids:
                open_call_ids.discard(found.call_id)
            else:
                report_change(found.location, f"the result of {found.call_id!r} has no call before it", "left it out")
                found.remove()


def add_missing_results(
    entries: list[Json], _rules: RepairRules, report_change: ReportChange, seen: RepairContext
) -> None:
    """Give a result to calls without one, unless a person is asked about them."""
    result_call_ids: list[str] = []
    awaiting = seen.pending_approval_call_ids | pending_approval_call_ids(entries)
    for found in reversed(list(stored_contents(entries))):
        if found.type == "functionResult":
            result_call_ids.append(found.call_id)
        elif found.type == "functionCall" and not _runs_outside_host(found.content) and found.call_id not in awaiting:
            if found.call_id in result_call_ids:
                result_call_ids.remove(found.call_id)
                continue
            report_change(
                found.location, f"call {found.call_id} has no result", "added a result that says it is not known"
            )
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


def drop_hosted_calls_without_result(
    entries: list[Json], _rules: RepairRules, report_change: ReportChange, _seen: RepairContext
) -> None:
    """Remove unanswered calls of the provider's own tools: no service accepts them in an ended turn."""
    result_call_ids: list[str] = []
    for found in reversed(list(stored_contents(entries))):
        call_id = _hosted_call_id(found.content)
        if found.type in _HOSTED_RESULTS:
            result_call_ids.append(call_id)
        elif found.type == "mcpServerToolCall" or (found.type == "functionCall" and _runs_outside_host(found.content)):
            if call_id in result_call_ids:
                result_call_ids.remove(call_id)
                continue
            report_change(found.location, f"the provider's call {call_id} has no result", "left it out")
            found.remove()


_CALLS: Final = frozenset({"functionCall", "mcpServerToolCall"})
_HOSTED_RESULTS: Final = frozenset({"functionResult", "mcpServerToolResult"})


def _hosted_call_id(content: Json) -> Any:
    inner: Any = content.get("content")
    return cast("Json", inner).get("call_id") if isinstance(inner, dict) else content.get("callId")


def pending_approval_call_ids(entries: list[Json]) -> set[Any]:
    """Return the calls that a person is asked about; those of a workflow stay open in an ended turn."""
    call_ids: set[Any] = set()
    for found in stored_contents(entries):
        if found.type == "functionApprovalRequest":
            call_ids.add(_call_id_of_approval_request(found.content))
        elif found.type == "functionCall" and _is_question(found.content):
            call_ids.add(found.call_id)
    return call_ids


def _is_question(content: Json) -> bool:
    """Return whether a call is the question of a workflow, as its agent has it."""
    request_id = object_at(content.get("arguments")).get("request_id")
    return request_id is not None and request_id == content.get("callId")


def _call_id_of_approval_request(content: Json) -> Any:
    return value_at(content, "content", "function_call", "call_id")


def _runs_outside_host(content: Json) -> bool:
    extension = extension_of(content)
    return bool(extension.get("hosted") or extension.get("informational_only"))


def find_unmatched_calls_in_objects(entries: list[Json]) -> UnmatchedCalls:
    """Return the calls and results of a part of a conversation that belong to other parts."""
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
    return UnmatchedCalls(open_calls, frozenset(results), frozenset(pending_approval_call_ids(entries)))
