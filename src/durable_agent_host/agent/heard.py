"""Counts what a model's answer says, for budgets: each character once, however often the service repeats it."""

from collections.abc import Mapping
from typing import Any

from agent_framework import ChatResponse, ChatResponseUpdate, Content

from durable_agent_host.stream.fold import ItemReader
from durable_agent_host.turn.request_size import characters_of_json


class Heard:
    """Counts the characters of texts, reasoning, arguments and code that one streamed answer says.

    Services end a streamed text by repeating it as a whole. A whole counts as far as it is longer than what has come of
    it in pieces: of the same part of the same item, or, where no item is known, of the text or call just before it.

    Args:
        items: the provider's knowledge of items.

    Attributes:
        characters: so far; never less than the complete contents have together.
    """

    def __init__(self, items: ItemReader) -> None:
        self.characters = 0
        self._items = items
        self._counted: dict[int | str, dict[tuple[str, ...], int]] = {}
        self._loose: dict[tuple[str, ...], int] = {}

    def take(self, update: ChatResponseUpdate) -> None:
        """Count an update."""
        part = None if update.raw_representation is None else self._items.read_item(update)
        if part is not None and part.begins is not None and part.place is not None:
            self._counted[part.place] = {}  # some services give all items one place
        for content in update.contents:
            kind = content.type, content.call_id or content.id or ""
            if part is not None and part.place is not None:
                self._add(self._counted.setdefault(part.place, {}), (*kind, part.part), content)
                continue
            self._loose = {kind: self._loose.get(kind, 0)}
            self._add(self._loose, kind, content)
            if content.merge_mode == "replace":
                self._loose = {}

    def _add(self, counted: dict[tuple[str, ...], int], key: tuple[str, ...], content: Content) -> None:
        if size := _characters_of(content):
            before = counted.get(key, 0)
            more = max(size - before, 0) if content.merge_mode == "replace" else size
            self.characters += more
            counted[key] = before + more


def characters_of_answer(response: ChatResponse[Any]) -> int:
    """Count what a whole answer says. Guarantee: pure."""
    return sum(_characters_of(content) for message in response.messages for content in message.contents)


def _characters_of(content: Content) -> int:
    """Count what a content says in its text, its arguments and its code."""
    arguments: Any = content.arguments
    size = len(content.text) if isinstance(content.text, str) else 0
    if isinstance(arguments, str):
        size += len(arguments)
    elif isinstance(arguments, Mapping):
        size += characters_of_json(arguments)
    return size + sum(map(_characters_of, content.inputs or ()))
