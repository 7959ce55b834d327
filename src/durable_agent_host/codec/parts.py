"""Parts: what our extension says of a content, in short form and back. Pure, from JSON to JSON.

What is left out of a part stands in the list of `durable_agent_host.codec.packing`.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from durable_agent_host.codec.wire import EXTENSION
from durable_agent_host.model.provider_item import STAMP

OPENAI: Final = "openai"
"""Key of a part: the properties that the OpenAI client keeps under its name and beside it."""
ITEM: Final = "item"
"""Key of a part: the stamp of the provider's item."""
CALL_DEFAULTS: Final[dict[str, Any]] = {"hosted": False, "argumentsForm": "compact"}
"""What a call's part need not say."""
NO_LOGPROBS: Final[dict[str, Any]] = {"openai": {"logprobs": []}, "logprobs": []}
"""The properties that the OpenAI client gives to a text; the part of a content that has no more is 0."""

_CALL: Final = "functionCall"
_RESULT: Final = "functionResult"
_NO_LOGPROBS_INNER: Final[dict[str, Any]] = {"logprobs": []}
_USUAL_ITEM: Final = {"functionCall": "function_call", "text": "message", "reasoning": "reasoning"}
_USUAL_PROVIDER: Final = "openai"
_IN_PROPERTIES: Final = frozenset({"additional_properties", OPENAI, ITEM})
_IDENTITY: Final = ("id", OPENAI, "additional_properties")

Calls = dict[str, Mapping[str, Any]]
"""The parts of the function calls of an entry, by call id."""


def pack_content(content: Mapping[str, Any], calls: Calls) -> tuple[dict[str, Any], Any]:
    """Take our extension out of a content, as its part.

    Guarantee: `unpack_content` gives the content back; it is not changed.

    Args:
        content: in full.
        calls: the parts of the function calls before it, by call id; that of this one is added.

    Returns:
        The content without our extension, and its part, or the content as it is, and None.

    Raises:
        ValueError: it is a call that has no short form; an entry with one is kept in full.
    """
    short = dict(content)
    part = _packed_part(short, take_ours(short), calls)
    if is_same_json(unpack_content(short, part, calls), content):
        return short, part
    if content.get("$type") == _CALL:
        raise ValueError("a call without short form")
    return dict(content), None


def _packed_part(content: Mapping[str, Any], ours: dict[str, Any] | None, calls: Calls) -> Any:
    wire_type = content.get("$type")
    if wire_type == _CALL:
        part = short_properties(without_defaults(ours or {}, CALL_DEFAULTS), wire_type)
        calls[content["callId"]] = part
        return part or None
    if ours is None:
        return None
    if len(ours) == 1 and ours.get("additional_properties") == NO_LOGPROBS:
        return 0
    short = dict(ours)
    if wire_type == _RESULT and short.get("items") == [{"type": "text", "text": content.get("result")}]:
        short["items"] = 1
    short = short_properties(short, str(wire_type))
    return short_result(short, calls.get(content["callId"], {})) if wire_type == _RESULT else short


