"""Splits a block of the service into its contents and the remaining fields, and rebuilds it from both.

A block is flattened by one level, ``{"code_interpreter": {"input": …}}`` to ``{"code_interpreter.input": …}``, so that
item metadata can have single fields of it. Fields with their default value are not stored.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from durable_agent_host.providers.stamps import ItemMetadata

PROVIDER: Final = "azure_ai_agents"
METADATA: Final = ItemMetadata(PROVIDER)

_ABSENT: Final = "absent"


def remove_defaults(block: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the fields that have their default value. Guarantee: pure; `restore_defaults` is the inverse.

    Args:
        block: of the service.
        defaults: field → its default value.

    Returns:
        The other fields, and the names of missing default fields.
    """
    other_fields = {name: value for name, value in block.items() if name not in defaults or defaults[name] != value}
    absent = [name for name in defaults if name not in block]
    return other_fields | ({_ABSENT: absent} if absent else {})


def restore_defaults(other_fields: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Rebuild a block. Guarantee: pure.

    Args:
        other_fields: from `remove_defaults`.
        defaults: as passed there.
    """
    absent = set(cast("list[str]", other_fields.get(_ABSENT) or ())) | {_ABSENT}
    return {name: value for name, value in {**defaults, **other_fields}.items() if name not in absent}


def flatten(block: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Move the fields of a nested object to the level of the others. Guarantee: pure; `nest` is the inverse.

    Args:
        block: of the service.
        key: of the nested object; ignored when it is not one.
    """
    inner = block.get(key)
    if not isinstance(inner, Mapping):
        return dict(block)
    fields = cast("Mapping[str, Any]", inner)
    outer = {name: value for name, value in block.items() if name != key}
    return (
        outer | {f"{key}.{name}": value for name, value in fields.items()} | ({f"{key}.": True} if not fields else {})
    )


def nest(flat: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Nest the fields again. Guarantee: pure.

    Args:
        flat: from `flatten`.
        key: of the nested object.
    """
    prefix = f"{key}."
    inner = {name.removeprefix(prefix): value for name, value in flat.items() if name.startswith(prefix)}
    outer = {name: value for name, value in flat.items() if not name.startswith(prefix)}
    if not inner:
        return outer
    inner.pop("", None)
    return {name: outer[name] for name in outer} | {key: inner}
