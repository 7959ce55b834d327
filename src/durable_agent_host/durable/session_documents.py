"""The stored documents of sessions: list, read, replace, verify, repair."""

import asyncio
import time
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

from azure.durable_functions import DurableOrchestrationClient, EntityId

from durable_agent_host.codec.entity_state import (
    decode_session,
    document_digest,
    encode_session,
    last_use_of_document,
    owner_of_document,
    refuse_encrypted,
)
from durable_agent_host.codec.session_blobs import has_pieces
from durable_agent_host.codec.strict_json import has_python_class
from durable_agent_host.durable.external_sessions import ExternalSessions
from durable_agent_host.durable.instance_listing import Listed, entity_pages, entity_state_pages
from durable_agent_host.errors import CorruptStateError, RequestError, StateError, TurnRejectedError, TurnTimedOutError
from durable_agent_host.model.ids import entity_name
from durable_agent_host.model.principal import Owner
from durable_agent_host.model.repair_rules import RepairRules
from durable_agent_host.model.session import Session
from durable_agent_host.segments.blob_cache import PieceCache
from durable_agent_host.segments.conversation_fork import keep_original
from durable_agent_host.segments.conversation_pages import Page, read_page
from durable_agent_host.segments.conversation_reader import Record
from durable_agent_host.segments.conversation_repair import find_problems, repair_record
from durable_agent_host.segments.session_owner_index import OwnedSessions
from durable_agent_host.segments.turn_data_storage import Keeper, SessionName, holder_of
from durable_agent_host.session.admission import is_erasing, refuse_busy
from durable_agent_host.session.repair import Change, Note, mend_head, note_nothing, repair_document
from durable_agent_host.turn_log.crash_points import reach

_AT_ONCE: Final = 16


async def list_owned(
    client: DurableOrchestrationClient, owned: OwnedSessions, agent: str, owner: Owner
) -> list[Listed]:
    """List an owner's sessions.

    Args:
        client: the SDK's.
        owned: the record of sessions' owners.
        agent: the agent's registered name.
        owner: the owner.

    Returns:
        All of them, in no promised order.

    Raises:
        LogError: the piece store does not answer.
    """
    names = await owned.of(agent, owner)
    if names is None:
        return await _look_through_all(client, owned, agent, owner)
    found: list[Listed] = []
    left = iter(names)

    async def look() -> None:
        for session_id in left:
            try:
                state = await client.read_entity_state(EntityId(entity_name(agent), session_id))
            except CorruptStateError:  # nobody can tell whose it is
                continue
            held: Any = state.entity_state
            if not state.entity_exists:
                await owned.forget(agent, session_id, owner, is_erased=False)
            elif owner_of_document(held) == owner:
                found.append(Listed(last_use_of_document(held), session_id))

    await asyncio.gather(*(look() for _ in range(_AT_ONCE)))
    return found


async def _look_through_all(
    client: DurableOrchestrationClient, owned: OwnedSessions, agent: str, owner: Owner
) -> list[Listed]:
    """List them of all sessions of the agent, and note whose these are, so that the next list reads fewer."""
    found: dict[str, Listed] = {}
    others: list[tuple[str, Owner]] = []
    async for page in entity_state_pages(client, entity_name(agent)):
        for one, state in page:
            whose = owner_of_document(state)
            if whose == owner:
                found[one.session_id] = Listed(last_use_of_document(state), one.session_id)
            if whose is not None:
                others.append((one.session_id, whose))
    await owned.note_all(agent, others)
    return [*found.values()]


class Access(Protocol):
    """The access rule of one request, made by `durable_agent_host.http.gate`."""

    @property
    def owner(self) -> Owner:
        """The owner of what the request begins."""
        ...

    @property
    def has_own_names(self) -> bool:
        """Whether the request may use a name that somebody else has chosen."""
        ...

    async def sees(
        self, agent: str, session_id: str, owner: Owner | None, *, exists: bool, to_read: bool = False
    ) -> bool:
        """Return whether a session exists for the request.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.
            owner: its owner, or None.
            exists: whether it exists for anybody.
            to_read: whether it can be read, whatever the request does.
        """
        ...

    async def may_import_on_trust(self, agent: str, session_id: str) -> bool:
        """Return whether the app lets the caller import a document that speaks for the app, its tools or the service.

        Args:
            agent: the agent's registered name.
            session_id: of the new session.
        """
        ...


