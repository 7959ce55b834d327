"""Fold streamed updates into the final response: however a stream was split, the stored message is the same.

Theory of operation. `Fold` reads each update once and collects the contents in slots. Where the provider knows from the
live update which item of the model's output it belongs to, that item has a slot, so interleaved items are separated and
come out in output order; other contents keep their order of arrival. Within a slot, `fold_content` joins the chunks of
one content. A finished item completes the contents of its slot.

A finished response can be turned into updates (`response_as_updates`), which nothing joins.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from operator import attrgetter
from typing import Any, Final, Protocol, cast

from agent_framework import AgentResponse, AgentResponseUpdate, Content, Message, add_usage_details

from durable_agent_host.model.budget import known_counts
from durable_agent_host.model.ending import PAUSE
from durable_agent_host.model.provider_item import PART_OF, STAMP, ItemPart
from durable_agent_host.stream.fold_content import (
    ACCUMULATORS,
    Accumulator,
    CodeRunAccumulator,
    CompleteContent,
    FragmentAccumulator,
)

# One message as its updates are collected: slots for items and for contents between them.

_BY_PART: Final = "text", "function_call"
"""Prefixes of the content types of which an item may have several, one in each part."""


class Slot:
    """Contents of one item, or contents between items."""

    def __init__(self, position: int | str | None) -> None:
        self.position = position
        self.item: Mapping[str, Any] | None = None
        self.parts: list[tuple[str, Accumulator]] = []
        self._accumulators_by_part: dict[tuple[str, str], FragmentAccumulator] = {}

    def add(self, content: Content, part: str) -> None:
        """Add a content of the slot's item: one per type and part, except types that come whole."""
        join = ACCUMULATORS.get(content.type)
        if join is None:
            self.parts.append((part, CompleteContent(content)))
            return
        key = content.type, part if content.type.startswith(_BY_PART) else ""
        accumulator = self._accumulators_by_part.get(key)
        if accumulator is not None:
            accumulator.add(content)
            return
        self._accumulators_by_part[key] = join(content)
        self.parts.append((part, self._accumulators_by_part[key]))


class MessageAccumulator:
    """One message as it is collected."""

    def __init__(self, update: Any) -> None:
        self.role = update.role or "assistant"
        self.author_name: str | None = None
        self.message_id: str | None = None
        self.response_id: str | None = None
        self._restart()

    def _restart(self) -> None:
        self.slots: list[Slot] = []
        self._slots_by_position: dict[int | str, Slot] = {}
        self._accumulators_by_call: dict[tuple[str, str], FragmentAccumulator] = {}
        self._part: ItemPart | None = None

    def accepts(self, update: Any) -> bool:
        """Return whether an update belongs to this message, by the framework's rule, and to the same model call."""
        return not any(
            own_value and update_value and own_value != update_value
            for own_value, update_value in (
                (self.role, update.role),
                (self.response_id, update.response_id),
                (self.message_id, update.message_id),
                (self.author_name, update.author_name),
            )
        )

    def read_names(self, update: Any) -> None:
        """Read the names of an update: author, message, response."""
        self.author_name = update.author_name or self.author_name
        self.message_id = update.message_id or self.message_id
        self.response_id = update.response_id or self.response_id
        if update.merge_mode == "replace":
            self._restart()

    def add(self, contents: Iterable[Content], part: ItemPart | None) -> Sequence[Content]:
        """Add an update's contents.

        Returns:
            The usage contents, which are not part of a message.
        """
        usage: list[Content] = []
        if part != self._part:
            self._part = part
            if part is not None and part.position is not None:
                self._select_item(part, part.position)
        for content in contents:
            if content.type == "usage":
                usage.append(content)
            elif part is not None and part.position is not None:
                self._find_or_add_slot(part.position).add(content, part.part)
            else:
                self._add_unassigned(content, part)
        return usage

    def _select_item(self, part: ItemPart, position: int | str) -> None:
        """Record which item an update belongs to; an item that begins where another has ended gets its own slot."""
        slot = self._find_or_add_slot(position)
        if part.first_item_id is not None and slot.item is not None and slot.item.get("id") != part.first_item_id:
            del self._slots_by_position[position]
            slot = self._find_or_add_slot(position)
        slot.item = part.item or slot.item

    def _find_or_add_slot(self, position: int | str) -> Slot:
        slot = self._slots_by_position.get(position)
        if slot is None:
            slot = self._slots_by_position[position] = Slot(position)
            self.slots.append(slot)
        return slot

    def _add_unassigned(self, content: Content, part: ItemPart | None) -> None:
        if self._repeats_call(content):
            return
        if not self.slots or self.slots[-1].position is not None:
            self.slots.append(Slot(None))
        parts = self.slots[-1].parts
        join = None if part is not None or _is_stamped(content) else ACCUMULATORS.get(content.type)
        if join is None:
            parts.append(("", CompleteContent(content)))
            return
        key = _call_key(content)
        accumulator = (
            self._accumulators_by_call.get(key)
            if key
            else parts[-1][1]
            if parts and parts[-1][1].type == content.type
            else None
        )
        if not isinstance(accumulator, join) or not accumulator.joins(content):
            accumulator = join(content)
            parts.append(("", accumulator))
            if key:
                self._accumulators_by_call[key] = accumulator
        else:
            accumulator.add(content)

    def _repeats_call(self, content: Content) -> bool:
        """Mark the call that the framework repeats at the end of a run, because the app only declares its tool."""
        if content.type != "function_call" or content.arguments or not content.user_input_request:
            return False
        calls = (call for slot in self.slots for _, call in slot.parts if call.type == content.type)
        repeated_call = next((call for call in calls if call.joins(content)), None)
        if repeated_call is not None:
            repeated_call.add(content)
        return repeated_call is not None

    def ordered_slots(self) -> Iterator[Slot]:
        """Yield the slots, those of items in output order; items of unknown position in arrival order."""
        item_slots = iter(sorted((slot for slot in self.slots if slot.position is not None), key=_position))
        for slot in self.slots:
            yield slot if slot.position is None else next(item_slots)


