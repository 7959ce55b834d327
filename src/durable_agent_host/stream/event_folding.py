"""A stream of events as sent by a model's service, with adjacent events joined that differ in only one text. Pure.

Each event of a streamed answer repeats where its few characters belong, which takes fifty times their size. The common
part of such events is kept once, with their joined texts and their number.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

_SAYS_WHAT: Final = frozenset({"type", "status", "role", "name", "object", "event"})
"""Members that identify an event; those with names ending in ``id`` or ``index`` identify what it belongs to."""


class FoldedEvents:
    """Receives a stream of events, and joins those that differ in one text.

    Args:
        most_characters: of all joined events, approximately; later events are only counted, and the last event is kept.

    Attributes:
        events: ``data`` of each, with ``event`` where it was named, and ``joined``, the number of joined events, above
            one.
        left_out: events beyond the limit.
    """

    def __init__(self, most_characters: int) -> None:
        self.events: list[dict[str, Any]] = []
        self.left_out = 0
        self._left = most_characters

    def feed(self, blocks: Iterator[tuple[str, str]]) -> None:
        """Add events.

        Args:
            blocks: name, which may be empty, and data of each.
        """
        for name, data in blocks:
            try:
                value: Any = json.loads(data)
            except (ValueError, RecursionError):
                value = data
            last = self.events[-1] if self.events else None
            if last is not None and last.get("event", "") == name:
                merged = _merged(last["data"], value)
                if merged is not None and self._left > 0:
                    self._left -= len(merged[1])
                    last |= {"data": merged[0], "joined": last.get("joined", 1) + 1}
                    continue
            self._left -= len(data)
            if self._left < 0 and self.events:
                self.left_out += 1
                self.events.pop()
            self.events.append(({"event": name} if name else {}) | {"data": value})


def events_in(text: str) -> Iterator[tuple[str, str]]:
    """Read the events of a stream: name, which may be empty, and data. Guarantee: pure."""
    for block in text.replace("\r\n", "\n").split("\n\n"):
        name, data = "", list[str]()
        for line in block.split("\n"):
            field, _, value = line.partition(":")
            if field == "data":
                data.append(value.removeprefix(" "))
            elif field == "event":
                name = value.strip()
        if data:
            yield name, "\n".join(data)


def _merged(old: Any, new: Any) -> tuple[Any, str] | None:
    """Join two events that differ in one text, with the second one's counters; also return the added text."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return None
    added: list[str] = []
    merged = _joined_objects(cast("dict[str, Any]", old), cast("dict[str, Any]", new), added)
    return (merged, added[0]) if merged is not None and len(added) == 1 else None


def _joined_objects(old: Mapping[str, Any], new: Mapping[str, Any], added: list[str]) -> dict[str, Any] | None:
    if old.keys() != new.keys():
        return None
    joined: dict[str, Any] = {}
    for name, value in new.items():
        joined[name] = _joined_value(name, old[name], value, added)
        if joined[name] is _DIFFERENT:
            return None
    return joined


def _joined_value(name: str, old: Any, new: Any, added: list[str]) -> Any:
    grows = isinstance(new, str) and name in _GROWING
    if old == new and not grows and isinstance(old, bool) == isinstance(new, bool):
        return new
    if isinstance(old, dict) and isinstance(new, dict):
        joined = _joined_objects(cast("dict[str, Any]", old), cast("dict[str, Any]", new), added)
        return _DIFFERENT if joined is None else joined
    if isinstance(old, list) and isinstance(new, list):
        return _joined_lists(name, cast("list[Any]", old), cast("list[Any]", new), added)
    if name == _PADDING:
        return ""
    if name in _SAYS_WHAT or name.endswith(("id", "index")):
        return _DIFFERENT
    if isinstance(old, str) and isinstance(new, str):
        added.append(new)
        return old + new
    return new if all(map(_is_number, (cast("object", old), cast("object", new)))) else _DIFFERENT


def _joined_lists(name: str, old: list[Any], new: list[Any], added: list[str]) -> Any:
    if len(old) != len(new):
        return _DIFFERENT
    items = [_joined_value(name, one, other, added) for one, other in zip(old, new, strict=True)]
    return _DIFFERENT if any(item is _DIFFERENT for item in items) else items


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_DIFFERENT: Final = object()
"""The result for two values that cannot be joined."""


_PADDING: Final = "obfuscation"
"""Members of random length, so that an eavesdropper cannot infer words from lengths."""

_GROWING: Final = frozenset({"delta", "text", "content", "arguments", "value"})
"""Texts that grow even by a repetition: the next piece may be equal to the last one."""
