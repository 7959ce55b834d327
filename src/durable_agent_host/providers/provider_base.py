"""The base of providers that adapt their clients: the handling of a service, as functions."""

# ruff: noqa: SLF001 - the overrides call what they override

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from agent_framework import Content, Message, ResponseStream

from durable_agent_host.agent.dynamic_subclass import copy_with_mixin
from durable_agent_host.concurrency.thread_offload import MANY
from durable_agent_host.errors import ProviderError
from durable_agent_host.model.conversation_file import ServedFile, ServiceFile
from durable_agent_host.model.provider_item import LostState
from durable_agent_host.providers.cross_provider_history import ReplayTarget
from durable_agent_host.providers.generic_provider import GenericProvider
from durable_agent_host.stream.fold import Fold, ItemReader


class FoldedStreamMixin:
    """Overrides that take a stream's response from the fold; they precede the client's own class in the MRO.

    Attributes:
        item_reader: of the provider.
    """

    item_reader: ClassVar[ItemReader]

    def _finalize_response_updates(self, updates: Sequence[Any], **kwargs: Any) -> Any:
        client: Any = super()
        response = client._finalize_response_updates(updates, **kwargs)
        response.messages = self.fold_call(updates).response().messages
        return response

    def fold_call(self, updates: Sequence[Any]) -> Fold:
        """Fold the updates of one call; a run replaces this by its own fold, so that they are read once."""
        return Fold(updates, self.item_reader)


def create_adapter(client: Any, overrides: type[FoldedStreamMixin]) -> Any:
    """Copy a chat client with the overrides of its provider.

    Returns:
        A copy that shares its connections; the client itself when it is already hosted.
    """
    return client if isinstance(client, overrides) else copy_with_mixin(client, overrides)


def start_in_thread(messages: Sequence[Message], begin: Callable[[], Any], *, stream: bool) -> Any:
    """Start a model call in a thread if it sends many messages, which take long to write, otherwise directly."""
    if len(messages) <= MANY:
        return begin()
    if stream:
        return ResponseStream[Any, Any].from_awaitable(asyncio.to_thread(begin))

    async def await_response() -> Any:
        return await (await asyncio.to_thread(begin))

    return await_response()


Carry = Callable[[Sequence[Message], Mapping[str, Any], Iterable[LostState]], tuple[list[Message], dict[str, Any]]]
"""See `ModelProvider.carry`."""


@dataclass(frozen=True, kw_only=True)
class ProviderHooks:
    """The handling of a provider's service; each attribute refers to a method of `ModelProvider`.

    Attributes:
        target: the contents that its client can send.
        adapt: see ``adapt``; None for clients that stay unchanged.
        carry: see ``carry``.
        lost_state: see ``lost_state``.
        explain: see ``explain``.
        generated_files: lists the files of a content besides hosted ones; see ``service_files``.
        read_file: see ``read_service_file``; None where the service releases no files.
    """

    target: ReplayTarget
    adapt: Callable[[Any], Any] | None = None
    carry: Carry
    lost_state: Callable[[BaseException], LostState | None]
    explain: Callable[[BaseException], ProviderError | None]
    generated_files: Callable[[Content], Iterable[ServiceFile]] = lambda _content: ()
    read_file: Callable[[Any, ServiceFile], Awaitable[ServedFile]] | None = None


class ProviderBase(GenericProvider):
    """Uses its hooks, and otherwise the behaviour for any client.

    Attributes:
        hooks: of the provider.
    """

    hooks: ClassVar[ProviderHooks]

    @property
    def target(self) -> ReplayTarget:
        """The provider's own blocks are those with its metadata."""
        return self.hooks.target

    def adapt(self, client: Any, /) -> Any:
        """Copy the client with overrides that keep the provider's blocks."""
        return client if self.hooks.adapt is None else self.hooks.adapt(client)

    def carry(
        self, messages: Sequence[Message], stored_losses: Mapping[str, Any], new_losses: Iterable[LostState], /
    ) -> tuple[list[Message], dict[str, Any]]:
        """Mark what the service has lost or rejected, and return it for storage."""
        return self.hooks.carry(messages, stored_losses, new_losses)

    def service_files(self, content: Content, /) -> Iterable[ServiceFile]:
        """List hosted files, and those that the service's tools have created."""
        yield from super().service_files(content)
        yield from self.hooks.generated_files(content)

    async def read_service_file(self, client: Any, file: ServiceFile, /) -> ServedFile:
        """Download it from the service."""
        if self.hooks.read_file is None:
            return await super().read_service_file(client, file)
        return await self.hooks.read_file(client, file)

    def lost_state(self, error: BaseException, /) -> LostState | None:
        """Read it from the service's own JSON."""
        return self.hooks.lost_state(error)

    def explain(self, error: BaseException, /) -> ProviderError | None:
        """Explain why the service rejected the request, and what to do."""
        return self.hooks.explain(error)
