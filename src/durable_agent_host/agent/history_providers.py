"""Conversations kept by the app's history providers: which provider keeps them, and operations on them there."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from inspect import isawaitable
from typing import Any, Final, cast

from agent_framework import FileHistoryProvider, HistoryProvider, InMemoryHistoryProvider, Message, RawAgent

from durable_agent_host.agent.coalescing_history_provider import CoalescingHistoryProvider
from durable_agent_host.agent.transcript_provider import TranscriptProvider
from durable_agent_host.errors import (
    DurableAgentHostError,
    HistoryElsewhereError,
    HistoryError,
    log_reason,
)
from durable_agent_host.model.history_locations import HistoryLocations
from durable_agent_host.session.external_messages import read_once

Clearing = Callable[[str], Awaitable[None]]


def history_providers(agent: Any) -> list[HistoryProvider]:
    """List the history providers of an agent that the host does not replace."""
    providers = [provider for provider in _context_providers(agent) if isinstance(provider, HistoryProvider)]
    return [
        provider
        for provider in providers
        if not isinstance(provider, TranscriptProvider) and not is_replaced(agent, provider)
    ]


def is_replaced(agent: Any, provider: object) -> bool:
    """Return whether the host replaces a provider: a plain `InMemoryHistoryProvider`, that nobody else reads.

    It keeps the transcript in the framework session's state; the host has it already.
    """
    if type(provider) is not InMemoryHistoryProvider or not isinstance(agent, RawAgent):
        return False
    stores_all = provider.load_messages and provider.store_inputs and provider.store_outputs
    is_plain = not provider.store_context_messages and not provider.skip_excluded
    readers = [getattr(reader, "history_source_id", None) for reader in _context_providers(agent)]
    return stores_all and is_plain and provider.source_id not in readers


def external_providers(agent: Any) -> list[HistoryProvider]:
    """List the history providers of an agent that keep messages outside the session."""
    return [
        provider for provider in history_providers(agent) if not isinstance(_unwrap(provider), InMemoryHistoryProvider)
    ]


def redaction_unsupported_reason(agent: Any) -> str:
    """Return why a history provider would receive unredacted content; empty when none would."""
    if not getattr(agent, "require_per_service_call_history_persistence", False):
        return ""
    if not (providers := history_providers(agent)):
        return ""
    return (
        f"with require_per_service_call_history_persistence {get_provider_name(providers[0])} is given each message "
        "before it can be redacted: take the option away, or give the agent redact=lambda content: content"
    )


def _context_providers(agent: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", cast("Any", agent).context_providers) if isinstance(agent, RawAgent) else ()


def get_provider_name(provider: HistoryProvider) -> str:
    """Return a provider's name, from its class and its source."""
    return f"{type(_unwrap(provider)).__name__} ({provider.source_id})"


def primary_provider(agent: Any) -> str | None:
    """Return the provider that has every message of a conversation, or None when the host keeps them.

    Returns:
        The first one that loads messages and receives the whole turn, at its end.
    """
    if getattr(agent, "require_per_service_call_history_persistence", False):
        return None
    complete_providers = [provider for provider in _owners(agent) if provider.store_inputs and provider.store_outputs]
    return get_provider_name(complete_providers[0]) if complete_providers else None


class ProviderHistory:
    """The conversations of one agent that the app's history providers keep.

    Its coroutines run on the agents' loop, where the providers' connections are.

    Args:
        agent: the app's.

    Attributes:
        where: what is kept where, for errors that refuse an operation.
        primary_provider: the provider that has every message, or None.
    """

    def __init__(self, agent: Any) -> None:
        external = external_providers(agent)
        self._owners = _owners(agent)
        owners = {get_provider_name(provider): find_clear(provider) for provider in self._owners}
        self.primary_provider = primary_provider(agent)
        self.where = HistoryLocations(
            owners=tuple(owners),
            copies=tuple(get_provider_name(provider) for provider in external if not provider.load_messages),
            in_session=any(provider.load_messages for provider in history_providers(agent) if provider not in external),
            lasting=tuple(name for name, clear in owners.items() if clear is None),
        )

    async def messages(self, session_id: str, *, void: Collection[str] = ()) -> list[Message]:
        """Read a conversation.

        Returns:
            The messages of the home provider, in order, each once, with their marks; none without a home.

        Raises:
            HistoryError: the provider does not answer.
        """
        for provider in self._owners:
            if get_provider_name(provider) == self.primary_provider:
                return read_once(await _call_provider(provider, "read", _load_marked(provider, session_id)), void=void)
        return []

    async def clear(self, session_id: str) -> None:
        """Delete a conversation from every provider that owns it. Guarantee: idempotent.

        Raises:
            HistoryError: a provider does not answer; nothing or only a part was deleted.
            HistoryElsewhereError: a provider cannot delete; nothing was deleted.
        """
        clearings = {get_provider_name(owner): (owner, find_clear(owner)) for owner in self._owners}
        for name, (_, clear) in clearings.items():
            if clear is None:
                raise HistoryElsewhereError(f"{name} has no clear(session_id)")
        for provider, clear in clearings.values():
            await _call_provider(provider, "cleared", cast("Clearing", clear)(session_id))


def find_clear(provider: HistoryProvider) -> Clearing | None:
    """Return how a provider deletes a session: its own ``clear(session_id)``, plain or async.

    Returns:
        A function that deletes a session by its id; None for a provider that cannot. The framework's
        `FileHistoryProvider` has no ``clear``: the file is deleted under the provider's own lock.
    """
    if isinstance(provider, CoalescingHistoryProvider):
        return find_clear(provider.wrapped)
    clear_method: Any = getattr(provider, "clear", None)
    if callable(clear_method):

        async def call(session_id: str) -> None:
            result = clear_method(session_id)
            if isawaitable(result):
                await result

        return call
    if isinstance(provider, FileHistoryProvider) and all(hasattr(provider, name) for name in _FILE_METHODS):
        file: Any = provider

        async def delete(session_id: str) -> None:
            path = file._session_file_path(session_id)  # noqa: SLF001 - agent-framework-core 1.23 has no clear
            async with file._session_async_write_lock(path):  # noqa: SLF001 - as above
                with file._session_write_lock(path):  # noqa: SLF001 - as above
                    path.unlink(missing_ok=True)

        return delete
    return None


_FILE_METHODS: Final = ("_session_file_path", "_session_async_write_lock", "_session_write_lock")


def _owners(agent: Any) -> list[HistoryProvider]:
    return [provider for provider in external_providers(agent) if provider.load_messages]


def _unwrap(provider: HistoryProvider) -> HistoryProvider:
    return provider.wrapped if isinstance(provider, CoalescingHistoryProvider) else provider


async def _load_marked(provider: HistoryProvider, session_id: str) -> list[Message]:
    if isinstance(provider, CoalescingHistoryProvider):
        return await provider.marked_messages(session_id)
    return await provider.get_messages(session_id)


async def _call_provider[T](provider: HistoryProvider, action: str, operation: Awaitable[T]) -> T:
    try:
        return await operation
    except DurableAgentHostError:
        raise
    except Exception as error:
        raise HistoryError(
            f"the conversation could not be {action} by {get_provider_name(provider)}: {log_reason(error)}; try "
            "again when it responds"
        ) from error
