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
    TurnRejectedError,
    log_reason,
)
from durable_agent_host.model.history_locations import Histories
from durable_agent_host.session.external_messages import IDENTITY, PLACE, REWRITTEN, name_of, read_once, turn_of
from durable_agent_host.stream.fold import fold_contents

_BATCH: Final = 100
"""How many messages a provider gets at once: what Cosmos DB writes atomically."""

Clearing = Callable[[str], Awaitable[None]]


def history_providers(agent: Any) -> list[HistoryProvider]:
    """List the history providers of an agent that the host does not replace. Guarantee: pure.

    Args:
        agent: the app's, or a hosted copy.
    """
    providers = [one for one in _context_providers(agent) if isinstance(one, HistoryProvider)]
    return [one for one in providers if not isinstance(one, TranscriptProvider) and not is_replaced(agent, one)]


def is_replaced(agent: Any, provider: object) -> bool:
    """Return whether the host replaces a provider: a plain `InMemoryHistoryProvider`, that nobody else reads.

    It keeps the transcript in the framework session's state; the host has it already. Guarantee: pure.

    Args:
        agent: the app's.
        provider: one of its context providers.
    """
    if type(provider) is not InMemoryHistoryProvider or not isinstance(agent, RawAgent):
        return False
    is_whole = provider.load_messages and provider.store_inputs and provider.store_outputs
    is_plain = not provider.store_context_messages and not provider.skip_excluded
    readers = [getattr(one, "history_source_id", None) for one in _context_providers(agent)]
    return is_whole and is_plain and provider.source_id not in readers


def external_providers(agent: Any) -> list[HistoryProvider]:
    """List the history providers of an agent that keep messages outside the session. Guarantee: pure.

    Args:
        agent: the app's, or a hosted copy.
    """
    return [one for one in history_providers(agent) if not isinstance(_unwrapped(one), InMemoryHistoryProvider)]


def why_not_redacted(agent: Any) -> str:
    """Return why a history provider would receive unredacted content; empty when none would. Guarantee: pure.

    Args:
        agent: the app's.
    """
    if not getattr(agent, "require_per_service_call_history_persistence", False):
        return ""
    if not (providers := history_providers(agent)):
        return ""
    return (
        f"with require_per_service_call_history_persistence {name_of_provider(providers[0])} is given each message "
        "before it can be redacted: take the option away, or give the agent redact=lambda content: content"
    )


