"""Conversations kept by the app's history providers: which provider keeps them, and operations on them there."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import Any, Final, cast, override

from agent_framework import FileHistoryProvider, HistoryProvider, InMemoryHistoryProvider, RawAgent

from durable_agent_host.agent.agent_event_loop import submit
from durable_agent_host.agent.durable_session import TranscriptProvider
from durable_agent_host.agent.feature import HistoryLocation
from durable_agent_host.agent.hosted_agent import is_replaced
from durable_agent_host.errors import (
    CorruptStateError,
    DurableAgentHostError,
    HistoryElsewhereError,
    HistoryError,
    log_reason,
)
from durable_agent_host.features.histories.coalescing_provider import CoalescingHistoryProvider
from durable_agent_host.segments.conversation_reader import ConversationReader
from durable_agent_host.segments.turn_data_storage import SessionKey
from durable_agent_host.session.ownership import stored_external_session_id

_OPERATIONS: Final = {
    "delete": (
        "deleted",
        (
            "give the provider a method clear(session_id); or delete its messages there, then repeat the request with "
            "?history=kept, which deletes what the host has: its own record, the receipts, the turns and their logs"
        ),
    ),
    "export": ("exported", "read the messages there"),
    "fork": ("forked", "copy the messages there"),
    "fork_at_turn": ("forked", "copy the messages there"),
    "import": ("imported", "store the messages there"),
    "reset": ("reset", "delete the session, or the messages there"),
    "run": ("continued by the operation 'run' of an entity", "call the agent over HTTP or with app.get_agent"),
}
_OF_MESSAGES: Final = frozenset({"export", "run"})
"""Operations that the session itself suffices for, unless a provider has every message."""

Clearing = Callable[[str], Awaitable[None]]


def history_providers(agent: Any) -> list[HistoryProvider]:
    """List the history providers of an agent that the host does not replace."""
    providers = [provider for provider in _context_providers(agent) if isinstance(provider, HistoryProvider)]
    return [
        provider
        for provider in providers
        if not isinstance(provider, TranscriptProvider) and not is_replaced(agent, provider)
    ]


def external_providers(agent: Any) -> list[HistoryProvider]:
    """List the history providers of an agent that keep messages outside the session."""
    return [
        provider for provider in history_providers(agent) if not isinstance(_unwrap(provider), InMemoryHistoryProvider)
    ]


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


class ProviderHistory(HistoryLocation):
    """The conversations of one agent that the app's history providers keep.

    Args:
        agent: the app's.
    """

    def __init__(self, agent: Any) -> None:
        providers = history_providers(agent)
        external = external_providers(agent)
        self._clearings = [(provider, find_clear(provider)) for provider in external if provider.load_messages]
        self._primary = [name] if (name := primary_provider(agent)) is not None else []
        self.owners = [get_provider_name(provider) for provider, _ in self._clearings]
        self.copies = [get_provider_name(provider) for provider in external if not provider.load_messages]
        self._is_in_session = any(provider.load_messages for provider in providers if provider not in external)
        if providers and getattr(agent, "require_per_service_call_history_persistence", False):
            self.why_no_redaction = (
                f"with require_per_service_call_history_persistence {get_provider_name(providers[0])} is given each "
                "message before it can be redacted: take the option away, or give the agent "
                "redact=lambda content: content"
            )

    @override
    def reject_unsupported(self, agent: str, operation: str) -> None:
        """Refuse an operation that a provider does not support."""
        done, instruction = _OPERATIONS[operation]
        keepers = self.owners
        if operation == "delete":
            keepers = [get_provider_name(provider) for provider, clear in self._clearings if clear is None]
        elif operation in _OF_MESSAGES:
            keepers = self._primary
        if keepers:
            raise HistoryElsewhereError(
                f"the conversations of agent {agent!r} are kept by {' and '.join(keepers)}, and cannot be {done} "
                f"from here: {instruction}"
            )
        if operation == "fork_at_turn" and self._is_in_session:
            raise HistoryElsewhereError(
                f"the conversations of agent {agent!r} are kept by InMemoryHistoryProvider, as one blob in the state "
                "of the framework's session, and cannot be forked at a turn: leave at_turn out to fork the whole "
                "conversation, or host the agent without that provider"
            )

    @override
    async def delete(self, name: SessionKey, record: ConversationReader) -> None:
        """Delete a conversation from every provider that owns it."""
        if not self._clearings:
            return
        self.reject_unsupported(name.agent, "delete")
        try:
            agent_session = await record.agent_session()
        except CorruptStateError:  # the session is being erased, or its blob is lost
            agent_session = None
        session_id = stored_external_session_id(name.session_id, record.session.owner, agent_session)
        await asyncio.wrap_future(submit(self._clear(session_id)))  # the loop that has the providers' connections

    async def _clear(self, session_id: str) -> None:
        for provider, clear in self._clearings:
            try:
                await cast("Clearing", clear)(session_id)
            except DurableAgentHostError:
                raise
            except Exception as error:
                raise HistoryError(
                    f"the conversation could not be cleared by {get_provider_name(provider)}: {log_reason(error)}; try "
                    "again when it responds"
                ) from error


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
