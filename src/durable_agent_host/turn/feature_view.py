"""What the steps of a turn show of a feature's entry."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from durable_agent_host.model.journal_entry import FeatureEntry


@dataclass(frozen=True)
class FeatureView:
    """An entry as people see it.

    Attributes:
        step: the fields of a step, with its ``kind``.
        of_calls: fields of the model calls that follow, until another entry changes them; None removes one.
    """

    step: Mapping[str, Any]
    of_calls: Mapping[str, Any] = field(default_factory=dict[str, Any])


ShowEntry = Callable[[FeatureEntry], FeatureView | None]
"""Shows an entry; None for one that is not shown."""
