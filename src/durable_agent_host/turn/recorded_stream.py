"""A streamed answer as it is shown: adjacent events that differ in only one text are joined.

Each event of a stream repeats where its few characters belong, which takes fifty times their size, and a redaction
finds nothing in single characters. The common part of such events is shown once, with their joined texts and their
number.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, cast

from durable_agent_host.codec.strict_json import encode_strict
from durable_agent_host.redaction import mask_credentials
from durable_agent_host.turn.call_body import CallBody

FinalResponse = Callable[[Any], Any]
"""Returns the whole answer, if an event's data has it; else None."""

_LAST_EVENTS: Final = 3
"""How many events at the end of a stream may have the whole answer."""

_IDENTIFYING: Final = frozenset({"type", "status", "role", "name", "object", "event"})
"""Members that identify an event; those with names ending in ``id`` or ``index`` identify what it belongs to."""

_GROWING: Final = frozenset({"delta", "text", "content", "arguments", "value"})
"""Texts that grow even by a repetition: the next piece may be equal to the last one."""

_PADDING: Final = "obfuscation"
"""Members of random length, so that an eavesdropper cannot infer words from lengths."""

_DIFFERENT: Final = object()
"""The result for two values that cannot be joined."""


def fold_stream(body: CallBody, final_response: FinalResponse) -> tuple[Literal["answer", "events"], CallBody]:
    """Turn a streamed answer into JSON.

    Returns:
        ``answer`` with the whole answer, as an event at the end of the stream repeats it; otherwise ``events``, with a
        list of them.
    """
    head = fold_events(body.head)
    tail = fold_events(body.tail)
    for event in reversed([*head, *tail][-_LAST_EVENTS:]):
        if (response := final_response(event["data"])) is not None:
            return "answer", CallBody(_encode(response))
    if body.is_complete:
        return "events", CallBody(_encode(head))
    return "events", CallBody(_encode(head), body.missing_characters, _encode(tail))


def _encode(value: Any) -> str:
    """Encode JSON; a secret can be in several events, and is whole only after they are joined."""
    return mask_credentials(encode_strict(value))


def fold_events(text: str) -> list[dict[str, Any]]:
    """Read the events of a stream, and join those that differ in one text.

    Returns:
        ``data`` of each event, with ``event`` where it was named, and ``joined``, the number of joined events when it
        is above one.
    """
    events: list[dict[str, Any]] = []
    for name, data in _events_in(text):
        try:
            value: Any = json.loads(data)
        except (ValueError, RecursionError):
            value = data
        last = events[-1] if events else None
        if (
            last is not None
            and last.get("event", "") == name
            and (joined_data := _join(last["data"], value)) is not None
        ):
            last |= {"data": joined_data, "joined": last.get("joined", 1) + 1}
        else:
            events.append(({"event": name} if name else {}) | {"data": value})
    return events


def _events_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name, which may be empty, and the data of each event."""
    for block in text.replace("\r\n", "\n").split("\n\n"):
        name = ""
        lines = list[str]()
        for line in block.split("\n"):
            field, _, value = line.partition(":")
            if field == "data":
                lines.append(value.removeprefix(" "))
            elif field == "event":
                name = value.strip()
        if lines:
            yield name, "\n".join(lines)


def _join(old: Any, new: Any) -> dict[str, Any] | None:
    """Join two events that differ in one text, with the second one's counters."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return None
    added_texts: list[str] = []
    joined_object = _join_objects(cast("dict[str, Any]", old), cast("dict[str, Any]", new), added_texts)
    return joined_object if len(added_texts) == 1 else None


def _join_objects(old: Mapping[str, Any], new: Mapping[str, Any], added_texts: list[str]) -> dict[str, Any] | None:
    if old.keys() != new.keys():
        return None
    joined_object: dict[str, Any] = {}
    for name, value in new.items():
        joined_object[name] = _join_values(name, old[name], value, added_texts)
        if joined_object[name] is _DIFFERENT:
            return None
    return joined_object


def _join_values(name: str, old: Any, new: Any, added_texts: list[str]) -> Any:
    grows = isinstance(new, str) and name in _GROWING
    if old == new and not grows and isinstance(old, bool) == isinstance(new, bool):
        return new
    if isinstance(old, dict) and isinstance(new, dict):
        joined_object = _join_objects(cast("dict[str, Any]", old), cast("dict[str, Any]", new), added_texts)
        return _DIFFERENT if joined_object is None else joined_object
    if isinstance(old, list) and isinstance(new, list):
        return _join_lists(name, cast("list[Any]", old), cast("list[Any]", new), added_texts)
    if name == _PADDING:
        return ""
    if name in _IDENTIFYING or name.endswith(("id", "index")):
        return _DIFFERENT
    if isinstance(old, str) and isinstance(new, str):
        added_texts.append(new)
        return old + new
    return new if all(map(_is_number, (cast("object", old), cast("object", new)))) else _DIFFERENT


def _join_lists(name: str, old: list[Any], new: list[Any], added_texts: list[str]) -> Any:
    if len(old) != len(new):
        return _DIFFERENT
    items = [_join_values(name, *pair, added_texts) for pair in zip(old, new, strict=True)]
    return _DIFFERENT if any(item is _DIFFERENT for item in items) else items


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
