"""Maps events of the Responses API to items of the output. Does not use the SDK.

Only its position in the output identifies an item: some proxies give it another id in every event.
"""

from typing import Any, Final

from durable_agent_host.model.provider_item import ItemPart
from durable_agent_host.model.response_normalization import with_text_names
from durable_agent_host.providers.adapted_client import unwrap_update
from durable_agent_host.providers.neutral_contents import sdk_json
from durable_agent_host.providers.openai.item_types import ITEM_TYPES


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
