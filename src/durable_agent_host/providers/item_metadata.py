"""Item metadata: which contents of a message represent which item of their provider.

Theory of operation. The first content of an item has *metadata* in its ``additional_properties``: the provider, the
item's type and id, the item as the service sent it, and a fingerprint of the contents that represent it. The other
contents of the item are marked as parts of it. The item is sent back while the contents have that fingerprint; contents
that were changed since are sent as what they say now. What item and contents have in common is stored once
(`codec.shared_text`).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.codec.strict_json import value_at
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.provider_item import ITEM, PART_OF, STAMP


class ItemMetadata:
    """The item metadata of one provider.

    Args:
        provider: its name in the metadata; stored, so it never changes.
    """

    def __init__(self, provider: str) -> None:
        self.provider = provider

    def find(self, content: Content) -> Mapping[str, Any] | None:
        """Return the metadata of a content that starts an item of this provider, or None, also when it is damaged.

        Returns:
            ``type``, ``id`` and the item itself, under `ITEM`.
        """
        stored: Any = content.additional_properties.get(STAMP)
        if not isinstance(stored, dict) or content.type == "function_result":
            return None  # the framework copies the properties of a function's call to its result
        metadata = cast("dict[str, Any]", stored)
        is_own = metadata.get("provider") == self.provider and metadata.get("type")
        return metadata if is_own and value_at(metadata, ITEM, "type") == metadata["type"] else None

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

    def attach(self, group: Sequence[Content], item: Mapping[str, Any]) -> None:
        """Mark contents as an item, in place."""
        identity = {"provider": self.provider, "type": item["type"], "id": item.get("id")}
        for content in group[1:]:
            content.additional_properties = content.additional_properties | {PART_OF: item.get("id")}
        stamp = {**identity, ITEM: dict(item), _FINGERPRINT: fingerprint(group)}
        group[0].additional_properties = group[0].additional_properties | {STAMP: stamp}


_FINGERPRINT: Final = "fingerprint"
"""Key in metadata: of the contents that represent the item."""


def is_edited(group: Sequence[Content]) -> bool:
    """Return whether contents have been changed since they got their item."""
    return group[0].additional_properties[STAMP].get(_FINGERPRINT) != fingerprint(group)


def fingerprint(group: Sequence[Content]) -> str:
    """Return a short name of what a reader sees of contents; call ids are not part of it, as some are random."""
    return derived_id(*(text for content in group for text in _readable_texts(content)))[:16]


_READABLE_FIELDS: Final = (
    *("type", "name", "tool_name", "text", "arguments", "uri", "stdout", "stderr", "commands"),
    *("inputs", "outputs", "output", "result", "annotations"),
)


def _readable_texts(content: Content) -> Iterator[str]:
    for name in _READABLE_FIELDS:
        value: Any = getattr(content, name)
        for element in cast("list[Any]", value) if isinstance(value, list) else (value,):
            if isinstance(element, Content):
                yield from _readable_texts(element)
            elif element is not None:
                text = element if isinstance(element, str) else json.dumps(element, sort_keys=True, default=str)
                yield f"{name} {text}"
