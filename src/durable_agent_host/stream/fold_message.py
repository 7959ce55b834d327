"""One message as its updates are collected: slots for items and for contents between them. Pure.

See `fold` for the theory. A piece that continues the one before takes the fast path in `GatheredMessage.add`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.model.provider_item import PART_OF, STAMP, ItemPart
from durable_agent_host.stream.fold_content import JOINERS, Joiner, Whole

_BY_PART: Final = "text", "function_call"
"""Prefixes of the content types of which an item may have several, one in each part."""


class Slot:
    """Contents of one item, or contents between items."""

    def __init__(self, place: int | str | None) -> None:
        self.place = place
        self.begins: str | None = None
        self.item: Mapping[str, Any] | None = None
        self.parts: list[tuple[str, Joiner]] = []
        self._by_part: dict[tuple[str, str], Joiner] = {}

    def add(self, content: Content, part: str) -> Joiner | None:
        """Add a content of the slot's item: one per type and part, except types that come whole.

        Returns:
            The joiner of the next content of its type and part, or None.
        """
        join = JOINERS.get(content.type)
        if join is None:
            self.parts.append((part, Whole(content)))
            return None
        key = content.type, part if content.type.startswith(_BY_PART) else ""
        known = self._by_part.get(key)
        if known is not None:
            known.add(content)
            return known
        made = self._by_part[key] = join(content)
        self.parts.append((part, made))
        return made


class GatheredMessage:
    """One message as it is collected."""

    def __init__(self, update: Any) -> None:
        self.role = update.role or "assistant"
        self.author_name: str | None = None
        self.message_id: str | None = None
        self.response_id: str | None = None
        self.begins_with_id = bool(update.response_id)
        self.replaces = False
        self._restart()

    def _restart(self) -> None:
        self.slots: list[Slot] = []
        self._by_place: dict[int | str, Slot] = {}
        self._places: dict[str, int | str] = {}
        self._by_call: dict[tuple[str, str], Joiner] = {}
        self._part: ItemPart | None = None
        self._hot: Joiner | None = None

    def goes_on_with(self, update: Any) -> bool:
        """Return whether an update belongs to this message, by the framework's rule, and to the same model call."""
        return not any(
            mine and theirs and mine != theirs
            for mine, theirs in (
                (self.role, update.role),
                (self.response_id, update.response_id),
                (self.message_id, update.message_id),
                (self.author_name, update.author_name),
            )
        )

    def take_names(self, update: Any) -> None:
        """Read the names of an update: author, message, response."""
        self.author_name = update.author_name or self.author_name
        self.message_id = update.message_id or self.message_id
        self.response_id = update.response_id or self.response_id
        if update.merge_mode == "replace":
            self.replaces = True
            self._restart()

    def add(self, contents: Iterable[Content], part: ItemPart | None) -> Sequence[Content]:
        """Add an update's contents; those that continue the previous piece take the fast path.

        Returns:
            The usage contents, which are not part of a message.
        """
        usage: Sequence[Content] = ()
        if part is not self._part:
            self._part, self._hot = part, None
            if part is not None and part.place is not None:
                self._turn_to(part, part.place)
        hot = self._hot
        for content in contents:
            kind = content.type
            if (
                hot is not None
                and hot.type == kind
                and (
                    part is not None
                    or (hot.is_plain and content.id is None and not content.additional_properties)
                    or (not _is_stamped(content) and hot.joins(content))
                )
            ):
                hot.add(content)
            elif kind == "usage":
                usage = [*usage, content]
            elif part is not None and part.place is not None:
                hot = self._slot_of(part.place).add(content, part.part)
            else:
                hot = self._add_loose(content, part)
        self._hot = hot
        return usage

    def _turn_to(self, part: ItemPart, place: int | str) -> None:
        """Record which item an update belongs to; an item that begins where another has ended gets its own slot."""
        slot = self._slot_of(place)
        if part.begins is not None:
            if slot.item is not None and slot.item.get("id") != part.begins:
                del self._by_place[place]
                slot = self._slot_of(place)
            slot.begins = part.begins
            self._places[part.begins] = place  # events of the item may carry only its id
        slot.item = part.item or slot.item

    def _slot_of(self, place: int | str) -> Slot:
        place = self._places.get(place, place) if isinstance(place, str) else place
        slot = self._by_place.get(place)
        if slot is None:
            slot = self._by_place[place] = Slot(place)
            self.slots.append(slot)
        return slot

    def _add_loose(self, content: Content, part: ItemPart | None) -> Joiner | None:
        if (told := self._told_before(content)) is not None:
            told.add(content)
            return None
        if not self.slots or self.slots[-1].place is not None:
            self.slots.append(Slot(None))
        parts = self.slots[-1].parts
        join = None if part is not None or _is_stamped(content) else JOINERS.get(content.type)
        if join is None:
            parts.append(("", Whole(content)))
            return None
        key = _call_key(content)
        known = self._by_call.get(key) if key else parts[-1][1] if parts and parts[-1][1].type == content.type else None
        if known is None or not known.joins(content):
            known = join(content)
            parts.append(("", known))
            if key:
                self._by_call[key] = known
        else:
            known.add(content)
        return known if key is None and content.type != "function_call" else None

    def _told_before(self, content: Content) -> Joiner | None:
        """Return the call that the framework repeats at the end of a run, because the app only declares its tool."""
        if content.type != "function_call" or content.arguments or not content.user_input_request:
            return None
        calls = (joiner for slot in self.slots for _, joiner in slot.parts if joiner.type == "function_call")
        return next((call for call in calls if call.joins(content)), None)

    def ordered(self) -> Iterator[Slot]:
        """Yield the slots, those of items in output order; items of unknown position in arrival order."""
        placed = iter(sorted((slot for slot in self.slots if slot.place is not None), key=_position))
        for slot in self.slots:
            yield slot if slot.place is None else next(placed)


def _position(slot: Slot) -> float:
    return slot.place if isinstance(slot.place, int) else inf


def _is_stamped(content: Content) -> bool:
    properties = content.additional_properties
    return bool(properties) and (STAMP in properties or PART_OF in properties)


def _call_key(content: Content) -> tuple[str, str] | None:
    if content.type.startswith("text"):
        return None
    call_id = content.call_id
    if not call_id and content.type != "function_call":
        properties = content.additional_properties
        blocks = (cast("Mapping[str, Any]", one) for one in properties.values() if isinstance(one, Mapping))
        call_id = next((found for one in blocks if (found := one.get("item_id"))), None) or properties.get("item_id")
    name = content.id or call_id  # calls that the client numbers itself may share a call id
    return (content.type, f"{bool(content.id)}{name}") if name else None
