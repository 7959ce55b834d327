"""A content of the framework as plain JSON fields, and back, to any depth.

The framework's own dictionary form (`Content.to_dict`, `Content.from_dict`) blanks the texts of exceptions and confuses
contents with similar tool JSON. Here each value is restored to what it was: where a reader could not distinguish them,
a content is stored under the key `CONTENT` and an ordinary dictionary under the key `PLAIN`.
A dictionary of which the SDK of Durable Functions would make an object of Python is there as its JSON text.
"""

import base64
import binascii
import json
import math
from collections.abc import Mapping
from inspect import signature
from typing import Any, Final, cast, get_args

from agent_framework import Content
from agent_framework._types import ContentType

from durable_agent_host.codec.strict_json import CLASS_FIELDS
from durable_agent_host.errors import CorruptStateError

CONTENT: Final = "$content"
"""Only key of an object that represents a content where an ordinary value is expected."""
PLAIN: Final = "$plain"
"""Only key of an object that represents an ordinary dictionary where it would be mistaken for something else."""

_MARKS: Final = frozenset({CONTENT, PLAIN})

KNOWN_TYPES: Final = frozenset(get_args(ContentType))
FIELDS: Final = frozenset(signature(Content.__init__).parameters) - {"self", "type", "raw_representation"}
"""Names of the fields that the installed framework's contents have."""

EMPTY: Final = {content_type: vars(Content(content_type)) for content_type in get_args(ContentType)}
"""Type of content → the attributes of one without fields."""
ASSIGNED: Final = (FIELDS & EMPTY["text"].keys()) - {"merge_mode", "approved", "hosted", "informational_only"}
"""Fields that the constructor copies: setting them on an empty content is the same, and much faster."""

_DICT: Final[Any] = dict
_LIST: Final[Any] = list
_LISTS: Final[Any] = (list, tuple)
_MAPPING: Final[Any] = Mapping
SCALARS: Final = frozenset({str, int, bool, type(None)})
"""Types of values that are the same in JSON and in a content."""


_COPIED_FIELDS: Final = {
    "text": ("text", ASSIGNED),
    "text_reasoning": ("", ASSIGNED),
    "function_call": ("hosted", ASSIGNED | {"hosted"}),
    "function_result": ("", ASSIGNED),
}
"""The types of most contents → the field without which the constructor derives it, and those that it copies."""
_DERIVED: Final[tuple[str, frozenset[str]]] = ("", frozenset())
"""For the other types: the constructor makes them."""

_CONTENT_LISTS: Final = frozenset({"inputs", "outputs", "items"})
_SINGLE_CONTENTS: Final = frozenset({"screenshot", "function_call"})
_WITH_CONTENTS: Final = _CONTENT_LISTS | _SINGLE_CONTENTS | {"output"}
_CALLS_FOR_INFORMATION: Final = frozenset({"function_call", "computer_tool_call"})


def fields_of(content: Content) -> dict[str, Any]:
    """Convert a content to JSON fields.

    Returns:
        Its fields as JSON values, without ``type`` and without unset fields.

    Raises:
        CorruptStateError: a field holds a value that JSON cannot represent.
    """
    fields: dict[str, Any] = {}
    for name, value in vars(content).items():
        if value is None or name not in FIELDS:
            continue
        if type(value) in SCALARS:
            fields[name] = value
        elif name in _WITH_CONTENTS:
            fields[name] = _dump_field(name, value, f"{content.type}.{name}")
        elif name != "additional_properties" or value:
            fields[name] = dump_value(value, f"{content.type}.{name}")
    if not (fields.get("informational_only") and content.type in _CALLS_FOR_INFORMATION):
        fields.pop("informational_only", None)
    return fields


def content_of(content_type: str, fields: Mapping[str, Any]) -> Content:
    """Make a content from its fields.

    Returns:
        A new content that shares nothing with the argument.

    Raises:
        TypeError, ValueError, KeyError, AttributeError: the fields are not those of a content.
    """
    values = {name: v if type(v) in SCALARS else _load_field(name, v) for name, v in fields.items()}
    properties: Any = values.setdefault("additional_properties", {})
    needed_name, copied_names = _COPIED_FIELDS.get(content_type, _DERIVED)
    is_copied = (
        values.keys() <= copied_names
        and (not needed_name or needed_name in values)
        and type(properties) is _DICT
        and "server_label" not in properties
        and type(values.get("hosted", False)) is bool
    )
    if not is_copied:  # the constructor derives fields, or refuses them
        return _construct_content(content_type, values)
    content = Content.__new__(Content)
    content.__dict__ = EMPTY[content_type] | values
    return content


def _construct_content(content_type: str, values: dict[str, Any]) -> Content:
    if content_type == "function_approval_response" and type(values.get("approved")) is not bool:
        values["approved"] = False
    if content_type == "data" and "data" in values:
        return Content.from_dict({"type": content_type, **values})
    return Content(cast("Any", content_type), **values)


