"""Copies of sessions: exports, imports and forks."""

import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime

from durable_agent_host.agent.durable_session import TranscriptProvider
from durable_agent_host.codec.entity_state import decode_session, encode_session
from durable_agent_host.durable.session_documents import SessionDocuments, uncached_conversation
from durable_agent_host.errors import CorruptStateError, ForbiddenError, TurnRejectedError
from durable_agent_host.model.ids import derived_id
from durable_agent_host.segments.conversation_fork import make_fork
from durable_agent_host.segments.conversation_lines import export_lines, import_lines
from durable_agent_host.segments.session_files import prefetch_first
from durable_agent_host.segments.turn_data_storage import session_owner


class SessionCopier:
    """Copies sessions.

    Args:
        documents: the stored sessions.
    """

    def __init__(self, documents: SessionDocuments) -> None:
        self._documents = documents
        self._storage = documents.storage

    async def export(self, agent: str, session_id: str) -> AsyncGenerator[bytes] | None:
        """Export a session as JSON lines.

        Returns:
            The lines; None when there is no session.

        Raises:
            StateError: the session cannot be read.
            LogError: the blob store does not answer.
        """
        state = await self._documents.read(agent, session_id)
        if state is None:
            return None
        record = uncached_conversation(self._storage, state)
        return await prefetch_first(export_lines(record))

    async def import_lines(self, agent: str, session_id: str, body: AsyncIterator[bytes]) -> int:
        """Store an exported session as a new session; the head goes last.

        What it brings is trusted: its owner, and what it says in the name of the app, of tools and of the service.

        Returns:
            The number of its entries.

        Raises:
            RequestError: the body is not an exported session.
            RequestTooLargeError: a line exceeds the limit.
            ForbiddenError: the app does not let the caller import.
            TurnRejectedError: a session with this id exists.
            LogError: the blob store does not answer.
        """
        access = self._documents.access
        if access.is_restricted and not await access.can_access(
            agent, session_id, None, exists=False, action="session.import"
        ):
            raise ForbiddenError("an import is trusted: let the app's authorize allow 'session.import' for the caller")
        if await self._documents.is_id_in_use(agent, session_id):
            raise TurnRejectedError(f"agent {agent!r} already has a session {session_id!r}: import under another id")
        session = await import_lines(
            body,
            self._storage.open_store,
            uuid.uuid4().hex,
            owner=session_owner(agent, session_id),
            seen=self._storage.seen,
        )
        owner = session.owner or access.owner
        used_at = datetime.now(UTC).isoformat() if owner is not None else ""
        document = encode_session(replace(session, owner=owner, used_at=used_at))
        await self._documents.put(agent, session_id, document, instead_of=None, namespace=session.sealed.namespace)
        return session.message_count

    async def fork(
        self, agent: str, session_id: str, new_id: str, *, at_turn: str | None, is_before: bool = False
    ) -> int | None:
        """Store a copy of a conversation as a new session.

        Returns:
            The number of entries in the copy; None when there is no original.

        Raises:
            StateError: the original cannot be read.
            NotFoundError: the conversation has no such turn.
            TurnRejectedError: a session with the new id exists.
            LogError: the blob store does not answer.
        """
        state = await self._documents.read(agent, session_id)
        if state is None:
            return None
        record = self._storage.record(decode_session(state))
        owner = record.session.owner or self._documents.access.owner
        try:
            fork = await make_fork(
                self._storage.open_store,
                record,
                new_id,
                namespace=derived_id("fork", agent.casefold(), session_id, new_id),  # the same for a retry
                at_turn=at_turn,
                is_before=is_before,
                lasting_state={TranscriptProvider.SOURCE_ID},
            )
            if fork.session.sealed.namespace:
                await fork.store(self._storage.open_store(), session_owner(agent, new_id))
        except CorruptStateError:
            if await self._documents.read(agent, session_id) is None:  # it has been erased meanwhile
                return None
            raise
        copy = replace(fork.session, owner=owner)
        if owner is not None:
            copy = replace(copy, used_at=datetime.now(UTC).isoformat())
        await self._documents.put(agent, new_id, encode_session(copy), instead_of=None)
        return fork.session.message_count
