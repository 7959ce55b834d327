"""Contents of messages to stored JSON and back: one table, `CONTENT_CODECS`, a row for each type of the framework.

Theory of operation. Upstream has fields for ten types; those types are written with upstream's fields first, and all
that is left of the content (its identity, annotations, ``additional_properties``) goes under our ``extensionData``.
The other types are written as ``{"$type": <camelCase type>, "content": <the framework's own dictionary>}``, which
upstream's reader takes as it is. What no row can read comes back as an opaque content that is written out as the same
JSON; what a row can read, but would not write like that, is read and keeps what was stored beside it (`STORED`).
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

from agent_framework import Content

from durable_agent_host.codec.arguments import live_arguments, stored_arguments
from durable_agent_host.codec.fields import FIELDS, KNOWN_TYPES, content_of, dump_value, fields_of
from durable_agent_host.codec.wire import EXTENSION, ContentWire

OPAQUE: Final = "durable_agent_host.opaque"
"""Key in ``additional_properties`` of a content that stands for JSON that nobody here understands."""

STORED: Final = "durable_agent_host.stored"
"""Key in ``additional_properties`` of what was read from JSON that this program would write in another way, or with
less: the JSON as it was found. It is written out again when the content has not been changed since."""

MAPPED: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "text": ("text", {"text": "text"}),
    "text_reasoning": ("reasoning", {"text": "text"}),
    "data": ("data", {"uri": "uri", "media_type": "mediaType"}),
    "uri": ("uri", {"uri": "uri", "media_type": "mediaType"}),
    "error": ("error", {"message": "message", "error_code": "errorCode", "error_details": "details"}),
    "function_result": ("functionResult", {"call_id": "callId", "result": "result"}),
    "hosted_file": ("hostedFile", {"file_id": "fileId"}),
    "hosted_vector_store": ("hostedVectorStore", {"vector_store_id": "vectorStoreId"}),
}
"""Type of content → its ``$type``, and the fields for which upstream has a name."""

_CALL_FIELDS: Final = FIELDS | {"argumentsForm", "argumentsText"}


class ContentCodec(NamedTuple):
    """How one type of content is stored.

    Attributes:
        wire_type: its ``$type``.
        encode: from the content's own fields to stored JSON.
        decode: from stored JSON to the content's own fields, and whether `encode` writes the same JSON of them.
    """

    wire_type: str
    encode: Callable[[dict[str, Any]], dict[str, Any]]
    decode: Callable[[Mapping[str, Any]], tuple[dict[str, Any], bool]]


def plain_json(value: Any, *, path: str = "content") -> Any:
    """Reduce a value to what JSON can hold, contents as they are stored.

    Guarantee: pure.

    Args:
        value: JSON values, contents, and pydantic models; provider objects under ``raw_representation`` are left out.
        path: where the value stands, for the error.

    Returns:
        The same value in dictionaries, lists, texts, numbers, booleans and None.

    Raises:
        CorruptStateError: a value of another type, or no finite number, which could not be read back.
    """
    if isinstance(value, Content):
        return encode_content(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {str(k): plain_json(v, path=f"{path}.{k}") for k, v in items if k != "raw_representation"}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_json(v, path=f"{path}[{n}]") for n, v in enumerate(cast("list[Any]", value))]
    return dump_value(value, path)


def _mapped(wire_type: str, names: Mapping[str, str]) -> ContentCodec:
    pairs = tuple(names.items())

    def encode(fields: dict[str, Any]) -> dict[str, Any]:
        wire: dict[str, Any] = {"$type": wire_type}
        for name, wire_name in pairs:
            wire[wire_name] = fields.pop(name, None)
        return _with_extension(wire, fields)

    def decode(wire: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        fields, exact = _extension(wire, FIELDS)
        found = 0
        for name, wire_name in pairs:
            if wire_name in wire:
                found += 1
                if (value := wire[wire_name]) is not None:
                    fields[name] = value
        return fields, exact and found == len(pairs) and _size(wire) == found

    return ContentCodec(wire_type, encode, decode)


def _whole(content_type: str) -> ContentCodec:
    head, *tail = content_type.split("_")
    wire_type = head + "".join(word.capitalize() for word in tail)

    def encode(fields: dict[str, Any]) -> dict[str, Any]:
        return {"$type": wire_type, "content": {"type": content_type, **fields}}

    def decode(wire: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        content = wire["content"]
        fields = {name: value for name, value in content.items() if name in FIELDS}
        exact = len(fields) + 1 == len(content) and content.get("type") == content_type
        return fields, exact and len(wire) == 2  # noqa: PLR2004 - its two keys

    return ContentCodec(wire_type, encode, decode)


def _encode_function_call(fields: dict[str, Any]) -> dict[str, Any]:
    stored, form = stored_arguments(fields.pop("arguments", None))
    wire: dict[str, Any] = {
        "$type": "functionCall",
        "callId": fields.pop("call_id", None),
        "name": fields.pop("name", None),
        "arguments": stored,
    }
    return _with_extension(wire, fields | form)


def _decode_function_call(wire: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    fields, exact = _extension(wire, _CALL_FIELDS)
    stored: Any = wire.get("arguments")
    exact = exact and isinstance(stored, dict) and _size(wire) == 3 and "callId" in wire and "name" in wire  # noqa: PLR2004
    form = fields.pop("argumentsForm", None)
    arguments = fields.pop("argumentsText") if "argumentsText" in fields else live_arguments(stored, form)
    fields |= {"call_id": wire.get("callId"), "name": wire.get("name"), "arguments": arguments}
    fields.setdefault("hosted", False)
    return fields, exact and "hosted" in _ours(wire)


_USAGE_NAMES = {
    "input_token_count": "inputTokenCount",
    "output_token_count": "outputTokenCount",
    "total_token_count": "totalTokenCount",
}


def encode_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Write token counts as upstream does: three fields, and the provider's further counts under ``extensionData``.

    Guarantee: pure.

    Args:
        usage: counts by the framework's names.

    Returns:
        A `UsageWire`.
    """
    wire: dict[str, Any] = {wire_name: usage.get(name) for name, wire_name in _USAGE_NAMES.items()}
    if rest := {name: value for name, value in usage.items() if name not in _USAGE_NAMES}:
        wire["extensionData"] = rest
    return wire


