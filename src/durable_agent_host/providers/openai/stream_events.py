"""Maps events of the Responses API to items of the output. Pure; needs no SDK.

Only its position in the output identifies an item: some proxies give it another id in every event. Nearly all events
are deltas, so those in the rows of `item_types` are looked up and not parsed.
"""

from typing import Any, Final

from agent_framework import AgentResponseUpdate, ChatResponseUpdate

from durable_agent_host.model.provider_item import ItemPart
from durable_agent_host.model.text_names import with_text_names
from durable_agent_host.providers.openai.item_types import ITEM_TYPES
from durable_agent_host.providers.openai.items import complete_item


def read_item(update: Any) -> ItemPart | None:
    """Return the item of the output that an update belongs to.

    Only the event ``response.output_item.done`` has an item in full.

    Guarantee: pure.

    Args:
        update: of the chat client or the agent, unchanged.

    Returns:
        The place, or None for updates of other providers and events without an item.
    """
    event: Any = update.raw_representation
    if event.__class__ is ChatResponseUpdate:  # an agent's update wraps the client's
        event = event.raw_representation
    if _OTHERS[event.__class__]:
        return None
    try:
        kind: Any = event.type
        if (place := event.output_index) is not None and (index := _INDEX_OF.get(kind)) is not None:
            return _PARTS[index][place, getattr(event, index) if index else None]
    except (AttributeError, TypeError):
        pass  # an event of another kind
    while type(event) in _UPDATES:
        event = event.raw_representation
    return _read_event(event)


_UPDATES: Final = frozenset({ChatResponseUpdate, AgentResponseUpdate})

_EVENTS_OF_ITEMS: Final = frozenset({"response.output_item.added", "response.output_item.done"})
_INDEX_OF: Final = {
    f"response.{event}": index
    for row in ITEM_TYPES.values()
    for index, events in row.streams.items()
    for event in events
}
"""Type of event → the field with the number of the item's part; empty for events about the item as such."""


def _read_event(event: Any) -> ItemPart | None:
    kind, place = getattr(event, "type", None), getattr(event, "output_index", None)
    if not isinstance(kind, str) or not kind.startswith("response."):
        return None
    item = getattr(event, "item", None) if kind in _EVENTS_OF_ITEMS else None
    if place is None:
        place = getattr(item, "id", None) or getattr(event, "item_id", None)
    if not isinstance(place, int | str):
        return None
    if item is not None:
        if kind.endswith("done"):
            return ItemPart(place, item=plain_item(item))
        return ItemPart(place, begins=str(getattr(item, "id", None) or ""))
    index = _INDEX_OF.get(kind, "")
    return _PARTS[index][place, getattr(event, index, None) if index else None]


class _Others(dict[type[Any], bool]):
    """Class of the SDK's models → whether it has no type, like Chat Completions chunks: looking for it is slow."""

    def __missing__(self, kind: type[Any]) -> bool:
        fields = getattr(kind, "model_fields", None)
        self[kind] = is_other = fields is not None and "type" not in fields
        return is_other


class _Parts(dict[tuple[int | str, int | None], ItemPart]):
    """Item and part in it → the same object for every event about it, so that the fold recognizes continuations."""

    def __init__(self, index: str) -> None:
        super().__init__()
        self._index = index

    def __missing__(self, place: tuple[int | str, int | None]) -> ItemPart:
        if len(self) >= _MOST_PARTS:
            self.clear()
        made = self[place] = ItemPart(place[0], f"{self._index}:{place[1]}" if self._index else "")
        return made


_OTHERS: Final = _Others()
_MOST_PARTS: Final = 4096
_PARTS: Final = {index: _Parts(index) for index in {"", *_INDEX_OF.values()}}


class ItemsOfResponses:
    """Reads and completes items of the Responses API, for the fold."""

    read_item = staticmethod(read_item)
    complete_item = staticmethod(complete_item)


ITEMS: Final = ItemsOfResponses()


def plain_item(item: Any) -> dict[str, Any]:
    """Return an item of the SDK as the provider wrote it, without fields that it left out. Guarantee: pure.

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
