"""Item metadata: which contents of a message represent which item of their provider, and the fields that they lack.

Theory of operation. The first content of an item has *metadata* in its ``additional_properties``: the provider, the
item's type and id, and those of its fields that the provider cannot rebuild from the contents. The other contents of
the item are marked as parts of it. So an item is stored once, and restored verbatim.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
