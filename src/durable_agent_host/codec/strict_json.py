"""JSON as its standard has it: Python also reads and writes NaN and Infinity, which other readers refuse."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from math import isfinite
from typing import Any, Final, NamedTuple, cast

MAX_LEVELS: Final = 100
"""Objects and lists within each other; tools' arguments and schemas have fewer than twenty."""

SURROGATE: Final = re.compile("[\ud800-\udfff]")

CLASS_FIELDS: Final = frozenset({"__class__", "__module__", "__data__"})
"""Fields of an object of which the SDK of Durable Functions makes one of Python."""


def read_json(text: Any) -> Any:
    """Parse JSON of others; None in place of anything that cannot be read."""
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None


def names_python_class(text: str) -> bool:
    """Return whether JSON has an object of which the SDK of Durable Functions makes one of Python.

    The SDK imports the module and calls the class wherever it reads an input, an event, a result or a state.

    Source: ``_deserialize_custom_object`` of azure-functions.
    """
    found = False

    def check_object(fields: dict[str, Any]) -> dict[str, Any]:
        nonlocal found
        found = found or fields.keys() >= CLASS_FIELDS
        return fields

    if "__" in text or "\\u" in text:  # few texts are parsed for this
        try:
            json.loads(text, object_hook=check_object)
        except (ValueError, RecursionError):  # the SDK cannot read it either
            return found
    return found


def has_python_class(value: Any) -> bool:
    """Return whether a value has what `names_python_class` finds in JSON; does not recurse."""
    return any(fields.keys() >= CLASS_FIELDS for fields in _objects(value))


def is_nested_too_deeply(value: Any, max_levels: int = MAX_LEVELS) -> bool:
    """Return whether JSON has more levels than any part of a request needs; does not recurse."""
    return sum(1 for _ in islice(_levels(value), max_levels + 2)) > max_levels + 1


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    for level in _levels(value):
        yield from (inner for inner in level if isinstance(inner, dict))


def _levels(value: Any) -> Iterator[list[Any]]:
    """Yield a list of a value, then one of what is in it, and so on."""
    level: list[Any] = [value]
    while level:
        yield level
        level = [inner for outer in level for inner in _within(outer)]


def _within(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*cast("dict[str, Any]", value).values()]
    return cast("list[Any]", value) if isinstance(value, list) else []


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with its texts changed, names included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list | tuple):
        return [map_texts(element, change) for element in cast("list[Any]", value)]
    if isinstance(value, Mapping):
        fields = cast("Mapping[Any, Any]", value)
        return {map_texts(name, change): map_texts(element, change) for name, element in fields.items()}
    return value


def value_at(value: Any, *names: str) -> Any:
    """Return what stands under names within each other, in JSON of any shape; None when nothing does."""
    for name in names:
        value = cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None
    return value


def object_at(value: Any, *names: str) -> dict[str, Any]:
    """Return the object that stands under names within each other, as `value_at` does; an empty one without it."""
    found = value_at(value, *names)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


_ENCODER: Final = json.JSONEncoder(allow_nan=False)


def parse_strict(text: str | bytes) -> Any:
    """Parse JSON.

    Raises:
        ValueError: it is not JSON, or has NaN, Infinity or a number that is too large to be read.
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, parse_constant=reject_constant, parse_float=_finite)


def encode_strict(value: Any) -> str:
    """Encode a value for a client, as `json.dumps` does, with null for numbers that are not finite."""
    try:
        return _ENCODER.encode(value)
    except ValueError:
        return _ENCODER.encode(with_nulls(value))


def with_nulls(value: Any) -> Any:
    """Return a copy of a JSON value with null for numbers that are not finite."""
    if isinstance(value, dict):
        return {name: with_nulls(inner_value) for name, inner_value in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [with_nulls(inner_value) for inner_value in cast("list[Any]", value)]
    return None if isinstance(value, float) and not isfinite(value) else value


def reject_constant(word: str) -> Any:
    """Refuse NaN and Infinity, as ``parse_constant`` of Python's reader."""
    raise ValueError(f"{word} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


Path = tuple[str | int, ...]

MAX_DEPTH: Final = 200
"""Maximum nesting of a document: copying it recurses as deep, with some calls for each level."""


class JsonViolation(NamedTuple):
    """What is wrong with a part of a document.

    Attributes:
        path: names and positions (from 0) that lead to the value.
        problem: what is wrong with it.
    """

    path: Path
    problem: str

    @property
    def location(self) -> str:
        """The path as text, as in ``data.conversationHistory[3].messages[0].role``."""
        return format_json_path(self.path)


def format_json_path(path: Path) -> str:
    """Format a path as text.

    Returns:
        For example ``data.conversationHistory[3]``; ``the document`` for an empty path.
    """
    text = "".join(f"[{segment}]" if isinstance(segment, int) else f".{segment}" for segment in path)
    return text.removeprefix(".") or "the document"


def find_limit_violations(value: Any) -> Iterator[JsonViolation]:
    """Find values that JSON documents or this program cannot hold: excessive depth, and numbers that are not finite.

    Yields:
        The faults.
    """
    pending_values: list[tuple[Path, Any]] = [((), value)]
    while pending_values:
        path, inner = pending_values.pop()
        if isinstance(inner, float) and not isfinite(inner):
            yield JsonViolation(path, f"is {inner}: a finite number is expected")
        if not isinstance(inner, dict | list):
            continue
        if len(path) >= MAX_DEPTH:
            yield JsonViolation(path[:8], f"is nested more than {MAX_DEPTH} levels deep: make it flatter")
            return
        items: Any = cast("Any", inner).items() if isinstance(inner, dict) else enumerate(cast("list[Any]", inner))
        pending_values += [((*path, name), item) for name, item in items if isinstance(item, dict | list | float)]
