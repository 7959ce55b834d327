"""The stored documents of sessions: list, read, replace, verify, repair."""

import asyncio
import time
from dataclasses import replace
from typing import Any, Final

from azure.durable_functions import DurableOrchestrationClient, EntityId

from durable_agent_host.codec.owner import owner_of_document
from durable_agent_host.codec.pieces import has_pieces
from durable_agent_host.codec.state import decode_session, document_digest, encode_session, refuse_encrypted
from durable_agent_host.durable.access import Access
from durable_agent_host.durable.external_sessions import ExternalSessions
from durable_agent_host.durable.listing import Listed, entity_pages
from durable_agent_host.durable.owned_list import list_owned
from durable_agent_host.errors import StateError, TurnRejectedError, TurnTimedOutError
from durable_agent_host.model.ids import entity_name
from durable_agent_host.model.repair_rules import RepairRules
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.segments.cache import PieceCache
from durable_agent_host.segments.checks import find_problems, repair_record
from durable_agent_host.segments.forks import keep_original
from durable_agent_host.segments.keeper import Keeper, SessionName, holder_of
from durable_agent_host.segments.pages import Page, read_page
from durable_agent_host.segments.record import Record
from durable_agent_host.session.at_work import is_erasing, refuse_busy
from durable_agent_host.session.repair import Change, mend_head, repair_document
from durable_agent_host.session.repair_differences import Note, note_nothing
from durable_agent_host.turn_log.crash_points import reach

PUT_OPERATION: Final = "put_document"
PUT_SECONDS: Final = 30.0


