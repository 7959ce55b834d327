"""Values of the blocks that a provider's service writes, each with a mark that is looked for where it has to go."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MARK = "canary7f3a"
"""The value that is looked for."""


@dataclass(frozen=True)
class Probe:
    """One value of a provider's wire.

    Attributes:
        block: what the provider calls the block.
        value: which of its values has the mark.
        steps: of the practice model's plan, each the items of one model call; the last one ends the turn.
    """

    block: str
    value: str
    steps: tuple[tuple[Mapping[str, Any], ...], ...]


def probe(block: str, value: str, *items: Mapping[str, Any], is_answer: bool = False) -> Probe:
    """Make a probe of items and an answer in one model call; with ``is_answer``, the items are the answer."""
    answer: tuple[Mapping[str, Any], ...] = () if is_answer else ({"text": "Done."},)
    return Probe(block, value, ((*({"item": item} for item in items), *answer),))


def probe_arguments(block: str, value: str) -> Probe:
    """Make a probe of the arguments of a call of the app's tool, with blanks as no program writes them."""
    call = {"calls": [{"name": "note", "arguments": f'{{"text":  "{MARK}"}}'}]}
    return Probe(block, value, ((call,), ({"text": "Done."},)))
