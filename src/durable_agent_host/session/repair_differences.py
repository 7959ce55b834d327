"""What a repair has changed, entry by entry. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast


@dataclass(frozen=True)
class Difference:
    """The effect of a repair on an entry.

    Attributes:
        before: the entry, with placeholders for large texts; of any shape.
        after: the same, repaired; None when it is left out.
    """

    before: Any
    after: Mapping[str, Any] | None


Note = Callable[[Difference], None]


def note_nothing(_: Difference) -> None:
    """Record nothing."""


def note_differences(before: Sequence[Any], after: Sequence[Any], note: Note) -> None:
    """Report what a repair has changed, entry by entry.

    Guarantee: pure except for ``note``.

    Args:
        before: the entries before.
        after: the entries after repair, in the same order; some may be left out.
        note: called for each changed entry.
    """
    place = 0
    for number, entry in enumerate(before):
        now = after[place] if place < len(after) else None
        if now is not None and (now is entry or now == entry):
            place += 1
        elif now is not None and (_names(now) == _names(entry) or len(before) - number <= len(after) - place):
            note(Difference(entry, now))
            place += 1
        else:
            note(Difference(entry, None))


def _names(entry: Any) -> tuple[Any, Any] | None:
    if not isinstance(entry, dict):
        return None
    found = cast("dict[str, Any]", entry)
    return found.get("$type"), found.get("correlationId")
