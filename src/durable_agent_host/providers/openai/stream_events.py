"""Maps events of the Responses API to items of the output. Does not use the SDK.

Only its position in the output identifies an item: some proxies give it another id in every event. Nearly all events
are deltas, so those in the rows of `item_types` are looked up and not parsed.
"""

from typing import Any, Final

from agent_framework import AgentResponseUpdate, ChatResponseUpdate

from durable_agent_host.model.provider_item import ItemPart
from durable_agent_host.model.response_normalization import with_text_names
from durable_agent_host.providers.openai.item_mapping import complete_item
from durable_agent_host.providers.openai.item_types import ITEM_TYPES


def read_item(update: Any) -> ItemPart | None:
    """Return the item of the output that an update belongs to.

    Only the event ``response.output_item.done`` has an item in full.

    Guarantee: pure.

    Args:
        update: of the chat client or the agent, unchanged.

    Returns:
        The position, or None for updates of other providers and events without an item.
    """
    event: Any = update.raw_representation
    if event.__class__ is ChatResponseUpdate:  # an agent's update wraps the client's
        event = event.raw_representation
    if _IS_UNTYPED[event.__class__]:
        return None
    try:
        kind: Any = event.type
        if (position := event.output_index) is not None and (index := _INDEX_FIELDS.get(kind)) is not None:
            return _PARTS[index][position, getattr(event, index) if index else None]
    except (AttributeError, TypeError):
        pass  # an event of another kind
    while type(event) in _UPDATES:
        event = event.raw_representation
    return _read_event(event)


_UPDATES: Final = frozenset({ChatResponseUpdate, AgentResponseUpdate})

_EVENTS_OF_ITEMS: Final = frozenset({"response.output_item.added", "response.output_item.done"})
_INDEX_FIELDS: Final = {
    f"response.{event}": index
    for row in ITEM_TYPES.values()
    for index, events in row.streams.items()
    for event in events
}
"""Type of event → the field with the number of the item's part; empty for events about the item as such."""


def _read_event(event: Any) -> ItemPart | None:
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
    return _PARTS[index][position, getattr(event, index, None) if index else None]


class _ModelClassCache(dict[type[Any], bool]):
    """Class of the SDK's models → whether it has no type, like Chat Completions chunks: the lookup is slow."""

    def __missing__(self, kind: type[Any]) -> bool:
        fields = getattr(kind, "model_fields", None)
        self[kind] = is_untyped = fields is not None and "type" not in fields
        return is_untyped


class _Parts(dict[tuple[int | str, int | None], ItemPart]):
    """Item and part in it → the same object for every event about it, so that the fold recognizes continuations."""

    def __init__(self, index: str) -> None:
        super().__init__()
        self._index = index

    def __missing__(self, key: tuple[int | str, int | None]) -> ItemPart:
        if len(self) >= _MAX_PARTS:
            self.clear()
        part = self[key] = ItemPart(key[0], f"{self._index}:{key[1]}" if self._index else "")
        return part


_IS_UNTYPED: Final = _ModelClassCache()
_MAX_PARTS: Final = 4096
_PARTS: Final = {index: _Parts(index) for index in {"", *_INDEX_FIELDS.values()}}


class ResponsesItemReader:
    """Reads and completes items of the Responses API, for the fold."""

    read_item = staticmethod(read_item)
    complete_item = staticmethod(complete_item)


ITEMS: Final = ResponsesItemReader()


def plain_item(item: Any) -> dict[str, Any]:
    """Return an item of the SDK as received, without unset fields. Guarantee: pure.

    Args:
        item: a model of the SDK, or a dictionary.

    Returns:
        JSON values.
    """
    if not callable(dump := getattr(item, "model_dump", None)):
        return with_text_names(item)
    # Providers send kinds that the SDK does not know yet, and pydantic would warn of them; the SDK's ``async_`` is the
    # provider's ``async``.
    plain: Any = dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    return with_text_names(plain)
