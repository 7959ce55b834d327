"""Item metadata: which contents of a message represent which item of their provider, and the fields that they lack.

Theory of operation. The first content of an item has *metadata* in its ``additional_properties``: the provider, the
item's type and id, and those of its fields that the provider cannot rebuild from the contents. The other contents of
the item are marked as parts of it. So an item is stored once, and restored verbatim: either its fields are rebuilt
from the contents, or they are stored with references to the contents in place of their texts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.model.provider_item import PART_OF, STAMP

_IDENTITY: Final = frozenset({"type", "id"})


class ItemMetadata:
    """The item metadata of one provider.

    Args:
        provider: its name in the metadata; stored, so it never changes.
    """

    def __init__(self, provider: str) -> None:
        self.provider = provider

    def find(self, content: Content) -> Mapping[str, Any] | None:
        """Return the metadata of a content that starts an item of this provider, or None.

        Returns:
            ``type``, ``id`` and the fields that the contents do not have.
        """
        stored: Any = content.additional_properties.get(STAMP)
        if not isinstance(stored, dict) or content.type == "function_result":
            return None  # the framework copies the properties of a function's call to its result
        metadata = cast("dict[str, Any]", stored)
        return metadata if metadata.get("provider") == self.provider and metadata.get("type") else None

    def group(self, contents: Iterable[Content]) -> Iterator[list[Content]]:
        """Split contents into items of this provider and single contents that belong to none.

        Yields:
            Groups in order: a content with metadata and its parts, or one content without metadata.
        """
        item_contents: list[Content] = []
        for content in contents:
            metadata = self.find(item_contents[0]) if item_contents else None
            if metadata is not None and PART_OF in content.additional_properties:
                item_contents.append(content)
                continue
            if item_contents:
                yield item_contents
            item_contents = [content]
        if item_contents:
            yield item_contents

    def runs(self, contents: Iterable[Content]) -> Iterator[tuple[bool, list[Content]]]:
        """Split contents into items of this provider and runs of contents that belong to none.

        Yields:
            Whether the contents are an item, and the contents.
        """
        for is_item, groups in groupby(self.group(contents), key=lambda group: self.find(group[0]) is not None):
            if is_item:
                yield from ((True, group) for group in groups)
            else:
                yield False, [content for group in groups for content in group]

    def attach(
        self,
        group: Sequence[Content],
        item: Mapping[str, Any],
        rebuilt_fields: Mapping[str, Any],
        missing_fields: Mapping[str, Any] | None = None,
    ) -> None:
        """Mark contents as an item, in place, and store the fields that they lack."""
        identity = {"provider": self.provider, "type": item["type"], "id": item.get("id")}
        metadata = identity | dict(
            find_missing_fields(item, rebuilt_fields) if missing_fields is None else missing_fields
        )
        if extra := [name for name in rebuilt_fields if name not in item]:
            metadata["without"] = extra
        for content in group[1:]:
            content.additional_properties = content.additional_properties | {PART_OF: item.get("id")}
        group[0].additional_properties = group[0].additional_properties | {STAMP: metadata}


def find_missing_fields(item: Mapping[str, Any], rebuilt_fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an item that its contents lack."""
    return {
        name: value
        for name, value in item.items()
        if name not in _IDENTITY and (name not in rebuilt_fields or rebuilt_fields[name] != value)
    }


def restore_item(metadata: Mapping[str, Any], rebuilt_fields: Mapping[str, Any]) -> dict[str, Any]:
    """Reassemble an item, the inverse of `ItemMetadata.attach`.

    Returns:
        The item, without ``id`` when the metadata's is None. It shares values with both, and must not be changed.
    """
    omitted_names = {"provider", "without"} if metadata.get("id") is not None else {"provider", "without", "id"}
    stored_fields = {name: value for name, value in metadata.items() if name not in omitted_names}
    return {name: v for name, v in rebuilt_fields.items() if name not in metadata.get("without", ())} | stored_fields


_FROM: Final = "durable_agent_host.from"
_MIN_CHARACTERS: Final = 24
_REASONING: Final = "reasoning"
_BYTES: Final = "bytes"
_FIELDS: Final = (
    *("text", "protected_data", "arguments", "uri", "stdout", "stderr", "commands"),
    *("inputs", "outputs", "output", "result", "annotations"),
)


def encode_references(value: Any, contents: Sequence[Content]) -> Any:
    """Replace the long texts and the lists of a JSON value that its contents hold. Inverse: `decode_references`."""
    reasoning = "".join(content.text or "" for content in contents if content.type == "text_reasoning")
    values: list[tuple[Any, Any]] = [(reasoning, _REASONING), *_find_values(list(contents), [])]
    paths_by_text = {text: path for text, path in values if isinstance(text, str) and len(text) >= _MIN_CHARACTERS}
    lists: list[tuple[Any, Any]] = [(element, path) for element, path in values if isinstance(element, list)]
    return _replace_values(value, paths_by_text, lists)


def _find_values(value: Any, path: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Return the texts and lists in contents with their places."""
    if isinstance(value, str):
        yield value, path
    elif isinstance(value, Content):
        for name in _FIELDS:
            yield from _find_values(getattr(value, name), [*path, name])
        if value.type == "data" and value.uri:
            yield value.uri.partition(",")[2], [*path, _BYTES]
    elif isinstance(value, Mapping):
        for name, element in cast("Mapping[str, Any]", value).items():
            yield from _find_values(element, [*path, name])
    elif isinstance(value, list):
        yield cast("Any", value), path
        for index, element in enumerate(cast("list[Any]", value)):
            yield from _find_values(element, [*path, index])


def _replace_values(value: Any, paths_by_text: Mapping[str, Any], lists: Sequence[tuple[Any, Any]]) -> Any:
    if isinstance(value, str):
        return {_FROM: paths_by_text[value]} if value in paths_by_text else value
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {name: _replace_values(element, paths_by_text, lists) for name, element in fields.items()}
    if isinstance(value, list):
        elements = cast("list[Any]", value)
        path = next((path for candidate, path in lists if candidate is elements), None)
        if path is not None:
            return {_FROM: path}
        return [_replace_values(element, paths_by_text, lists) for element in elements]
    return value


def decode_references(value: Any, contents: Sequence[Content]) -> Any:
    """Put the values of contents back into a JSON value, which shares them and must not be changed.

    Raises:
        AttributeError, IndexError, KeyError or TypeError: the contents were changed.
    """
    if isinstance(value, list):
        return [decode_references(element, contents) for element in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    if _FROM not in fields:
        return {name: decode_references(element, contents) for name, element in fields.items()}
    path: Any = fields[_FROM]
    if path == _REASONING:
        return "".join(content.text or "" for content in contents if content.type == "text_reasoning")
    found: Any = contents
    for step in path:
        if step == _BYTES:
            found = str(found.uri).partition(",")[2]
        else:
            found = getattr(found, step) if isinstance(found, Content) else found[step]
    if not isinstance(found, str | list):
        raise KeyError(path)
    return cast("Any", found)
