"""Records beside the blobs which sessions belong to whom, so that listing one's own sessions reads no others.

Theory of operation. All sessions of one owner with one agent have an empty blob in one namespace, whose name is the
session's. A note is written when a session begins, once more by each process that runs a turn in it, and removed by its
erasure. A note proves nothing: a listing reads the sessions and checks their owners. So a leftover note shows nobody
anything, and a missing one, because another program has written the session, is added by the session's next turn.

A sweep leaves such a namespace alone, because its owner is no session.
"""

import base64
from typing import Final

from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.principal import Owner
from durable_agent_host.model.session import Session
from durable_agent_host.segments.conversation_reader import OpenSegments
from durable_agent_host.segments.protocol import OWNER
from durable_agent_host.storage.latest_dict import LatestDict

_INDEX: Final = b"sessions of an owner"
_PREFIX: Final = "session."
_MAX_CACHED: Final = 10_000
_STALE_SECONDS: Final = 3600.0
"""How old a note without a session is before it is deleted: a replica of the store may show a session late."""


class SessionOwnerIndex:
    """Records the owners of sessions.

    Args:
        open_store: returns the process's blob store; the first call opens it.
    """

    def __init__(self, open_store: OpenSegments) -> None:
        self._open_store = open_store
        self._recorded: LatestDict[tuple[str, str], None] = LatestDict(_MAX_CACHED)

    async def record_turn_owner(self, agent: str, session_id: str, session: Session) -> None:
        """Record the owner of a session in which a turn runs, unless this process has done so.

        Raises:
            LogError: the store does not answer.
        """
        if session.owner is not None and not self.is_recorded(agent, session_id, session):
            await self.add(agent, session_id, session.owner)

    def is_recorded(self, agent: str, session_id: str, session: Session) -> bool:
        """Return whether `record_turn_owner` has nothing to do."""
        if session.owner is None:
            return True
        is_new = not session.receipts and not session.sealed.refs  # possibly again, after an erasure elsewhere
        return not is_new and (_namespace_of(agent, session.owner), session_id) in self._recorded

    async def add(self, agent: str, session_id: str, owner: Owner) -> None:
        """Record a session's owner. Guarantee: idempotent.

        Raises:
            LogError: the store does not answer.
        """
        if not owner.principal:
            return
        namespace = _namespace_of(agent, owner)
        await self._open_store().put(namespace, {OWNER: _INDEX, _name_of(session_id): b""})
        self._recorded[namespace, session_id] = None

    async def remove(self, agent: str, session_id: str, owner: Owner, *, is_erased: bool) -> None:
        """Remove a note. Guarantee: idempotent.

        Raises:
            LogError: the store does not answer.
        """
        namespace = _namespace_of(agent, owner)
        age = 0.0 if is_erased else _STALE_SECONDS
        self._recorded.pop((namespace, session_id), None)
        await self._open_store().delete(namespace, [_name_of(session_id)], older_than_seconds=age)

    async def of(self, agent: str, owner: Owner) -> list[str]:
        """List the sessions recorded as an owner's.

        Returns:
            Their ids, in no order.

        Raises:
            LogError: the store does not answer.
        """
        blobs = self._open_store().list_blobs(_namespace_of(agent, owner))
        return [_session_of(blob.name) async for blob in blobs if blob.name != OWNER]


def _namespace_of(agent: str, owner: Owner) -> str:
    """Return the namespace of an owner's sessions."""
    return derived_id("owned", agent.casefold(), owner.tenant, owner.principal)


def _name_of(session_id: str) -> str:
    return _PREFIX + base64.urlsafe_b64encode(session_id.encode()).decode()


def _session_of(name: str) -> str:
    return base64.urlsafe_b64decode(name.removeprefix(_PREFIX)).decode()
