"""Blocks of a message in neutral contents, and back. Does not use the SDK.

The first content of a block has item metadata, see `providers.stamps`. A container that no call names has an empty text
with metadata of the type ``container``, which is not a block.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.model.provider_item import STAMP
from durable_agent_host.providers.anthropic.assembly import Block
from durable_agent_host.providers.anthropic.block_types import PROVIDER, block_type
from durable_agent_host.providers.anthropic.texts import merge_text, missing_fields, split_text
from durable_agent_host.providers.stamps import ItemMetadata, restore_item

CONTAINER: Final = "container"
_METADATA: Final = ItemMetadata(PROVIDER)

find_item_metadata: Final = _METADATA.find
group_by_item: Final = _METADATA.group


def complete_item(contents: list[Content], item: Mapping[str, Any] | None) -> list[Content]:
    """Make the contents of one position of the output, from its finished blocks.

    Guarantee: pure.

    Args:
        contents: as streamed; returned if the stream ended before the block did.
        item: see `assembly`; None also for items of others.
    """
    if item is None or "blocks" not in item:
        return contents
    blocks = cast("list[Block]", item["blocks"])
    container = cast("Mapping[str, Any] | None", item.get(CONTAINER))
    if not blocks:
        return [_container_carrier(container)] if container else contents
    if blocks[0].get("type") == "text":
        return [_text([*blocks, *_unfinished_text_blocks(contents[len(blocks) :])])]
    group = _to_contents(blocks[0], contents)
    if container:
        group[0].additional_properties |= _container_properties(container)
    return group


def rebuild_blocks(group: Sequence[Content]) -> list[Block]:
    """Rebuild the blocks of a group with metadata for sending: none for a container, several for a text that was cut.

    Guarantee: pure; the blocks share values with the contents, and must not be changed.
    """
    metadata = cast("Block", group[0].additional_properties[STAMP])
    if metadata["type"] == CONTAINER:
        return []
    if metadata["type"] == "text":
        return split_text(group[0], metadata)
    block = restore_item(metadata, _rebuild_fields(metadata["type"], group))
    if metadata["type"] == "tool_use" and not block.get("id"):
        block["id"] = group[0].call_id  # from the framework, for a call that the service never announced
    return [block]


def find_container(contents: Iterable[Content]) -> Mapping[str, Any] | None:
    """Return the container that contents name last, from their properties. Guarantee: pure."""
    properties = None
    for content in contents:
        if find_item_metadata(content) is not None and content.additional_properties.get("container_id"):
            properties = content.additional_properties
    return properties


def _to_contents(block: Block, streamed_contents: Sequence[Content]) -> list[Content]:
    kind = str(block.get("type"))
    if kind == "tool_use" and streamed_contents and streamed_contents[0].type == "function_call":
        group = list(streamed_contents)  # the framework renames some tools and does not change the arguments
    else:
        group = block_type(kind).contents(block)
    _METADATA.attach(group, {"type": kind, **block}, _rebuild_fields(kind, group))
    return group


def _rebuild_fields(kind: str, group: Sequence[Content]) -> Block:
    """Return a block's fields from its contents; only its type when they are malformed."""
    try:
        return {"type": kind, **block_type(kind).rebuild(group)}
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError):
        return {"type": kind}


def _text(blocks: Sequence[Block]) -> Content:
    content = merge_text(blocks)
    item = {"type": "text"}
    _METADATA.attach([content], item, item, missing_fields(blocks, content))
    return content


def _unfinished_text_blocks(contents: Sequence[Content]) -> list[Block]:
    return [{"type": "text", "text": content.text} for content in contents if content.type == "text" and content.text]


def _container_properties(container: Mapping[str, Any]) -> dict[str, Any]:
    expires = {"container_expires_at": container["expires_at"]} if container.get("expires_at") else {}
    other_fields = {
        name: value for name, value in container.items() if name not in {"id", "expires_at"} and value is not None
    }
    return {
        "container_id": container.get("id"),
        **expires,
        **({"container_details": other_fields} if other_fields else {}),
    }


def _container_carrier(container: Mapping[str, Any]) -> Content:
    carrier = Content("text", text="", additional_properties=_container_properties(container))
    _METADATA.attach([carrier], {"type": CONTAINER, "id": container.get("id")}, {"type": CONTAINER})
    return carrier
