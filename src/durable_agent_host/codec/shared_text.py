"""Texts that a provider's item repeats from its contents: stored once, in the contents.

In memory a stamp has the item exactly as the service sent it. Stored, its texts that the item's contents have as well
are empty, and listed in the stamp with their paths in both. Only the list makes a reference.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.model.provider_item import ITEM, PART_OF, STAMP

_SHARED: Final = "shared"
_MIN_CHARACTERS: Final = 24
_BYTES: Final = "bytes"
_FIELDS: Final = (
    *("text", "protected_data", "arguments", "uri", "stdout", "stderr", "commands"),
    *("inputs", "outputs", "output", "result", "annotations"),
)


def without_item(content: Content) -> Content:
    """Return a content without its item, which it no longer is."""
    if content.additional_properties.keys().isdisjoint((STAMP, PART_OF)):
        return content
    clone = copy.copy(content)
    properties = content.additional_properties.items()
    clone.additional_properties = {name: value for name, value in properties if name not in (STAMP, PART_OF)}
    return clone


def detach_shared_texts(contents: Sequence[Content]) -> list[Content]:
    """Empty the texts of items that their contents have; copies where there are some."""
    detached_contents: list[Content] = []
    for group in _groups(contents):
        first = group[0]
        if ITEM in _stamp(first):
            paths = {text: path for text, path in _texts(group, []) if len(text) >= _MIN_CHARACTERS}
            first = _detach(first, paths)
        detached_contents += map(_with_detached_outputs, [first, *group[1:]])
    return detached_contents


def _with_detached_outputs(content: Content) -> Content:
    outputs = _item_outputs(content)
    if not outputs:
        return content
    clone = copy.copy(content)
    clone.outputs = detach_shared_texts(outputs)
    return clone


def _item_outputs(content: Content) -> list[Content]:
    """Return the outputs of a content if some of them are items themselves, as Gemini's are."""
    values: Any = content.outputs
    outputs = cast("list[Content]", values) if isinstance(values, list) else []
    return outputs if any(STAMP in output.additional_properties for output in outputs) else []


def restore_shared_texts(contents: Sequence[Content]) -> None:
    """Put the texts back, in place; an item whose contents no longer have them is none any more."""
    for group in _groups(contents):
        if shared := _stamp(group[0]).pop(_SHARED, None):
            try:
                for path, source in shared:
                    _put(group[0].additional_properties[STAMP][ITEM], path, _find(group, source))
            except (AttributeError, IndexError, KeyError, TypeError, ValueError):
                group[0].additional_properties[STAMP].pop(ITEM, None)
        for content in group:
            restore_shared_texts(_item_outputs(content))


def _groups(contents: Sequence[Content]) -> Iterator[list[Content]]:
    starts = [n for n, content in enumerate(contents) if not n or PART_OF not in content.additional_properties]
    return (list(contents[start:end]) for start, end in pairwise([*starts, len(contents)]))


def _stamp(content: Content) -> dict[str, Any]:
    return object_at(content.additional_properties, STAMP)


def _detach(content: Content, paths: Mapping[str, Any]) -> Content:
    shared: list[Any] = []

    def detach(value: Any, path: list[Any]) -> Any:
        if isinstance(value, str) and value in paths:
            shared.append([path, paths[value]])
            return ""
        if isinstance(value, dict):
            return {name: detach(part, [*path, name]) for name, part in cast("dict[str, Any]", value).items()}
        if isinstance(value, list):
            return [detach(part, [*path, n]) for n, part in enumerate(cast("list[Any]", value))]
        return value

    stamp = _stamp(content)
    item = detach(stamp[ITEM], [])
    if not shared:
        return content
    detached_stamp = {**stamp, ITEM: item, _SHARED: shared}
    clone = copy.copy(content)
    clone.additional_properties = content.additional_properties | {STAMP: detached_stamp}
    return clone


def _texts(value: Any, path: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    if isinstance(value, str):
        yield value, path
    elif isinstance(value, Content):
        for name in _FIELDS:
            yield from _texts(getattr(value, name), [*path, name])
        if value.type == "data" and value.uri:
            yield value.uri.partition(",")[2], [*path, _BYTES]
    elif isinstance(value, dict | list):
        parts = (
            cast("dict[Any, Any]", value).items() if isinstance(value, dict) else enumerate(cast("list[Any]", value))
        )
        for name, part in parts:
            yield from _texts(part, [*path, name])


def _find(contents: Sequence[Content], path: Sequence[Any]) -> str:
    found: Any = contents
    for step in path:
        if step == _BYTES and isinstance(found, Content):
            found = str(found.uri).partition(",")[2]
        else:
            found = getattr(found, step) if isinstance(found, Content) else found[step]
    if not isinstance(found, str):
        raise TypeError(path)
    return found


def _put(item: Any, path: Sequence[Any], text: str) -> None:
    *parents, last = path
    for step in parents:
        item = item[step]
    if item[last] != "":
        raise ValueError(path)
    item[last] = text
