"""Contents of messages to stored JSON and back: one table, `CONTENT_CODECS`, a row for each type of the framework.

Theory of operation. Upstream has fields for ten types; those types are written with upstream's fields first, and all
that is left of the content (its identity, annotations, ``additional_properties``) goes under our ``extensionData``.
The other types are written as ``{"$type": <camelCase type>, "content": <the framework's own dictionary>}``, which
upstream's reader takes as it is. What no row can read comes back as an opaque content that is written out as the same
JSON.

The arguments of a function call are JSON text on the wire and an object in upstream's state. The text is kept to the
letter: when compact or spaced dumping of the object gives the same text, only the form is noted, else the text itself.
"""

import copy
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast, get_args

from agent_framework import Content
from agent_framework._types import ContentType

from durable_agent_host.codec.wire import EXTENSION, ContentWire
from durable_agent_host.errors import CorruptStateError

OPAQUE: Final = "durable_agent_host.opaque"
"""Key in ``additional_properties`` of a content that stands for JSON that nobody here understands."""

_COMPACT: Final = "compact"
_SPACED: Final = "spaced"
_OBJECT: Final = "object"


class ContentCodec(NamedTuple):
    """How one type of content is stored.

    Attributes:
        wire_type: its ``$type``.
        encode: from the content's own dictionary to stored JSON.
        decode: from stored JSON to the content's own dictionary.
    """

    wire_type: str
    encode: Callable[[dict[str, Any]], dict[str, Any]]
    decode: Callable[[Mapping[str, Any]], dict[str, Any]]


def plain_json(value: Any, *, path: str = "content") -> Any:
    """Reduce a value to what JSON can hold.

    Guarantee: pure.

    Args:
        value: JSON values, contents, and pydantic models; provider objects under ``raw_representation`` are left out,
            because they are the live copy of what the other fields say.
        path: where the value stands, for the error.

    Returns:
        The same value in dictionaries, lists, texts, numbers, booleans and None.

    Raises:
        CorruptStateError: a value of another type, or no finite number, which could not be read back.
    """
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, Content):
        return encode_content(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {str(k): plain_json(v, path=f"{path}.{k}") for k, v in items if k != "raw_representation"}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_json(v, path=f"{path}[{n}]") for n, v in enumerate(cast("list[Any]", value))]
    if callable(dump := getattr(value, "model_dump", None)):
        return plain_json(dump(mode="json"), path=path)
    raise CorruptStateError(
        f"{path} holds {value if isinstance(value, float) else f'a {type(value).__name__}'}, which JSON cannot: "
        "return text, finite numbers, lists or dictionaries"
    )


def _framework_dict(content: Content) -> dict[str, Any]:
    """Take the framework's own dictionary, with the text of exceptions, which `to_dict` replaces by a fixed marker.

    The contents in a list under ``output`` stay as the framework writes them: there it reads back only its own exact
    form as a content, ``Content._from_serialized_value``.
    """
    fields = content.to_dict()
    if content.exception is not None:
        fields["exception"] = content.exception
    if not fields.get("additional_properties"):
        fields.pop("additional_properties", None)
    for name in ("inputs", "outputs", "items"):
        nested = getattr(content, name)
        if isinstance(nested, list):
            fields[name] = [
                _framework_dict(item) if isinstance(item, Content) else item for item in cast("list[Any]", nested)
            ]
    return cast("dict[str, Any]", plain_json(fields, path=content.type))


def _mapped(wire_type: str, names: Mapping[str, str]) -> ContentCodec:
    def encode(fields: dict[str, Any]) -> dict[str, Any]:
        wire: dict[str, Any] = {"$type": wire_type}
        for name, wire_name in names.items():
            wire[wire_name] = fields.pop(name, None)
        return _with_extension(wire, fields)

    def decode(wire: Mapping[str, Any]) -> dict[str, Any]:
        fields = {name: wire[wire_name] for name, wire_name in names.items() if wire.get(wire_name) is not None}
        return fields | _extension(wire)

    return ContentCodec(wire_type, encode, decode)


def _whole(content_type: str) -> ContentCodec:
    head, *tail = content_type.split("_")
    wire_type = head + "".join(word.capitalize() for word in tail)

    def encode(fields: dict[str, Any]) -> dict[str, Any]:
        return {"$type": wire_type, "content": {"type": content_type, **fields}}

    def decode(wire: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in wire["content"].items() if name != "type"}

    return ContentCodec(wire_type, encode, decode)


