"""Contents of the usual kinds, straight from and to the short form of an entry.

Theory of operation. `durable_agent_host.codec.content` and `durable_agent_host.codec.packing` say what is stored; they
take two steps for it, through the content in full. Nearly all contents of a conversation are of a few types and have
only fields that an empty content of the framework takes over as they are; for each such type a `_Plan` says which, and
one step does. What a plan does not cover is left to the two steps. Tests hold both ways against each other.
"""

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Final, NamedTuple, cast

from agent_framework import Content

from durable_agent_host.codec.arguments import COMPACT, live_arguments, stored_arguments
from durable_agent_host.codec.content import MAPPED, OPAQUE, STORED
from durable_agent_host.codec.fields import (
    ASSIGNED,
    CONTENT,
    EMPTY,
    PLAIN,
    SCALARS,
    dump_field,
    dump_value,
    load_field,
    load_value,
)
from durable_agent_host.codec.parts import (
    ITEM,
    NO_LOGPROBS,
    OPENAI,
    Calls,
    call_identity,
    full_properties,
    full_stamp,
    short_properties,
    short_result,
    short_stamp,
    twin_name,
)
from durable_agent_host.model.provider_item import STAMP

_CALL_FIELDS: Final = {"call_id": "callId", "name": "name"}
_IN_PROPERTIES: Final = frozenset({"additional_properties", OPENAI, ITEM})
_DICT: Final[Any] = dict
_LIST: Final[Any] = list
_MARKS: Final = frozenset({CONTENT, PLAIN})
_BESIDE: Final = {
    "text_reasoning": ("annotations", "protected_data", "id"),
    "function_call": ("id",),
    "function_result": ("exception", "items", "id"),
}
"""Fields that contents of the usual kinds have besides those that upstream has a name for; the others: annotations."""
_SECOND_LOOK: Final = (OPAQUE, STORED)
_OF_CALLS: Final = frozenset({"hosted", "argumentsForm", "argumentsText"})


class _Plan(NamedTuple):
    """How contents of one type are read and written.

    Attributes:
        content_type: of the framework.
        wire_type: its ``$type``.
        names: fields of the content and of what is stored, that upstream has.
        size: of what is stored, when nothing unknown is in it.
        empty: attributes of an empty content.
        assigned: fields of a part that are attributes of the content.
        beside: fields that go into the part.
        item_id: the name that the OpenAI client's ``item_id`` has beside those under its own name.
        others: takes the attributes that are not written, of a content.
        unset: those of an empty content.
    """

    content_type: str
    wire_type: str
    names: tuple[tuple[str, str], ...]
    size: int
    empty: dict[str, Any]
    assigned: frozenset[str]
    beside: tuple[str, ...]
    item_id: str
    others: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    unset: tuple[Any, ...]


def _plan(content_type: str, wire_type: str, fields: Mapping[str, str], own: frozenset[str]) -> _Plan:
    empty = EMPTY[content_type]
    beside = _BESIDE.get(content_type, ("annotations",))
    written = {*fields, *own, *beside, "additional_properties", "raw_representation"}
    others = cast("Callable[[Mapping[str, Any]], tuple[Any, ...]]", itemgetter(*(empty.keys() - written)))
    return _Plan(
        content_type,
        wire_type,
        tuple(fields.items()),
        1 + len(fields) + ("arguments" in own),
        empty,
        ASSIGNED - {*fields, *own, "additional_properties"},
        beside,
        twin_name("item_id", wire_type),
        others,
        others(empty),
    )


_CALL: Final = _plan("function_call", "functionCall", _CALL_FIELDS, frozenset({"arguments", "hosted"}))
_PLANS: Final = (_CALL, *(_plan(content_type, *row, frozenset()) for content_type, row in MAPPED.items()))
_BY_TYPE: Final = {plan.content_type: plan for plan in _PLANS}
_BY_WIRE_TYPE: Final = {plan.wire_type: plan for plan in _PLANS}
_RESULT: Final = _BY_TYPE["function_result"]
_TEXT: Final = _BY_TYPE["text"]
_IS_BARE: Final = itemgetter(*(_TEXT.empty.keys() - {"text", "raw_representation"}))
_BARE: Final = _IS_BARE(_TEXT.empty)
"""All that a text content with nothing but its text has besides."""


def read_plain(wire: Mapping[str, Any], part: Any, calls: Calls | None) -> Content | None:
    """Read a content of an entry, when it is of the usual kinds.

    Guarantee: the same as `decode_content` of `unpack_content`; nothing is shared with the arguments.

    Args:
        wire: as it stands in the entry.
        part: its part, or None.
        calls: as for `unpack_content`; None for an entry in full.

    Returns:
        A new content; None when it takes the two steps.
    """
    try:
        plan = _BY_WIRE_TYPE.get(wire["$type"])
        if plan is None or len(wire) != plan.size or (part is not None and type(part) is not dict and part != 0):
            return None
        return _read_call(wire, part, calls) if plan is _CALL else _read(plan, wire, part, calls)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return None