def _position(slot: Slot) -> float:
    return slot.position if isinstance(slot.position, int) else inf


def _is_stamped(content: Content) -> bool:
    properties = content.additional_properties
    return bool(properties) and (STAMP in properties or PART_OF in properties)


def _call_key(content: Content) -> tuple[str, str] | None:
    if content.type.startswith("text"):
        return None
    name = content.id or content.call_id  # calls that the client numbers itself may share a call id
    return (content.type, f"{bool(content.id)}{name}") if name else None


def tidy_contents(contents: Sequence[Content]) -> list[Content]:
    """Drop empty texts, and put results of hosted tools after their calls.

    Returns:
        The other contents in their order, except results that came before their calls.
    """
    return _calls_first([_without_call_identity(content) for content in contents if not _is_empty(content)])


def _is_empty(content: Content) -> bool:
    return content.type == "text" and not content.text and not content.annotations and not content.additional_properties


def _without_call_identity(content: Content) -> Content:
    """Remove the call's identity from its result, where the framework copies the call's properties."""
    if content.type != "function_result" or STAMP not in content.additional_properties:
        return content
    result_copy = copy.copy(content)
    result_copy.additional_properties = {name: v for name, v in content.additional_properties.items() if name != STAMP}
    return result_copy


def _calls_first(contents: list[Content]) -> list[Content]:
    """Put the result of a hosted tool after its call, where a stream emits it before."""
    pending_call_ids = {_hosted_id(call) for call in contents if call.type.endswith("_tool_call")} - {None}
    if not pending_call_ids:
        return contents
    ordered_contents: list[Content] = []
    results_by_call_id: dict[str | None, list[Content]] = {}
    for content in contents:
        name = _hosted_id(content)
        if content.type.endswith("_tool_result") and name in pending_call_ids:
            results_by_call_id.setdefault(name, []).append(content)
            continue
        ordered_contents.append(content)
        if content.type.endswith("_tool_call") and name in pending_call_ids:
            pending_call_ids.discard(name)
            ordered_contents += results_by_call_id.pop(name, [])
    return ordered_contents


def _hosted_id(content: Content) -> str | None:
    return content.call_id or content.image_id


_COMPLETE = ItemPart(None)


class ItemReader(Protocol):
    """A provider's knowledge of its clients' updates."""

    def read_item(self, update: Any, /) -> ItemPart | None:
        """Return the item of the model's output that an update belongs to; None for updates of other providers."""
        del update

    def complete_item(self, contents: list[Content], item: Mapping[str, Any] | None, /) -> list[Content]:
        """Complete an item's contents from its finished form, or tidy them when the item did not finish."""
        del item
        return contents