PUT_OPERATION: Final = "put_document"
PUT_SECONDS: Final = 30.0


class Look(NamedTuple):
    """What a session's entity holds, and for whom.

    Attributes:
        state: JSON, or None when there is nothing for anybody.
        owner: of the session, or None.
        is_seen: it exists for the current request.
    """

    state: Any
    owner: Owner | None
    is_seen: bool


class SessionDocuments:
    """Sessions as documents, with the durable client of one request.

    Args:
        client: the SDK's.
        keeper: reads what sessions have outside their entities.
        elsewhere: data kept by the app's history providers.

    Attributes:
        access: which sessions exist for the request; None for all. Every read of sessions here treats other sessions as
            missing.
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
            All of them, newest first; only those of the request's principal, if it has one.
        """
        if self.access is not None:
            return sorted(await list_owned(self._client, self.keeper.owned, agent, self.access.owner), reverse=True)
        found: set[Listed] = set()
        async for page in entity_pages(self._client, entity_name(agent)):
            found.update(page)
        return sorted(found, reverse=True)

    async def look(self, agent: str, session_id: str) -> Look:
        """Read a session's entity once, whether or not it exists for the current request.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.
        """
        state = await held_by(self._client, agent, session_id)
        return Look(state, owner_of_document(state), await self._sees(agent, session_id, state))

    async def is_taken(self, agent: str, session_id: str) -> bool:
        """Return whether the id of a new session is taken, whoever the owner."""
        return (state := await held_by(self._client, agent, session_id)) not in (None, {}) and not is_erasing(state)

    async def _sees(self, agent: str, session_id: str, state: Any) -> bool:
        """Return whether a session exists for the request; see `Access`."""
        exists = state is not None
        access = self.access
        return (
            exists if access is None else await access.sees(agent, session_id, owner_of_document(state), exists=exists)
        )

    async def read(self, agent: str, session_id: str) -> Any:
        """Read what a session's entity holds, readable or not.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.

        Returns:
            JSON, or None when there is nothing, or it is being erased.
        """
        return None if is_erasing(state := await self.held(agent, session_id)) else state

    async def held(self, agent: str, session_id: str) -> Any:
        """Read what a session's entity holds, even while it is being erased.

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
        """Delete a session's data in history providers, before the session itself is erased.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.

        Raises:
            TurnRejectedError: a turn runs or waits; nothing was done.
            HistoryElsewhereError: a provider cannot delete; nothing was done.
            HistoryError: a provider does not answer; the session is as it was.
        """
        state = await self.held(agent, session_id)
        refuse_busy(state)
        if self.elsewhere.has_owner(agent):
            await self.elsewhere.clear(SessionName(agent, session_id), self.keeper.record(readable_session(state)))

    async def put(self, agent: str, session_id: str, document: Any, *, instead_of: Any) -> None:
        """Replace a session's document.

        Guarantee: idempotent; the entity compares and writes atomically.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.
            document: the entity's new state; None deletes it.
            instead_of: its current state, or None for nothing.

        Raises:
            RequestError: the document names a class of Python, which the entity refuses.
            TurnRejectedError: the state differs, or a turn runs.
            TurnTimedOutError: the entity has not done it within 30 s.
        """
        if has_python_class(document):
            raise RequestError(
                "the document has an object with '__class__', '__module__' and '__data__', which names a class of "
                "Python to Durable Functions: give the fields other names"
            )
        entity = EntityId(entity_name(agent), session_id)
        change = {"document": document}
        await self._client.signal_entity(entity, PUT_OPERATION, change | {"instead_of": document_digest(instead_of)})
        deadline = time.monotonic() + PUT_SECONDS
        pause = 0.01
        while time.monotonic() < deadline:
            now = await held_by(self._client, agent, session_id)
            if now == document:
                return await self._note_owner(agent, session_id, document, instead_of)
            if now != instead_of:
                if instead_of in (None, {}):
                    raise TurnRejectedError(f"session {session_id!r} has begun meanwhile: use another id")
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
        """Find what cannot be read in a session, and what a model's service would reject.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.
            rules: of the service that receives the conversation.
            note: called with what repair would make of the entries.

        Returns:
            The entity's state (None for nothing), and the problems with what repair would do.

        Raises:
            StateError: it cannot be read, and this version does not know its format.
            LogError: the piece store does not answer.
        """
        if (state := await self.read(agent, session_id)) is None:
            return None, []
        if self.elsewhere.has_owner(agent) or not has_pieces(state):
            return state, repair_document(await self.with_messages(agent, session_id, state), rules, note)[1]
        head, changes = mend_head(state)
        return state, changes + await find_problems(whole_record(self.keeper, head), rules, note)

    async def with_messages(self, agent: str, session_id: str, state: Any) -> Any:
        """Put the messages kept by a history provider into an entity's state, if it can be read."""
        if not self.elsewhere.has_owner(agent):
            return state
        try:
            session = decode_session(state)
        except StateError:
            return state
        return encode_session(await self._filled(agent, session_id, session))

    async def _filled(self, agent: str, session_id: str, session: Session) -> Session:
        """Put the messages kept by a history provider into the entries of a session."""
        if not self.elsewhere.has_owner(agent):
            return session
        record = self.keeper.record(session, SessionName(agent, session_id))
        entries = await record.attached(session.entries, session.sealed.home)
        return replace(session, entries=(*await record.entries_of_others(), *entries))

    async def shown(
        self, agent: str, session_id: str, *, has_messages: bool = False
    ) -> tuple[Session | None, list[Change]]:
        """Read as much as possible of a session's head.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.
            has_messages: whether to read messages kept by a history provider.

        Returns:
            The session (None when there is none), and the malformed parts that were left out.

        Raises:
            StateError: a newer or unknown program wrote it, or nothing in it can be a conversation.
        """
        session, changes = mended(await self.read(agent, session_id))
        if session is not None and has_messages:
            session = await self._filled(agent, session_id, session)
        return session, changes

    async def page(self, agent: str, session_id: str, *, before: int | None, limit: int) -> tuple[Session, Page] | None:
        """Read a page of a conversation, as far as it is readable.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.
            before: where the following page begins; None for the newest page.
            limit: messages on the page.

        Returns:
            The session's head and the page, with the unreadable parts that were left out; None when there is no
            session.

        Raises:
            StateError: a newer or unknown program wrote it, or nothing in it can be a conversation.
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
            The changes; when there are none, nothing is written.

        Raises:
            StateError: it cannot be repaired.
            TurnRejectedError: a turn runs or waits, or the session has changed.
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
        if await self.read(agent, session_id) != state:  # the earlier state may have been erased before it was held
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
        EncryptionKeyError: it is encrypted, and the app does not have the key.
    """
    state = await client.read_entity_state(EntityId(entity_name(agent), session_id))
    refuse_encrypted(state.entity_state)
    return state.entity_state if state.entity_exists else None


def mended(state: Any) -> tuple[Session | None, list[Change]]:
    """Read as much as possible of what an entity holds; None for nothing, and for a session that is being erased.

    Guarantee: pure. Raises as `SessionDocuments.shown` does.
    """
    if state is None or is_erasing(state):
        return None, []
    if state == {}:
        return decode_session(state), []
    document, changes = mend_head(state)
    return decode_session(document), changes


def whole_record(keeper: Keeper, document: Any) -> Record:
    """Return a conversation for reading in full: directly from the store, without evicting others from the cache.

    Args:
        keeper: reads what the session has outside its entity.
        document: the entity's state.

    Raises:
        StateError: it cannot be read.
    """
    return Record(keeper.open_store, decode_session(document), cache=PieceCache(0))


def readable_session(state: Any) -> Session:
    """Read a session; if it is unreadable, an empty one of its owner."""
    try:
        return decode_session(state)
    except StateError:
        return Session(owner=owner_of_document(state))
