"""Reads JSON of services whose shape is not certain. Pure."""

from collections.abc import Mapping
from typing import Any, cast


def as_object(value: Any) -> dict[str, Any]:
    """Return a JSON object; an empty one in place of anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_objects(values: Any) -> list[dict[str, Any]]:
    """Return the objects of a list; none in place of anything else."""
    elements = cast("list[Any]", values) if isinstance(values, list) else []
    return [element for element in elements if isinstance(element, dict)]


def within(value: Any, *names: str) -> Any:
    """Return a value inside objects; None where one of them is missing."""
    for name in names:
        value = cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None
    return value
