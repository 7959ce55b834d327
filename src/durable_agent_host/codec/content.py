"""Contents of messages to stored JSON and back: one table, `CONTENT_CODECS`, with a row per framework type.

Theory of operation. Upstream has fields for ten types. Those types are written with upstream's fields first; the
further fields of the content (identity, annotations, ``additional_properties``) go under our ``extensionData``. The
other types are written as ``{"$type": <camelCase type>, "content": <the framework's own dictionary>}``, which
upstream's reader accepts. JSON that no row reads becomes an opaque content, which is written as the same JSON; JSON
that a row reads but would write differently is read and kept beside the content (`STORED`).
"""

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

from agent_framework import AgentSession, Content

from durable_agent_host.codec.content_fields import FIELDS, KNOWN_TYPES, content_of, dump_value, fields_of, load_value
from durable_agent_host.codec.extension_data import extension_of
from durable_agent_host.codec.strict_json import has_python_class, is_nested_too_deeply
from durable_agent_host.codec.wire_types import EXTENSION, MAPPED, ContentWire, wire_type_of
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.budget import known_counts

# The arguments of a function call: JSON text on the wire, an object in upstream's state.
#
# The text is preserved exactly: when compact or spaced encoding of the object gives the same text, only the form is
# recorded, otherwise the text itself.

COMPACT: Final = "compact"
"""Form of a text equal to the compact encoding; the other usual form, spaced, needs no record."""
OBJECT: Final = "object"
"""Form of arguments that are not a text."""


_COMPACT: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
_SPACED: Final = json.JSONEncoder(allow_nan=False)


def stored_arguments(arguments: Any) -> tuple[Any, dict[str, Any]]:
    """Encode arguments for storage.

    Returns:
        The object for upstream's reader, and the fields of our extension: ``argumentsForm``, ``argumentsText``, or
        nothing for the spaced form.
    """
    if arguments is None:
        return {}, {"argumentsText": None}
    if not isinstance(arguments, str):
        return arguments, {"argumentsForm": OBJECT}
    try:
        value: Any = json.loads(arguments)
        # a document has no room for as many levels, and the task hub makes objects of Python where they are named
        if not isinstance(value, dict) or is_nested_too_deeply(value) or has_python_class(value):
            return {}, {"argumentsText": arguments}
        if _COMPACT.encode(value) == arguments:  # Python reads NaN and 1e999, which the encoder refuses
            return cast("dict[str, Any]", value), {"argumentsForm": COMPACT}
        if _SPACED.encode(value) == arguments:
            return cast("dict[str, Any]", value), {}
    except (ValueError, RecursionError):
        return {}, {"argumentsText": arguments}
    return cast("dict[str, Any]", value), {"argumentsText": arguments}


def live_arguments(stored_arguments_json: Any, form: str | None) -> Any:
    """Decode arguments without a recorded text.

    Returns:
        The text, or the stored value when it is not an object to be written as text.

    Raises:
        TypeError, ValueError: the value cannot be written as JSON text.
    """
    if form == OBJECT or isinstance(stored_arguments_json, str):
        return stored_arguments_json
    return (_COMPACT if form == COMPACT else _SPACED).encode(stored_arguments_json or {})


OPAQUE: Final = "durable_agent_host.opaque"
"""Key in ``additional_properties`` of a content that represents JSON that no row reads."""

STORED: Final = "durable_agent_host.stored"
"""Key in ``additional_properties`` of a content or message whose JSON this program would write differently: that JSON.

It is written again if the content has not changed since."""

_DICT: Final[Any] = dict
_CALL_FIELDS: Final = FIELDS | {"argumentsForm", "argumentsText"}


class ContentCodec(NamedTuple):
    """How one type of content is stored.

    Attributes:
        content_type: of the framework.
        wire_type: its ``$type``.
        encode: from the content's fields, which it may change, to stored JSON and the fields beside it.
        decode: from stored JSON and the fields beside it, which it may change, to the content's fields, and whether
            `encode` gives the same.
    """

    content_type: str
    wire_type: str
    encode: Callable[[dict[str, Any]], tuple[dict[str, Any], dict[str, Any]]]
    decode: Callable[[Mapping[str, Any], dict[str, Any]], tuple[dict[str, Any], bool]]


