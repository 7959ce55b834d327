"""ItemMetadata: which contents of a message represent which item of their provider, and what they lack of it. Pure.

Theory of operation. The first content of an item has a *stamp* in its ``additional_properties``: the provider, the
item's type and id, and those of its fields that the provider cannot rebuild from the contents. The other contents of
the item are marked as parts of it. So an item is stored once, and restored as the provider wrote it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.model.provider_item import PART_OF, STAMP

_IDENTITY: Final = frozenset({"type", "id"})


class ItemMetadata:
    """The stamps of one provider.

    Args:
        provider: its name in the stamps; stored, so it never changes.
    """

    def __init__(self, provider: str) -> None:
        self.provider = provider

    def find(self, content: Content) -> Mapping[str, Any] | None:
        """Return the stamp of a content that begins an item of this provider, or None. Guarantee: pure.

        Args:
            content: of any type.

        Returns:
            ``type``, ``id`` and the fields that the contents do not have.
        """
        mark = content.additional_properties.get(STAMP)
        is_ours = isinstance(mark, dict) and cast("dict[str, Any]", mark).get("provider") == self.provider
        # The framework copies the properties of a function's call to its result.
        return cast("dict[str, Any]", mark) if is_ours and content.type != "function_result" else None

    def group(self, contents: Iterable[Content]) -> Iterator[list[Content]]:
        """Split contents into items of this provider and single contents that belong to none.

        Guarantee: pure.

        Args:
            contents: of one message, in order.

        Yields:
            Groups in order: a stamped content with its parts, or one content without a stamp.
        """
        group: list[Content] = []
        for content in contents:
            mark = self.find(group[0]) if group else None
            if mark is not None and PART_OF in content.additional_properties:
                group.append(content)
                continue
            if group:
                yield group
            group = [content]
        if group:
            yield group

    def attach(
        self,
        group: Sequence[Content],
        item: Mapping[str, Any],
        rebuilt: Mapping[str, Any],
        lacking: Mapping[str, Any] | None = None,
    ) -> None:
        """Mark contents as an item, in place, and keep the fields that they lack.

        Args:
            group: the item's contents, at least one; a provider whose item has none uses an empty text.
            item: in the form sent back, with ``type`` and, where it has one, ``id``.
            rebuilt: the fields that the provider rebuilds from the contents.
            lacking: the fields to keep, where they are not simply those that differ from ``rebuilt``.
        """
        identity = {"provider": self.provider, "type": item["type"], "id": item.get("id")}
        mark = identity | dict(find_missing_fields(item, rebuilt) if lacking is None else lacking)
        if extra := [name for name in rebuilt if name not in item]:
            mark["without"] = extra
        for content in group[1:]:
            content.additional_properties = content.additional_properties | {PART_OF: item.get("id")}
        group[0].additional_properties = group[0].additional_properties | {STAMP: mark}


def find_missing_fields(item: Mapping[str, Any], rebuilt: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an item that its contents lack. Guarantee: pure.

    Args:
        item: in the form sent back.
        rebuilt: the fields that the provider rebuilds from the contents.
    """
    return {
        name: value
        for name, value in item.items()
        if name not in _IDENTITY and (name not in rebuilt or rebuilt[name] != value)
    }


def restore_item(mark: Mapping[str, Any], rebuilt: Mapping[str, Any]) -> dict[str, Any]:
    """Reassemble an item, the inverse of `ItemMetadata.attach`. Guarantee: pure.

    Args:
        mark: the stamp.
        rebuilt: the fields that the provider rebuilds from the contents.

    Returns:
        The item, without ``id`` when the stamp's is None. It shares values with both, and must not be changed.
    """
    left_out = {"provider", "without"} if mark.get("id") is not None else {"provider", "without", "id"}
    kept = {name: value for name, value in mark.items() if name not in left_out}
    return {name: v for name, v in rebuilt.items() if name not in mark.get("without", ())} | kept
