"""A content of the framework as plain JSON fields, and back, to any depth. Pure.

The framework's own dictionary form (`Content.to_dict`, `Content.from_dict`) blanks the texts of exceptions, and takes
tool JSON that looks like a content for one, and the other way round. Here each value comes back as what it was: where
a reader could not tell, a content stands under the key `CONTENT` and an ordinary dictionary under the key `PLAIN`.
"""

import math
from collections.abc import Mapping
from inspect import signature
from typing import Any, Final, cast, get_args

from agent_framework import Content
from agent_framework._types import ContentType

from durable_agent_host.errors import CorruptStateError

CONTENT: Final = "$content"
"""Only key of an object that stands for a content, at a place where an ordinary value is expected."""
PLAIN: Final = "$plain"
"""Only key of an object that stands for an ordinary dictionary, at a place where it would be taken for a content."""

KNOWN_TYPES: Final = frozenset(get_args(ContentType))
FIELDS: Final = frozenset(signature(Content.__init__).parameters) - {"self", "type", "raw_representation"}
"""Names of the fields that the installed framework's contents have."""

EMPTY: Final = {content_type: vars(Content(content_type)) for content_type in get_args(ContentType)}
"""Type of content → the attributes of one without fields."""
ASSIGNED: Final = FIELDS - {"merge_mode", "approved", "hosted", "informational_only"}
"""Fields that the constructor takes over as they are: to set them on an empty content is the same, and much faster."""
_ASSIGNED_OF_CALLS: Final = ASSIGNED | {"hosted"}

SCALARS: Final = frozenset({str, int, bool, type(None)})
"""Types of values that are the same as JSON and in a content."""
_CONTENT_LISTS: Final = frozenset({"inputs", "outputs", "items"})
_SINGLE_CONTENTS: Final = frozenset({"screenshot", "function_call"})
_CALLS_FOR_INFORMATION: Final = frozenset({"function_call", "computer_tool_call"})


def fields_of(content: Content) -> dict[str, Any]:
    """Take a content apart.

    Guarantee: pure; `content_of` makes an equal content of the result.

    Args:
        content: of any type; live provider objects on it are left out.

    Returns:
        Its fields as JSON values, without ``type`` and without those that say nothing.

    Raises:
        CorruptStateError: a field holds what JSON cannot.
    """
    fields: dict[str, Any] = {}
    for name, value in vars(content).items():
        if value is None or name not in FIELDS:
            continue
        if type(value) in SCALARS:
            fields[name] = value
        elif value or name != "additional_properties":
            fields[name] = dump_field(name, value, f"{content.type}.{name}")
    if not fields.get("informational_only") or content.type not in _CALLS_FOR_INFORMATION:
        fields.pop("informational_only", None)
    return fields


def content_of(content_type: str, fields: Mapping[str, Any]) -> Content:
    """Put a content together.

    Guarantee: pure; the inverse of `fields_of`. Reads the framework's own dictionary form as well.

    Args:
        content_type: as the framework names it.
        fields: as `fields_of` gives them; they are copied.

    Returns:
        A new content that shares nothing with the argument.

    Raises:
        TypeError, ValueError, KeyError, AttributeError: the fields are not those of a content.
    """
    loaded = {name: value if type(value) in SCALARS else load_field(name, value) for name, value in fields.items()}
    if not _is_plainly_assigned(content_type, loaded):
        return _constructed(content_type, loaded)
    content = Content.__new__(Content)
    content.__dict__ = {**EMPTY[content_type], "additional_properties": {}, **loaded}
    return content


def _is_plainly_assigned(content_type: str, fields: Mapping[str, Any]) -> bool:
    """Tell whether the constructor would do no more than set these fields."""
    if content_type == "function_call":
        properties = fields.get("additional_properties", ())
        is_clear = fields.keys() <= _ASSIGNED_OF_CALLS and type(fields.get("hosted")) is bool
        return is_clear and isinstance(properties, dict | tuple) and "server_label" not in properties
    if content_type not in EMPTY or not fields.keys() <= ASSIGNED:
        return False
    return type(fields.get("additional_properties", {})) is dict and (content_type != "text" or "text" in fields)


def _constructed(content_type: str, loaded: dict[str, Any]) -> Content:
    if content_type == "function_approval_response" and type(loaded.get("approved")) is not bool:
        loaded["approved"] = False
    if content_type == "data" and "data" in loaded:
        return Content.from_dict({"type": content_type, **loaded})
    return Content(cast("Any", content_type), **loaded)


