"""Whether stored contents still make up the provider's items that they stand for, and what makes them so. Pure.

The first content of an item has a stamp with its type and id; the others of the same item name that id. A stamp
stands for something only as long as what it leaves out is in its contents.
"""

import re
from collections.abc import Callable
from typing import Any, Final, cast

from durable_agent_host.model.provider_item import PART_OF, STAMP
from durable_agent_host.turns.stored_contents import Found, Json, properties_of, stored_contents

Tell = Callable[[str, str, str], None]

_GOOD_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ID_IS_OPTIONAL: Final = frozenset({"message", "function_call"})
_CODE_RESULT: Final = "codeInterpreterToolResult"
_CONTENTS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "message": ("content", ("text",)),
    "reasoning": ("summary", ("reasoning",)),
    "function_call": ("arguments", ("functionCall",)),
    "code_interpreter_call": ("code", ("codeInterpreterToolCall", _CODE_RESULT)),
    "web_search_call": ("action", ("searchToolResult",)),
    "file_search_call": ("queries", ("searchToolCall", "searchToolResult")),
    "mcp_call": ("arguments", ("mcpServerToolCall",)),
    "mcp_approval_request": ("arguments", ("functionApprovalRequest",)),
    "image_generation_call": ("result", ("imageGenerationToolResult",)),
    "shell_call_output": ("output", ("shellToolResult",)),
}
"""Type of item → a field that is on the stamp when that keeps the item whole, else the contents that it needs."""


def mend_items(entries: list[Json], tell: Tell) -> None:
    """Mend stamps: of contents that are gone or of another kind, ids that no service takes, items that come twice.

    Args:
        entries: in full; changed in place.
        tell: is told the place, the problem and the repair.
    """
    seen: set[str] = set()
    for group in _groups(entries, tell):
        stamp = stamp_of(group[0])
        if stamp is None:
            continue
        name = f"item {stamp.get('id')}"
        if (problem := _mend_contents(group, stamp, tell)) is not None:
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
            _forget_id(group, stamp)
        elif item_id in seen and stamp.get("type") != "reasoning":
            _drop_second(group, stamp, tell)
        seen.add(str(item_id))


def stamp_of(found: Found) -> Json | None:
    """Give the stamp of a content that begins an item of its provider, or None. Guarantee: pure.

    Args:
        found: a stored content.

    Returns:
        The stamp itself, not a copy.
    """
    mark: Any = properties_of(found.content).get(STAMP)
    return cast("Json", mark) if isinstance(mark, dict) and found.type != "functionResult" else None


def _groups(entries: list[Json], tell: Tell) -> list[list[Found]]:
    """Split contents into items, each a stamped content with its parts; parts that stand elsewhere belong to none."""
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


def _mend_contents(group: list[Found], stamp: Json, tell: Tell) -> str | None:
    """Say what keeps an item from being rebuilt; a code run without its result gets an empty one."""
    kind = stamp.get("type")
    if not isinstance(kind, str) or "id" not in stamp:
        return "has no type or no id"
    field, needed = _CONTENTS.get(kind, ("", ()))
    is_kept_whole = field in stamp and (field != "content" or stamp[field] is not None)
    if is_kept_whole or not needed:
        return None
    there = [found.type for found in group]
    missing = [one for one in needed if one not in there]
    if missing == [_CODE_RESULT]:
        tell(group[0].place, f"the code run {stamp['id']} has no result", "added one without outputs")
        _add_code_result(group[0], stamp)
        missing = []
    if missing:
        return "has lost its contents"
    run = next((one for one in group if one.type == "codeInterpreterToolCall"), None)
    if kind == "code_interpreter_call" and run and not (properties_of(run.content) | stamp).get("container_id"):
        return "has lost its container"
    return None


def _add_code_result(call: Found, stamp: Json) -> None:
    inner = cast("Json", call.content["content"])
    result: Json = {"type": "code_interpreter_tool_result", "call_id": inner.get("call_id"), "outputs": []}
    result["additional_properties"] = {PART_OF: stamp["id"]}
    result |= {"status": inner["status"]} if "status" in inner else {}
    contents = cast("list[Json]", call.message["contents"])
    place = next(n for n, content in enumerate(contents) if content is call.content)
    contents.insert(place + 1, {"$type": _CODE_RESULT, "content": result})


def _drop_second(group: list[Found], stamp: Json, tell: Tell) -> None:
    if stamp.get("type") in _ID_IS_OPTIONAL:
        tell(group[0].place, f"item {stamp['id']} comes twice", "took the item's id away from the second one")
        _forget_id(group, stamp)
        return
    tell(group[0].place, f"item {stamp['id']} comes twice", "left the second one out")
    for found in group:
        found.remove()


def _forget_id(group: list[Found], stamp: Json) -> None:
    if stamp.get("type") not in _ID_IS_OPTIONAL:
        _unstamp(group)
        return
    stamp["id"] = None
    for found in group[1:]:
        properties_of(found.content)[PART_OF] = None
    properties = properties_of(group[0].content)
    properties.pop("fc_id", None)
    if isinstance(inner := properties.get("openai"), dict):
        cast("Json", inner).pop("item_id", None)


def _unstamp(group: list[Found]) -> None:
    for found in group:
        properties = properties_of(found.content)
        properties.pop(STAMP, None)
        properties.pop(PART_OF, None)
        if found.type == "text" and not found.content.get("text"):
            found.remove()  # it only carried the item
