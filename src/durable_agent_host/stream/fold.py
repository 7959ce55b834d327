"""Fold streamed updates into the final response: however a stream was split, the stored message is the same.

Theory of operation. `Fold` reads each update once and collects the contents in slots. Where the provider knows from the
live update which item of the model's output it belongs to, that item has a slot, so interleaved items are separated and
come out in output order; other contents keep their order of arrival. Within a slot, `fold_content` joins the pieces of
one content. A finished item completes the contents of its slot.

The collected contents have two outputs: finished (`Fold.response`), and as a few updates that another fold can read
instead of the originals (`Fold.pieces`), which makes the fold associative. A finished response can also be turned into
updates (`whole_updates`), which nothing joins.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Protocol, cast

from agent_framework import AgentResponse, AgentResponseUpdate, Content, Message, add_usage_details

from durable_agent_host.model.provider_item import ItemPart
from durable_agent_host.model.usage import known_counts
from durable_agent_host.stream.fold_content import Run, Whole
from durable_agent_host.stream.fold_finish import tidy_contents
from durable_agent_host.stream.fold_message import GatheredMessage

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
                kind, before = cast("type[Any]", type(update)), said
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
            self.state, self.token = state, None
        elif state is None or update.continuation_token is not None:
            self.state, self.token = state, update.continuation_token


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
