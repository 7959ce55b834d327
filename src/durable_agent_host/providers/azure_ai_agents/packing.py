"""Splits a block of the service into its contents and the remaining fields, and rebuilds it from both. Pure.

A block is flattened by one level, ``{"code_interpreter": {"input": …}}`` to ``{"code_interpreter.input": …}``, so that
a stamp can keep single fields of it. Fields with their usual value are not kept.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from durable_agent_host.providers.stamps import ItemMetadata

PROVIDER: Final = "azure_ai_agents"
STAMPS: Final = ItemMetadata(PROVIDER)

_ABSENT: Final = "absent"


def packed(block: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the fields that have their usual value. Guarantee: pure; `unpacked` is the inverse.

    Args:
        block: of the service.
        usual: field → its usual value.

    Returns:
        The other fields, and the names of missing usual fields.
    """
    kept = {name: value for name, value in block.items() if name not in usual or usual[name] != value}
    absent = [name for name in usual if name not in block]
    return kept | ({_ABSENT: absent} if absent else {})


def unpacked(kept: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Rebuild a block. Guarantee: pure.

    Args:
        kept: from `packed`.
        usual: as passed there.
    """
    absent = set(cast("list[str]", kept.get(_ABSENT) or ())) | {_ABSENT}
    return {name: value for name, value in {**usual, **kept}.items() if name not in absent}


def flattened(block: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Write the fields of a nested object beside the others. Guarantee: pure; `nested` is the inverse.

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


def nested(flat: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Nest the fields again. Guarantee: pure.

    Args:
        flat: from `flattened`.
        key: of the nested object.
    """
    begin = f"{key}."
    inner = {name.removeprefix(begin): value for name, value in flat.items() if name.startswith(begin)}
    outer = {name: value for name, value in flat.items() if not name.startswith(begin)}
    if not inner:
        return outer
    inner.pop("", None)
    return {name: outer[name] for name in outer} | {key: inner}
