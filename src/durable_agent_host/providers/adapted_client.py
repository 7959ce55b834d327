"""What adapted clients have in common: the fold of their streams, and requests that are written in a thread."""

# ruff: noqa: SLF001 - the overrides call what they override

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from agent_framework import AgentResponseUpdate, ChatResponse, ChatResponseUpdate, Message, ResponseStream

from durable_agent_host.agent.dynamic_subclass import copy_with_mixin
from durable_agent_host.concurrency.thread_offload import MANY, contents_in
from durable_agent_host.model.provider_item import ItemPart
from durable_agent_host.stream.fold import Fold, ItemReader


class ItemUpdate(NamedTuple):
    """The raw representation of an update.

    Attributes:
        part: which item it belongs to, or None.
        event: of the service or its SDK, unchanged.
    """

    part: ItemPart | None
    event: Any


def unwrap_update(update: Any) -> Any:
    """Return what an update or a response was made from: agents' updates wrap those of clients."""
    raw = update
    while isinstance(raw, ChatResponseUpdate | AgentResponseUpdate | ChatResponse):
        raw = cast("Any", raw).raw_representation
    return raw


class FoldedStreamMixin:
    """Overrides that take a stream's response from the fold; they precede the client's own class in the MRO.

    Attributes:
        item_reader: the provider.
    """

    item_reader: ItemReader

    def _inner_get_response(self, *, stream: bool = False, **kwargs: Any) -> Any:
        response = self._start_call(**kwargs)
        return response if stream else response.get_final_response()

    def _start_call(self, **kwargs: Any) -> Any:
        """Return the stream of a model call; also a response that nobody streams is read from one."""
        client: Any = super()
        return client._inner_get_response(stream=True, **kwargs)

    def _finalize_response_updates(self, updates: Sequence[Any], **kwargs: Any) -> Any:
        client: Any = super()
        response = client._finalize_response_updates(updates, **kwargs)
        response.messages = self.fold_call(updates).response().messages
        return response

    def fold_call(self, updates: Sequence[Any]) -> Fold:
        """Fold the updates of one call; a run replaces this by its own fold, so that they are read once."""
        return Fold(updates, self.item_reader)


def create_adapter(client: Any, overrides: type[FoldedStreamMixin], provider: ItemReader) -> Any:
    """Copy a chat client with the overrides of its provider.

    Returns:
        A copy that shares its connections; the client itself when it is already hosted.
    """
    if isinstance(client, overrides):
        return client
    adapter = copy_with_mixin(client, overrides)
    adapter.item_reader = provider
    return adapter


def bypass_transform(request_options: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Pass a list of a request to OpenAI's SDK in ``extra_body``, which it sends without inspecting it.

    The SDK (openai 3.54, ``async_maybe_transform``) checks each item against every type of item, which blocks the loop
    for a second at ten thousand messages. The items are JSON, and it does not change them. Its methods require the
    argument: the body's items replace the empty list.
    """
    body: dict[str, Any] = {name: request_options[name], **(request_options.get("extra_body") or {})}
    return {**request_options, name: [], "extra_body": body}


def start_in_thread(messages: Sequence[Message], begin: Callable[[], Any]) -> Any:
    """Start a model call in a thread if it sends many messages, which take long to write, otherwise directly."""
    return (
        begin() if contents_in(messages) <= MANY else ResponseStream[Any, Any].from_awaitable(asyncio.to_thread(begin))
    )