class _Stream:
    """The collected state of a stream."""

    def __init__(self, updates: Iterable[Any], read_item: Callable[[Any], ItemPart | None]) -> None:
        self.messages: list[MessageAccumulator] = []
        self.usage: Content | None = None
        self.tail: dict[str, Any] = {}
        self.properties: dict[str, Any] | None = None
        self.token: Any = None
        self._has_paused = False
        self._gather(updates, read_item)

    def _gather(self, updates: Iterable[Any], read_item: Callable[[Any], ItemPart | None]) -> None:
        before: Any = None
        for update in updates:
            metadata = _update_metadata(update), getattr(update, "agent_id", None)
            if metadata != before or update.merge_mode == "replace":
                self._read_names(update)
                before = metadata
            raw = update.raw_representation
            part = raw if isinstance(raw, ItemPart) else None if raw is None else read_item(update)
            if (update.contents or part is not None) and (usage := self.messages[-1].add(update.contents, part)):
                self._add_usage(usage)

    def _read_names(self, update: Any) -> None:
        if not self.messages or self._has_paused or not self.messages[-1].accepts(update):
            self.messages.append(MessageAccumulator(update))
        self.messages[-1].read_names(update)
        self._has_paused = update.finish_reason == PAUSE  # what follows is another response, whatever its id
        for name in _TAIL:
            if (value := getattr(update, name, None)) is not None:
                self.tail[name] = value
        if update.additional_properties:
            self.properties = (self.properties or {}) | update.additional_properties
        self._add_operation(update)

    def _add_usage(self, contents: Sequence[Content]) -> None:
        for content in contents:
            counts = cast("Any", known_counts(cast("Any", content.usage_details)))
            if self.usage is None or content.merge_mode == "replace":
                self.usage = CompleteContent(content).content()
                self.usage.usage_details = counts
            else:
                self.usage.usage_details = add_usage_details(self.usage.usage_details, counts)

    def _add_operation(self, update: Any) -> None:
        """Track whether the service still works on it. Source: ``_process_update`` of agent-framework-core 1.23."""
        state = getattr(update, "_operation_state", None)
        if state in {None, "terminal"} or update.continuation_token is not None:
            self.token = None if state == "terminal" else update.continuation_token


_TAIL = "response_id", "agent_id", "created_at", "finish_reason"

_update_metadata = attrgetter(
    *("role", "message_id", "response_id", "author_name", "created_at", "finish_reason", "continuation_token"),
    *("_operation_state", "additional_properties", "merge_mode"),
)


class Fold:
    """The fold of one stream.

    Each update is read once, here, and none is changed.

    Args:
        updates: of an agent or of a chat client, in arrival order, may be empty; the stream may have ended early.
        items: the provider's knowledge of items.
    """

    def __init__(self, updates: Iterable[Any], items: ItemReader) -> None:
        self._items = items
        self._stream = _Stream(updates, items.read_item)

    def response(self) -> AgentResponse[Any]:
        """Return the response, a new one for each call.

        Returns:
            One content per call, complete scripts with their outputs, calls before results, items in output order; no
            live provider objects. What is nested in contents is shared with the updates.
        """
        stream = self._stream
        return AgentResponse(
            messages=[
                message
                for gathered_message in stream.messages
                if (message := fold_message(gathered_message, self._items)).contents
            ],
            usage_details=stream.usage.usage_details if stream.usage is not None else None,
            additional_properties=stream.properties,
            continuation_token=stream.token,
            response_id=stream.tail.get("response_id"),
            agent_id=stream.tail.get("agent_id"),
            created_at=stream.tail.get("created_at"),
            finish_reason=stream.tail.get("finish_reason"),
        )


def fold_updates(updates: Iterable[Any], items: ItemReader) -> AgentResponse[Any]:
    """Fold the updates of a turn, or of one model call, into the response."""
    return Fold(updates, items).response()


def response_as_updates(response: AgentResponse[Any]) -> list[AgentResponseUpdate]:
    """Return a folded response as updates that nothing joins, one for each message."""
    updates = response.to_updates()
    for update in updates:
        update.raw_representation = _COMPLETE
    return updates


def fold_contents(contents: Sequence[Content]) -> list[Content]:
    """Fold the contents of a stored message that was saved chunk by chunk.

    Returns:
        New contents: one for each text, call and script. A script that older clients repeated at its end comes once.
    """
    accumulator = MessageAccumulator(AgentResponseUpdate(role="assistant"))
    accumulator.add(contents, None)
    for slot in accumulator.slots:
        for _, joiner in slot.parts:
            if isinstance(joiner, CodeRunAccumulator):
                joiner.drop_repeat()
    return tidy_contents([joiner.content() for slot in accumulator.slots for _, joiner in slot.parts])


def fold_message(accumulator: MessageAccumulator, items: ItemReader) -> Message:
    """Return the message of what was collected, complete as far as its items are."""
    contents: list[Content] = []
    for slot in accumulator.ordered_slots():
        slot_contents = [joiner.content() for _, joiner in slot.parts]
        contents += slot_contents if slot.position is None else items.complete_item(slot_contents, slot.item)
    return Message(
        accumulator.role,
        tidy_contents(contents),
        author_name=accumulator.author_name,
        message_id=accumulator.message_id,
    )
