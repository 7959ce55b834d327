"""What one run of an agent has streamed so far, each update read once.

Theory of operation. A model call is folded when its stream ends: the fold gives the response that is journaled. The
agent passes the call's updates on to the runner, usually unchanged; the response then replaces them here, so later
uses (the answer's requests for approval, the turn's response) read its messages instead of the updates. Updates
that the app's middleware has changed stay as changed, without the provider's items, which have what the model said;
those of a call that was cut off stay unchanged.
"""

from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, cast

from agent_framework import AgentResponse, AgentResponseUpdate, ChatResponse, ChatResponseUpdate, Content

from durable_agent_host.codec.content import encode_content
from durable_agent_host.codec.journal_entry import replayed_updates
from durable_agent_host.codec.session_blobs import json_bytes_of
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.provider_item import ItemPart
from durable_agent_host.stream.fold import Fold, ItemReader, fold_updates, response_as_updates

# Keeps streamed updates small: joins fragments of a text that have been passed on.
#
# Theory of operation. Every layer of the framework keeps a list of the updates that it passed on until its stream
# ends, and an update with a content and the SDK's event takes 4 to 7 KB for a few characters. The layers share the
# objects. So the text of adjacent fragments is moved into the first of them, and the other updates drop their contents
# and the SDK's event. Folding any of the lists gives the same result as before, because one is moved only when it
# differs from the first in nothing but its text, and when the app's middleware has not changed it.

EVERY: Final = 128
"""Updates left unchanged, at most twice as many; small beside the SDK and cheap to check."""

_TEXT_OF: Final = {"text": "text", "text_reasoning": "text", "function_call": "arguments"}
"""Type of a content that streams in fragments → where its text is."""


class _TextRun:
    """Adjacent fragments of one content, as passed on and as the client streamed them."""

    def __init__(self, first: Content, original: Content, field: str, part: ItemPart | None) -> None:
        self._first = first
        self._original = original
        self._field = field
        self._part = part
        self._same = dict(vars(first))
        self._texts: list[str] = [self._same[field]]

    def add(self, content: Content, part: ItemPart | None) -> bool:
        """Take the text of a fragment that continues the first; return False and leave it unchanged otherwise."""
        attributes = vars(content)
        same = self._same
        text = attributes[self._field] if content.type == self._first.type else None
        if part != self._part or not isinstance(text, str):
            return False
        same[self._field] = text
        same["raw_representation"] = attributes["raw_representation"]
        if attributes != same:
            return False
        self._texts.append(text)
        setattr(content, self._field, "")
        return True

    def close(self) -> None:
        """Put the whole text into the first fragment."""
        if self._texts[1:]:
            for first in (self._first, self._original):
                setattr(first, self._field, "".join(self._texts))


def coalesce_updates(
    agent_updates: Sequence[AgentResponseUpdate | ChatResponseUpdate],
    client_updates: Sequence[ChatResponseUpdate],
    items: ItemReader,
) -> None:
    """Move the texts of adjacent fragments into the first of them."""
    text_run: _TextRun | None = None
    for agent_update, client_update in zip(agent_updates, client_updates, strict=True):
        content = _fragment_of(agent_update.contents, client_update.contents)
        if content is None:
            if client_update.contents or client_update.raw_representation is not None:
                text_run = _close(text_run)
            continue
        part = None if client_update.raw_representation is None else items.read_item(client_update)
        if text_run is not None and text_run.add(content, part):
            agent_update.contents = []
            client_update.contents = []
            client_update.raw_representation = None
            if isinstance(inner_update := agent_update.raw_representation, ChatResponseUpdate):
                inner_update.contents = []
                inner_update.raw_representation = None
        else:
            _close(text_run)
            text_run = _TextRun(content, client_update.contents[0], _TEXT_OF[content.type], part)
    _close(text_run)


def _close(text_run: _TextRun | None) -> None:
    if text_run is not None:
        text_run.close()


