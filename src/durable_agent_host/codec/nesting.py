"""What JSON of others may not have: more levels than its readers bear, and names of classes of Python. Pure."""

import json
from typing import Any, Final, cast

MOST_LEVELS: Final = 100
"""Objects and lists within each other; tools' arguments and schemas have fewer than twenty."""


CLASS_FIELDS: Final = frozenset({"__class__", "__module__", "__data__"})
"""Fields of an object of which the SDK of Durable Functions makes one of Python."""


def names_python_class(text: str) -> bool:
    """Return whether JSON has an object of which the SDK of Durable Functions makes one of Python.

    The SDK imports the module and calls the class wherever it reads an input, an event, a result or a state.

    Guarantee: pure.
    Source: ``_deserialize_custom_object`` of azure-functions.

    Args:
        text: JSON, or not.
    """
    found = False

    def look(fields: dict[str, Any]) -> dict[str, Any]:
        nonlocal found
        found = found or fields.keys() >= CLASS_FIELDS
        return fields

    if "__" in text or "\\u" in text:  # few texts are parsed for this
        try:
            json.loads(text, object_hook=look)
        except (ValueError, RecursionError):  # the SDK cannot read it either
            return found
    return found


def has_python_class(value: Any) -> bool:
    """Return whether a value has what `names_python_class` finds in JSON. Guarantee: pure; does not recurse."""
    level: list[Any] = [value]
    while level:
        if any(isinstance(inner, dict) and cast("dict[str, Any]", inner).keys() >= CLASS_FIELDS for inner in level):
            return True
        level = [inner for outer in level for inner in _within(outer)]
    return False


def is_nested_too_deeply(value: Any, most: int = MOST_LEVELS) -> bool:
    """Tell whether JSON has more levels than any part of a request needs. Guarantee: pure; does not recurse.

    Args:
        value: what JSON can hold.
        most: levels allowed.
    """
    level: list[Any] = [value]
    for _ in range(most + 1):
        level = [inner for one in level for inner in _within(one)]
        if not level:
            return False
    return True


def _within(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*cast("dict[str, Any]", value).values()]
    return cast("list[Any]", value) if isinstance(value, list) else []
