"""The base of providers that adapt their clients: the handling of a service, as functions."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from agent_framework import Content, Message

from durable_agent_host.errors import ProviderError
from durable_agent_host.model.conversation_file import ServedFile, ServiceFile
from durable_agent_host.model.provider_item import Forgotten
from durable_agent_host.providers.foreign import ReplayTarget
from durable_agent_host.providers.neutral import NeutralProvider

Carry = Callable[[Sequence[Message], Mapping[str, Any], Iterable[Forgotten]], tuple[list[Message], dict[str, Any]]]
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
    lost_state: Callable[[BaseException], Forgotten | None]
    explain: Callable[[BaseException], ProviderError | None]
    generated_files: Callable[[Content], Iterable[ServiceFile]] = lambda _content: ()
    read_file: Callable[[Any, ServiceFile], Awaitable[ServedFile]] | None = None


class ProviderBase(NeutralProvider):
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
        self, messages: Sequence[Message], stored_losses: Mapping[str, Any], new_losses: Iterable[Forgotten], /
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

    def forgotten(self, error: BaseException, /) -> Forgotten | None:
        """Read it from the service's own JSON."""
        return self.hooks.lost_state(error)

    def explain(self, error: BaseException, /) -> ProviderError | None:
        """Explain why the service rejected the request, and what to do."""
        return self.hooks.explain(error)
