"""The agent's chat client with the provider's items: a subclass of the client's own class, made at registration.

The user's client is not changed and no module is patched: the hosted copy of an agent gets a copy of its client, whose
class adds a few overrides to the class that the client had. They attach the provider's items to what the framework
parsed, and write messages that have such items as the API gave them out.
"""
# ruff: noqa: SLF001 - the overrides call what they override

import copy
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import Any, Final, cast

from agent_framework import AgentResponseUpdate, ChatResponseUpdate, Content, Message

from durable_agent_host.model.provider_item import ItemPart
from durable_agent_host.providers.openai.closing import closed_messages
from durable_agent_host.providers.openai.direct_events import with_direct_events
from durable_agent_host.providers.openai.errors import failure_of
from durable_agent_host.providers.openai.items import attach_items, complete_item, groups_of, item_of, stamp_of
from durable_agent_host.providers.openai.replay import (
    replayable_messages,
    with_valid_ids,
    without_lone_surrogates,
)
from durable_agent_host.turns.fold import fold_updates

_ENCRYPTED = "reasoning.encrypted_content"


def adapt_client(client: Any) -> Any:
    """Give a chat client that keeps the provider's items.

    Guarantee: pure; the client given is not changed.

    Args:
        client: of an agent; of any provider.

    Returns:
        For clients of the OpenAI Responses API, Azure OpenAI's included, a copy that shares their connections; every
        other client as it is.
    """
    try:
        from agent_framework_openai import RawOpenAIChatClient  # noqa: PLC0415 - only where it is installed
    except ImportError:
        return client
    is_responses_client = isinstance(client, RawOpenAIChatClient)
    if not is_responses_client or isinstance(client, _KeepsItems):
        return cast("Any", client)
    brought = cast("object", client)
    hosted = object.__new__(_with_items(type(brought)))
    hosted.__dict__.update({name: with_direct_events(value) for name, value in brought.__dict__.items()})
    return hosted


class _KeepsItems:
    """The overrides; stands before the client's own class in the method resolution order."""

    keeps_provider_items = True
    always_encrypted = False

    def _finalize_response_updates(self, updates: Sequence[Any], **kwargs: Any) -> Any:
        client: Any = super()
        response = client._finalize_response_updates(updates, **kwargs)
        response.messages = fold_updates(updates, ITEMS).messages
        client._mark_completed_computer_calls([one for message in response.messages for one in message.contents])
        return response

    def _parse_chunk_from_openai(self, event: Any, *args: Any, **kwargs: Any) -> Any:
        if (error := failure_of(event)) is not None:
            raise error  # the framework takes what came before ``response.failed`` for the answer
        client: Any = super()
        return client._parse_chunk_from_openai(event, *args, **kwargs)

    def _parse_response_from_openai(self, response: Any, *args: Any, **kwargs: Any) -> Any:
        if (error := failure_of(response)) is not None:
            raise error
        client: Any = super()
        parsed = client._parse_response_from_openai(response, *args, **kwargs)
        parsed.messages = complete_messages(parsed.messages, [plain_item(item) for item in response.output])
        return parsed

    async def _prepare_options(self, messages: Sequence[Message], options: Mapping[str, Any]) -> dict[str, Any]:
        client: Any = super()
        stored = options.get("store") is not False
        if not any(options.get(name) for name in ("conversation_id", "previous_response_id", "conversation")):
            messages = closed_messages(messages)
        messages = replayable_messages(messages, stored=stored, keeps_reasoning=self._sends_as_it_is)
        prepared: dict[str, Any] = await client._prepare_options(messages, options)
        prepared["input"] = without_lone_surrogates(with_valid_ids(prepared["input"]))
        if self.always_encrypted and _ENCRYPTED not in (include := list(prepared.get("include") or [])):
            # The client asks for it on the first turn alone; a continuation that the service forgets needs it all.
            prepared["include"] = [*include, _ENCRYPTED]
        return prepared

    def _sends_as_it_is(self, content: Content) -> bool:
        client: Any = super()
        return bool(content.id and client._prepare_provider_reasoning_item_for_openai(content.id, [content]))

    def _prepare_message_for_openai(self, message: Message, **kwargs: Any) -> list[dict[str, Any]]:
        client: Any = super()
        if kwargs.get("request_uses_service_side_storage", True):
            return client._prepare_message_for_openai(message, **kwargs)
        prepared: list[dict[str, Any]] = []
        for is_plain, groups in groupby(groups_of(message.contents), key=lambda group: stamp_of(group[0]) is None):
            if is_plain:
                part = copy.copy(message)
                part.contents = [content for group in groups for content in group]
                prepared += client._prepare_message_for_openai(part, **kwargs)
            else:
                prepared += [item_of(group) for group in groups]
        return prepared


