"""How deep JSON of callers, models and tools may be nested: what reads and writes it later recurses. Pure."""

from typing import Any, Final, cast

MOST_LEVELS: Final = 100
"""Objects and lists within each other; tools' arguments and schemas have fewer than twenty."""


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
