"""Works on long texts in parts: a search by a regular expression holds the interpreter until it ends. Pure."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

_PART_CHARACTERS: Final = 16 * 1024
"""A search of so many takes some milliseconds."""
_MOST_TO_TELL: Final = 4096
_PAUSES: Final[list[Callable[[], object]]] = []
"""Called between two parts, see `learn_pause`."""


def learn_pause(give_way: Callable[[], object]) -> None:
    """Let others work between two parts.

    Args:
        give_way: called often, from any thread; returns at once where it must not wait.
    """
    if give_way not in _PAUSES:
        _PAUSES.append(give_way)


def pause() -> None:
    """Let others work, when it is time to; called between two parts. Does nothing before `learn_pause`."""
    for give_way in _PAUSES:
        give_way()


def is_found(form: re.Pattern[str], text: str) -> bool:
    """Return whether something matches; see `replaced`. Guarantee: pure."""
    if len(text) <= _PART_CHARACTERS:
        return form.search(text) is not None
    return next(found_in(form, text), None) is not None


def replaced(form: re.Pattern[str], mask: str | Callable[[re.Match[str]], str], text: str) -> str:
    """Replace what matches, as `re.sub` does; a long text is searched in parts, between which other threads run.

    Guarantee: pure.

    Args:
        form: tells within 4,096 characters whether it matches at a place.
        mask: plain text, or a function of the match.
        text: of any length.
    """
    return form.sub(mask, text) if len(text) <= _PART_CHARACTERS else replaced_each(found_in(form, text), mask, text)


def replaced_each(found: Iterable[re.Match[str]], mask: str | Callable[[re.Match[str]], str], text: str) -> str:
    """Replace matches, in order, in the text that they were found in. Guarantee: pure."""
    parts, told = list[str](), 0
    for one in found:
        parts += [text[told : one.start()], mask if isinstance(mask, str) else mask(one)]
        told = one.end()
    return "".join([*parts, text[told:]]) if parts else text


def found_in(form: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield what matches, as `re.finditer` does; see `replaced`. The matches are not empty."""
    place = 0
    while place < len(text):
        if place > 0:
            pause()
        end = place + _PART_CHARACTERS
        place = end
        for begun in form.finditer(text, end - _PART_CHARACTERS, end + _MOST_TO_TELL):
            if begun.start() >= end:
                break
            if begun.end() <= end:
                yield begun
            elif (found := form.match(text, begun.start())) is None:  # what follows the part says otherwise
                place = begun.start() + 1
                break
            else:
                yield found
                place = found.end()
                break
