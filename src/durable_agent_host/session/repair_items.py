"""Checks whether stored contents still make up their provider's items, and repairs them. Pure.

The first content of an item has a stamp with its type and id; the others of the same item refer to that id. A stamp is
valid only as long as the contents have what it leaves out.
"""

import copy
import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, cast

from durable_agent_host.model.provider_item import PART_OF, STAMP
from durable_agent_host.model.repair_rules import RepairRules, StoredItem
from durable_agent_host.session.stored_contents import Found, Json, properties_of, stored_contents

Tell = Callable[[str, str, str], None]


class Ids(set[str]):
    """Ids seen so far, of which the latest can be discarded."""

    def __init__(self) -> None:
        super().__init__()
        self._latest: list[str] = []

    def add(self, element: str, /) -> None:
        """Add an id."""
        if element not in self:
            self._latest.append(element)
            super().add(element)

    def mark(self) -> None:
        """Remember the current state."""
        self._latest.clear()

    def rewind(self) -> None:
        """Return to the remembered state."""
        self.difference_update(self._latest)
        self._latest.clear()


class Seen:
    """The checks' knowledge of the conversation outside the part that they check.

    Args:
        asked: calls that some part of the conversation asks a person about.

    Attributes:
        items: ids of the items before it.
        calls: ids of the items of function calls, and of reasoning, before it.
        contents: how many contents precede it.
        asked: see above.
    """

    def __init__(self, asked: AbstractSet[Any] = frozenset()) -> None:
        self.items = Ids()
        self.calls = Ids()
        self.contents = 0
        self.asked = asked
        self._marked = 0

    def mark(self) -> None:
        """Remember the current state."""
        self.items.mark()
        self.calls.mark()
        self._marked = self.contents

    def rewind(self) -> None:
        """Return to the remembered state."""
        self.items.rewind()
        self.calls.rewind()
        self.contents = self._marked


_GOOD_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_KEPT_AS_IT_IS: Final = StoredItem()


def mend_items(entries: list[Json], rules: RepairRules, tell: Tell, known: Seen) -> None:
    """Repair stamps: of missing or changed contents, with ids that no service accepts, of items that occur twice.

    Args:
        entries: changed in place.
        rules: of the service that receives them.
        tell: called with the place, the problem and the repair.
        known: from the conversation before them.
    """
    seen = known.items
    for group in _groups(entries, tell):
        stamp = stamp_of(group[0])
        if stamp is None:
            continue
        name = f"item {stamp.get('id')}"
        if (problem := _mend_contents(group, stamp, rules, tell)) is not None:
            tell(
                group[0].place, f"{name} of type {stamp.get('type')!r} {problem}", "kept its contents without the item"
            )
            _unstamp(group)
            continue
        item_id = stamp.get("id")
        if item_id is None:
            continue
        if not isinstance(item_id, str) or not _GOOD_ID.fullmatch(item_id):
            tell(group[0].place, f"{name[:80]} has an id that no service takes", "took it away")
            _forget_id(group, stamp, rules)
        elif item_id in seen and stamp.get("type") != "reasoning":
            _drop_second(group, stamp, rules, tell)
        seen.add(str(item_id))


def stamp_of(found: Found) -> Json | None:
    """Return the stamp of a content that begins a provider's item, or None. Guarantee: pure.

    Args:
        found: a stored content.

    Returns:
        The stamp itself, not a copy.
    """
    mark: Any = properties_of(found.content).get(STAMP)
    return cast("Json", mark) if isinstance(mark, dict) and found.type != "functionResult" else None


def _groups(entries: list[Json], tell: Tell) -> list[list[Found]]:
    """Group contents into items, each a stamped content with its parts; parts out of place belong to none."""
    groups: list[list[Found]] = []
    for found in stored_contents(entries):
        properties = properties_of(found.content)
        if PART_OF in properties and stamp_of(found) is None:
            head = groups[-1][0] if groups else None
            stamp = stamp_of(head) if head and head.message is found.message else None
            if stamp is not None and stamp.get("id") == properties[PART_OF]:
                groups[-1].append(found)
                continue
            problem = f"it is part of item {properties[PART_OF]}, which does not stand before it"
            tell(found.place, problem, "kept it without the item")
            del properties[PART_OF]
        groups.append([found])
    return groups