def decode_usage(wire: Mapping[str, Any]) -> dict[str, Any]:
    """Read token counts back, by the framework's names. Guarantee: pure, the inverse of `encode_usage`.

    Args:
        wire: a `UsageWire`.

    Returns:
        Counts by the framework's names; absent ones are left out.
    """
    usage = {name: wire[wire_name] for name, wire_name in _USAGE_NAMES.items() if wire.get(wire_name) is not None}
    return usage | dict(wire.get("extensionData") or {})


def _encode_usage_content(fields: dict[str, Any]) -> dict[str, Any]:
    return _with_extension({"$type": "usage", "usage": encode_usage(fields.pop("usage_details", None) or {})}, fields)


def _decode_usage_content(wire: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    usage = decode_usage(wire.get("usage") or {})
    fields, exact = _extension(wire, FIELDS)
    exact = exact and _size(wire) == 1 and encode_usage(usage) == wire.get("usage")
    return {"usage_details": usage} | fields, exact


def _with_extension(wire: dict[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
    if rest:
        wire["extensionData"] = {EXTENSION: rest}
    return wire


def _ours(wire: Mapping[str, Any]) -> dict[str, Any]:
    extension: Any = wire.get("extensionData")
    ours: Any = cast("dict[str, Any]", extension).get(EXTENSION) if isinstance(extension, dict) else None
    return cast("dict[str, Any]", ours) if isinstance(ours, dict) else {}


def _extension(wire: Mapping[str, Any], known: frozenset[str]) -> tuple[dict[str, Any], bool]:
    """Take what we know of our extension, and tell whether that, and nothing else, is there."""
    if "extensionData" not in wire:
        return {}, True
    ours = _ours(wire)
    fields = {name: value for name, value in ours.items() if name in known}
    return fields, bool(fields) and len(fields) == len(ours) and len(wire["extensionData"]) == 1


def _size(wire: Mapping[str, Any]) -> int:
    return len(wire) - 1 - ("extensionData" in wire)


_OF_UPSTREAM: dict[str, ContentCodec] = {
    **{content_type: _mapped(*row) for content_type, row in MAPPED.items()},
    "function_call": ContentCodec("functionCall", _encode_function_call, _decode_function_call),
    "usage": ContentCodec("usage", _encode_usage_content, _decode_usage_content),
}

CONTENT_CODECS: Final[Mapping[str, ContentCodec]] = {
    content_type: _OF_UPSTREAM.get(content_type) or _whole(content_type) for content_type in sorted(KNOWN_TYPES)
}
"""Type of content → how it is stored; every type that the installed framework has."""

_BY_WIRE_TYPE: Final = {codec.wire_type: (content_type, codec) for content_type, codec in CONTENT_CODECS.items()}


def encode_content(content: Content) -> ContentWire:
    """Write a content as it is stored.

    Guarantee: pure; `decode_content` gives an equal content.

    Args:
        content: of any type; live provider objects on it are not stored.

    Returns:
        A dictionary that JSON can hold.

    Raises:
        CorruptStateError: a field holds what JSON cannot.
    """
    properties = content.additional_properties
    if OPAQUE in properties:
        return properties[OPAQUE]
    if STORED in properties:
        return cast("ContentWire", _encode_as_found(content, properties[STORED]))
    codec = CONTENT_CODECS.get(content.type) or _whole(content.type)
    return cast("ContentWire", codec.encode(fields_of(content)))


def decode_content(wire: Mapping[str, Any]) -> Content:
    """Read a stored content.

    Guarantee: pure; what it does not understand comes back as a content that `encode_content` writes out unchanged.

    Args:
        wire: as this program or upstream wrote it.

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
    content_type, codec = _BY_WIRE_TYPE[wire_type]
    fields, exact = codec.decode(wire)
    return content_of(content_type, fields), exact


def _encode_as_found(content: Content, stored: dict[str, Any]) -> dict[str, Any]:
    """Write a content that was read from unusual JSON: as it was found, or changed, with what nobody knows in place."""
    bare = copy.copy(content)
    bare.additional_properties = {k: v for k, v in content.additional_properties.items() if k != STORED}
    wire = cast("dict[str, Any]", encode_content(bare))
    before = cast("dict[str, Any]", encode_content(_decode(stored)[0]))
    if wire == before:
        return stored
    kept = {name: value for name, value in stored.items() if name not in before}
    if isinstance(foreign := stored.get("extensionData"), dict):
        wire["extensionData"] = cast("dict[str, Any]", foreign) | wire.get("extensionData", {})
    return kept | wire
