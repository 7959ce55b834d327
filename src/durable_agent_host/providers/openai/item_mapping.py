"""Output items of the Responses API in the neutral contents of a message, and back. Does not use the SDK.

Theory of operation. The provider's finished items (``response.output_item.done``) are matched with the framework's
neutral contents of the same model call. The contents are put into the order of the items, completed where the
framework's stream parser omits data, and the first content of an item gets *item metadata* with the item as the
service sent it. `input_item` returns it in its input form. An item without any content (``mcp_list_tools`` and the
like) is metadata of an empty text, its carrier. Only its position in the output identifies an item of a stream: some
proxies give it another id in every event.

Requests for approval and their responses are carried as items, too. The framework treats both as open in its session,
and drops earlier ones (``_tools.py`` of agent-framework-core 1.23); the API requires those of a replayed history.

Source: ``_parse_chunk_from_openai`` and ``_prepare_message_for_openai`` of agent-framework-openai 1.17, which lose code
outputs, containers, phases and MCP arguments of a stream and omit hosted calls from a replay.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.model.provider_item import ITEM, STAMP, ItemPart
from durable_agent_host.model.response_normalization import with_text_names
from durable_agent_host.providers.adapted_client import unwrap_update
from durable_agent_host.providers.item_metadata import ItemMetadata
from durable_agent_host.providers.lost_state import with_contents
from durable_agent_host.providers.neutral_contents import sdk_json
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


REQUEST: Final = "mcp_approval_request"
RESPONSE: Final = "mcp_approval_response"


def as_history(messages: Sequence[Message]) -> list[Message]:
    """Carry completed approvals as the provider's items, which the framework does not change.

    Returns:
        The messages, with copies of those that contain an approval response or its request.
    """
    contents = [content for message in messages for content in message.contents]
    responded_ids = {content.id for content in contents if content.type == "function_approval_response"}
    if not responded_ids:
        return list(messages)
    return [
        with_contents(message, [_as_item_carrier(content, responded_ids) for content in message.contents])
        for message in messages
    ]


def approval_request_id(content: Content) -> str | None:
    """Return the id of an approval request.

    Returns:
        The request's id, or None if the content is not a request.
    """
    if content.type == "function_approval_request":
        return content.id
    metadata: Mapping[str, Any] = find_item_metadata(content) or {}
    return cast("str | None", metadata.get("id")) if metadata.get("type") == REQUEST else None


def approval_response_id(content: Content) -> str | None:
    """Return the id of the request that an approval response belongs to.

    Returns:
        The request's id, or None if the content is not a response.
    """
    if content.type == "function_approval_response":
        return content.id
    metadata: Mapping[str, Any] = find_item_metadata(content) or {}
    return cast("str", metadata[ITEM]["approval_request_id"]) if metadata.get("type") == RESPONSE else None


def _as_item_carrier(content: Content, responded_ids: set[str | None]) -> Content:
    call = content.function_call
    if call is None or not call.hosted or content.id not in responded_ids:
        return content
    if content.type == "function_approval_response":
        return _carrier({"type": RESPONSE, "approval_request_id": content.id, "approve": content.approved is True})
    if content.type == "function_approval_request" and find_item_metadata(content):
        return _carrier(input_item([content]))
    return content


def _carrier(item: Item) -> Content:
    carrier = Content("text", text="")
    METADATA.attach([carrier], item)
    return carrier


def read_item(update: Any) -> ItemPart | None:
    """Return the item of the output that an update belongs to.

    Only the event ``response.output_item.done`` has an item in full.

    Returns:
        The position, or None for updates of other providers and events without an item.
    """
    event = unwrap_update(update)
    event_type = getattr(event, "type", None)
    position = getattr(event, "output_index", None)
    if not isinstance(event_type, str) or not event_type.startswith("response."):
        return None
    item = getattr(event, "item", None) if event_type in _EVENTS_OF_ITEMS else None
    if position is None:
        position = getattr(item, "id", None) or getattr(event, "item_id", None)
    if not isinstance(position, int | str):
        return None
    if item is not None:
        if event_type.endswith("done"):
            return ItemPart(position, item=plain_item(item))
        return ItemPart(position, first_item_id=str(getattr(item, "id", None) or ""))
    index = _INDEX_FIELDS.get(event_type, "")
    return ItemPart(position, f"{index}:{getattr(event, index, None)}" if index else "")


_EVENTS_OF_ITEMS: Final = frozenset({"response.output_item.added", "response.output_item.done"})
_INDEX_FIELDS: Final = {
    f"response.{event}": index
    for row in ITEM_TYPES.values()
    for index, events in row.streams.items()
    for event in events
}
"""Type of event → the field with the number of the item's part; empty for events about the item as such."""


def plain_item(item: Any) -> dict[str, Any]:
    """Return an item of the SDK as received, without unset fields."""
    return with_text_names(sdk_json(item) if hasattr(item, "model_dump") else item)
