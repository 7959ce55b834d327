"""Keeps streamed updates small: joins pieces of a text that have been passed on.

Theory of operation. Every layer of the framework keeps a list of the updates that it passed on until its stream ends,
and an update with a content and the SDK's event takes 4 to 7 KB for a few characters. The layers share the objects. So
the text of adjacent pieces is moved into the first of them, and the other updates drop their contents and the SDK's
event. Folding any of the lists gives the same result as before, because a piece is moved only when it differs from the
first in nothing but its text, and when the app's middleware has not changed it.
"""

from collections.abc import Sequence
from typing import Any, Final

from agent_framework import AgentResponseUpdate, ChatResponseUpdate, Content

from durable_agent_host.model.provider_item import ItemPart
from durable_agent_host.stream.fold import ItemReader

EVERY: Final = 128
"""Updates left unchanged, at most twice as many; small beside the SDK and cheap to check."""

_TEXT_OF: Final = {"text": "text", "text_reasoning": "text", "function_call": "arguments"}
"""Type of a content that streams in pieces → where its text is."""


class _Pieces:
    """Adjacent pieces of one content, as passed on and as the client streamed them."""

    def __init__(self, first: Content, original: Content, field: str, part: ItemPart | None) -> None:
        self._first = first
        self._original = original
        self._field = field
        self._part = part
        self._same = dict(vars(first))
        self._texts: list[str] = [self._same[field]]

    def take(self, content: Content, part: ItemPart | None) -> bool:
        """Take the text of a piece that continues the first; return False and leave it unchanged otherwise."""
        own, same = vars(content), self._same
        text = own[self._field] if content.type == self._first.type else None
        if part != self._part or not isinstance(text, str):
            return False
        same[self._field], same["raw_representation"] = text, own["raw_representation"]
        if own != same:
            return False
        self._texts.append(text)
        setattr(content, self._field, "")
        return True

    def close(self) -> None:
        """Put the whole text into the first piece."""
        if self._texts[1:]:
            for first in (self._first, self._original):
                setattr(first, self._field, "".join(self._texts))


def condense(passed: Sequence[AgentResponseUpdate], said: Sequence[ChatResponseUpdate], items: ItemReader) -> None:
    """Move the texts of adjacent pieces into the first of them.

    Args:
        passed: updates that the agent has passed on; changed.
        said: their originals, one by one; changed.
        items: the provider's knowledge of items.
    """
    pieces: _Pieces | None = None
    for mine, theirs in zip(passed, said, strict=True):
        content = _piece_of(mine.contents, theirs.contents)
        if content is None:
            if theirs.contents or theirs.raw_representation is not None:
                pieces = _closed(pieces)
            continue
        part = None if theirs.raw_representation is None else items.read_item(theirs)
        if pieces is not None and pieces.take(content, part):
            mine.contents, theirs.contents, theirs.raw_representation = [], [], None
            if isinstance(copied := mine.raw_representation, ChatResponseUpdate):
                copied.contents, copied.raw_representation = [], None
        else:
            _closed(pieces)
            pieces = _Pieces(content, theirs.contents[0], _TEXT_OF[content.type], part)
    _closed(pieces)


def _closed(pieces: _Pieces | None) -> None:
    if pieces is not None:
        pieces.close()


def are_same(mine: Content, theirs: Content) -> bool:
    """Return whether a content that was passed on is that of the client, or an unchanged copy. Guarantee: pure."""
    return mine is theirs or vars(mine) == vars(theirs)


def _piece_of(mine: Sequence[Content], theirs: Sequence[Content]) -> Content | None:
    """Return the one content of an update and its original, when it is a piece that can be joined."""
    if len(mine) != 1 or len(theirs) != 1 or not are_same(mine[0], theirs[0]):
        return None
    content = mine[0]
    field = _TEXT_OF.get(content.type)
    if field is None or not isinstance(getattr(content, field), str) or content.merge_mode == "replace":
        return None
    properties: dict[str, Any] = content.additional_properties
    grows = any(value and type(value) is list for value in properties.values())  # a fold concatenates lists
    return None if content.annotations or grows else content
