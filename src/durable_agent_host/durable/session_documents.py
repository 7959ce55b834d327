"""The stored documents of sessions: list, read, replace, verify, repair.

The only module that reads the entities of sessions. Whatever reads a document has an `Access`: what does not exist for
it is read as absent.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from azure.durable_functions import DurableOrchestrationClient, EntityId

from durable_agent_host.agent.feature import HistoryLocation
from durable_agent_host.codec.entity_state import (
    decode_session,
    document_digest,
    encode_session,
    last_use_of_document,
    owner_of_document,
    raise_if_encrypted,
)
from durable_agent_host.codec.session_blobs import has_blobs
from durable_agent_host.codec.strict_json import has_python_class, value_at
from durable_agent_host.codec.wire_types import EXTENSION
from durable_agent_host.durable.instance_status import SessionListItem, entity_pages
from durable_agent_host.errors import CorruptStateError, RequestError, StateError, TurnRejectedError, TurnTimedOutError
from durable_agent_host.model.access import Access
from durable_agent_host.model.ids import entity_name
from durable_agent_host.model.principal import Owner
from durable_agent_host.model.session import Session
from durable_agent_host.segments.blob_cache import BlobCache
from durable_agent_host.segments.conversation_fork import copy_session
from durable_agent_host.segments.conversation_pages import Page, read_page
from durable_agent_host.segments.conversation_reader import ConversationReader
from durable_agent_host.segments.conversation_repair import find_problems, repair_record
from durable_agent_host.segments.turn_data_storage import SessionKey, TurnDataStorage, session_owner
from durable_agent_host.session.admission import is_erasing, raise_if_busy
from durable_agent_host.session.repair import RepairChange, make_readable

_AT_ONCE: Final = 16
"""Maximum concurrent reads of states."""


PUT_OPERATION: Final = "put_document"
PUT_SECONDS: Final = 30.0


class SessionLookup(NamedTuple):
    """What a session's entity holds, and for whom.

    Attributes:
        state: JSON, or None when there is nothing for the access.
        owner: of the session, or None.
        exists: it exists for anybody.
        is_seen: it exists for the access, or would.
    """

    state: Any
    owner: Owner | None
    exists: bool
    is_seen: bool


FindHistory = Callable[[str], HistoryLocation]
"""Returns where the conversations of an agent are."""


class SessionDocuments:
    """Sessions as documents, for one request.

    Args:
        client: the SDK's.
        access: which sessions exist; every read here treats other sessions as missing.
        storage: reads what sessions have outside their entities.
        find_history: returns where the conversations of an agent are.
    """

    def __init__(
        self,
        client: DurableOrchestrationClient,
        access: Access,
        storage: TurnDataStorage,
        find_history: FindHistory,
    ) -> None:
        self._client = client
        self.access = access
        self.storage = storage
        self._find_history = find_history

    async def list_sessions(self, agent: str) -> list[SessionListItem]:
        """List an agent's sessions.

        Returns:
            All of them, newest first; with an access that has an owner, only the owner's.
        """
        if (owner := self.access.owner) is not None:
            return sorted(await self._list_owned(agent, owner), reverse=True)
        items: set[SessionListItem] = set()
        async for page in entity_pages(self._client, entity_name(agent)):
            items.update(page)
        return sorted(items, reverse=True)

    async def _list_owned(self, agent: str, owner: Owner) -> list[SessionListItem]:
        """List an owner's sessions, in no particular order."""
        owner_index = self.storage.owned
        items: list[SessionListItem] = []
        remaining_names = iter(await owner_index.of(agent, owner))

        async def read_states() -> None:
            for session_id in remaining_names:
                try:
                    state = await self._client.read_entity_state(EntityId(entity_name(agent), session_id))
                except CorruptStateError:  # its owner is unknown
                    continue
                entity_state: Any = state.entity_state
                if not state.entity_exists:
                    await owner_index.remove(agent, session_id, owner, is_erased=False)
                elif owner_of_document(entity_state) == owner:
                    items.append(SessionListItem(last_use_of_document(entity_state), session_id))

        await asyncio.gather(*(read_states() for _ in range(_AT_ONCE)))
        return items

    async def lookup(self, agent: str, session_id: str) -> SessionLookup:
        """Read a session's entity once, whether or not it exists for the current request."""
        return await _find_session(self._client, self.access, agent, session_id)

    async def find_owner(self, agent: str, session_id: str) -> tuple[bool, Owner | None]:
        """Return whether an entity holds something under an id, for anybody, and its owner: to decide on an access."""
        state = await _read_entity(self._client, agent, session_id)
        return state is not None, owner_of_document(state)

    async def is_id_in_use(self, agent: str, session_id: str) -> bool:
        """Return whether the id of a new session is taken, whoever the owner."""
        state = await _read_entity(self._client, agent, session_id)
        return state not in (None, {}) and not is_erasing(state)

    async def read(self, agent: str, session_id: str) -> Any:
        """Read what a session's entity holds, readable or not.

        Returns:
            JSON, or None when there is nothing, or it is being erased.
        """
        return None if is_erasing(state := await self.read_state(agent, session_id)) else state

    async def read_state(self, agent: str, session_id: str) -> Any:
        """Read what a session's entity holds, even while it is being erased.

        Returns:
            JSON, or None when there is nothing for the request.
        """
        return await read_session(self._client, self.access, agent, session_id)

    async def session(self, agent: str, session_id: str) -> Session | None:
        """Read a session.

        Returns:
            The session, or None when it does not exist for the request.

        Raises:
            StateError: it cannot be read.
        """
        return None if (state := await self.read_state(agent, session_id)) is None else decode_session(state)

    async def delete_external_messages(self, agent: str, session_id: str) -> None:
        """Delete a session's data in history providers, before the session itself is erased.

        Raises:
            TurnRejectedError: a turn runs or waits; nothing was done.
            HistoryElsewhereError: a provider cannot delete; nothing was done.
            HistoryError: a provider does not answer; the session is as it was.
        """
        state = await self.read_state(agent, session_id)
        raise_if_busy(state)
        record = self.storage.record(readable_session(state))
        await self._find_history(agent).delete(SessionKey(agent, session_id), record)

    async def put(self, agent: str, session_id: str, document: Any, *, instead_of: Any, namespace: str = "") -> None:
        """Replace a session's document.

        Args:
            agent: the agent's registered name.
            session_id: of the session.
            document: the new document.
            instead_of: the document that is there, or None.
            namespace: of a new session that nothing else has: recognizes it when turns have changed it already.

        Raises:
            RequestError: the document names a class of Python, which the entity refuses.
            TurnRejectedError: the state differs, or a turn runs.
            TurnTimedOutError: the entity has not done it within 30 s.
        """
        if has_python_class(document):
            raise RequestError(
                "the document has an object with '__class__', '__module__' and '__data__', which names a class "
                "of Python to Durable Functions: give the fields other names"
            )
        entity = EntityId(entity_name(agent), session_id)
        change = {"document": document}
        await self._client.signal_entity(entity, PUT_OPERATION, change | {"instead_of": document_digest(instead_of)})
        deadline = time.monotonic() + PUT_SECONDS
        pause = 0.01
        while time.monotonic() < deadline:
            now = await _read_entity(self._client, agent, session_id)
            if now == document or (namespace and _get_namespace(now) == namespace):
                return await self._record_owner(agent, session_id, document, instead_of)
            if now != instead_of:
                if instead_of in (None, {}):
                    raise TurnRejectedError(f"session {session_id!r} has begun meanwhile: use another id")
                raise TurnRejectedError(f"session {session_id!r} has changed meanwhile: try again")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.5)
        raise TurnTimedOutError(f"session {session_id!r} was not written in {PUT_SECONDS:g} s: look again later")

    async def _record_owner(self, agent: str, session_id: str, document: Any, before: Any) -> None:
        owner = owner_of_document(document)
        if owner is not None and owner != owner_of_document(before):
            await self.storage.owned.add(agent, session_id, owner)

    async def verify(self, agent: str, session_id: str) -> tuple[Any, list[RepairChange]]:
        """Find what cannot be read in a session, and calls and results that do not belong together.

        Returns:
            The entity's state (None for nothing), and the problems with what repair would do.

        Raises:
            StateError: it cannot be read, and this version does not know its format.
            LogError: the blob store does not answer.
        """
        if (state := await self.read(agent, session_id)) is None:
            return None, []
        readable, changes = make_readable(state)
        problems = await find_problems(uncached_conversation(self.storage, readable))
        return state, changes + problems.changes

    async def page(self, agent: str, session_id: str, *, before: int | None, limit: int) -> tuple[Session, Page] | None:
        """Read a page of a conversation, as far as it is readable.

        Returns:
            The session's head and the page, with the unreadable parts that were left out; None when there is no
            session.

        Raises:
            StateError: a newer or unknown program wrote it, or nothing in it can be a conversation.
            LogError: the blob store does not answer.
        """
        session, changes = decode_best_effort(await self.read(agent, session_id))
        if session is None:
            return None
        record = self.storage.record(session, SessionKey(agent, session_id))
        page = await read_page(record, before=before, limit=limit)
        return session, replace(page, problems=[*changes, *page.problems])

    async def repair(self, agent: str, session_id: str, *, keep_as: str) -> list[RepairChange]:
        """Repair a session, and keep the original as another session.

        Returns:
            The changes; when there are none, nothing is written.

        Raises:
            StateError: it cannot be repaired.
            TurnRejectedError: a turn runs or waits, or the session has changed.
            LogError: the blob store does not answer.
        """
        state = await self.read(agent, session_id)
        readable, changes = make_readable(state)
        record = uncached_conversation(self.storage, readable)
        fork, more = await repair_record(record)
        if not changes and not more:
            return []
        raise_if_busy(state)
        store = self.storage.open_store()
        original = state
        if has_blobs(state):
            backup_owner = session_owner(agent, keep_as)
            backup = await copy_session(store, record.session, backup_owner)
            await backup.store(store, backup_owner)
            original = encode_session(backup.session)
            if await self.read(agent, session_id) != state:  # what was copied is swept
                raise TurnRejectedError(f"session {session_id!r} has changed meanwhile: try again")
        await self.put(agent, keep_as, original, instead_of=None)
        await fork.store(store, session_owner(agent, session_id))
        await self.put(agent, session_id, encode_session(fork.session), instead_of=state)
        return changes + more