def dump_value(value: Any, path: str) -> Any:
    """Reduce a value to JSON from which `load_value` restores an equal one.

    Returns:
        The value in dictionaries, lists, texts, numbers, booleans and None.

    Raises:
        CorruptStateError: a value of another type, or a number that is not finite, which could not be read back.
    """
    kind: Any = value.__class__
    if kind in SCALARS:
        return value
    if kind is list:
        return [v if type(v) in SCALARS else dump_value(v, f"{path}[{n}]") for n, v in enumerate(value)]
    if kind is dict or isinstance(value, _MAPPING):
        if "raw_representation" in value and _is_live(value["raw_representation"]):
            value = {k: v for k, v in value.items() if k != "raw_representation"}
        plain = {
            k if type(k) is str else str(k): v if type(v) in SCALARS else dump_value(v, f"{path}.{k}")
            for k, v in value.items()
        }
        if plain.keys() >= CLASS_FIELDS:
            return {PLAIN: json.dumps(plain)}
        return {PLAIN: plain} if CONTENT in plain or PLAIN in plain else plain
    if isinstance(value, Content):
        return {CONTENT: _framework_form(value)}
    if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [dump_value(v, f"{path}[{n}]") for n, v in enumerate(cast("list[Any]", value))]
    if callable(dump := getattr(value, "model_dump", None)):
        return dump_value(dump(mode="json"), path)
    raise CorruptStateError(
        f"{path} holds {value if isinstance(value, float) else f'a {type(value).__name__}'}, which JSON cannot: "
        "return text, finite numbers, lists or dictionaries"
    )


def load_value(value: Any) -> Any:
    """Restore a value from the output of `dump_value`.

    Returns:
        A copy, with its contents as contents.
    """
    kind: Any = value.__class__
    if kind is dict:
        if len(value) == 1 and not _MARKS.isdisjoint(value):
            if isinstance(inner := value.get(CONTENT), dict):
                return _content_of_form(cast("dict[str, Any]", inner))
            inner = value.get(PLAIN)
            if isinstance(inner, str):
                value = json.loads(inner)
            elif isinstance(inner, dict):
                value = cast("Any", inner)
        return {k: v if type(v) in SCALARS else load_value(v) for k, v in value.items()}
    if kind is list:
        return [v if type(v) in SCALARS else load_value(v) for v in value] if value else []
    return value


def _is_live(value: Any) -> bool:
    return not isinstance(value, str | int | float | list | dict | None)


def _dump_field(name: str, value: Any, path: str) -> Any:
    """Reduce a field of a content to JSON."""
    if name in _CONTENT_LISTS and isinstance(value, _LISTS):
        return [_dump_item(item, f"{path}[{n}]") for n, item in enumerate(value)]
    if name in _SINGLE_CONTENTS and isinstance(value, Content):
        return _framework_form(value)
    if name == "output" and isinstance(value, list | tuple):
        return [_dump_output(item, f"{path}[{n}]") for n, item in enumerate(cast("list[Any]", value))]
    if name == "outputs":
        return _dump_output(value, path)
    return dump_value(value, path)


def _dump_item(item: Any, path: str) -> Any:
    """Encode an item of a list of contents, where every dictionary is read as a content."""
    if isinstance(item, Content):
        return {"type": item.type, **fields_of(item)}
    plain: Any = dump_value(item, path)
    return {PLAIN: cast("Any", plain)} if isinstance(plain, dict) and PLAIN not in plain else cast("Any", plain)


def _dump_output(value: Any, path: str) -> Any:
    """Encode a value that is a content if it looks exactly like one, as the framework reads it."""
    if isinstance(value, Content):
        form = _framework_form(value)
        return form if _is_exact_form(form) else {CONTENT: form}
    plain: Any = dump_value(value, path)
    has_content_fields = isinstance(plain, dict) and _is_exact_form(cast("dict[str, Any]", plain))
    return {PLAIN: cast("Any", plain)} if has_content_fields else cast("Any", plain)


def _framework_form(content: Content) -> dict[str, Any]:
    form: dict[str, Any] = {"type": content.type, "additional_properties": {}}
    return form | fields_of(content)


def _is_exact_form(form: Mapping[str, Any]) -> bool:
    """Return whether the framework reads this dictionary as a content: it is exactly the framework's own output."""
    if form.get("type") not in KNOWN_TYPES:
        return False
    try:
        content = Content.from_dict(form)
        return form in (content.to_dict(), content.to_dict(exclude_none=False))
    except Exception:  # noqa: BLE001 - any error means that it is not a content
        return False


def _load_field(name: str, value: Any) -> Any:
    """Read a field of a content. The inverse of `_dump_field`."""
    if name in _CONTENT_LISTS and isinstance(value, _LIST):
        return [
            _content_of_form(item) if isinstance(item, _DICT) and PLAIN not in item else load_value(item)
            for item in value
        ]
    if name in _SINGLE_CONTENTS and isinstance(value, dict) and PLAIN not in value:
        return _content_of_form(cast("dict[str, Any]", value))
    if name == "output" and isinstance(value, list):
        return [_load_output(item) for item in cast("list[Any]", value)]
    return _load_output(value) if name == "outputs" else load_value(value)


def _load_output(value: Any) -> Any:
    if isinstance(value, dict) and "type" in value and _is_exact_form(found := cast("dict[str, Any]", value)):
        return _content_of_form(found)
    return load_value(value)


def _content_of_form(form: Mapping[str, Any]) -> Content:
    fields = {**form}
    return content_of(fields.pop("type"), fields)


def bytes_of_data_url(uri: str) -> bytes | None:
    """Decode the bytes of a base64 data URL; None when it is not one."""
    head, comma, base64_text = uri.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    try:
        return base64.b64decode(base64_text)
    except (binascii.Error, ValueError):
        return None
