"""Repairs documents that are malformed as sessions: unreadable parts are left out. Pure."""

import json
from collections.abc import Callable
from typing import Any, Final, cast

from durable_agent_host.codec.schema import document_faults, move_entry, shape_error
from durable_agent_host.codec.shape import Fault, Path, place_of
from durable_agent_host.errors import CorruptStateError

_ROUNDS: Final = 20
"""More rounds than needed: leaving a part out can only make the part around it incomplete."""


def mend_shape(
    document: dict[str, Any], *, first: int = 0, between: Callable[[], object] = lambda: None
) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Leave out the parts of a document that make it unreadable.

    Guarantee: pure; repairing again changes nothing.

    Args:
        document: of a version that this program reads.
        first: position of its first entry in the conversation, from 0.
        between: called before each entry, to let others work.

    Returns:
        The document, the same object when it has no fault, and the faults with their places.

    Raises:
        CorruptStateError: nothing in it can be a conversation.
    """
    told: list[tuple[str, str]] = []
    for _ in range(_ROUNDS):
        faults = document_faults(document, between=between)
        if not faults:
            return document, told
        if beyond := [fault for fault in faults if not fault.unit]:
            raise CorruptStateError(f"the stored session is none: {shape_error(beyond)}; nothing was changed")
        named = [_moved(fault, first) for fault in faults]
        told += [(fault.place, f"{_what(fault)}it {fault.problem}") for fault in named]
        document = _without(document, {fault.unit for fault in faults})
    raise CorruptStateError("the stored session cannot be repaired; nothing was changed")


def _moved(fault: Fault, first: int) -> Fault:
    """Count the entries in a fault's paths from the beginning of the conversation."""
    return fault._replace(path=move_entry(fault.path, first), unit=move_entry(fault.unit, first)) if first else fault


def _what(fault: Fault) -> str:
    return "" if fault.unit == fault.path else f"of {place_of(fault.unit)}: "


def _without(document: dict[str, Any], units: set[Path]) -> dict[str, Any]:
    """Remove parts, the last ones first, so that the positions of the others stay."""
    mended: Any = json.loads(json.dumps(document))  # copies nesting too deep for other ways
    for unit in sorted(units, key=lambda path: [(isinstance(one, str), one) for one in path], reverse=True):
        holder: Any = mended
        for one in unit[:-1]:
            holder = holder[one]
        del holder[unit[-1]]
    return cast("dict[str, Any]", mended)