async def read_session(client: DurableOrchestrationClient, access: Access, agent: str, session_id: str) -> Any:
    """Read what a session's entity holds.

    Returns:
        JSON, or None when there is nothing for the access.

    Raises:
        EncryptionKeyError: it is encrypted, and the app does not have the key.
    """
    return (await _find_session(client, access, agent, session_id)).state


async def _find_session(
    client: DurableOrchestrationClient, access: Access, agent: str, session_id: str
) -> SessionLookup:
    state = await _read_entity(client, agent, session_id)
    owner = owner_of_document(state)
    exists = state is not None
    is_seen = await access.can_access(agent, session_id, owner, exists=exists)
    return SessionLookup(state if is_seen else None, owner, exists, is_seen)


async def _read_entity(client: DurableOrchestrationClient, agent: str, session_id: str) -> Any:
    """Read what a session's entity holds, without a check; None when there is nothing."""
    state = await client.read_entity_state(EntityId(entity_name(agent), session_id))
    raise_if_encrypted(state.entity_state)
    return state.entity_state if state.entity_exists else None


def decode_best_effort(state: Any) -> tuple[Session | None, list[RepairChange]]:
    """Read as much as possible of what an entity holds; None for nothing, and for a session that is being erased."""
    if state is None or is_erasing(state):
        return None, []
    document, changes = make_readable(state)
    return decode_session(document), changes


def _get_namespace(state: Any) -> Any:
    return value_at(state, "data", "extensionData", EXTENSION, "sealed", "namespace")


def uncached_conversation(storage: TurnDataStorage, document: Any) -> ConversationReader:
    """Return a conversation for reading in full: directly from the store, without evicting others from the cache.

    Raises:
        StateError: it cannot be read.
    """
    return ConversationReader(storage.open_store, decode_session(document), cache=BlobCache(0))


def readable_session(state: Any) -> Session:
    """Read a session; if it is unreadable, an empty one of its owner."""
    try:
        return decode_session(state)
    except StateError:
        return Session(owner=owner_of_document(state))
