"""Streamed updates to the final response: however a stream was cut, the stored message is the same.

Theory of operation. One pass gathers the contents of the updates into slots. Where a provider adapter can tell from the
live update which item of the model's output it belongs to, that item has a slot, so that interleaved items come apart
and come out in the order of the output; other contents stand in the order in which they came. In a slot the pieces of
one content are joined (`pieces`). At the end a finished item completes the contents of its slot.

Gathering is separate from finishing, which is why parts can be folded first: `fold_part` gathers, and gives out what it
gathered as updates, one for each slot's part, that can be gathered again. A response that is finished has a form as
updates, too (`whole_updates`); nothing joins those.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Protocol, cast

from agent_framework import AgentResponse, AgentResponseUpdate, Content, Message, add_usage_details

from durable_agent_host.model.provider_item import PART_OF, STAMP, ItemPart
from durable_agent_host.turns.pieces import JOINERS, Joiner, Run, Whole
from durable_agent_host.turns.tidy import tidy_contents

_WHOLE = ItemPart(None)


class ItemReader(Protocol):
    """What a provider adapter knows of the updates of its clients."""

    def read_item(self, update: Any, /) -> ItemPart | None:
        """Tell to which item of the model's output an update belongs; None for updates of other providers."""
        ...

    def complete_item(self, contents: list[Content], item: Mapping[str, Any] | None, /) -> list[Content]:
        """Complete the contents of an item by its finished form, or tidy them when it was not finished."""
        ...


class _Slot:
    """Contents of one item, or contents that stand between items."""

    def __init__(self, place: int | None) -> None:
        self.place = place
        self.item: Mapping[str, Any] | None = None
        self.parts: list[tuple[str, Joiner]] = []
        self._by_part: dict[tuple[str, str], Joiner] = {}

    def add(self, content: Content, part: str) -> Joiner | None:
        """Add a content of the slot's item: of each type one for each part, except those that come whole.

        Returns:
            What joins the next content of its type and part, or None.
        """
        join = JOINERS.get(content.type)
        if join is None:
            self.parts.append((part, Whole(content)))
            return None
        key = content.type, part if content.type.startswith("text") else ""
        known = self._by_part.get(key)
        if known is not None:
            known.add(content)
            return known
        made = self._by_part[key] = join(content)
        self.parts.append((part, made))
        return made


class _Gathered:
    """One message while it is gathered."""

    def __init__(self, update: Any) -> None:
        self.role = update.role or "assistant"
        self.author_name: str | None = None
        self.message_id: str | None = None
        self.response_id: str | None = None
        self.begins_with_id = bool(update.response_id)
        self.replaces = False
        self._restart()

    def _restart(self) -> None:
        self.slots: list[_Slot] = []
        self._by_place: dict[int, _Slot] = {}
        self._by_call: dict[tuple[str, str], Joiner] = {}
        self._part: ItemPart | None = None
        self._hot: Joiner | None = None

    def goes_on_with(self, update: Any) -> bool:
        """Tell whether an update is of this message, by the rule of the framework, and of the same model call."""
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
        """Take what an update says of the message."""
        self.author_name = update.author_name or self.author_name
        self.message_id = update.message_id or self.message_id
        self.response_id = update.response_id or self.response_id
        if update.merge_mode == "replace":
            self.replaces = True
            self._restart()

    def add(self, contents: Iterable[Content], part: ItemPart | None) -> Sequence[Content]:
        """Add an update's contents; what goes on with the piece before takes the short way.

        Returns:
            The contents that tell of usage: they are no part of a message.
        """
        usage: Sequence[Content] = ()
        if part is not self._part:
            self._part, self._hot = part, None
            if part is not None and part.place is not None:
                slot = self._slot_of(part.place)
                slot.item = part.item or slot.item
        hot = self._hot
        for content in contents:
            if hot is not None and hot.type == content.type and (part is not None or _goes_on(hot, content)):
                hot.add(content)
            elif content.type == "usage":
                usage = [*usage, content]
            elif part is not None and part.place is not None:
                hot = self._slot_of(part.place).add(content, part.part)
            else:
                hot = self._add_loose(content, part)
        self._hot = hot
        return usage

    def _slot_of(self, place: int) -> _Slot:
        slot = self._by_place.get(place)
        if slot is None:
            slot = self._by_place[place] = _Slot(place)
            self.slots.append(slot)
        return slot

    def _add_loose(self, content: Content, part: ItemPart | None) -> Joiner | None:
        if (told := self._told_before(content)) is not None:
            told.add(content)
            return None
        if not self.slots or self.slots[-1].place is not None:
            self.slots.append(_Slot(None))
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
        """Find the call that the framework tells of again at the end of a run, since the app only declares its tool."""
        if content.type != "function_call" or content.arguments or not content.user_input_request:
            return None
        calls = (joiner for slot in self.slots for _, joiner in slot.parts if joiner.type == "function_call")
        return next((call for call in calls if call.joins(content)), None)

    def ordered(self) -> Iterator[_Slot]:
        """Give the slots, those of items in the order of the output."""
        placed = iter(sorted(self._by_place.values(), key=lambda slot: cast("int", slot.place)))
        for slot in self.slots:
            yield slot if slot.place is None else next(placed)


