"""Entries in short form and back: what can be rebuilt exactly is not stored. Pure, from JSON to JSON.

An entry in short form has the mark ``packed`` in our extension, and stays readable by upstream. Left out are:

- the time of a message that is its entry's;
- the extension of each content and message: it moves into one table of the entry, ``parts``, by position (``"1.0"`` is
  the first content of the second message, ``"1"`` that message itself), without the wrapper around each;
- in a part: the stamp of the provider's item, or all of it but the id, when it says what the content says; what the
  OpenAI client keeps twice (``additional_properties``, once under ``openai`` and once beside it), the identity of a
  result when it is that of its call, the one text item of a result that is that text, and the usual form of a call's
  arguments;
- in the usage: counts that stand there under two names, and zeros; ``packed`` then has the bit `_USAGE_BIT`;
- the usual finish reason.

`pack_entry` unpacks what it has packed and compares. An entry that does not come back to the letter is not packed, so
no rule here has to be complete.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from durable_agent_host.codec.wire import EXTENSION, EntryWire
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.provider_item import STAMP

PACKED: Final = "packed"
_PARTS: Final = "parts"
_FORM: Final = 1
_USAGE_BIT: Final = 2

_OPENAI: Final = "openai"
_CALL: Final = "functionCall"
_RESULT: Final = "functionResult"
_NO_LOGPROBS: Final[dict[str, Any]] = {"additional_properties": {"openai": {"logprobs": []}, "logprobs": []}}
_RESPONSE_DEFAULTS: Final[dict[str, Any]] = {"finishReason": "stop"}
_CALL_DEFAULTS: Final[dict[str, Any]] = {"hosted": False, "argumentsForm": "compact"}
_NO_LOGPROBS_INNER: Final[dict[str, Any]] = {"logprobs": []}
_ITEM: Final = "item"
_USUAL_ITEM: Final = {"functionCall": "function_call", "text": "message", "reasoning": "reasoning"}
_USUAL_PROVIDER: Final = "openai"
_USAGE_TWINS: Final = {
    "openai.cached_input_tokens": "cache_read_input_token_count",
    "openai.cache_write_tokens": "cache_creation_input_token_count",
    "openai.reasoning_tokens": "reasoning_output_token_count",
}

Place = tuple[str, dict[str, Any]]


def pack_entry(entry: EntryWire) -> EntryWire:
    """Write an entry in short form.

    Guarantee: pure; `unpack_entry` gives an equal entry.

    Args:
        entry: as the codec writes it in full; it is not changed.

    Returns:
        The entry in short form, sharing parts with the argument; the same entry when that would lose something.
    """
    try:
        packed = _packed(cast("dict[str, Any]", entry))
        unpacked = unpack_entry(packed)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError):
        return entry
    return cast("EntryWire", packed) if is_same_json(unpacked, entry) else entry


def unpack_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Write an entry in full.

    Guarantee: pure.

    Args:
        entry: in short form or in full; it is not changed.

    Returns:
        The entry in full, sharing parts with the argument.
    """
    full = cast("dict[str, Any]", entry)
    extension = _ours(full)
    form: Any = extension.get(PACKED)
    if form is None:
        return full
    if form not in (_FORM, _FORM | _USAGE_BIT):
        raise CorruptStateError(
            f"the conversation has an entry packed in the form {form!r}, which this program cannot read: "
            "upgrade durable-agent-host, or start another session; nothing was changed"
        )
    full = dict(full)
    parts = cast("dict[str, Any]", extension.get(_PARTS) or {})
    rest = {name: value for name, value in extension.items() if name not in (PACKED, _PARTS)}
    _set_ours(full, _with_defaults(rest, _RESPONSE_DEFAULTS))
    if form & _USAGE_BIT:
        full["usage"] = _unpacked_usage(full["usage"])
    full["messages"] = [{"createdAt": full["createdAt"], **message} for message in full["messages"]]
    calls: dict[str, dict[str, Any]] = {}
    for key, message in enumerate(full["messages"]):
        if str(key) in parts:
            _set_ours(message, parts[str(key)])
        message["contents"] = [
            _unpacked_content(content, f"{key}.{number}", parts, calls)
            for number, content in enumerate(message["contents"])
        ]
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
        return one.keys() == other.keys() and all(is_same_json(value, other[name]) for name, value in one.items())
    if isinstance(left, list):
        some, others = cast("list[Any]", left), cast("list[Any]", right)
        return len(some) == len(others) and all(map(is_same_json, some, others))
    return left == right and (left != 0 or str(left) == str(right))