def dump_value(value: Any, path: str) -> Any:
    """Reduce a value to JSON so that `load_value` gives an equal one.

    Guarantee: pure.

    Args:
        value: JSON values, contents, pydantic models; provider objects under ``raw_representation`` are left out,
            because they are the live copy of what the other fields say.
        path: where the value stands, for the error.

    Returns:
        The value in dictionaries, lists, texts, numbers, booleans and None.

    Raises:
        CorruptStateError: a value of another type, or no finite number, which could not be read back.
    """
    if type(value) in SCALARS or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if type(value) is dict or isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        plain = {
            k if type(k) is str else str(k): v if type(v) in SCALARS else dump_value(v, f"{path}.{k}")
            for k, v in items
            if k != "raw_representation" or not _is_live(v)
        }
        return {PLAIN: plain} if CONTENT in plain or PLAIN in plain else plain
    if isinstance(value, Content):
        return {CONTENT: _framework_form(value)}
    if isinstance(value, list | tuple | set | frozenset):
        return [dump_value(v, f"{path}[{n}]") for n, v in enumerate(cast("list[Any]", value))]
    if callable(dump := getattr(value, "model_dump", None)):
        return dump_value(dump(mode="json"), path)
    raise CorruptStateError(
        f"{path} holds {value if isinstance(value, float) else f'a {type(value).__name__}'}, which JSON cannot: "
        "return text, finite numbers, lists or dictionaries"
    )


def load_value(value: Any) -> Any:
    """Read a value that `dump_value` wrote. Guarantee: pure.

    Args:
        value: JSON.

    Returns:
        A copy, with its contents as contents.
    """
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        if len(found) == 1:
            if isinstance(inner := found.get(CONTENT), dict):
                return _content_of_form(cast("dict[str, Any]", inner))
            if isinstance(inner := found.get(PLAIN), dict):
                found = cast("dict[str, Any]", inner)
        return {k: v if type(v) in SCALARS else load_value(v) for k, v in found.items()}
    if isinstance(value, list):
        return [v if type(v) in SCALARS else load_value(v) for v in cast("list[Any]", value)]
    return value


def _is_live(value: Any) -> bool:
    return not isinstance(value, str | int | float | list | dict | None)


def dump_field(name: str, value: Any, path: str) -> Any:
    """Reduce a field of a content to JSON. Guarantee: pure.

    Args:
        name: of the field.
        value: of the field.
        path: where it stands, for the error.

    Returns:
        JSON that `load_field` reads.

    Raises:
        CorruptStateError: it holds what JSON cannot.
    """
    if name in _SINGLE_CONTENTS and isinstance(value, Content):
        return _framework_form(value)
    if name in _CONTENT_LISTS and isinstance(value, list | tuple):
        return [_dump_item(item, f"{path}[{n}]") for n, item in enumerate(cast("list[Any]", value))]
    if name == "output" and isinstance(value, list | tuple):
        return [_dump_output(item, f"{path}[{n}]") for n, item in enumerate(cast("list[Any]", value))]
    if name == "outputs":
        return _dump_output(value, path)
    return dump_value(value, path)


def _dump_item(item: Any, path: str) -> Any:
    """Write an item of a list of contents: there, every dictionary is read as a content."""
    if isinstance(item, Content):
        return {"type": item.type, **fields_of(item)}
    plain: Any = dump_value(item, path)
    return {PLAIN: cast("Any", plain)} if isinstance(plain, dict) and PLAIN not in plain else cast("Any", plain)


def _dump_output(value: Any, path: str) -> Any:
    """Write a value that is a content when it looks like one to the letter, as the framework reads it."""
    if isinstance(value, Content):
        form = _framework_form(value)
        return form if _is_exact_form(form) else {CONTENT: form}
    plain: Any = dump_value(value, path)
    looks_like_one = isinstance(plain, dict) and _is_exact_form(cast("dict[str, Any]", plain))
    return {PLAIN: cast("Any", plain)} if looks_like_one else cast("Any", plain)


def _framework_form(content: Content) -> dict[str, Any]:
    form: dict[str, Any] = {"type": content.type, "additional_properties": {}}
    return form | fields_of(content)


def _is_exact_form(form: Mapping[str, Any]) -> bool:
    """Tell whether the framework reads this dictionary as a content: it is what the framework itself would write."""
    if form.get("type") not in KNOWN_TYPES:
        return False
    try:
        content = Content.from_dict(form)
        return form in (content.to_dict(), content.to_dict(exclude_none=False))
    except Exception:  # noqa: BLE001 - whatever the framework raises for it, it is no content
        return False


def load_field(name: str, value: Any) -> Any:
    """Read a field of a content. Guarantee: pure, the inverse of `dump_field`.

    Args:
        name: of the field.
        value: JSON.

    Returns:
        A copy, with its contents as contents.
    """
    if name in _SINGLE_CONTENTS and isinstance(value, dict) and PLAIN not in value:
        return _content_of_form(cast("dict[str, Any]", value))
    if name in _CONTENT_LISTS and isinstance(value, list):
        return [
            _content_of_form(cast("dict[str, Any]", item))
            if isinstance(item, dict) and PLAIN not in item
            else load_value(item)
            for item in cast("list[Any]", value)
        ]
    if name == "output" and isinstance(value, list):
        return [_load_output(item) for item in cast("list[Any]", value)]
    return _load_output(value) if name == "outputs" else load_value(value)


def _load_output(value: Any) -> Any:
    if isinstance(value, dict) and "type" in value and _is_exact_form(found := cast("dict[str, Any]", value)):
        return _content_of_form(found)
    return load_value(value)


def _content_of_form(form: Mapping[str, Any]) -> Content:
    return content_of(form["type"], {name: value for name, value in form.items() if name != "type"})
