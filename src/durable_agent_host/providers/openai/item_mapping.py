"""Output items of the Responses API in the neutral contents of a message, and back. Does not use the SDK.

Theory of operation. The provider's finished items (``response.output_item.done``) are matched with the framework's
neutral contents of the same model call. The contents are put into the order of the items, completed where the
framework's stream parser omits data, and the first content of an item gets *item metadata*: the item's type and id,
and those of its fields that cannot be rebuilt from the contents. `rebuild_item` is the inverse. An item without any
content (``mcp_list_tools`` and the like) is stored in full as metadata of an empty text, its carrier.

Source: ``_parse_chunk_from_openai`` and ``_prepare_message_for_openai`` of agent-framework-openai 1.17, which lose code
outputs, containers, phases and MCP arguments of a stream and omit hosted calls from a replay.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.model.provider_item import STAMP, is_carrier
from durable_agent_host.providers.item_metadata import ItemMetadata, find_missing_fields, restore_item
from durable_agent_host.providers.openai.content_completion import tidy_open_item
from durable_agent_host.providers.openai.item_rebuild import Item
from durable_agent_host.providers.openai.item_types import ITEM_TYPES, item_type

PROVIDER: Final = "openai"
_METADATA: Final = ItemMetadata(PROVIDER)


def to_input_item(item: Mapping[str, Any]) -> Item:
    """Reduce an output item to what the API accepts as input.

    Returns:
        The fields of the input form, without null fields that are optional.
    """
    if item["type"] not in ITEM_TYPES:
        return dict(item)
    row = ITEM_TYPES[item["type"]]
    fields = {
        name: value
        for name, value in (row.trim(item) if row.trim else item).items()
        if name in row.input_fields and (value is not None or name in row.may_be_null)
    }
    return {"type": item["type"], **fields}


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
    _attach_metadata(group, to_input_item(item))
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


def _attach_metadata(group: Sequence[Content], item: Item) -> None:
    """Mark a group as an item, and store the fields that its contents lack."""
    rebuilt_fields = _rebuild_fields(item["type"], group)
    missing_fields = find_missing_fields(item, rebuilt_fields)
    if item["type"] == "message" and "content" in missing_fields:
        missing_fields |= _annotations_instead_of_content(item, rebuilt_fields)
    _METADATA.attach(
        group,
        item,
        rebuilt_fields,
        {name: v for name, v in missing_fields.items() if name != "content" or v is not None},
    )


def _rebuild_fields(kind: str, group: Sequence[Content]) -> Item:
    """Return an item's fields from its contents; only its type when they are malformed."""
    by_type = {content.type: content for content in reversed(group)}
    rebuild = item_type(kind).rebuild
    try:
        return {"type": kind, **(rebuild(group, by_type) if rebuild else {})}
    except (AttributeError, KeyError, TypeError):
        return {"type": kind}


def _annotations_instead_of_content(item: Item, rebuilt_fields: Item) -> Item:
    """Keep only a message's citations when only they differ, and not the text again."""
    parts = cast("list[Item]", item["content"])
    rebuilt_parts = cast("list[Item]", rebuilt_fields["content"])

    def bare(part: Item) -> Item:
        return {name: value for name, value in part.items() if name not in {"annotations", "logprobs"}}

    if [bare(part) for part in parts] != [bare(part) for part in rebuilt_parts]:
        return {}
    annotations = [cast("list[Item]", part.get("annotations") or []) for part in parts]
    return {"content": None} | (
        {} if annotations == [part.get("annotations", []) for part in rebuilt_parts] else {"cited": annotations}
    )


def rebuild_item(group: Sequence[Content]) -> Item:
    """Rebuild the provider's item from its contents.

    Returns:
        The item in its input form; without ``id`` when the metadata's id is None. It shares values with the contents
        and must not be changed.
    """
    metadata = cast("dict[str, Any]", group[0].additional_properties[STAMP])
    item = restore_item(metadata, _rebuild_fields(metadata["type"], group))
    if (part_annotations := item.pop("cited", None)) and (parts := item.get("content")):
        annotated_parts = [
            part | {"annotations": annotations} for part, annotations in zip(parts, part_annotations, strict=False)
        ]
        item["content"] = [*annotated_parts, *parts[len(annotated_parts) :]]
    return item


find_item_metadata: Final = _METADATA.find
group_by_item: Final = _METADATA.group
split_by_item: Final = _METADATA.runs