def _goes_on(joiner: Joiner, content: Content) -> bool:
    if not content.additional_properties:
        return (content.id is None and joiner.is_plain) or joiner.joins(content)
    return not _is_stamped(content) and joiner.joins(content)


def _is_stamped(content: Content) -> bool:
    properties = content.additional_properties
    return bool(properties) and (STAMP in properties or PART_OF in properties)


def _call_key(content: Content) -> tuple[str, str] | None:
    if content.type.startswith("text"):
        return None
    call_id = content.call_id
    if not call_id and content.type != "function_call":
        nested: Any = content.additional_properties.get("openai")
        call_id = cast("Mapping[str, Any]", nested).get("item_id") if isinstance(nested, Mapping) else None
        call_id = call_id or content.additional_properties.get("item_id")
    name = content.id or call_id  # calls that the client numbers itself may share a call id
    return (content.type, f"{bool(content.id)}{name}") if name else None


class _Stream:
    """A stream while it is gathered."""

    def __init__(self, updates: Iterable[Any], read_item: Callable[[Any], ItemPart | None]) -> None:
        self.messages: list[_Gathered] = []
        self.usage: Content | None = None
        self.tail: dict[str, Any] = {}
        self.properties: dict[str, Any] | None = None
        self.token: Any = None
        self.state: Any = None
        before: tuple[Any, ...] | None = None
        for update in updates:
            said = _said_of_it(update)
            if said != before:  # most updates say nothing of message and response that the one before did not
                self._take_names(update)
                before = said if update.merge_mode != "replace" else None
            raw = update.raw_representation
            part = None if raw is None else raw if type(raw) is ItemPart else read_item(update)
            contents = update.contents
            if (contents or part is not None) and (usage := self.messages[-1].add(contents, part)):
                self._add_usage(usage)

    def _take_names(self, update: Any) -> None:
        if not self.messages or not self.messages[-1].goes_on_with(update):
            self.messages.append(_Gathered(update))
        self.messages[-1].take_names(update)
        for name in _TAIL:
            if (value := getattr(update, name, None)) is not None:
                self.tail[name] = value
        if update.additional_properties:
            self.properties = (self.properties or {}) | update.additional_properties
        self._add_operation(update)

    def _add_usage(self, contents: Sequence[Content]) -> None:
        for content in contents:
            if self.usage is None or content.merge_mode == "replace":
                self.usage = Whole(content).content(as_piece=True)
            else:
                self.usage.usage_details = add_usage_details(self.usage.usage_details, content.usage_details)

    def _add_operation(self, update: Any) -> None:
        """Follow whether the service still works at it. Source: ``_process_update`` of agent-framework-core 1.23."""
        state = getattr(update, "_operation_state", None)
        self.state = state or self.state
        if state == "terminal":
            self.token = None
        elif state is None or update.continuation_token is not None:
            self.token = update.continuation_token


_TAIL = "response_id", "agent_id", "created_at", "finish_reason"

_said_of_it = attrgetter(
    *("role", "message_id", "response_id", "author_name", "merge_mode", "created_at", "finish_reason"),
    *("continuation_token", "additional_properties", "_operation_state"),
)


def fold_updates(updates: Iterable[Any], items: ItemReader) -> AgentResponse[Any]:
    """Fold the updates of a turn, or of one model call, into the response.

    Guarantee: pure and linear; cutting the stream into other pieces, folding parts of it first (`fold_part`), or
    folding what is folded already (`whole_updates`) gives the same response. The updates are not changed.

    Args:
        updates: of an agent or of a chat client, in arrival order, may be empty; the stream may have ended early.
        items: what the provider's adapter knows.

    Returns:
        The response: one content a call, the complete script with its outputs, calls before results, items in the order
        of the model's output; no live provider objects on it. What is nested in contents is shared with the updates.
    """
    stream = _Stream(updates, items.read_item)
    response: AgentResponse[Any] = AgentResponse(
        messages=[message for one in stream.messages if (message := _finish(one, items)).contents],
        usage_details=stream.usage.usage_details if stream.usage is not None else None,
        additional_properties=stream.properties,
        continuation_token=stream.token,
        **{name: stream.tail.get(name) for name in _TAIL},
    )
    return response


