"""Output items of the Responses API in the neutral contents of a message, and back. Does not use the SDK.

Theory of operation. The provider's finished items (``response.output_item.done``) are matched with the framework's
neutral contents of the same model call. The contents are put into the order of the items, completed where the
framework's stream parser omits data, and the first content of an item gets *item metadata* with the item as the
service sent it. `input_item` returns it in its input form. An item without any content (``mcp_list_tools`` and the
like) is metadata of an empty text, its carrier.

Source: ``_parse_chunk_from_openai`` and ``_prepare_message_for_openai`` of agent-framework-openai 1.17, which lose code
outputs, containers, phases and MCP arguments of a stream and omit hosted calls from a replay.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.model.provider_item import ITEM, STAMP, is_carrier
from durable_agent_host.providers.item_metadata import ItemMetadata
from durable_agent_host.providers.openai.content_completion import tidy_open_item
from durable_agent_host.providers.openai.item_types import ITEM_TYPES, Item, item_type

PROVIDER: Final = "openai"
METADATA: Final = ItemMetadata(PROVIDER)


def to_input_item(item: Mapping[str, Any]) -> Item:
    """Reduce an output item to what the API accepts as input: without null fields that are optional."""
    row = item_type(item["type"])
    return {
        name: value
        for name, value in (row.trim(item) if row.trim else item).items()
        if name not in row.output_only and (value is not None or name in row.may_be_null)
    }


def attach_items(contents: Iterable[Content], items: Iterable[Mapping[str, Any]]) -> list[Content]:
    """Give the contents of one model call the order and identity of the provider's items.

    Returns:
        The contents in the order of the items, complete, then those that belong to no item.
    """
    remaining = [content for content in contents if not is_carrier(content)]
    ordered_contents: list[Content] = []
    for item in items:
        ordered_contents += complete_item(_pop_contents(remaining, item), item)
    return ordered_contents + remaining


def complete_item(contents: list[Content], item: Mapping[str, Any] | None) -> list[Content]:
    """Complete the contents of one item, and give them its identity.

    Returns:
        The item's contents, with metadata if it is of a known type; an empty text if no content represents it.
    """
    if item is None:
        return tidy_open_item(contents)
    if contents and item.get("type") not in ITEM_TYPES:
        return contents  # the framework knows it
    row = item_type(item.get("type"))
    if row.complete:
        contents = row.complete(item, contents)
    group = contents or [Content("text", text="")]
    METADATA.attach(group, item)
    return group


def _pop_contents(remaining: list[Content], item: Mapping[str, Any]) -> list[Content]:
    """Remove the contents of an item from the remaining ones, and return copies; a message has a text for each part."""
    ids = {item.get("id"), item.get("call_id")} - {None}
    content_types = item_type(item["type"]).matching_content_types
    if item["type"] == "message":
        texts = [content for content in remaining if content.type == "text"]
        item_contents = texts[: len(item.get("content") or ())]
    else:
        item_contents = [
            content
            for content in remaining
            if {content.id, content.call_id, content.image_id} & ids
            and (not content_types or content.type in content_types)
        ]
    if item["type"] == "function_call":
        item_contents = item_contents[:1]  # some services give two calls the same call id
    remaining[:] = [
        content for content in remaining if not any(content is item_content for item_content in item_contents)
    ]
    return [copy.copy(content) for content in item_contents]


def input_item(group: Sequence[Content]) -> Item:
    """Return the provider's item of contents.

    Returns:
        The item in its input form; without ``id`` when the metadata's id is None.
    """
    metadata = cast("dict[str, Any]", group[0].additional_properties[STAMP])
    item = to_input_item(metadata[ITEM])
    if metadata.get("id") is None:
        item.pop("id", None)
    return item


find_item_metadata: Final = METADATA.find
group_by_item: Final = METADATA.group
split_by_item: Final = METADATA.runs
