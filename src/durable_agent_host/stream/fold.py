"""Fold streamed updates into the final response: however a stream was split, the stored message is the same.

Theory of operation. `Fold` reads each update once and collects the contents in slots. Where the provider knows from the
live update which item of the model's output it belongs to, that item has a slot, so interleaved items are separated and
come out in output order; other contents keep their order of arrival. Within a slot, `fold_content` joins the pieces of
one content. A finished item completes the contents of its slot.

The collected contents have two outputs: finished (`Fold.response`), and as a few updates that another fold can read
instead of the originals (`Fold.pieces`), which makes the fold associative. A finished response can also be turned into
updates (`whole_updates`), which nothing joins.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from operator import attrgetter
from typing import Any, Final, Protocol, cast

from agent_framework import AgentResponse, AgentResponseUpdate, Content, Message, add_usage_details

from durable_agent_host.model.budget import known_counts
from durable_agent_host.model.provider_item import PART_OF, STAMP, ItemPart
from durable_agent_host.stream.fold_content import JOINERS, Joiner, Run, Whole

# One message as its updates are collected: slots for items and for contents between them. Pure.
#
# See `fold` for the theory. A piece that continues the one before takes the fast path in `GatheredMessage.add`.

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
            self._part = part
            self._hot = None
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


def tidy_contents(contents: Sequence[Content]) -> list[Content]:
    """Drop empty texts, and put results of hosted tools after their calls.

    Guarantee: pure; doing it again changes nothing.

    Args:
        contents: of one message, joined.

    Returns:
        The other contents in their order, except results that came before their calls.
    """
    return _calls_first([_own(content) for content in contents if not _is_empty(content)])


def _is_empty(content: Content) -> bool:
    return content.type == "text" and not content.text and not content.annotations and not content.additional_properties


def _own(content: Content) -> Content:
    """Remove the call's identity from its result, where the framework copies the call's properties."""
    if content.type != "function_result" or STAMP not in content.additional_properties:
        return content
    own = copy.copy(content)
    own.additional_properties = {name: v for name, v in content.additional_properties.items() if name != STAMP}
    return own


def _calls_first(contents: list[Content]) -> list[Content]:
    """Put the result of a hosted tool after its call, where a stream emits it before."""
    awaited = {_hosted_id(one) for one in contents if one.type.endswith("_tool_call")} - {None}
    if not awaited:
        return contents
    ordered: list[Content] = []
    held: dict[str | None, list[Content]] = {}
    for content in contents:
        name = _hosted_id(content)
        if content.type.endswith("_tool_result") and name in awaited:
            held.setdefault(name, []).append(content)
            continue
        ordered.append(content)
        if content.type.endswith("_tool_call") and name in awaited:
            awaited.discard(name)
            ordered += held.pop(name, [])
    return ordered


def _hosted_id(content: Content) -> str | None:
    return content.call_id or content.image_id


_WHOLE = ItemPart(None)


class ItemReader(Protocol):
    """A provider's knowledge of its clients' updates."""

    def read_item(self, update: Any, /) -> ItemPart | None:
        """Return the item of the model's output that an update belongs to; None for updates of other providers."""
        ...

    def complete_item(self, contents: list[Content], item: Mapping[str, Any] | None, /) -> list[Content]:
        """Complete an item's contents from its finished form, or tidy them when the item did not finish."""
        ...


class _Stream:
    """The collected state of a stream."""

    def __init__(self, updates: Iterable[Any], read_item: Callable[[Any], ItemPart | None]) -> None:
        self.messages: list[GatheredMessage] = []
        self.usage: Content | None = None
        self.tail: dict[str, Any] = {}
        self.properties: dict[str, Any] | None = None
        self.token: Any = None
        self.state: Any = "in_progress"
        self._gather(updates, read_item)

    def _gather(self, updates: Iterable[Any], read_item: Callable[[Any], ItemPart | None]) -> None:
        """Read updates. Most repeat message and response of the one before, so that check comes first."""
        before: tuple[Any, ...] | None = None
        kind: Any = None
        add: Any = None
        role = message_id = response_id = author = created = finish = token = state = properties = agent_id = _NOTHING
        for update in updates:
            if not (
                type(update) is kind
                and update.role is role
                and (update.message_id is message_id or update.message_id == message_id)
                and (update.response_id is response_id or update.response_id == response_id)
                and update.author_name is author
                and (update.created_at is created or update.created_at == created)
                and update.finish_reason is finish
                and update.continuation_token is token
                and update._operation_state is state  # noqa: SLF001 - the framework has no other place for it
                and update.merge_mode is None
                and (not update.additional_properties or update.additional_properties == properties)
                and (kind is not AgentResponseUpdate or update.agent_id is agent_id)
            ):
                said = _said_of_it(update), getattr(update, "agent_id", None)
                if said != before or update.merge_mode == "replace":
                    self._take_names(update)
                add = self.messages[-1].add
                kind = cast("type[Any]", type(update))
                before = said
                (role, message_id, response_id, author, created, finish, token, state, properties, _), agent_id = said
            raw = update.raw_representation
            part = None if raw is None else raw if type(raw) is ItemPart else read_item(update)
            contents = update.contents
            if (contents or part is not None) and (usage := add(contents, part)):
                self._add_usage(usage)

    def _take_names(self, update: Any) -> None:
        if not self.messages or not self.messages[-1].goes_on_with(update):
            self.messages.append(GatheredMessage(update))
        self.messages[-1].take_names(update)
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
                self.usage = Whole(content).content(as_piece=True)
                self.usage.usage_details = counts
            else:
                self.usage.usage_details = add_usage_details(self.usage.usage_details, counts)

    def _add_operation(self, update: Any) -> None:
        """Track whether the service still works on it. Source: ``_process_update`` of agent-framework-core 1.23."""
        state = getattr(update, "_operation_state", None)
        if state == "terminal":
            self.state = state
            self.token = None
        elif state is None or update.continuation_token is not None:
            self.state = state
            self.token = update.continuation_token


