"""Shapes of JSON, and where a value does not match its shape.

Fields that a shape does not name may be present with any value; fields that it names may be missing, unless they are
required.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

Path = tuple[str | int, ...]

MAX_DEPTH: Final = 200
"""Maximum nesting of a document: copying it recurses as deep, with some calls for each level."""

_NAMES: Final[Mapping[type, str]] = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "true or false",
    type(None): "null",
}


class SchemaViolation(NamedTuple):
    """Where a document does not match its shape.

    Attributes:
        path: names and positions (from 0) that lead to the value.
        problem: what is wrong with it.
        unit: the path of the smallest part that can be left out to remove the fault; empty for the whole document.
    """

    path: Path
    problem: str
    unit: Path

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


@dataclass(frozen=True)
class Schema:
    """The required form of a value.

    Attributes:
        types: the Python types of its JSON; none for any.
        fields: shapes of the fields of an object.
        required: the required fields of an object.
        each: the shape of each item of a list, or of each field of an object that ``fields`` does not name.
        further: returns one more shape that this value must have, or None.
        choices: the only values that there are; none for any.
    """

    types: tuple[type, ...] = ()
    fields: Mapping[str, "Schema"] = field(default_factory=dict[str, "Schema"])
    required: tuple[str, ...] = ()
    each: "Schema | None" = None
    further: Callable[[Any], "Schema | None"] | None = None
    choices: tuple[str, ...] = ()


ANYTHING: Final = Schema()


def find_violations(value: Any, shape: Schema, path: Path = (), unit: Path = ()) -> Iterator[SchemaViolation]:
    """Check a value against a shape.

    Yields:
        The faults, in the order of the document.
    """
    if shape.types and type(value) not in shape.types:
        yield SchemaViolation(path, f"is {_type_name(value)}: {_type_names(shape.types)} is expected", unit)
        return
    if shape.choices and value not in shape.choices:
        yield SchemaViolation(path, f"is {value!r:.100}: one of {', '.join(shape.choices)} is expected", unit)
    if isinstance(value, dict):
        yield from _find_object_violations(cast("dict[str, Any]", value), shape, path, unit)
    elif isinstance(value, list) and shape.each is not None:
        for number, item in enumerate(cast("list[Any]", value)):
            here = (*path, number)
            yield from find_violations(item, shape.each, here, here)
    if shape.further is not None and (more := shape.further(value)) is not None:
        yield from find_violations(value, more, path, unit)


def _find_object_violations(value: dict[str, Any], shape: Schema, path: Path, unit: Path) -> Iterator[SchemaViolation]:
    for name in shape.required:
        if name not in value:
            yield SchemaViolation(path, f"has no {name!r}", unit)
    for name, inner in value.items():
        field_schema = shape.fields.get(name, shape.each)
        if field_schema is not None:
            here = (*path, name)
            yield from find_violations(inner, field_schema, here, unit if name in shape.required else here)


def find_limit_violations(value: Any) -> Iterator[SchemaViolation]:
    """Find values that JSON documents or this program cannot hold: excessive depth, and numbers that are not finite.

    Yields:
        The faults.
    """
    pending_values: list[tuple[Path, Any]] = [((), value)]
    while pending_values:
        path, inner = pending_values.pop()
        if isinstance(inner, float) and not abs(inner) < float("inf"):
            yield SchemaViolation(path, f"is {inner}: a finite number is expected", path)
        if not isinstance(inner, dict | list):
            continue
        if len(path) >= MAX_DEPTH:
            yield SchemaViolation(path[:8], f"is nested more than {MAX_DEPTH} levels deep: make it flatter", path[:8])
            return
        items: Any = cast("Any", inner).items() if isinstance(inner, dict) else enumerate(cast("list[Any]", inner))
        pending_values += [((*path, name), item) for name, item in items if isinstance(item, dict | list | float)]


def _type_name(value: Any) -> str:
    return _NAMES.get(cast("type[Any]", type(value)), "a number")


def _type_names(types: tuple[type, ...]) -> str:
    names = list(dict.fromkeys(_NAMES.get(json_type, "a number") for json_type in types))
    return " or ".join(names)
