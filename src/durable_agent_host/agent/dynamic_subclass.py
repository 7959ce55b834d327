"""Copies of the app's objects with overrides in front of their class. The object and its class stay as they are."""

from functools import cache
from typing import Any, cast


@cache
def overridden_class(base: type[Any], override: type[Any]) -> type[Any]:
    """Derive a class whose methods come from an override first.

    Returns:
        The class, with the name of the base.
    """
    return type(base.__name__, (override, base), {})


def copy_with_mixin(original: Any, override: type[Any]) -> Any:
    """Copy an object into a class with an override.

    Returns:
        The copy; its ``__init__`` is not run.
    """
    clone: Any = object.__new__(overridden_class(cast("type[Any]", type(original)), override))
    clone.__dict__.update(original.__dict__)
    return clone