_TAIL = "response_id", "agent_id", "created_at", "finish_reason"

_NOTHING: Any = object()

_said_of_it = attrgetter(
    *("role", "message_id", "response_id", "author_name", "created_at", "finish_reason", "continuation_token"),
    *("_operation_state", "additional_properties", "merge_mode"),
)


class Fold:
    """The fold of one stream, or of an adjacent part of one.

    Guarantee: pure and linear; each update is read once, here, and none is changed.

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
            messages=[message for one in stream.messages if (message := _finish(one, self._items)).contents],
            usage_details=stream.usage.usage_details if stream.usage is not None else None,
            additional_properties=stream.properties,
            continuation_token=stream.token,
            **{name: stream.tail.get(name) for name in _TAIL},
        )

    def pieces(self) -> list[AgentResponseUpdate]:
        """Return a few updates that another fold can read instead of the originals.

        Guarantee: folding ``[*Fold(a).pieces(), *Fold(b).pieces()]`` gives what folding ``[*a, *b]`` gives.

        Returns:
            New updates, one for each part of an item with content; without live provider objects.
        """
        stream = self._stream
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


def fold_updates(updates: Iterable[Any], items: ItemReader) -> AgentResponse[Any]:
    """Fold the updates of a turn, or of one model call, into the response.

    Guarantee: as `Fold`; splitting the stream differently, folding parts of it first (`fold_part`), or folding what is
    folded already (`whole_updates`) gives the same response.

    Args:
        updates: as for `Fold`.
        items: the provider's knowledge of items.

    Returns:
        As `Fold.response`.
    """
    return Fold(updates, items).response()


def fold_part(updates: Iterable[Any], items: ItemReader) -> list[AgentResponseUpdate]:
    """Fold a part of a stream, such as one batch of a log, into few updates.

    Args:
        updates: adjacent ones of one stream, in arrival order, live or folded.
        items: the provider's knowledge of items.

    Returns:
        As `Fold.pieces`.
    """
    return Fold(updates, items).pieces()


def whole_updates(response: AgentResponse[Any]) -> list[AgentResponseUpdate]:
    """Return a folded response as updates that nothing joins, one for each message.

    Guarantee: pure; folding them gives the response.

    Args:
        response: of a fold, or read back from a store.

    Returns:
        At least one update.
    """
    updates = response.to_updates()
    for update in updates:
        update.raw_representation = _WHOLE
    return updates


def fold_contents(contents: Sequence[Content]) -> list[Content]:
    """Fold the contents of a stored message that was saved chunk by chunk.

    Guarantee: pure; folded contents come back equal.

    Args:
        contents: of a message; may have lost their merge modes on the way to a store.

    Returns:
        New contents: one for each text, call and script. A script that older clients repeated at its end comes once.
    """
    gathered = GatheredMessage(AgentResponseUpdate(role="assistant"))
    gathered.add(contents, None)
    for slot in gathered.slots:
        for _, joiner in slot.parts:
            if isinstance(joiner, Run):
                joiner.drop_repeat()
    return tidy_contents([joiner.content() for slot in gathered.slots for _, joiner in slot.parts])


def _finish(gathered: GatheredMessage, items: ItemReader) -> Message:
    contents: list[Content] = []
    for slot in gathered.ordered():
        mine = [joiner.content() for _, joiner in slot.parts]
        contents += mine if slot.place is None else items.complete_item(mine, slot.item)
    return Message(
        gathered.role, tidy_contents(contents), author_name=gathered.author_name, message_id=gathered.message_id
    )


def _as_pieces(gathered: GatheredMessage) -> Iterator[AgentResponseUpdate]:
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
        if slot.begins is not None:
            groups.append((ItemPart(slot.place, begins=slot.begins), []))
        groups += [(ItemPart(slot.place, part), contents) for part, contents in known.items()]
        if slot.item is not None or not known:
            groups.append((ItemPart(slot.place, item=slot.item), []))
    if not gathered.begins_with_id or not groups:
        groups.append((None, []))  # a service may use another id at the end than at the start
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