def are_same(passed_content: Content, client_content: Content) -> bool:
    """Return whether a content that was passed on is that of the client, or an unchanged copy."""
    return passed_content is client_content or vars(passed_content) == vars(client_content)


def _fragment_of(agent_contents: Sequence[Content], client_contents: Sequence[Content]) -> Content | None:
    """Return the one content of an update and its original, when it is a fragment that can be joined."""
    if len(agent_contents) != 1 or len(client_contents) != 1 or not are_same(agent_contents[0], client_contents[0]):
        return None
    content = agent_contents[0]
    field = _TEXT_OF.get(content.type)
    if field is None or not isinstance(getattr(content, field), str) or content.merge_mode == "replace":
        return None
    properties: dict[str, Any] = content.additional_properties
    grows = any(value and type(value) is list for value in properties.values())  # a fold concatenates lists
    return None if content.annotations or grows else content


class RunOutput:
    """The updates of one run of an agent.

    Args:
        items: the provider's knowledge of items.

    Attributes:
        updates_streamed: how many updates arrived.
        bytes_streamed: of their contents, as JSON.
        served_model: the model that served the last call, as named by the provider.
    """

    def __init__(self, items: ItemReader) -> None:
        self.updates_streamed = 0
        self.bytes_streamed = 0
        self.served_model: str | None = None
        self._items = items
        self._updates: list[tuple[AgentResponseUpdate, int | None]] = []
        self._call: Sequence[ChatResponseUpdate] = ()
        self._fold: Fold | None = None
        self._open_call = _OpenCall(None, 0)

    def __len__(self) -> int:
        """Return the number of kept entries, which is where the next update goes."""
        return len(self._updates)

    def add(self, update: AgentResponseUpdate, position: int | None) -> None:
        """Take the next update."""
        self.updates_streamed += 1
        with suppress(CorruptStateError, RecursionError):  # what cannot be stored is found out when it is to be stored
            self.bytes_streamed += len(json_bytes_of([*map(encode_content, update.contents)]))
        if position is not None and position != self._open_call.position:
            self._open_call = _OpenCall(position, len(self._updates))
        self._updates.append((update, position))

    def coalesce(self, client_updates: Sequence[ChatResponseUpdate], position: int, items: ItemReader) -> None:
        """Drop what the open model call's updates repeat; does something only once in a while.

        Args:
            client_updates: of the call so far.
            position: of the call.
            items: knows the items of the client that answers.
        """
        call = self._open_call
        if len(client_updates) - call.checked_count < EVERY or call.position != position:
            return
        start = call.checked_count
        call.checked_count = len(client_updates)
        if len(self._updates) - call.start == len(client_updates):
            agent_updates = [update for update, _ in self._updates[call.start + start :]]
            coalesce_updates(agent_updates, client_updates[start:], items)

    def fold_call(self, updates: Sequence[ChatResponseUpdate]) -> Fold:
        """Fold the updates of one model call, or return their fold when they were folded last."""
        if self._fold is None or self._call != updates:
            self._call = list(updates)
            self._fold = Fold(self._call, self._items)
        return self._fold

    def _start_of(self, position: int) -> int:
        start = len(self._updates)
        while start and self._updates[start - 1][1] == position:
            start -= 1
        return start

    def finish_call(self, position: int, updates: Sequence[ChatResponseUpdate], response: ChatResponse[Any]) -> None:
        """Replace the updates of a model call by its folded response, unless they were changed on their way."""
        start = self._start_of(position)
        agent_updates = [update for update, _ in self._updates[start:]]
        if _are_unchanged(agent_updates, updates):
            self._updates[start:] = [(update, position) for update in _as_agent_updates(response, agent_updates)]
        elif updates and not _are_same(_contents_without_usage(agent_updates), _contents_without_usage(updates)):
            for update in agent_updates:
                update.raw_representation = None
        self._call = ()
        self._fold = None

    def apply_result(self, start: int, result: AgentResponse[Any]) -> None:
        """Take the response with which the agent's stream has ended, if the app's middleware has changed its texts."""
        if _texts(result) != _texts(self.response(start)):
            user_updates = [(update, None) for update, _ in self._updates[start:] if update.role == "user"]
            self._updates[start:] = [*user_updates, *((update, None) for update in response_as_updates(result))]

    def response(self, start: int = 0) -> AgentResponse[Any]:
        """Fold what is kept into the response."""
        return fold_updates([update for update, _ in self._updates[start:]], self._items)

    def responses(self, finished_positions: Container[int]) -> tuple[AgentResponse[Any], AgentResponse[Any]]:
        """Fold what is complete, and what belongs to a model call that was cut off."""
        complete_updates = [
            update for update, position in self._updates if position is None or position in finished_positions
        ]
        cut = [update for update, position in self._updates if not (position is None or position in finished_positions)]
        return fold_updates(complete_updates, self._items), fold_updates(cut, self._items)