def fold_part(updates: Iterable[Any], items: ItemReader) -> list[AgentResponseUpdate]:
    """Fold a part of a stream, such as what one batch of a log has, into few updates.

    Guarantee: pure; ``fold_updates([*fold_part(a), *fold_part(b)])`` is ``fold_updates([*a, *b])``.

    Args:
        updates: neighbours of one stream, in arrival order, live or folded.
        items: what the provider's adapter knows.

    Returns:
        One update for each part of an item that has something; without live provider objects.
    """
    stream = _Stream(updates, items.read_item)
    folded = [update for one in stream.messages for update in _as_pieces(one)]
    if not folded:
        return []
    tail = folded[-1]
    for name in ("agent_id", "created_at", "finish_reason"):
        setattr(tail, name, stream.tail.get(name))
    tail.additional_properties = stream.properties
    if stream.usage is not None:
        tail.contents = [*tail.contents, stream.usage]
    for update in folded:
        update.continuation_token = stream.token
        setattr(update, "_operation_state", stream.state)  # noqa: B010 - the framework has no other place for it
    return folded


def whole_updates(response: AgentResponse[Any]) -> list[AgentResponseUpdate]:
    """Give a folded response as updates that nothing joins, one for each message.

    Guarantee: pure; folding them gives the response.

    Args:
        response: of `fold_updates`, or read back from where it was stored.

    Returns:
        At least one update.
    """
    updates = response.to_updates()
    for update in updates:
        update.raw_representation = _WHOLE
    return updates


def fold_contents(contents: Sequence[Content]) -> list[Content]:
    """Fold the contents of one stored message that was saved chunk by chunk.

    Guarantee: pure; folded contents come back equal.

    Args:
        contents: of a message; may have lost their merge modes on the way to a store.

    Returns:
        New contents: one for each text, call and script. A script that the chunks say twice, as older clients ended
        it, is there once.
    """
    gathered = _Gathered(AgentResponseUpdate(role="assistant"))
    gathered.add(contents, None)
    for slot in gathered.slots:
        for _, joiner in slot.parts:
            if isinstance(joiner, Run):
                joiner.drop_repeat()
    return tidy_contents([joiner.content() for slot in gathered.slots for _, joiner in slot.parts])


def _finish(gathered: _Gathered, items: ItemReader) -> Message:
    contents: list[Content] = []
    for slot in gathered.ordered():
        mine = [joiner.content() for _, joiner in slot.parts]
        contents += mine if slot.place is None else items.complete_item(mine, slot.item)
    return Message(
        gathered.role, tidy_contents(contents), author_name=gathered.author_name, message_id=gathered.message_id
    )


def _as_pieces(gathered: _Gathered) -> Iterator[AgentResponseUpdate]:
    groups: list[tuple[ItemPart | None, list[Content]]] = []
    if gathered.replaces:
        groups.append((None, []))
    for slot in gathered.slots:
        known: dict[str, list[Content]] = {}
        for part, joiner in slot.parts:
            known.setdefault(part, []).append(joiner.content(as_piece=True))
        if slot.place is None:
            for _, joiner in slot.parts:
                groups.append((_WHOLE if isinstance(joiner, Whole) else None, [joiner.content(as_piece=True)]))
            continue
        groups += [(ItemPart(slot.place, part), contents) for part, contents in known.items()]
        if slot.item is not None or not known:
            groups.append((ItemPart(slot.place, item=slot.item), []))
    if not gathered.begins_with_id or not groups:
        groups.append((None, []))  # a service may give another id at the end than at the start
    for number, (part, contents) in enumerate(groups):
        yield AgentResponseUpdate(
            contents=contents,
            role=gathered.role,
            author_name=gathered.author_name,
            message_id=gathered.message_id,
            response_id=gathered.response_id if gathered.begins_with_id or number + 1 == len(groups) else None,
            merge_mode="replace" if gathered.replaces and not number else None,
            raw_representation=part,
        )
