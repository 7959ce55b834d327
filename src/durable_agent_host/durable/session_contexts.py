"""The contexts of sessions: read what the model would receive, and discard what compaction decided."""

from durable_agent_host.codec.overlay import decode_overlay
from durable_agent_host.codec.state import decode_session, encode_session
from durable_agent_host.durable.documents import SessionDocuments, refuse_busy
from durable_agent_host.model.session import without_overlay
from durable_agent_host.segments.keeper import Keeper, SessionName
from durable_agent_host.segments.newest_entries import entries_of_context, stored_overlay
from durable_agent_host.session.context import StoredContext


class SessionContexts:
    """Contexts, with the durable client of one request.

    Args:
        documents: the stored sessions.
        keeper: has the parts of conversations that are outside of their sessions.
    """

    def __init__(self, documents: SessionDocuments, keeper: Keeper) -> None:
        self._documents = documents
        self._keeper = keeper

    async def read(self, agent: str, session_id: str, *, made_by: str | None) -> StoredContext | None:
        """Read the context of a conversation, and nothing outside of it.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.
            made_by: which overlays apply to the agent; None when it compacts nothing.

        Returns:
            The context; None when there is no session.

        Raises:
            StateError: the session cannot be read.
        """
        state = await self._documents.read(agent, session_id)
        if state is None:
            return None
        session = decode_session(state)
        record = self._keeper.record(session, SessionName(agent, session_id))
        overlay = decode_overlay(await stored_overlay(record))
        if overlay is None or made_by is None or not overlay.holds_for(made_by, session.message_count):
            overlay = None
        return StoredContext(session, overlay, await entries_of_context(record, overlay))

    async def reset(self, agent: str, session_id: str) -> bool | None:
        """Discard what compaction has decided about a conversation; the next turn decides anew.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.

        Returns:
            Whether there was anything to discard; None when there is no session.

        Raises:
            StateError: the session cannot be read.
            TurnRejectedError: a turn runs or waits, or the session has changed.
        """
        state = await self._documents.read(agent, session_id)
        if state is None:
            return None
        session = decode_session(state)
        if session.overlay is session.sealed.overlay is None:
            return False
        refuse_busy(state)
        document = encode_session(without_overlay(session))
        await self._documents.put(agent, session_id, document, instead_of=state)
        return True