class SessionDocuments:
    """Sessions as documents, with the durable client of one request.

    Args:
        client: the SDK's.
        keeper: reads what sessions have outside their entities.
        elsewhere: what history providers of the app keep.

    Attributes:
        access: which sessions there are for the request; None for all. A session that there is not for it is read as
            one that does not exist: by all that reads sessions here.
    """

    def __init__(self, client: DurableOrchestrationClient, keeper: Keeper, elsewhere: ExternalSessions) -> None:
        self._client = client
        self.keeper = keeper
        self.elsewhere = elsewhere
        self.access: Access | None = None

    async def listed(self, agent: str) -> list[Listed]:
        """List an agent's sessions.

        Args:
            agent: the agent's registered name.

        Returns:
            All of them, newest first; those of the request's own principal where it has one.
        """
        if self.access is not None:
            return sorted(await list_owned(self._client, self.keeper.owned, agent, self.access.owner), reverse=True)
        found: set[Listed] = set()
        async for page in entity_pages(self._client, entity_name(agent)):
            found.update(page)
        return sorted(found, reverse=True)

    async def sees_turn(self, request: TurnRequest) -> bool:
        """Tell whether there is a turn for the request at hand: in a session of its owner, or in one that begins.

        Args:
            request: of the turn.
        """
        if self.access is None:
            return True
        state = await held_by(self._client, request.agent, request.session_id)
        sees = await self._sees(request.agent, request.session_id, state)
        if state is None:  # let in in a moment, or sent away before
            return request.session_owner == self.access.owner
        return sees and request.session_owner in (None, owner_of_document(state))

    async def is_taken(self, agent: str, session_id: str) -> bool:
        """Tell whether a new session cannot have this id, whosever the one is that has it."""
        return (state := await held_by(self._client, agent, session_id)) not in (None, {}) and not is_erasing(state)

    async def _sees(self, agent: str, session_id: str, state: Any) -> bool:
        """Tell whether there is a session for the request; see `Access`."""
        exists, access = state is not None, self.access
        return (
            exists if access is None else await access.sees(agent, session_id, owner_of_document(state), exists=exists)
        )

    async def read(self, agent: str, session_id: str) -> Any:
        """Read what a session's entity holds, readable or not.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.

        Returns:
            JSON, or None when there is nothing, or what there is is being erased.
        """
        return None if is_erasing(state := await self.held(agent, session_id)) else state

    async def held(self, agent: str, session_id: str) -> Any:
        """Read what a session's entity holds, also while it is being erased.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.

        Returns:
            JSON, or None when there is nothing for the request.
        """
        state = await held_by(self._client, agent, session_id)
        return state if await self._sees(agent, session_id, state) else None

    async def session(self, agent: str, session_id: str) -> Session | None:
        """Read a session.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.

        Returns:
            The session, or None when it does not exist for the request.

        Raises:
            StateError: it cannot be read.
        """
        return None if (state := await self.held(agent, session_id)) is None else decode_session(state)

    async def clear_elsewhere(self, agent: str, session_id: str) -> None:
        """Delete what history providers keep of a session, before the session itself is erased.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.

        Raises:
            TurnRejectedError: a turn runs or waits; nothing was done.
            HistoryElsewhereError: a provider cannot delete; nothing was done.
            HistoryError: a provider does not answer; the session is as it was.
        """
        refuse_busy(await self.held(agent, session_id))
        await self.elsewhere.clear(agent, session_id)

    async def put(self, agent: str, session_id: str, document: Any, *, instead_of: Any) -> None:
        """Replace a session's document.

        Guarantee: idempotent; the entity compares and writes atomically.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.
            document: what the entity is to hold; None deletes it.
            instead_of: what it holds now, or None for nothing.

        Raises:
            TurnRejectedError: it holds something else, or a turn runs.
            TurnTimedOutError: the entity has not done it in 30 s.
        """
        entity, change = EntityId(entity_name(agent), session_id), {"document": document}
        await self._client.signal_entity(entity, PUT_OPERATION, change | {"instead_of": document_digest(instead_of)})
        deadline, pause = time.monotonic() + PUT_SECONDS, 0.01
        while time.monotonic() < deadline:
            now = await held_by(self._client, agent, session_id)
            if now == document:
                return await self._note_owner(agent, session_id, document, instead_of)
            if now != instead_of:
                raise TurnRejectedError(f"session {session_id!r} has changed meanwhile: try again")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.5)
        raise TurnTimedOutError(f"session {session_id!r} was not written in {PUT_SECONDS:g} s: look again later")

    async def _note_owner(self, agent: str, session_id: str, document: Any, before: Any) -> None:
        owner = owner_of_document(document)
        if owner is not None and owner != owner_of_document(before):
            await self.keeper.owned.note(agent, session_id, owner)

    async def verify(
        self, agent: str, session_id: str, *, rules: RepairRules, note: Note = note_nothing
    ) -> tuple[Any, list[Change]]:
        """Find what cannot be read of a session, and what a model's service would reject.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.
            rules: of the service that receives the conversation.
            note: told what repair would make of the entries.

        Returns:
            What the entity holds (None for nothing), and the problems with what repair would do.

        Raises:
            StateError: it cannot be read, and nobody here knows what would be right.
            LogError: the piece store does not answer.
        """
        if (state := await self.read(agent, session_id)) is None:
            return None, []
        if self.elsewhere.has_owner(agent) or not has_pieces(state):
            return state, repair_document(await self.with_messages(agent, session_id, state), rules, note)[1]
        head, changes = mend_head(state)
        return state, changes + await find_problems(whole_record(self.keeper, head), rules, note)

    async def with_messages(self, agent: str, session_id: str, state: Any) -> Any:
        """Put the messages that a history provider keeps into what an entity holds, if it can be read."""
        if not self.elsewhere.has_owner(agent):
            return state
        try:
            session = decode_session(state)
        except StateError:
            return state
        return encode_session(await self._filled(agent, session_id, session))

    async def _filled(self, agent: str, session_id: str, session: Session) -> Session:
        """Put the messages that a history provider keeps into the entries of a session."""
        if not self.elsewhere.has_owner(agent):
            return session
        record = self.keeper.record(session, SessionName(agent, session_id))
        entries = await record.attached(session.entries, session.sealed.home)
        return replace(session, entries=(*await record.entries_of_others(), *entries))

    async def shown(
        self, agent: str, session_id: str, *, has_messages: bool = False
    ) -> tuple[Session | None, list[Change]]:
        """Read as much of a session's head as is readable.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.
            has_messages: whether messages that a history provider keeps are read there.

        Returns:
            The session (None when there is none), and what was left out of it because it has no shape.

        Raises:
            StateError: a newer or unknown program wrote it, or there is nothing in it that could be a conversation.
        """
        state = await self.read(agent, session_id)
        if state in (None, {}):
            return (None if state is None else decode_session(state)), []
        document, changes = mend_head(state)
        session = decode_session(document)
        return (await self._filled(agent, session_id, session) if has_messages else session), changes

    async def page(self, agent: str, session_id: str, *, before: int | None, limit: int) -> tuple[Session, Page] | None:
        """Read a page of a conversation, as far as it is readable.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.
            before: the place at which the page after this one begins; None for the newest page.
            limit: messages on the page.

        Returns:
            The session's head and the page, with what was left out because it cannot be read; None when there is no
            session.

        Raises:
            StateError: a newer or unknown program wrote it, or there is nothing in it that could be a conversation.
            LogError: the piece store does not answer.
        """
        session, changes = await self.shown(agent, session_id, has_messages=True)
        if session is None:
            return None
        record = self.keeper.record(session, SessionName(agent, session_id))
        page = await read_page(record, before=before, limit=limit)
        return session, replace(page, problems=[*changes, *page.problems])

    async def repair(self, agent: str, session_id: str, *, rules: RepairRules, keep_as: str) -> list[Change]:
        """Repair a session, and keep the original as another session.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.
            rules: of the service that receives the conversation.
            keep_as: the id of the session that keeps the original; it shares what is outside of the head.

        Returns:
            What was changed; nothing is written when that is nothing.

        Raises:
            StateError: it cannot be repaired.
            TurnRejectedError: a turn runs or waits, or the session changed meanwhile.
            LogError: the piece store does not answer.
        """
        state = await self.read(agent, session_id)
        if not has_pieces(state):
            document, changes = repair_document(state, rules)
            if not changes:
                return []
            refuse_busy(state)
            await self.put(agent, keep_as, state, instead_of=None)
            await self.put(agent, session_id, document, instead_of=state)
            return changes
        mended, changes = mend_head(state)
        record = whole_record(self.keeper, mended)
        fork, more = await repair_record(record, rules)
        if not changes and not more:
            return []
        refuse_busy(state)
        kept = await keep_original(record)
        await kept.hold(self.keeper.open_store, holder_of(agent, keep_as))
        reach("repair.after_hold")
        if await self.read(agent, session_id) != state:  # what it was may have been erased before it was held
            if await self.held(agent, keep_as) is None:
                await kept.release(self.keeper.open_store, holder_of(agent, keep_as))
            raise TurnRejectedError(f"session {session_id!r} has changed meanwhile: try again")
        await self.put(agent, keep_as, encode_session(kept.session), instead_of=None)
        reach("repair.after_original")
        await fork.hold(self.keeper.open_store, holder_of(agent, session_id))
        reach("repair.before_head")
        await self.put(agent, session_id, encode_session(fork.session), instead_of=state)
        return changes + more


async def held_by(client: DurableOrchestrationClient, agent: str, session_id: str) -> Any:
    """Read what a session's entity holds.

    Args:
        client: the SDK's.
        agent: the agent's registered name.
        session_id: without the agent's name.

    Returns:
        JSON, or None when there is nothing.

    Raises:
        EncryptionKeyError: it is encrypted, and the app has not the key.
    """
    state = await client.read_entity_state(EntityId(entity_name(agent), session_id))
    refuse_encrypted(state.entity_state)
    return state.entity_state if state.entity_exists else None


def whole_record(keeper: Keeper, document: Any) -> Record:
    """Give a conversation that is read whole: from the store itself, and without driving others out of the cache.

    Args:
        keeper: reads what the session has outside its entity.
        document: what the entity holds.

    Raises:
        StateError: it cannot be read.
    """
    return Record(keeper.open_store, decode_session(document), cache=PieceCache(0))
