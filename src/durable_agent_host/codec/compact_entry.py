"""The compact form of entries: omits what can be rebuilt exactly. Pure, from JSON to JSON.

A compact entry has the mark ``packed`` in our extension, and stays readable by upstream. It omits

- a message's time that equals its entry's;
- the extension of each content and message: it moves into one table of the entry, ``parts``, by position (``"1.0"`` is
  the first content of the second message, ``"1"`` that message itself), shortened as described in
  `durable_agent_host.codec.compact_content`;
- in the usage: counts that occur under two names, and zeros; ``packed`` then has the bit `_USAGE_BIT`;
- the usual finish reason.

`pack_entry` unpacks what it packed and compares: what is not restored exactly stays in full. Responses are written in
compact form directly, by `durable_agent_host.codec.message`.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from durable_agent_host.codec.compact_content import CompactContents, is_same_json
from durable_agent_host.codec.extension import extension_of, set_extension, take_extension
from durable_agent_host.codec.item_forms import item_forms
from durable_agent_host.codec.wire import EntryWire
from durable_agent_host.errors import CorruptStateError

PACKED: Final = "packed"
_PARTS: Final = "parts"
_FORM: Final = 1
_USAGE_BIT: Final = 2
_FINISH_REASON: Final = "finishReason"
_USUAL_FINISH_REASON: Final = "stop"


def pack_entry(entry: EntryWire) -> EntryWire:
    """Convert an entry to compact form.

    Guarantee: pure; `unpack_entry` gives an equal entry.

    Args:
        entry: in full form; it is not changed.

    Returns:
        The compact entry, sharing parts with the argument; the same entry when a rule is not exact for it.
    """
    try:
        packed = _packed(cast("dict[str, Any]", entry))
        unpacked = unpack_entry(packed)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError):
        return entry
    return cast("EntryWire", packed) if is_same_json(unpacked, entry) else entry


def unpack_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an entry to full form.

    Guarantee: pure.

    Args:
        entry: compact or full; it is not changed.

    Returns:
        The full entry, sharing parts with the argument.

    Raises:
        CorruptStateError: it is packed in a form of a later version.
        AttributeError, KeyError, TypeError, ValueError: it has the mark, but is malformed.
    """
    full = cast("dict[str, Any]", entry)
    extension = extension_of(full)
    form = packed_form(extension)
    if not form:
        return full
    full = dict(full)
    parts = parts_of(extension)
    rest = {name: value for name, value in extension.items() if name not in (PACKED, _PARTS)}
    rest = {_FINISH_REASON: _USUAL_FINISH_REASON, **rest}
    if rest[_FINISH_REASON] is None:
        del rest[_FINISH_REASON]
    set_extension(full, rest)
    if form & _USAGE_BIT:
        full["usage"] = _unpacked_usage(full["usage"])
    full["messages"] = [{"createdAt": full["createdAt"], **message} for message in full["messages"]]
    compact = CompactContents()
    for key, message in enumerate(full["messages"]):
        if str(key) in parts:
            set_extension(message, parts[str(key)])
        message["contents"] = [
            compact.unpack(content, parts.get(f"{key}.{number}")) for number, content in enumerate(message["contents"])
        ]
    return full


def packed_form(extension: Mapping[str, Any]) -> int:
    """Return how an entry is packed. Guarantee: pure.

    Args:
        extension: our extension of the entry.

    Returns:
        The form's bits; 0 for an entry in full.

    Raises:
        CorruptStateError: it is packed in a form of a later version.
    """
    form: Any = extension.get(PACKED)
    if form is None:
        return 0
    if form not in (_FORM, _FORM | _USAGE_BIT):
        raise CorruptStateError(
            f"the conversation has an entry packed in the form {form!r}, which this program cannot read: "
            "upgrade durable-agent-host, or start another session; nothing was changed"
        )
    return form


def parts_of(extension: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a packed entry. Guarantee: pure.

    Args:
        extension: our extension of the entry.

    Returns:
        Position to part; the entry's own, not a copy.
    """
    return extension.get(_PARTS) or {}


def _packed(entry: dict[str, Any]) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    compact = CompactContents()
    messages: list[dict[str, Any]] = []
    for key, full in enumerate(entry["messages"]):
        message = {name: value for name, value in full.items() if name != "createdAt" or value != entry["createdAt"]}
        if ours := take_extension(message):
            parts[str(key)] = ours
        contents = [compact.pack(content) for content in message["contents"]]
        message["contents"] = [content for content, _ in contents]
        parts |= {f"{key}.{number}": part for number, (_, part) in enumerate(contents) if part is not None}
        messages.append(message)
    packed = dict(entry)
    packed["messages"] = messages
    extension = take_extension(packed)
    usage = pack_usage(entry.get("usage"))
    if usage is not None:
        packed["usage"] = usage
    set_extension(packed, packed_extension(extension, parts, is_usage_packed=usage is not None))
    return packed


def packed_extension(extension: Mapping[str, Any], parts: dict[str, Any], *, is_usage_packed: bool) -> dict[str, Any]:
    """Return our extension of a compact entry. Guarantee: pure.

    Args:
        extension: the extension of the full entry.
        parts: removed from its messages and contents, by position.
        is_usage_packed: whether its usage is compact.

    Returns:
        The extension with the mark that `unpack_entry` recognizes.
    """
    short: dict[str, Any] = {PACKED: _FORM | _USAGE_BIT if is_usage_packed else _FORM}
    if _FINISH_REASON not in extension:
        short[_FINISH_REASON] = None
    short.update(extension)
    if short[_FINISH_REASON] == _USUAL_FINISH_REASON:
        del short[_FINISH_REASON]
    if parts:
        short[_PARTS] = parts
    return short


def pack_usage(usage: Any) -> dict[str, Any] | None:
    """Omit the counts that a provider's client repeats, and zeros, when all copies are present.

    Guarantee: pure; a packed entry restores them.

    Args:
        usage: of the full entry, or None.

    Returns:
        The compact usage; None when a copy is missing.
    """
    rest: Any = cast("dict[str, Any]", usage).get("extensionData") if isinstance(usage, dict) else None
    if not isinstance(rest, dict):
        return None
    twins = item_forms().usage_twins
    counts = dict(cast("dict[str, Any]", rest))
    for name, twin in twins.items():
        if name not in counts or twin not in counts or not is_same_json(counts.pop(name), counts[twin]):
            return None
    counts = {name: value for name, value in counts.items() if name not in twins.values() or not _is_zero(value)}
    short = {name: value for name, value in cast("dict[str, Any]", usage).items() if name != "extensionData"}
    return short | {"extensionData": counts} if counts else short


def _is_zero(count: Any) -> bool:
    return type(count) is int and count == 0


def _unpacked_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    twins = item_forms().usage_twins
    counts = dict.fromkeys(twins.values(), 0) | dict(usage.get("extensionData") or {})
    return {**usage, "extensionData": counts | {name: counts[twin] for name, twin in twins.items()}}
