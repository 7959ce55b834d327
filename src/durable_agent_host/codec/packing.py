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

What is packed is unpacked and compared: a content (`pack_content`) or a whole entry (`pack_entry`) that does not come
back to the letter stays as it is, so no rule here has to be complete. The usual contents are written straight in short
form by `durable_agent_host.codec.plain`, whose rules are complete.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from durable_agent_host.codec.parts import (
    Calls,
    is_same_json,
    ours_of,
    pack_content,
    set_ours,
    take_ours,
    unpack_content,
    with_defaults,
    without_defaults,
)
from durable_agent_host.codec.wire import EntryWire
from durable_agent_host.errors import CorruptStateError

PACKED: Final = "packed"
_PARTS: Final = "parts"
_FORM: Final = 1
_USAGE_BIT: Final = 2

_RESPONSE_DEFAULTS: Final[dict[str, Any]] = {"finishReason": "stop"}
_USAGE_TWINS: Final = {
    "openai.cached_input_tokens": "cache_read_input_token_count",
    "openai.cache_write_tokens": "cache_creation_input_token_count",
    "openai.reasoning_tokens": "reasoning_output_token_count",
}


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
    extension = ours_of(full)
    form = packed_form(extension)
    if not form:
        return full
    full = dict(full)
    parts = parts_of(extension)
    rest = {name: value for name, value in extension.items() if name not in (PACKED, _PARTS)}
    set_ours(full, with_defaults(rest, _RESPONSE_DEFAULTS))
    if form & _USAGE_BIT:
        full["usage"] = _unpacked_usage(full["usage"])
    full["messages"] = [{"createdAt": full["createdAt"], **message} for message in full["messages"]]
    calls: Calls = {}
    for key, message in enumerate(full["messages"]):
        if str(key) in parts:
            set_ours(message, parts[str(key)])
        message["contents"] = [
            unpack_content(content, parts.get(f"{key}.{number}"), calls)
            for number, content in enumerate(message["contents"])
        ]
    return full


def packed_form(extension: Mapping[str, Any]) -> int:
    """Tell how an entry is packed. Guarantee: pure.

    Args:
        extension: our extension of the entry.

    Returns:
        The form's bits; 0 for an entry in full.

    Raises:
        CorruptStateError: it is packed in a form of a later program.
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
    """Find the parts of a packed entry. Guarantee: pure.

    Args:
        extension: our extension of the entry.

    Returns:
        Place to part; the entry's own, not a copy.
    """
    return cast("dict[str, Any]", extension.get(_PARTS) or {})


def _packed(entry: dict[str, Any]) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    calls: Calls = {}
    messages: list[dict[str, Any]] = []
    for key, full in enumerate(entry["messages"]):
        message = {name: value for name, value in full.items() if name != "createdAt" or value != entry["createdAt"]}
        if (ours := take_ours(message)) is not None:
            parts[str(key)] = ours
        contents = [pack_content(content, calls) for content in message["contents"]]
        message["contents"] = [content for content, _ in contents]
        parts |= {f"{key}.{number}": part for number, (_, part) in enumerate(contents) if part is not None}
        messages.append(message)
    packed = dict(entry)
    packed["messages"] = messages
    extension = take_ours(packed) or {}
    usage = pack_usage(entry.get("usage"))
    if usage is not None:
        packed["usage"] = usage
    set_ours(packed, packed_extension(extension, parts, is_usage_packed=usage is not None))
    return packed


def packed_extension(extension: Mapping[str, Any], parts: dict[str, Any], *, is_usage_packed: bool) -> dict[str, Any]:
    """Write our extension of an entry in short form. Guarantee: pure.

    Args:
        extension: the extension of the entry in full.
        parts: what was taken out of its messages and contents, by place.
        is_usage_packed: whether its usage is in short form.

    Returns:
        The extension with the mark by which `unpack_entry` knows it.
    """
    form = _FORM | _USAGE_BIT if is_usage_packed else _FORM
    short = {PACKED: form, **without_defaults(extension, _RESPONSE_DEFAULTS)}
    if parts:
        short[_PARTS] = parts
    return short


def pack_usage(usage: Any) -> dict[str, Any] | None:
    """Leave out the twins of counts, and zeros, when all the twins are there.

    Guarantee: pure; a packed entry gives them back.

    Args:
        usage: of the entry in full, or None.

    Returns:
        The usage in short form; None when the twins are not there.
    """
    rest: Any = cast("dict[str, Any]", usage).get("extensionData") if isinstance(usage, dict) else None
    if not isinstance(rest, dict):
        return None
    counts = dict(cast("dict[str, Any]", rest))
    for name, twin in _USAGE_TWINS.items():
        if name not in counts or twin not in counts or not is_same_json(counts.pop(name), counts[twin]):
            return None
    counts = {name: value for name, value in counts.items() if name not in _USAGE_TWINS.values() or not _is_zero(value)}
    short = {name: value for name, value in cast("dict[str, Any]", usage).items() if name != "extensionData"}
    return short | {"extensionData": counts} if counts else short


def _is_zero(count: Any) -> bool:
    return type(count) is int and count == 0


def _unpacked_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    counts = dict.fromkeys(_USAGE_TWINS.values(), 0) | dict(usage.get("extensionData") or {})
    return {**usage, "extensionData": counts | {name: counts[twin] for name, twin in _USAGE_TWINS.items()}}