def short_result(part: dict[str, Any], call: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out of the part of a result what it has from its call: the id and the properties.

    Guarantee: pure.

    Args:
        part: of the result, otherwise in short form.
        call: the part of its call in short form.

    Returns:
        The part, with a mark when the result has the same as its call.
    """
    if ITEM in part or STAMP in part.get("additional_properties", ()):
        return part
    for name in _IDENTITY:
        mine, its = part.get(name, _IDENTITY), call.get(name, _IDENTITY)
        if mine is not its and not is_same_json(mine, its):
            return part
    short = {name: value for name, value in part.items() if name not in _IDENTITY}
    return part if len(short) == len(part) else short | {"call": 1}


def call_identity(call: Mapping[str, Any]) -> dict[str, Any]:
    """Give what a result has from its call. Guarantee: pure.

    Args:
        call: the part of the call in short form.

    Returns:
        The id, and the properties in full, without the stamp of the call's item, where it has them.
    """
    properties = {name: value for name, value in (_twinned(call, _CALL) or {}).items() if name != STAMP}
    return ({"id": call["id"]} if "id" in call else {}) | ({"additional_properties": properties} if properties else {})


def short_properties(part: dict[str, Any], wire_type: str) -> dict[str, Any]:
    """Leave out of a part's properties what stands there twice, or on the content.

    Guarantee: pure; `full_properties` gives them back for a part that a content of the framework can have.

    Args:
        part: our extension of a content.
        wire_type: of the content.

    Returns:
        The part, sharing values with the argument.
    """
    properties: Any = part.get("additional_properties")
    if not isinstance(properties, dict) or not properties:
        return part
    flat = cast("dict[str, Any]", properties)
    rest = {name: value for name, value in part.items() if name != "additional_properties"}
    if isinstance(stamp := flat.get(STAMP), dict) and ITEM not in part:
        rest[ITEM] = short_stamp(cast("dict[str, Any]", stamp), part, flat, wire_type)
        flat = {name: value for name, value in flat.items() if name != STAMP}
    inner: Any = flat.get(OPENAI)
    if isinstance(inner, dict) and inner and OPENAI not in part:
        others = _without_twins(flat, cast("dict[str, Any]", inner), wire_type)
        if others is not None:
            rest[OPENAI] = cast("Any", inner) if inner != _NO_LOGPROBS_INNER else 0
            flat = others
    return rest | {"additional_properties": flat} if flat else rest


def short_stamp(stamp: dict[str, Any], part: dict[str, Any], properties: dict[str, Any], wire_type: str) -> Any:
    """Write the stamp of a provider's item.

    Guarantee: pure; `full_stamp` gives it back.

    Args:
        stamp: as JSON.
        part: of the content that has it.
        properties: of that content.
        wire_type: of that content.

    Returns:
        1 when the stamp says what the content says; else the item's id, when that is all it says, or the stamp.
    """
    item_id = stamp.get("id")
    usual_type = _USUAL_ITEM.get(wire_type)
    if not isinstance(item_id, str) or usual_type is None:
        return stamp
    if stamp != {"provider": _USUAL_PROVIDER, "type": usual_type, "id": item_id}:
        return stamp
    return 1 if item_id == _own_item_id(part, properties, wire_type) else item_id


def _without_twins(flat: dict[str, Any], inner: dict[str, Any], wire_type: str) -> dict[str, Any] | None:
    """Leave out properties that stand under ``openai`` as well, and that; None when not all of those do."""
    others = {name: value for name, value in flat.items() if name != OPENAI}
    for name, value in inner.items():
        twin = twin_name(name, wire_type)
        if twin not in others or not is_same_json(others.pop(twin), value):
            return None
    return others


def full_properties(part: Mapping[str, Any], wire_type: str) -> dict[str, Any] | None:
    """Write the properties of a content in full. Guarantee: pure, the inverse of `short_properties`.

    Args:
        part: of the content, in short form.
        wire_type: of the content.

    Returns:
        Its ``additional_properties``, sharing values with the argument; None when it has none.
    """
    properties = _twinned(part, wire_type)
    stamp: Any = part.get(ITEM)
    if stamp is None:
        return properties
    properties = properties or {}
    return {**properties, STAMP: full_stamp(stamp, part, properties, wire_type)}


def full_stamp(stamp: Any, part: Mapping[str, Any], properties: Mapping[str, Any], wire_type: str) -> Any:
    """Read the stamp of a provider's item. Guarantee: pure, the inverse of `short_stamp`.

    Args:
        stamp: in short form.
        part: of the content that has it.
        properties: of that content.
        wire_type: of that content.

    Returns:
        The stamp in full.
    """
    if isinstance(stamp, dict):
        return cast("Any", stamp)
    item_id = _own_item_id(part, properties, wire_type) if stamp == 1 else stamp
    return {"provider": _USUAL_PROVIDER, "type": _USUAL_ITEM[wire_type], "id": item_id}


def _twinned(part: Mapping[str, Any], wire_type: str) -> dict[str, Any] | None:
    inner: dict[str, Any] | None = part.get(OPENAI)
    if inner is None:
        return part.get("additional_properties")
    inner = inner or {"logprobs": []}
    properties: dict[str, Any] = {OPENAI: inner, **inner}
    if "item_id" in inner and twin_name("item_id", wire_type) != "item_id":
        properties[twin_name("item_id", wire_type)] = properties.pop("item_id")
    return {**properties, **(part.get("additional_properties") or {})}


def _own_item_id(part: Mapping[str, Any], properties: Mapping[str, Any], wire_type: str) -> Any:
    if wire_type == "reasoning":
        return part.get("id")
    inner: Any = properties.get(OPENAI)
    return cast("dict[str, Any]", inner).get("item_id") if isinstance(inner, dict) else None


def twin_name(name: str, wire_type: str) -> str:
    """Name the property that stands beside one under ``openai``. Guarantee: pure.

    Args:
        name: under ``openai``.
        wire_type: of the content.

    Returns:
        Its name beside.
    """
    return "fc_id" if name == "item_id" and wire_type in (_CALL, _RESULT) else name


def unpack_content(content: Mapping[str, Any], part: Any, calls: Calls) -> Any:
    """Put the part of a content back into it.

    Guarantee: neither is changed.

    Args:
        content: without our extension.
        part: of it, or None.
        calls: the parts of the function calls before it, by call id; that of this one is added.

    Returns:
        The content in full, sharing values with the arguments.
    """
    wire_type = content.get("$type")
    if wire_type == _CALL:
        part = part or {}
        calls[content["callId"]] = part
        ours = with_defaults(_unpacked_part(part, wire_type), CALL_DEFAULTS)
        if not ours:
            return content
    elif part is None:
        return content
    elif part == 0:
        ours: dict[str, Any] = {"additional_properties": {"openai": {"logprobs": []}, "logprobs": []}}
    else:
        ours = _unpacked_part(part, str(wire_type))
        if wire_type == _RESULT:
            if ours.get("items") == 1:
                ours["items"] = [{"type": "text", "text": content["result"]}]
            if ours.pop("call", None):
                ours |= call_identity(calls[content["callId"]])
    full = dict(content)
    if "extensionData" in full:
        set_ours(full, ours)
    else:
        full["extensionData"] = {EXTENSION: ours}
    return full


def _unpacked_part(part: Mapping[str, Any], wire_type: str) -> dict[str, Any]:
    properties = full_properties(part, wire_type)
    full = {name: value for name, value in part.items() if name not in _IN_PROPERTIES}
    if properties is not None:
        full["additional_properties"] = properties
    return full


def is_same_json(left: Any, right: Any) -> bool:
    """Compare JSON to the letter: ``1``, ``1.0`` and ``true`` are three values. Guarantee: pure.

    Args:
        left: JSON.
        right: JSON.

    Returns:
        Whether both are the same, the order of keys aside.
    """
    if left is right:
        return True
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        one, other = cast("dict[str, Any]", left), cast("dict[str, Any]", right)
        if one.keys() != other.keys():
            return False
        for name, value in one.items():
            if value is not other[name] and not is_same_json(value, other[name]):
                return False
        return True
    if isinstance(left, list):
        some, others = cast("list[Any]", left), cast("list[Any]", right)
        return len(some) == len(others) and all(map(is_same_json, some, others))
    return left == right and (left != 0 or str(left) == str(right))


def without_defaults(part: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is usual, and note None where the usual is missing. Guarantee: pure.

    Args:
        part: in full.
        defaults: what is usual.

    Returns:
        The part in short form.
    """
    missing: dict[str, Any] = {name: None for name in defaults if name not in part}
    return missing | {name: value for name, value in part.items() if name not in defaults or defaults[name] != value}


def with_defaults(part: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Put back what `without_defaults` left out. Guarantee: pure.

    Args:
        part: in short form.
        defaults: the same.

    Returns:
        The part in full.
    """
    return {name: value for name, value in {**defaults, **part}.items() if value is not None or name not in defaults}


def ours_of(holder: Mapping[str, Any]) -> dict[str, Any]:
    """Find our extension. Guarantee: pure.

    Args:
        holder: an entry, a message or a content.

    Returns:
        The object itself, or an empty one.
    """
    extension: Any = holder.get("extensionData")
    ours: Any = cast("dict[str, Any]", extension).get(EXTENSION) if isinstance(extension, dict) else None
    return cast("dict[str, Any]", ours) if isinstance(ours, dict) else {}


def take_ours(holder: dict[str, Any]) -> dict[str, Any] | None:
    """Take our extension out of its holder, and the empty wrapper with it.

    Args:
        holder: is changed.

    Returns:
        Our extension; None when there is none, or an empty one, which stays.
    """
    ours = ours_of(holder)
    if not ours:
        return None
    rest = {name: value for name, value in holder["extensionData"].items() if name != EXTENSION}
    if rest:
        holder["extensionData"] = rest
    else:
        del holder["extensionData"]
    return ours


def set_ours(holder: dict[str, Any], ours: dict[str, Any]) -> None:
    """Put our extension beside those of others.

    Args:
        holder: is changed.
        ours: our extension; an empty one takes it away.
    """
    rest: Any = holder.get("extensionData") or {}
    extension = {name: value for name, value in rest.items() if name != EXTENSION} | ({EXTENSION: ours} if ours else {})
    if extension:
        holder["extensionData"] = extension
    else:
        holder.pop("extensionData", None)
