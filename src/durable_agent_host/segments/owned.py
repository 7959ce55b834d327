"""Which sessions belong to whom, noted beside the pieces, so that a list of one's own sessions reads no others.

Theory of operation. All sessions of one owner with one agent hold a home that never has a piece. A note is written
when a session begins, once more by each process that runs a turn in it, and taken back by its erasure. A note proves
nothing: whoever lists reads the sessions and looks whose they are. So a note that is left over shows nobody anything,
and one that is missing, because another program has written the session, is made up for by its next turn.

The holders are named so that a sweep takes none of them for a session: it leaves a home alone when it does not know who
holds it. Sessions that began before there were notes are noted once for an agent, by who lists first.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from durable_agent_host.model.ids import derived_id, entity_name
from durable_agent_host.model.principal import Owner
from durable_agent_host.model.session import Session
from durable_agent_host.segments.record import OpenSegments

_REMEMBERED: Final = 10_000
_AT_ONCE: Final = 32
_COMPLETE: Final = "owned:complete"
_STALE_SECONDS: Final = 3600.0
"""How old a note without a session is before it is deleted: a copy of the store may show a session late."""


class OwnedSessions:
    """Notes whose sessions are.

    Args:
        open_store: returns the process's piece store, and opens it at the first call.
    """

    def __init__(self, open_store: OpenSegments) -> None:
        self._open_store = open_store
        self._noted: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._complete: set[str] = set()

    async def note_turn(self, agent: str, session_id: str, session: Session) -> None:
        """Note whose a session is in which a turn runs, unless this process has done so.

        Guarantee: idempotent.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.
            session: its head, as it was when the turn was granted.

        Raises:
            LogError: the store does not answer.
        """
        if session.owner is None:
            return
        begins = not session.receipts and not session.sealed.refs  # again, perhaps, after an erasure elsewhere
        if begins or (_home_of(agent, session.owner), session_id) not in self._noted:
            await self.note(agent, session_id, session.owner)

    async def note(self, agent: str, session_id: str, owner: Owner) -> None:
        """Note whose a session is. Guarantee: idempotent.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.
            owner: the session's; nothing is noted for the app itself, which lists nothing.

        Raises:
            LogError: the store does not answer.
        """
        if not owner.principal:
            return
        home = _home_of(agent, owner)
        await self._open_store().hold(home, _holder_of(agent, session_id))
        self._noted[home, session_id] = None
        if len(self._noted) > _REMEMBERED:
            self._noted.popitem(last=False)

    async def forget(self, agent: str, session_id: str, owner: Owner, *, is_erased: bool) -> None:
        """Take a note back. Guarantee: idempotent.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.
            owner: whose the session was.
            is_erased: whether it is known that there is no such session; otherwise a young note stays.

        Raises:
            LogError: the store does not answer.
        """
        home, age = _home_of(agent, owner), 0.0 if is_erased else _STALE_SECONDS
        self._noted.pop((home, session_id), None)
        await self._open_store().release(home, _holder_of(agent, session_id), older_than_seconds=age)

    async def of(self, agent: str, owner: Owner) -> list[str] | None:
        """List the sessions that are noted as an owner's.

        Args:
            agent: the agent's registered name.
            owner: whose.

        Returns:
            Their ids, in no order; None while sessions of before may lack their notes.

        Raises:
            LogError: the store does not answer.
        """
        store, name = self._open_store(), agent.casefold()
        if name not in self._complete:
            if _COMPLETE not in await store.holders(_home_of(agent, None)):
                return None
            self._complete.add(name)
        prefix = _holder_of(agent, "")
        return [holder.removeprefix(prefix) for holder in await store.holders(_home_of(agent, owner))]

    async def note_all(self, agent: str, owned: Iterable[tuple[str, Owner]]) -> None:
        """Note all sessions of an agent that have owners. Guarantee: idempotent.

        Args:
            agent: the agent's registered name.
            owned: id and owner of each.

        Raises:
            LogError: the store does not answer.
        """
        room = asyncio.Semaphore(_AT_ONCE)

        async def note(session_id: str, owner: Owner) -> None:
            async with room:
                await self.note(agent, session_id, owner)

        await asyncio.gather(*(note(session_id, owner) for session_id, owner in owned))
        await self._open_store().hold(_home_of(agent, None), _COMPLETE)


def _home_of(agent: str, owner: Owner | None) -> str:
    """Name the home whose holders are an owner's sessions; without an owner, where it is noted that all are noted."""
    return derived_id("owned", agent.casefold(), *((owner.tenant, owner.principal) if owner else ()))


def _holder_of(agent: str, session_id: str) -> str:
    return f"owned:@{entity_name(agent).lower()}@{session_id}"