def _mend_contents(group: list[Found], stamp: Json, rules: RepairRules, tell: Tell) -> str | None:
    """Return why an item cannot be rebuilt; a call that has lost its result gets an empty one."""
    kind = stamp.get("type")
    if not isinstance(kind, str) or "id" not in stamp:
        return "has no type or no id"
    row = rules.items.get(kind, _KEPT_AS_IT_IS)
    is_kept_whole = row.field in stamp and (row.is_null_kept or stamp[row.field] is not None)
    if is_kept_whole or not row.contents:
        return None
    missing = [one for one in row.contents if one not in [found.type for found in group]]
    if row.empty_result is not None and missing == [row.contents[-1]]:
        tell(group[0].place, f"the {row.call_name} {stamp['id']} has no result", "added one without outputs")
        _add_result(group[0], stamp, row.contents[-1], row.empty_result)
        missing = []
    if missing:
        return "has lost its contents"
    call = next((one for one in group if one.type == row.contents[0]), None)
    if row.owner and call and not (properties_of(call.content) | stamp).get(row.owner[0]):
        return f"has lost its {row.owner[1]}"
    return None


def _add_result(call: Found, stamp: Json, stored_type: str, empty: Mapping[str, Any]) -> None:
    inner = cast("Json", call.content["content"])
    result: Json = {"type": empty["type"], "call_id": inner.get("call_id"), **copy.deepcopy(dict(empty))}
    result["additional_properties"] = {PART_OF: stamp["id"]}
    result |= {"status": inner["status"]} if "status" in inner else {}
    contents = cast("list[Json]", call.message["contents"])
    place = next(n for n, content in enumerate(contents) if content is call.content)
    contents.insert(place + 1, {"$type": stored_type, "content": result})


def _drop_second(group: list[Found], stamp: Json, rules: RepairRules, tell: Tell) -> None:
    if _is_id_optional(stamp, rules):
        tell(group[0].place, f"item {stamp['id']} comes twice", "took the item's id away from the second one")
        _forget_id(group, stamp, rules)
        return
    tell(group[0].place, f"item {stamp['id']} comes twice", "left the second one out")
    for found in group:
        found.remove()


def _forget_id(group: list[Found], stamp: Json, rules: RepairRules) -> None:
    if not _is_id_optional(stamp, rules):
        _unstamp(group)
        return
    stamp["id"] = None
    for found in group[1:]:
        properties_of(found.content)[PART_OF] = None
    forget_item_id(group[0].content, rules)


def _is_id_optional(stamp: Json, rules: RepairRules) -> bool:
    return rules.items.get(cast("Any", stamp.get("type")), _KEPT_AS_IT_IS).is_id_optional


def item_id_of(content: Mapping[str, Any], rules: RepairRules) -> str | None:
    """Return the id of the item that a function call has in its properties. Guarantee: pure.

    Args:
        content: as stored.
        rules: of the service that receives it.

    Returns:
        The id, or None when the call has none.
    """
    value: Any = properties_of(content)
    for name in rules.item_id_paths[0] if rules.item_id_paths else ("",):
        value = cast("Json", value).get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) and value else None


def forget_item_id(content: Json, rules: RepairRules) -> None:
    """Remove the id of the item from the properties of a function call.

    Args:
        content: as stored; changed in place.
        rules: of the service that receives it.
    """
    for *way, name in rules.item_id_paths:
        holder: Any = properties_of(content)
        for step in way:
            holder = cast("Json", holder).get(step) if isinstance(holder, dict) else None
        if isinstance(holder, dict):
            cast("Json", holder).pop(name, None)


def _unstamp(group: list[Found]) -> None:
    for found in group:
        properties = properties_of(found.content)
        properties.pop(STAMP, None)
        properties.pop(PART_OF, None)
        if found.type == "text" and not found.content.get("text"):
            found.remove()  # it only carried the item
