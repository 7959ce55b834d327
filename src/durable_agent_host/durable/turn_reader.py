"""Reads turns: from their orchestrations, or from their sessions once those have been purged."""

from azure.durable_functions import DurableOrchestrationClient

from durable_agent_host.durable.access import Access
from durable_agent_host.durable.app_secret import NOT_STARTED_BY_APP
from durable_agent_host.durable.documents import Look, SessionDocuments, mended
from durable_agent_host.durable.statuses import status_of_turn, turn_of_status
from durable_agent_host.errors import CorruptStateError, StateError
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import Turn
from durable_agent_host.segments.keeper import SessionName
from durable_agent_host.session.receipts import kept_turn
from durable_agent_host.turn.wire import decode_turn_request


class TurnReader:
    """Reads turns, with the durable client of one request.

    Args:
        client: the SDK's.
        documents: the stored sessions that exist for the request.
    """

    def __init__(self, client: DurableOrchestrationClient, documents: SessionDocuments) -> None:
        self._client = client
        self._documents = documents
        self._keeper = documents.keeper

    async def read(self, turn_id: str) -> Turn | None:
        """Read a turn's current state, whoever its owner.

        Args:
            turn_id: the turn.

        Returns:
            The turn, or None when its orchestration does not exist, has been purged, or is not a turn.

        Raises:
            CorruptStateError: what the task hub stores of it is damaged.
        """
        turn = await self._travelled(turn_id)
        return turn and await self._whole(turn)

    async def find(self, agent: str, session_id: str, turn_id: str) -> Turn | None:
        """Read a turn of a session, from its receipt when its orchestration has been purged.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.
            turn_id: the turn.

        Returns:
            The turn, or None when the session does not know it, or no such session exists for the request.

        Raises:
            CorruptStateError: what the task hub stores of it is damaged.
        """
        access = self._documents.access
        # The same reads in the same order for a stranger, whatever exists: how long an answer takes tells nothing.
        look = await self._documents.look(agent, session_id) if access is not None else None
        try:
            turn = await self._travelled(turn_id)
        except CorruptStateError:
            if look is not None and not look.is_seen:
                return None
            raise
        if turn is not None and _was_refused(turn):
            turn = None
        is_here = turn is not None and (turn.request.agent, turn.request.session_id) == (agent, session_id)
        if turn is not None and is_here and _is_seen(turn, look, access):
            return await self._whole(turn)
        if (turn is not None and look is None) or (look is not None and not look.is_seen):
            return None
        try:
            state = look.state if look is not None else await self._documents.read(agent, session_id)
            session, _ = mended(state)  # without malformed receipts
        except StateError:
            return None
        return await self._kept(agent, session_id, turn_id, session) if session else None

    async def _travelled(self, turn_id: str) -> Turn | None:
        """Read a turn from its orchestration."""
        status = await status_of_turn(self._client, turn_id, show_input=True)
        return turn_of_status(turn_id, status) if status else None

    async def _whole(self, turn: Turn) -> Turn:
        request = turn.request
        return await self._keeper.whole_turn(turn, lambda: self._documents.session(request.agent, request.session_id))

    async def _kept(self, agent: str, session_id: str, turn_id: str, session: Session) -> Turn | None:
        """Read a turn whose orchestration no longer exists, or does not exist yet."""
        if waiting := session.requests.get(turn_id):  # it arrived as a signal
            return await self._whole(Turn(request=decode_turn_request(waiting), outcome=None))
        ended = await self._keeper.record(session, SessionName(agent, session_id)).ended(turn_id)
        return kept_turn(agent, session_id, ended) if ended is not None else None


def _was_refused(turn: Turn) -> bool:
    """Return whether a turn's orchestration was started from outside: it has not replaced a turn of the same id."""
    return turn.outcome is not None and NOT_STARTED_BY_APP in (turn.outcome.error or {}).get("message", "")


def _is_seen(turn: Turn, look: Look | None, access: Access | None) -> bool:
    """Return whether a turn exists for the current request: in a session of its owner, or in a new one."""
    if look is None or access is None:
        return True
    owner = turn.request.session_owner
    if look.state is None:  # it will be admitted in a moment, or was refused
        return owner == access.owner
    return look.is_seen and owner in (None, look.owner)