def _encode_function_call(fields: dict[str, Any]) -> dict[str, Any]:
    arguments = fields.pop("arguments", None)
    wire: dict[str, Any] = {
        "$type": "functionCall",
        "callId": fields.pop("call_id", None),
        "name": fields.pop("name", None),
        "arguments": {},
    }
    if isinstance(arguments, str):
        parsed = _parse_object(arguments)
        wire["arguments"] = parsed if parsed is not None else {}
        if parsed is not None and _dumps(parsed, _COMPACT) == arguments:
            fields["argumentsForm"] = _COMPACT
        elif parsed is None or _dumps(parsed, _SPACED) != arguments:
            fields["argumentsText"] = arguments
    elif arguments is not None:
        wire["arguments"] = arguments
        fields["argumentsForm"] = _OBJECT
    else:
        fields["argumentsText"] = None
    return _with_extension(wire, fields)


def _decode_function_call(wire: Mapping[str, Any]) -> dict[str, Any]:
    fields = _extension(wire)
    form = fields.pop("argumentsForm", _SPACED)
    if "argumentsText" in fields:
        arguments = fields.pop("argumentsText")
    elif form == _OBJECT or isinstance(wire.get("arguments"), str):
        arguments = wire.get("arguments")
    else:
        arguments = _dumps(wire.get("arguments") or {}, form)
    return {"call_id": wire.get("callId"), "name": wire.get("name"), "arguments": arguments} | fields


def _parse_object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)  # Python reads NaN and 1e999, and they are no JSON for the store
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _dumps(value: Any, form: str) -> str:
    if form == _COMPACT:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return json.dumps(value)


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


def _decode_usage_content(wire: Mapping[str, Any]) -> dict[str, Any]:
    return {"usage_details": decode_usage(wire.get("usage") or {})} | _extension(wire)


def _with_extension(wire: dict[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
    if rest:
        wire["extensionData"] = {EXTENSION: rest}
    return wire


def _extension(wire: Mapping[str, Any]) -> dict[str, Any]:
    extension: Any = wire.get("extensionData")
    ours: Any = cast("dict[str, Any]", extension).get(EXTENSION) if isinstance(extension, dict) else None
    return dict(cast("dict[str, Any]", ours)) if isinstance(ours, dict) else {}


_OF_UPSTREAM: dict[str, ContentCodec] = {
    "text": _mapped("text", {"text": "text"}),
    "text_reasoning": _mapped("reasoning", {"text": "text"}),
    "data": _mapped("data", {"uri": "uri", "media_type": "mediaType"}),
    "uri": _mapped("uri", {"uri": "uri", "media_type": "mediaType"}),
    "error": _mapped("error", {"message": "message", "error_code": "errorCode", "error_details": "details"}),
    "function_call": ContentCodec("functionCall", _encode_function_call, _decode_function_call),
    "function_result": _mapped("functionResult", {"call_id": "callId", "result": "result"}),
    "hosted_file": _mapped("hostedFile", {"file_id": "fileId"}),
    "hosted_vector_store": _mapped("hostedVectorStore", {"vector_store_id": "vectorStoreId"}),
    "usage": ContentCodec("usage", _encode_usage_content, _decode_usage_content),
}

CONTENT_CODECS: Final[Mapping[str, ContentCodec]] = {
    content_type: _OF_UPSTREAM.get(content_type) or _whole(content_type) for content_type in get_args(ContentType)
}
"""Type of content → how it is stored; every type that the installed framework has."""

_TYPE_BY_WIRE_TYPE: Final = {codec.wire_type: content_type for content_type, codec in CONTENT_CODECS.items()}


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
    if OPAQUE in content.additional_properties:
        return content.additional_properties[OPAQUE]
    codec = CONTENT_CODECS.get(content.type) or _whole(content.type)
    fields = {name: value for name, value in _framework_dict(content).items() if name != "type"}
    return cast("ContentWire", codec.encode(fields))


def decode_content(wire: Mapping[str, Any]) -> Content:
    """Read a stored content.

    Guarantee: pure; what it does not understand comes back as a content that `encode_content` writes out unchanged.

    Args:
        wire: as this program or upstream wrote it.

    Returns:
        A new content that shares nothing with the argument.
    """
    wire = copy.deepcopy(dict(wire))
    content_type = _TYPE_BY_WIRE_TYPE.get(str(wire.get("$type")))
    try:
        if content_type is not None:
            return Content.from_dict({"type": content_type, **CONTENT_CODECS[content_type].decode(wire)})
        if wire.get("$type") == "unknown" and isinstance(inner := wire.get("content"), dict) and "type" in inner:
            return Content.from_dict(cast("dict[str, Any]", inner))
    except (TypeError, ValueError, KeyError, AttributeError):
        pass
    return Content("text", text="", additional_properties={OPAQUE: wire})