def _read(plan: _Plan, wire: Mapping[str, Any], part: Any, calls: Calls | None) -> Content | None:
    attributes = plan.empty.copy()
    for name, wire_name in plan.names:
        value = wire[wire_name]
        attributes[name] = value if type(value) in SCALARS else load_field(name, value)
    if plan is _TEXT and attributes["text"] is None:
        return None
    if part is None:
        attributes["additional_properties"] = {}
    elif part == 0:
        attributes["additional_properties"] = {"openai": {"logprobs": []}, "logprobs": []}
    elif not part or not _read_part(plan, wire, part, calls, attributes):
        return None
    content = Content.__new__(Content)
    content.__dict__ = attributes
    return content


def _read_part(
    plan: _Plan, wire: Mapping[str, Any], part: Mapping[str, Any], calls: Calls | None, attributes: dict[str, Any]
) -> bool:
    """Set what a part says; tells whether that was all."""
    for name, value in part.items():
        if name in plan.assigned:
            attributes[name] = value if type(value) in SCALARS else load_field(name, value)
        elif name not in _IN_PROPERTIES and (plan is not _RESULT or name != "call"):
            return False
    properties = _live_properties(part, plan)
    if plan is _RESULT:
        if part.get("items") == 1:
            attributes["items"] = [_text(wire["result"])]
        if part.get("call") and calls is not None:
            call = calls[wire["callId"]]
            properties = _properties_of_call(call) or properties
            attributes["id"] = call.get("id", attributes["id"])
    attributes["additional_properties"] = properties
    return type(properties) is dict and type(attributes["id"]) in SCALARS


def _properties_of_call(call: Mapping[str, Any]) -> Any:
    """Read what a result has from its call: the properties, but the stamp of the call's item."""
    if "additional_properties" in call:
        return load_value(call_identity(call).get("additional_properties"))
    properties = _live_properties(call, _CALL)
    properties.pop(STAMP, None)
    return properties


def _live_properties(part: Mapping[str, Any], plan: _Plan) -> Any:
    """Read the properties of a content from its part, those of the OpenAI client without further steps."""
    inner: Any = part.get(OPENAI)
    if type(inner) is _DICT and "additional_properties" not in part:
        stamp = part.get(ITEM)
        if _is_flat(inner) and type(stamp) is not dict:
            properties: dict[str, Any] = {OPENAI: inner.copy(), **inner}
            if plan.item_id != "item_id" and "item_id" in inner:
                properties[plan.item_id] = properties.pop("item_id")
            if stamp is not None:
                properties[STAMP] = full_stamp(stamp, part, properties, plan.wire_type)
            return properties
    found = full_properties(part, plan.wire_type)
    return {} if found is None else load_value(found)


def _is_flat(twins: dict[str, Any]) -> bool:
    """Tell whether a dictionary that is not empty has plain values, and no name that means something else."""
    for name, value in twins.items():
        if type(value) not in SCALARS or name in _MARKS:
            return False
    return bool(twins)


def _text(text: Any) -> Content:
    if type(text) is not str:
        raise TypeError("no text")
    content = Content.__new__(Content)
    content.__dict__ = {**_TEXT.empty, "text": text, "additional_properties": {}}
    return content


def _read_call(wire: Mapping[str, Any], part: Any, calls: Calls | None) -> Content | None:
    if calls is None:
        return None
    part = part or {}
    stored, call_id, hosted = wire["arguments"], wire["callId"], part.get("hosted", False)
    calls[call_id] = part
    if type(hosted) is not bool or type(stored) is not dict:
        return None
    attributes = _CALL.empty.copy()
    for name, value in part.items():
        if name in _CALL.assigned:
            attributes[name] = value if type(value) in SCALARS else load_field(name, value)
        elif name not in _IN_PROPERTIES and name not in _OF_CALLS:
            return None
    if "argumentsText" in part:
        arguments = part["argumentsText"]
    else:
        arguments = live_arguments(cast("Any", stored), part.get("argumentsForm", COMPACT))
    attributes["call_id"] = call_id
    attributes["name"] = wire["name"]
    attributes["arguments"] = arguments if type(arguments) in SCALARS else load_value(arguments)
    attributes["hosted"] = hosted
    properties = _live_properties(part, _CALL)
    if type(properties) is not dict or "server_label" in properties or type(wire["name"]) not in SCALARS:
        return None
    attributes["additional_properties"] = properties
    content = Content.__new__(Content)
    content.__dict__ = attributes
    return content