def _context_providers(agent: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", cast("Any", agent).context_providers) if isinstance(agent, RawAgent) else ()


def name_of_provider(provider: HistoryProvider) -> str:
    """Return a provider's name, from its class and its source. Guarantee: pure."""
    return f"{type(_unwrapped(provider)).__name__} ({provider.source_id})"


def home_of(agent: Any) -> str | None:
    """Return the provider that has every message of a conversation, or None when the host keeps them. Guarantee: pure.

    Args:
        agent: the app's.

    Returns:
        The first one that loads messages and receives the whole turn, at its end.
    """
    if getattr(agent, "require_per_service_call_history_persistence", False):
        return None
    whole = [one for one in _owners(agent) if one.store_inputs and one.store_outputs]
    return name_of_provider(whole[0]) if whole else None


class ExternalHistory:
    """The conversations of one agent that the app's history providers keep.

    Its coroutines run on the agents' loop, where the providers' connections are.

    Args:
        agent: the app's.

    Attributes:
        where: what is kept where, for errors that refuse an operation.
        home: the provider that has every message, or None.
    """

    def __init__(self, agent: Any) -> None:
        external = external_providers(agent)
        self._owners = _owners(agent)
        owners = {name_of_provider(one): clearing_of(one) for one in self._owners}
        self.home = home_of(agent)
        self.where = Histories(
            owners=tuple(owners),
            copies=tuple(name_of_provider(one) for one in external if not one.load_messages),
            in_session=any(one.load_messages for one in history_providers(agent) if one not in external),
            lasting=tuple(name for name, clear in owners.items() if clear is None),
        )

    async def messages(self, session_id: str, *, void: Collection[str] = ()) -> list[Message]:
        """Read a conversation.

        Args:
            session_id: the providers' id.
            void: turns that are not part of the conversation.

        Returns:
            The messages of the home provider, in order, each once, with their marks; none without a home.

        Raises:
            HistoryError: the provider does not answer.
        """
        for provider in self._owners:
            if name_of_provider(provider) == self.home:
                return read_once(await _asked(provider, "read", _marked(provider, session_id)), void=void)
        return []

    async def clear(self, session_id: str) -> None:
        """Delete a conversation from every provider that owns it. Guarantee: idempotent.

        Args:
            session_id: the providers' id.

        Raises:
            HistoryError: a provider does not answer; nothing or only a part was deleted.
            HistoryElsewhereError: a provider cannot delete; nothing was deleted.
        """
        clearings = {name_of_provider(one): (one, clearing_of(one)) for one in self._owners}
        for name, (_, clear) in clearings.items():
            if clear is None:
                raise HistoryElsewhereError(f"{name} has no clear(session_id)")
        for provider, clear in clearings.values():
            await _asked(provider, "cleared", cast("Clearing", clear)(session_id))

    async def copy(
        self, session_id: str, new_id: str, *, at_turn: str | None, is_before: bool = False, void: Collection[str] = ()
    ) -> None:
        """Copy a conversation within every provider that owns it. Guarantee: idempotent; the original is only read.

        Args:
            session_id: of the original, in the providers.
            new_id: of the copy.
            at_turn: the last turn of the copy; None for all.
            is_before: the copy ends before that turn.
            void: turns that are not part of the conversation.

        Raises:
            HistoryElsewhereError: the messages do not show where the turn ends; nothing was written.
            TurnRejectedError: the new id has other messages; nothing was written there.
            HistoryError: a provider does not answer; a part may have been written.
        """
        for provider in self._owners:
            stored = read_once(await _asked(provider, "read", _marked(provider, session_id)), void=void)
            if at_turn is not None:
                places = [place for place, one in enumerate(stored, 1) if turn_of(one) == at_turn]
                if not places:
                    raise HistoryElsewhereError(
                        f"what {name_of_provider(provider)} keeps does not say where turn {at_turn!r} ends: its "
                        "messages were stored without their turn. Leave at_turn out to fork the whole conversation"
                    )
                stored = stored[: places[0] - 1 if is_before else places[-1]]
            await _store(provider, new_id, stored)

    async def store(self, session_id: str, messages: Sequence[Message]) -> None:
        """Store a conversation in every provider that owns it. Guarantee: idempotent.

        Args:
            session_id: the providers' id.
            messages: with their names.

        Raises:
            TurnRejectedError: the id has other messages; nothing was written there.
            HistoryError: a provider does not answer; a part may have been written.
        """
        for provider in self._owners:
            await _store(provider, session_id, messages)


def clearing_of(provider: HistoryProvider) -> Clearing | None:
    """Return how a provider deletes a session: its own ``clear(session_id)``, plain or async. Guarantee: pure.

    Args:
        provider: the app's.

    Returns:
        A function that deletes a session by its id; None for a provider that cannot. The framework's
        `FileHistoryProvider` has no ``clear``: the file is deleted under the provider's own lock.
    """
    if isinstance(provider, CoalescingHistoryProvider):
        clear = clearing_of(provider.wrapped)
        return provider.clearing(clear) if clear is not None else None
    own: Any = getattr(provider, "clear", None)
    if callable(own):

        async def call(session_id: str) -> None:
            result = own(session_id)
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
    return [one for one in external_providers(agent) if one.load_messages]


def _unwrapped(provider: HistoryProvider) -> HistoryProvider:
    return provider.wrapped if isinstance(provider, CoalescingHistoryProvider) else provider


async def _marked(provider: HistoryProvider, session_id: str) -> list[Message]:
    if isinstance(provider, CoalescingHistoryProvider):
        return await provider.marked_messages(session_id)
    return await provider.get_messages(session_id)


async def _store(provider: HistoryProvider, session_id: str, messages: Sequence[Message]) -> None:
    """Store missing messages in batches; batches of an earlier try stay."""
    known = [name_of(one) for one in await _asked(provider, "read", _marked(provider, session_id))]
    numbered: list[Message] = []
    for place, message in enumerate(messages):
        one = Message.from_dict(message.to_dict())
        properties = {name: value for name, value in one.additional_properties.items() if name != REWRITTEN}
        if name_of(one) is None:  # stored by others, perhaps chunk by chunk
            one.contents = fold_contents(one.contents)
            properties[IDENTITY] = f"copied-{place + 1}"
        one.message_id = one.message_id or str(properties[IDENTITY])
        one.additional_properties = properties | {PLACE: place}
        numbered.append(one)
    if not set(known) <= {name_of(one) for one in numbered}:
        raise TurnRejectedError(
            f"{name_of_provider(provider)} already has messages of a session {session_id!r}: use another id"
        )
    new = [one for one in numbered if name_of(one) not in known]
    for start in range(0, len(new), _BATCH):
        await _asked(provider, "written", provider.save_messages(session_id, new[start : start + _BATCH]))


async def _asked[T](provider: HistoryProvider, what: str, doing: Awaitable[T]) -> T:
    try:
        return await doing
    except DurableAgentHostError:
        raise
    except Exception as error:
        raise HistoryError(
            f"the conversation could not be {what} by {name_of_provider(provider)}: {log_reason(error)}; try again "
            "when it responds"
        ) from error
