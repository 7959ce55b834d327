"""What the steps of a turn show of a feature's note."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from durable_agent_host.model.journal_entry import Note


@dataclass(frozen=True)
class NoteView:
    """A note as people see it.

    Attributes:
        step: the fields of a step, with its ``kind``.
        of_calls: fields of the model calls that follow, until another note changes them; None removes one.
    """

    step: Mapping[str, Any]
    of_calls: Mapping[str, Any] = field(default_factory=dict[str, Any])


ShowNote = Callable[[Note], NoteView | None]
"""Shows a note; None for one that is not shown."""