def plain_json(value: Any, *, path: str) -> Any:
    """Reduce a value to JSON, with contents in stored form.

    Returns:
        The same value in dictionaries, lists, texts, numbers, booleans and None.

    Raises:
        CorruptStateError: a value of another type, or a number that is not finite, which could not be read back.
    """
    if isinstance(value, Content):
        return encode_content(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {str(k): plain_json(v, path=f"{path}.{k}") for k, v in items if k != "raw_representation"}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_json(v, path=f"{path}[{n}]") for n, v in enumerate(cast("list[Any]", value))]
    return dump_value(value, path)


def encode_agent_session(session: AgentSession) -> dict[str, Any]:
    """Encode the framework's session for storage; `decode_agent_session` is the inverse.

    Raises:
        CorruptStateError: it holds a value that JSON cannot represent.
    """
    return dump_value(plain_json(session.to_dict(), path="agent session"), "agent session")


def decode_agent_session[S: AgentSession](wire: Mapping[str, Any], session_class: type[S]) -> S:
    """Restore the framework's session.

    Raises:
        CorruptStateError: it cannot be read; says why.
    """
    try:
        return cast("S", session_class.from_dict(load_value(dict(wire))))
    except Exception as error:  # the framework's readers raise any error
        reason = f"{type(error).__name__}: {error}"
        raise CorruptStateError(f"the framework's session cannot be read: {reason}") from error