def _packed(entry: dict[str, Any]) -> dict[str, Any]:
    packed = dict(entry)
    parts: dict[str, Any] = {}
    extension = {PACKED: _FORM, **_without_defaults(_ours(entry), _RESPONSE_DEFAULTS)}
    packed["messages"] = [
        {name: value for name, value in message.items() if name != "createdAt" or value != entry["createdAt"]}
        for message in entry["messages"]
    ]
    for key, message in enumerate(packed["messages"]):
        if (ours := _take_ours(message)) is not None:
            parts[str(key)] = ours
        message["contents"] = [dict(content) for content in message["contents"]]
    calls: dict[str, dict[str, Any]] = {}
    for place, content in _contents(packed["messages"]):
        ours = _take_ours(content)
        if content.get("$type") == _CALL:
            calls[content["callId"]] = ours or {}
        short = _packed_part(content, ours, calls)
        if short is not None:
            parts[place] = short
    if parts:
        extension[_PARTS] = parts
    if (usage := _packed_usage(entry.get("usage"))) is not None:
        packed["usage"] = usage
        extension[PACKED] = _FORM | _USAGE_BIT
    _set_ours(packed, extension)
    return packed


def _contents(messages: list[dict[str, Any]]) -> Iterator[Place]:
    for key, message in enumerate(messages):
        for number, content in enumerate(message["contents"]):
            yield f"{key}.{number}", content


def _packed_part(content: Mapping[str, Any], ours: dict[str, Any] | None, calls: dict[str, dict[str, Any]]) -> Any:
    if ours == _NO_LOGPROBS and ours is not None:
        return 0
    wire_type = content.get("$type")
    if wire_type == _CALL:
        short = _without_stamp(_without_defaults(ours or {}, _CALL_DEFAULTS), wire_type)
        return _without_twins(short, wire_type) or None
    if ours is None:
        return None
    short = dict(ours)
    if wire_type == _RESULT:
        if short.get("items") == [{"type": "text", "text": content.get("result")}]:
            short["items"] = 1
        identity = _identity(calls.get(content["callId"], {}))
        if (
            identity
            and is_same_json(identity, _identity(short))
            and STAMP not in short.get("additional_properties", ())
        ):
            short = {name: value for name, value in short.items() if name not in identity} | {"call": 1}
    return _without_twins(_without_stamp(short, str(wire_type)), str(wire_type))


def _identity(part: Mapping[str, Any]) -> dict[str, Any]:
    """Give what a result has from its call: the id, and the properties without the stamp of the call's item."""
    properties = {name: value for name, value in part.get("additional_properties", {}).items() if name != STAMP}
    return ({"id": part["id"]} if "id" in part else {}) | ({"additional_properties": properties} if properties else {})


def _own_item_id(part: Mapping[str, Any], wire_type: str) -> Any:
    if wire_type == "reasoning":
        return part.get("id")
    properties = cast("dict[str, Any]", part.get("additional_properties") or {})
    inner: Any = properties.get(_OPENAI)
    return cast("dict[str, Any]", inner).get("item_id") if isinstance(inner, dict) else None


def _without_stamp(part: dict[str, Any], wire_type: str) -> dict[str, Any]:
    properties: Any = part.get("additional_properties")
    stamp: Any = cast("dict[str, Any]", properties).get(STAMP) if isinstance(properties, dict) else None
    if not isinstance(stamp, dict) or _ITEM in part:
        return part
    stamp = cast("dict[str, Any]", stamp)
    item_id = stamp.get("id")
    usual = {"provider": _USUAL_PROVIDER, "type": _USUAL_ITEM.get(wire_type), "id": item_id}
    short: Any = stamp
    if isinstance(item_id, str) and stamp == usual:
        short = 1 if item_id == _own_item_id(part, wire_type) else item_id
    rest = {name: value for name, value in cast("dict[str, Any]", properties).items() if name != STAMP}
    packed = {name: value for name, value in part.items() if name != "additional_properties"} | {_ITEM: short}
    return packed | {"additional_properties": rest} if rest else packed


def _with_stamp(part: dict[str, Any], wire_type: str) -> dict[str, Any]:
    if _ITEM not in part:
        return part
    full = dict(part)
    stamp: Any = full.pop(_ITEM)
    if not isinstance(stamp, dict):
        item_id = _own_item_id(part, wire_type) if stamp == 1 else stamp
        stamp = {"provider": _USUAL_PROVIDER, "type": _USUAL_ITEM[wire_type], "id": item_id}
    full["additional_properties"] = {**(full.get("additional_properties") or {}), STAMP: stamp}
    return full


