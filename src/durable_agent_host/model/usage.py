"""Token counts as services report them, without figures that count nothing."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from agent_framework import Content

TOOL_INPUT: Final = "tool_use_input_token_count"
"""Name of a count that the framework does not know: what a model has read of tools that its service ran, where the
service counts it apart from the input."""

_MOST: Final = 2**53
"""Readers of JSON represent greater numbers differently; no call takes as many tokens."""

_COUNTS: Final = "_token_count"
"""The framework's names of counts end so; a service's own may name anything."""


def is_count(value: Any) -> bool:
    """Return whether a value is a number of tokens: finite, not negative, of a possible size. Guarantee: pure."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST


def is_measured(usage: Mapping[str, Any] | None) -> bool:
    """Return whether token counts tell what a call has taken: what was written, or all together.

    Guarantee: pure. Zeros tell nothing, since no call takes nothing.

    Args:
        usage: by the framework's names.
    """
    counts = known_counts(usage)
    return bool(counts.get("output_token_count") or counts.get("total_token_count"))


def known_counts(usage: Mapping[str, Any] | None) -> dict[str, Any]:
    """Leave out the figures that are no counts, as if the service had not reported them.

    Guarantee: pure; doing it again changes nothing.

    Args:
        usage: by the framework's names; what a service reports besides numbers stays.
    """
    return {
        name: value
        for name, value in (usage or {}).items()
        if (is_count if name.endswith(_COUNTS) else _can_be_kept)(value)
    }


def correct_usage(contents: Iterable[Content]) -> None:
    """Leave out of contents of the type usage what `known_counts` leaves out; changes them in place."""
    for content in contents:
        if content.type == "usage":
            content.usage_details = cast("Any", known_counts(cast("Any", content.usage_details)))


def _can_be_kept(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_can_be_kept, cast("Mapping[str, Any]", value).values()))
    if isinstance(value, list):
        return all(map(_can_be_kept, cast("list[Any]", value)))
    return is_count(value) or not isinstance(value, int | float) or isinstance(value, bool)
