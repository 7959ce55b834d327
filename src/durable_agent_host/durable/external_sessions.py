"""Sessions whose messages a history provider of the app keeps: read, stored, copied and deleted there."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, cast

from agent_framework import Message

from durable_agent_host.agent.agent_event_loop import submit
from durable_agent_host.agent.history_providers import ProviderHistory
from durable_agent_host.agent.run_history_providers import VOID_TURNS
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.segments.conversation_reader import ConversationReader, ReadExternalMessages
from durable_agent_host.segments.turn_data_storage import SessionKey
from durable_agent_host.session.ownership import stored_external_session_id


class ExternalSessions:
    """The data kept by the history providers of the app's agents.

    Args:
        histories: of the agents, by name; a live view.
    """

    def __init__(self, histories: Mapping[str, ProviderHistory]) -> None:
        self._histories = histories

    def has_owner(self, agent: str) -> bool:
        """Return whether providers give the model its history."""
        history = self._histories.get(agent)
        return history is not None and bool(history.where.owners)

    def reader(self, name: SessionKey, record: ConversationReader) -> ReadExternalMessages | None:
        """Return a reader of the session's messages; None when the host keeps them."""
        history = self._histories.get(name.agent)
        if history is None or history.primary_provider is None:
            return None

        async def read() -> Sequence[Message]:
            provider_id = await _get_provider_id(name, record)
            return await _on_loop(history.messages(provider_id, void=await _void_turns(record)))

        return read

    async def clear(self, name: SessionKey, record: ConversationReader) -> None:
        """Delete a conversation from the providers that own it. Guarantee: idempotent.

        Raises:
            HistoryElsewhereError: a provider cannot delete; nothing was done.
            HistoryError: a provider does not answer; a part may be deleted.
        """
        history = self._histories.get(name.agent)
        if history is None or not history.where.owners:
            return
        history.where.reject_unsupported(name.agent, "delete")
        await _on_loop(history.clear(await _get_provider_id(name, record)))


async def _get_provider_id(name: SessionKey, record: ConversationReader) -> str:
    """Return the id by which providers know a session."""
    try:
        agent_session = await record.agent_session()
    except CorruptStateError:  # the session is being erased, or its piece is lost
        agent_session = None
    return stored_external_session_id(name.session_id, record.session.owner, agent_session)


async def _void_turns(record: ConversationReader) -> set[str]:
    """List the turns that are not part of the conversation, although a provider may have messages of them."""
    session = record.session
    state: Any = (await record.agent_session() or {}).get("state") or {}
    running = () if session.running is None or session.receipt_of(session.running) else (session.running,)
    return {*session.void_turn_ids, *cast("list[str]", state.get(VOID_TURNS) or []), *running}


async def _on_loop[T](coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the agents' event loop, where their providers' connections are."""
    return await asyncio.wrap_future(submit(coroutine))