def _unpacked_content(
    content: Mapping[str, Any], place: str, parts: Mapping[str, Any], calls: dict[str, dict[str, Any]]
) -> Any:
    part: Any = parts.get(place)
    wire_type = content.get("$type")
    if wire_type == _CALL:
        part = _with_defaults(_with_stamp(_with_twins(part or {}, wire_type), wire_type), _CALL_DEFAULTS)
        calls[content["callId"]] = part
        if not part:
            return content
    elif part is None:
        return content
    elif part == 0:
        part = {"additional_properties": {"openai": {"logprobs": []}, "logprobs": []}}
    else:
        part = _with_stamp(_with_twins(part, str(wire_type)), str(wire_type))
        if wire_type == _RESULT:
            if part.get("items") == 1:
                part["items"] = [{"type": "text", "text": content["result"]}]
            if part.pop("call", None):
                part |= _identity(calls[content["callId"]])
    full = dict(content)
    if "extensionData" in full:
        _set_ours(full, part)
    else:
        full["extensionData"] = {EXTENSION: part}
    return full


def _without_defaults(part: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is usual, and note None where the usual is missing."""
    missing: dict[str, Any] = {name: None for name in defaults if name not in part}
    return missing | {name: value for name, value in part.items() if name not in defaults or defaults[name] != value}


def _with_defaults(part: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**defaults, **part}.items() if value is not None or name not in defaults}


def _twin_name(name: str, wire_type: str) -> str:
    return "fc_id" if name == "item_id" and wire_type in (_CALL, _RESULT) else name


def _without_twins(part: dict[str, Any], wire_type: str) -> dict[str, Any]:
    """Leave out properties that stand under ``openai`` as well, when all of those do."""
    properties: Any = part.get("additional_properties")
    if not isinstance(properties, dict) or _OPENAI in part:
        return part
    flat = dict(cast("dict[str, Any]", properties))
    inner: Any = flat.pop(_OPENAI, None)
    if not isinstance(inner, dict) or not inner:
        return part
    for name, value in cast("dict[str, Any]", inner).items():
        twin = _twin_name(name, wire_type)
        if twin not in flat or not is_same_json(flat.pop(twin), value):
            return part
    short: dict[str, Any] = {name: value for name, value in part.items() if name != "additional_properties"}
    short[_OPENAI] = inner if inner != _NO_LOGPROBS_INNER else 0
    return short | {"additional_properties": flat} if flat else short


def _with_twins(part: Mapping[str, Any], wire_type: str) -> dict[str, Any]:
    full = dict(part)
    inner: Any = full.pop(_OPENAI, None)
    if inner is not None:
        inner = inner or {"logprobs": []}
        twins = {_twin_name(name, wire_type): value for name, value in inner.items()}
        full["additional_properties"] = {_OPENAI: inner, **twins, **(full.get("additional_properties") or {})}
    return full


def _packed_usage(usage: Any) -> dict[str, Any] | None:
    """Leave out the twins of counts, and zeros, when all the twins are there; None when they are not."""
    rest: Any = cast("dict[str, Any]", usage).get("extensionData") if isinstance(usage, dict) else None
    if not isinstance(rest, dict):
        return None
    counts = dict(cast("dict[str, Any]", rest))
    for name, twin in _USAGE_TWINS.items():
        if name not in counts or twin not in counts or not is_same_json(counts.pop(name), counts[twin]):
            return None
    counts = {name: value for name, value in counts.items() if name not in _USAGE_TWINS.values() or value != 0}
    short = {name: value for name, value in cast("dict[str, Any]", usage).items() if name != "extensionData"}
    return short | {"extensionData": counts} if counts else short


def _unpacked_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    counts = dict.fromkeys(_USAGE_TWINS.values(), 0) | dict(usage.get("extensionData") or {})
    return {**usage, "extensionData": counts | {name: counts[twin] for name, twin in _USAGE_TWINS.items()}}


def _ours(holder: Mapping[str, Any]) -> dict[str, Any]:
    extension: Any = holder.get("extensionData")
    ours: Any = cast("dict[str, Any]", extension).get(EXTENSION) if isinstance(extension, dict) else None
    return cast("dict[str, Any]", ours) if isinstance(ours, dict) else {}


def _take_ours(holder: dict[str, Any]) -> dict[str, Any] | None:
    """Take our extension out of its holder, and the empty wrapper with it."""
    ours = _ours(holder)
    if not ours:
        return None
    rest = {name: value for name, value in holder["extensionData"].items() if name != EXTENSION}
    if rest:
        holder["extensionData"] = rest
    else:
        del holder["extensionData"]
    return ours


def _set_ours(holder: dict[str, Any], ours: dict[str, Any]) -> None:
    rest: Any = holder.get("extensionData") or {}
    extension = {name: value for name, value in rest.items() if name != EXTENSION} | ({EXTENSION: ours} if ours else {})
    if extension:
        holder["extensionData"] = extension
    else:
        holder.pop("extensionData", None)