def _mapped_codec(content_type: str, wire_type: str, names: Mapping[str, str]) -> ContentCodec:
    pairs = tuple(names.items())
    size = 1 + len(pairs)

    def encode(fields: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        wire: dict[str, Any] = {"$type": wire_type}
        for name, wire_name in pairs:
            wire[wire_name] = fields.pop(name, None)
        return wire, fields

    def decode(wire: Mapping[str, Any], extension: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        fields, exact = _select_fields(extension, FIELDS) if extension else (extension, True)
        exact = exact and len(wire) == size + ("extensionData" in wire)
        for name, wire_name in pairs:
            if wire_name not in wire:
                exact = False
            elif (value := wire[wire_name]) is not None:
                fields[name] = value
        return fields, exact

    return ContentCodec(content_type, wire_type, encode, decode)


def _nested_codec(content_type: str) -> ContentCodec:
    wire_type = wire_type_of(content_type)

    def encode(fields: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"$type": wire_type, "content": {"type": content_type, **fields}}, {}

    def decode(wire: Mapping[str, Any], extension: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        content = wire["content"]
        fields = {name: value for name, value in content.items() if name in FIELDS}
        exact = len(fields) + 1 == len(content) and content.get("type") == content_type
        return fields, exact and not extension and len(wire) == 2  # noqa: PLR2004 - its two keys

    return ContentCodec(content_type, wire_type, encode, decode)


def _encode_function_call(fields: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    arguments, form = stored_arguments(fields.pop("arguments", None))
    wire: dict[str, Any] = {
        "$type": "functionCall",
        "callId": fields.pop("call_id", None),
        "name": fields.pop("name", None),
        "arguments": arguments,
    }
    fields.update(form)
    return wire, fields


def _decode_function_call(wire: Mapping[str, Any], extension: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    fields, exact = _select_fields(extension, _CALL_FIELDS)
    arguments: Any = wire.get("arguments")
    exact = exact and "hosted" in fields and isinstance(arguments, _DICT) and "callId" in wire and "name" in wire
    form = fields.pop("argumentsForm", None)
    fields["call_id"] = wire.get("callId")
    fields["name"] = wire.get("name")
    fields["arguments"] = fields.pop("argumentsText") if "argumentsText" in fields else live_arguments(arguments, form)
    if "hosted" not in fields:
        fields["hosted"] = False
    return fields, exact and _has_only(wire, 3)


_USAGE_NAMES = {
    "input_token_count": "inputTokenCount",
    "output_token_count": "outputTokenCount",
    "total_token_count": "totalTokenCount",
}


def encode_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Encode token counts as upstream does: three fields, and the provider's further counts under ``extensionData``."""
    counts = known_counts(usage)
    wire: dict[str, Any] = {wire_name: counts.get(name) for name, wire_name in _USAGE_NAMES.items()}
    if further_counts := {name: value for name, value in counts.items() if name not in _USAGE_NAMES}:
        wire["extensionData"] = further_counts
    return wire


def decode_usage(wire: Mapping[str, Any]) -> dict[str, Any]:
    """Decode token counts, by the framework's names. The inverse of `encode_usage`.

    Returns:
        Counts by the framework's names, without absent ones and figures that are no counts, which upstream stores.
    """
    usage = {name: wire[wire_name] for name, wire_name in _USAGE_NAMES.items() if wire.get(wire_name) is not None}
    return known_counts(usage | dict(wire.get("extensionData") or {}))


def _encode_usage_content(fields: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"$type": "usage", "usage": encode_usage(fields.pop("usage_details", None) or {})}, fields


def _decode_usage_content(wire: Mapping[str, Any], extension: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    usage = decode_usage(wire.get("usage") or {})
    fields, exact = _select_fields(extension, FIELDS)
    exact = exact and _has_only(wire, 1) and encode_usage(usage) == wire.get("usage")
    return {"usage_details": usage} | fields, exact


def _select_fields(extension: dict[str, Any], names: frozenset[str]) -> tuple[dict[str, Any], bool]:
    """Return the fields that this program knows, and whether those are all."""
    for name in extension:
        if name not in names:
            return {name: value for name, value in extension.items() if name in names}, False
    return extension, True


def _has_only(wire: Mapping[str, Any], count: int) -> bool:
    """Return whether JSON has no fields but its type, the counted ones, and extensions."""
    return len(wire) == 1 + count + ("extensionData" in wire)


_OF_UPSTREAM: dict[str, ContentCodec] = {
    **{content_type: _mapped_codec(content_type, *row) for content_type, row in MAPPED.items()},
    "function_call": ContentCodec("function_call", "functionCall", _encode_function_call, _decode_function_call),
    "usage": ContentCodec("usage", "usage", _encode_usage_content, _decode_usage_content),
}

CONTENT_CODECS: Final[Mapping[str, ContentCodec]] = {
    content_type: _OF_UPSTREAM.get(content_type) or _nested_codec(content_type) for content_type in sorted(KNOWN_TYPES)
}
"""Type of content → how it is stored; every type of the installed framework."""

_BY_WIRE_TYPE: Final = {codec.wire_type: codec for codec in CONTENT_CODECS.values()}


def encode_content(content: Content) -> ContentWire:
    """Encode a content.

    Raises:
        CorruptStateError: a field holds a value that JSON cannot represent.
    """
    properties = content.additional_properties
    if OPAQUE in properties:
        return properties[OPAQUE]
    if STORED in properties:
        return cast("ContentWire", _encode_as_found(content, properties[STORED]))
    wire, extension = (CONTENT_CODECS.get(content.type) or _nested_codec(content.type)).encode(fields_of(content))
    if extension:
        wire["extensionData"] = {EXTENSION: extension}
    return cast("ContentWire", wire)


def decode_content(wire: Mapping[str, Any]) -> Content:
    """Decode a content.

    Returns:
        A new content that shares nothing with the argument.
    """
    try:
        content, exact = _decode(wire)
    except (TypeError, ValueError, KeyError, AttributeError):
        return Content("text", text="", additional_properties={OPAQUE: copy.deepcopy(dict(wire))})
    if not exact:
        content.additional_properties[STORED] = copy.deepcopy(dict(wire))
    return content


def _decode(wire: Mapping[str, Any]) -> tuple[Content, bool]:
    wire_type = wire["$type"]
    if wire_type == "unknown" and isinstance(inner := wire.get("content"), dict):
        fields = cast("dict[str, Any]", inner)
        return content_of(fields["type"], {name: value for name, value in fields.items() if name != "type"}), False
    codec = _BY_WIRE_TYPE[wire_type]
    if "extensionData" not in wire:
        fields, exact = codec.decode(wire, {})
    else:
        extension = extension_of(wire)
        fields, exact = codec.decode(wire, dict(extension))
        exact = exact and bool(extension) and len(wire["extensionData"]) == 1
    return content_of(codec.content_type, fields), exact


def _encode_as_found(content: Content, stored_content: dict[str, Any]) -> dict[str, Any]:
    """Encode a content read from unusual JSON: unchanged, or, if it changed, with unknown fields kept."""
    bare = copy.copy(content)
    bare.additional_properties = {k: v for k, v in content.additional_properties.items() if k != STORED}
    wire = cast("dict[str, Any]", encode_content(bare))
    before = cast("dict[str, Any]", encode_content(_decode(stored_content)[0]))
    if wire == before:
        return stored_content
    extension = {name: value for name, value in stored_content.items() if name not in before}
    if isinstance(foreign := stored_content.get("extensionData"), dict):
        wire["extensionData"] = cast("dict[str, Any]", foreign) | wire.get("extensionData", {})
    return extension | wire