@cache
def _with_items(base: type[Any]) -> type[Any]:
    """Make the subclass for a client's class."""
    from agent_framework_openai import OpenAIChatClient  # noqa: PLC0415 - one SDK per file, loaded when used

    # Deployments of Foundry, whose clients are no OpenAIChatClient, may refuse to be asked for encrypted reasoning.
    return type(base.__name__, (_KeepsItems, base), {"always_encrypted": issubclass(base, OpenAIChatClient)})


def complete_messages(messages: Iterable[Message], items: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Attach the items of one model call to the messages that the framework made of it.

    Guarantee: pure; the messages given are not changed.

    Args:
        messages: of one model call.
        items: its finished items, in order; may be empty.

    Returns:
        The messages as they are without items, else one message with the contents in the order of the items.
    """
    given = list(messages)
    if not items or any(message.role != "assistant" for message in given):
        return given
    whole = copy.copy(given[0]) if given else Message("assistant", [])
    whole.contents = attach_items([content for message in given for content in message.contents], items)
    return [whole]


class OpenAIItems:
    """Reads the items of the Responses API from live updates, for the fold."""

    def read_item(self, update: Any, /) -> ItemPart | None:
        """Tell to which item of the output an update belongs.

        Only the event ``response.output_item.done`` has an item in full. The position in the output is the only name
        that an item keeps: there are proxies that give it another id in every event.

        Guarantee: pure.

        Args:
            update: of the chat client or of the agent, as it came.

        Returns:
            The place, or None for updates of other providers and events of no item.
        """
        event: Any = update.raw_representation
        if event.__class__ is ChatResponseUpdate:  # an agent's update holds the client's
            event = event.raw_representation
        if _OTHERS[event.__class__]:
            return None
        try:
            kind: Any = event.type
            if (place := event.output_index) is not None:
                if kind in _EVENTS_OF_CONTENT:
                    return _CONTENT_PARTS[place, event.content_index]
                if kind in _EVENTS_OF_SUMMARY:
                    return _SUMMARY_PARTS[place, event.summary_index]
                if kind in _EVENTS_OF_CALLS:
                    return _ITEMS[place, None]
        except (AttributeError, TypeError):
            pass  # an event of another kind
        while type(event) in _UPDATES:
            event = event.raw_representation
        return _read_event(event)

    def complete_item(self, contents: list[Content], item: Mapping[str, Any] | None, /) -> list[Content]:
        """Complete the contents of one item, see `items.complete_item`.

        Args:
            contents: of the item, joined.
            item: finished, or None.

        Returns:
            The contents, stamped when the item is finished.
        """
        return complete_item(contents, item)


_UPDATES: Final = frozenset({ChatResponseUpdate, AgentResponseUpdate})
ITEMS: Final = OpenAIItems()

_EVENTS_OF_CONTENT: Final = frozenset(
    {
        *("response.output_text.delta", "response.output_text.done", "response.output_text.annotation.added"),
        *("response.content_part.added", "response.content_part.done"),
        *("response.refusal.delta", "response.refusal.done"),
        *("response.reasoning_text.delta", "response.reasoning_text.done"),
    }
)
_EVENTS_OF_SUMMARY: Final = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_summary_text.done"})
_EVENTS_OF_ITEMS: Final = frozenset({"response.output_item.added", "response.output_item.done"})
_EVENTS_OF_CALLS: Final = frozenset(
    f"response.{kind}.{end}"
    for kind in (
        "function_call_arguments",
        "code_interpreter_call_code",
        "mcp_call_arguments",
        "custom_tool_call_input",
    )
    for end in ("delta", "done")
)


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
    if kind in _EVENTS_OF_CONTENT:
        return _CONTENT_PARTS[place, getattr(event, "content_index", None)]
    if kind in _EVENTS_OF_SUMMARY:
        return _SUMMARY_PARTS[place, getattr(event, "summary_index", None)]
    return _ITEMS[place, None]


class _Others(dict[type[Any], bool]):
    """Class of the SDK's models → whether it has no type, as chunks of Chat Completions: asking those is slow."""

    def __missing__(self, kind: type[Any]) -> bool:
        fields = getattr(kind, "model_fields", None)
        self[kind] = is_other = fields is not None and "type" not in fields
        return is_other


class _Parts(dict[tuple[int | str, int | None], ItemPart]):
    """Item and part in it → the same object for every event about it, by which the fold knows that it goes on."""

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
_ITEMS: Final = _Parts("")
_CONTENT_PARTS: Final = _Parts("content_index")
_SUMMARY_PARTS: Final = _Parts("summary_index")


def plain_item(item: Any) -> dict[str, Any]:
    """Write an item of the SDK as the provider wrote it: what it left out stays out. Guarantee: pure.

    Args:
        item: a model of the SDK, or a dictionary.

    Returns:
        JSON values.
    """
    if not callable(dump := getattr(item, "model_dump", None)):
        return dict(item)
    # Providers send kinds that the SDK does not know yet, and pydantic would warn of them; the SDK's ``async_`` is the
    # provider's ``async``.
    return cast("dict[str, Any]", dump(mode="json", by_alias=True, exclude_unset=True, warnings=False))