@dataclass
class _OpenCall:
    """The model call that streams.

    Attributes:
        position: of the call.
        start: where its updates begin.
        checked_count: how many of them have been checked.
    """

    position: int | None
    start: int
    checked_count: int = 0


_names: Final = attrgetter(
    *("role", "message_id", "response_id", "created_at", "finish_reason", "continuation_token", "_operation_state"),
    *("additional_properties", "merge_mode"),
)
"""Properties that an agent copies from its client's update; it adds a name of its own."""


def _are_unchanged(agent_updates: Sequence[AgentResponseUpdate], call: Sequence[ChatResponseUpdate]) -> bool:
    """Return whether the agent's updates are those of the call, one by one."""
    if not call or len(agent_updates) != len(call):
        return False
    author = call[0].author_name
    agent_author = agent_updates[0].author_name
    return all(
        type(update) is AgentResponseUpdate
        and (update.raw_representation is client_update or _is_copy(update.raw_representation, client_update))
        and (_are_same(update.contents, client_update.contents) or _differ_in_usage(update, client_update))
        and _names(update) == _names(client_update)
        and client_update.author_name == author
        and update.author_name == agent_author
        and update.agent_id is None
        for update, client_update in zip(agent_updates, call, strict=True)
    )


def _is_copy(raw: Any, client_update: ChatResponseUpdate) -> bool:
    return raw.__class__ is ChatResponseUpdate and raw.raw_representation is client_update.raw_representation


def _differ_in_usage(update: AgentResponseUpdate, client_update: ChatResponseUpdate) -> bool:
    """Return whether only the token counts differ: the framework adds up those of a run's model calls."""
    return _are_same(_contents_without_usage([update]), _contents_without_usage([client_update]))


def _texts(response: AgentResponse[Any]) -> str:
    model_messages = (message for message in response.messages if message.role != "user")
    contents = (content for message in model_messages for content in message.contents)
    return "".join(content.text or "" for content in contents if content.type == "text")


def _contents_without_usage(updates: Iterable[AgentResponseUpdate | ChatResponseUpdate]) -> list[Content]:
    return [content for update in updates for content in update.contents if content.type != "usage"]


def _are_same(left: Sequence[Content], right: Sequence[Content]) -> bool:
    return len(left) == len(right) and all(map(are_same, left, right))


def _as_agent_updates(
    response: ChatResponse[Any], agent_updates: Sequence[AgentResponseUpdate]
) -> list[AgentResponseUpdate]:
    """Return a response as updates that nothing joins, with the agent's name and token counts."""
    updates = [
        AgentResponseUpdate(
            contents=_contents_without_usage([update]),
            role=update.role,
            author_name=agent_updates[0].author_name,
            message_id=update.message_id,
            response_id=update.response_id,
            created_at=update.created_at,
            finish_reason=cast("Any", update.finish_reason),
            additional_properties=update.additional_properties,
            raw_representation=ItemPart(None),
        )
        for update in replayed_updates(response)
    ]
    updates[-1].contents = [
        content for update in agent_updates for content in update.contents if content.type == "usage"
    ]
    return updates