def write_plain(content: Content, calls: Calls) -> tuple[dict[str, Any], Any] | None:
    """Write a content for an entry in short form, when it is of the usual kinds.

    Guarantee: the same as `pack_content` of `encode_content`; nothing is shared with the content.

    Args:
        content: of any type.
        calls: as for `pack_content`.

    Returns:
        The content as it stands in the entry, and its part or None; None when it takes the two steps.

    Raises:
        CorruptStateError: a field holds what JSON cannot.
        TypeError: it has no short form; an entry with one is kept in full.
    """
    plan = _BY_TYPE.get(content.type)
    attributes = vars(content)
    if plan is None or len(attributes) != len(plan.empty) or plan.others(attributes) != plan.unset:
        return None
    properties = attributes["additional_properties"]
    if type(properties) is not _DICT or not properties.keys().isdisjoint(_SECOND_LOOK):
        return None
    if STAMP in properties and type(properties[STAMP]) is not _DICT:
        return None
    wire: dict[str, Any] = {"$type": plan.wire_type}
    for name, wire_name in plan.names:
        value = attributes[name]
        wire[wire_name] = value if type(value) in SCALARS else dump_field(name, value, f"{plan.content_type}.{name}")
    part = _beside(plan, attributes)
    if properties:
        if not part and plan is not _CALL and properties == NO_LOGPROBS:
            return wire, 0
        part = _with_properties(part, properties, plan)
    if plan is _CALL:
        return _write_call(wire, part, attributes, calls)
    if plan is _RESULT and part:
        part = short_result(part, calls.get(wire["callId"], {}))
    return wire, part or None


def _beside(plan: _Plan, attributes: Mapping[str, Any]) -> dict[str, Any]:
    part: dict[str, Any] = {}
    for name in plan.beside:
        if (value := attributes[name]) is not None:
            if type(value) in SCALARS:
                if name == "items":
                    raise TypeError("items that are no list")  # the mark of the usual items is a number
                part[name] = value
            elif name == "items" and plan is _RESULT and _is_only_text(value, attributes["result"]):
                part[name] = 1
            else:
                part[name] = dump_field(name, value, f"{plan.content_type}.{name}")
    return part


def _with_properties(part: dict[str, Any], properties: dict[str, Any], plan: _Plan) -> dict[str, Any]:
    """Write properties into a part, those of the OpenAI client without further steps."""
    inner: Any = properties.get(OPENAI)
    marks = 1 + (STAMP in properties)
    if type(inner) is _DICT and len(properties) == marks + len(inner) and _is_doubled(inner, properties, plan.item_id):
        if marks > 1:
            stamp = dump_value(properties[STAMP], STAMP)
            part[ITEM] = short_stamp(stamp, part, properties, plan.wire_type)
        part[OPENAI] = inner.copy()
        return part
    part["additional_properties"] = dump_value(properties, f"{plan.content_type}.additional_properties")
    return short_properties(part, plan.wire_type)


def _is_doubled(inner: dict[str, Any], properties: dict[str, Any], item_id: str) -> bool:
    """Tell whether a dictionary has plain values, all of which stand in the properties, too, in as many places."""
    if not inner or (item_id != "item_id" and item_id in inner):
        return False
    for name, value in inner.items():
        twin = properties.get(item_id if name == "item_id" else name, _MARKS)
        if twin is not value and (type(twin) is not type(value) or twin != value):
            return False
        if type(value) not in SCALARS or name in _MARKS:
            return False
    return True


def _is_only_text(items: Any, text: Any) -> bool:
    """Tell whether items are one content, which has this text and nothing else."""
    if type(items) is not _LIST or len(items) != 1 or type(text) is not str:
        return False
    item = items[0]
    return isinstance(item, Content) and item.text == text and _IS_BARE(vars(item)) == _BARE


def _write_call(
    wire: dict[str, Any], part: dict[str, Any], attributes: dict[str, Any], calls: Calls
) -> tuple[dict[str, Any], Any] | None:
    arguments, hosted = attributes["arguments"], attributes["hosted"]
    if type(hosted) is not bool:
        return None
    if arguments is not None and type(arguments) is not str:
        arguments = dump_field("arguments", arguments, "function_call.arguments")
    wire["arguments"], noted = stored_arguments(arguments)
    if hosted:
        part["hosted"] = hosted
    if noted.get("argumentsForm") != COMPACT:
        part |= {"argumentsForm": None, **noted}
    calls[wire["callId"]] = part
    return wire, part or None
