"""Copies of sessions: exported and imported documents, and new sessions."""

import hashlib
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from durable_agent_host.agent.transcript_provider import TranscriptProvider
from durable_agent_host.codec.entity_state import decode_session, encode_session
from durable_agent_host.codec.session_blobs import has_blobs
from durable_agent_host.codec.strict_json import encode_strict
from durable_agent_host.durable.session_documents import SessionDocuments, uncached_conversation
from durable_agent_host.errors import CorruptStateError, ForbiddenError, StateError, TurnRejectedError
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.principal import Owner
from durable_agent_host.segments.conversation_export import export_document, one_part, prefetch_first
from durable_agent_host.segments.conversation_fork import make_fork
from durable_agent_host.segments.conversation_import import Imported, InMemoryWriter, read_document
from durable_agent_host.segments.conversation_writer import ConversationWriter
from durable_agent_host.segments.turn_data_storage import SessionKey, session_owner
from durable_agent_host.turn_log.crash_points import reach

_TRIES: Final = 5
"""How often a fork is tried while its session changes."""


class SessionCopier:
    """Copies sessions.

    Args:
        documents: the stored sessions.
    """

    def __init__(self, documents: SessionDocuments) -> None:
        self._documents = documents
        self._storage = documents.storage
        self._external_sessions = documents.external_sessions

    async def export(self, agent: str, session_id: str) -> AsyncGenerator[bytes] | None:
        """Export a session as a self-contained document.

        Returns:
            The document's JSON, identical to the entity's state when that is complete; None when there is no session.

        Raises:
            StateError: the framework's session, which comes first, cannot be read.
            LogError: the piece store does not answer.
        """
        state = await self._documents.read(agent, session_id)
        if state is None:
            return None
        state = await self._documents.with_messages(agent, session_id, state)
        if not has_blobs(state):
            return one_part(encode_strict(state).encode())
        record = uncached_conversation(self._storage, state)
        record.read_external_messages = self._external_sessions.reader(SessionKey(agent, session_id), record)
        return await prefetch_first(export_document(record))

    async def import_document(
        self,
        agent: str,
        session_id: str,
        body: AsyncIterator[bytes],
        *,
        max_bytes: int,
        owner: Owner | None = None,
    ) -> Imported:
        """Store an exported document as a new session; the head goes last.

        Raises:
            RequestError: the document is not a valid session.
            ForbiddenError: the document speaks for the app, its tools or the service, which the app does not allow.
            RequestTooLargeError: the body exceeds the limit.
            TurnRejectedError: another session with this id exists.
            LogError: the piece store does not answer.
        """
        now = await self._documents.read(agent, session_id)
        id_in_use_error = TurnRejectedError(
            f"agent {agent!r} already has a session {session_id!r}: import under another id"
        )
        if self._external_sessions.has_owner(agent):
            import_result = await read_document(body, InMemoryWriter(), max_bytes=max_bytes, owner=owner)
            await self._reject_untrusted(agent, session_id, import_result)
            await self._import_with_provider(SessionKey(agent, session_id), import_result, id_in_use_error)
            return import_result
        is_new = now in (None, {})
        writer = ConversationWriter(
            self._storage.open_store if is_new else None,
            uuid.uuid4().hex if is_new else _get_namespace(now),
            owner=session_owner(agent, session_id),
            seen=self._storage.seen,
            grace_seconds=self._storage.grace_seconds,
        )
        async with writer.holding():
            import_result = await read_document(body, writer, max_bytes=max_bytes, owner=owner)
            await self._reject_untrusted(agent, session_id, import_result)
            if not is_new and now != import_result.document:
                raise id_in_use_error
            reach("import.before_head")
            try:
                await self._documents.put(agent, session_id, import_result.document, instead_of=now)
            except TurnRejectedError:
                now = await self._documents.read(agent, session_id)
                if now in (None, {}):
                    raise
                if not await self._is_same(now, import_result.document):
                    raise id_in_use_error from None
        return import_result

    async def _reject_untrusted(self, agent: str, session_id: str, import_result: Imported) -> None:
        """Refuse what an ordinary caller would say in the name of the app, its tools or the service."""
        access = self._documents.access
        if not import_result.on_trust or not access.is_restricted:
            return
        if not await access.can_access(agent, session_id, None, exists=False, action="session.import"):
            raise ForbiddenError(
                f"{import_result.on_trust[0]}: remove such parts from the document, or let the app's authorize "
                "allow 'session.import' for the caller"
            )

    async def _is_same(self, state: Any, document: Any) -> bool:
        """Return whether two heads are of the same conversation, wherever each stores it.

        An earlier request, which a crash or a timeout cut off from its client, may have stored the document meanwhile.
        """
        try:
            return await self._digest(state) == await self._digest(document)
        except StateError:
            return False

    async def _digest(self, state: Any) -> bytes:
        digest = hashlib.sha256()
        async for part in export_document(uncached_conversation(self._storage, state)):
            digest.update(part)
        return digest.digest()

    async def _import_with_provider(
        self, name: SessionKey, import_result: Imported, id_in_use_error: TurnRejectedError
    ) -> None:
        """Store a document whose messages go to a history provider in one call."""
        now = await self._documents.read_state(name.agent, name.session_id)  # others may have begun it meanwhile
        entity_document = self._external_sessions.to_store(name, import_result.document)
        if now not in (None, {}, entity_document) or (
            now is None and await self._documents.is_id_in_use(name.agent, name.session_id)
        ):
            raise id_in_use_error
        await self._external_sessions.store(name.agent, name.session_id, import_result.document)
        await self._documents.put(name.agent, name.session_id, entity_document, instead_of=now)

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
            HistoryElsewhereError: a history provider's messages do not show where the turn ends.
            HistoryError: a history provider does not answer; it may have stored a part of the copy.
            LogError: the piece store does not answer.
        """
        for _ in range(_TRIES):
            state = await self._documents.read(agent, session_id)
            if state is None:
                return None
            record = self._storage.record(decode_session(state))
            owner = record.session.owner or self._documents.access.owner
            provider_session_id = self._external_sessions.new_id(agent, new_id, owner)
            try:
                fork = await make_fork(
                    self._storage.open_store,
                    record,
                    provider_session_id,
                    namespace=derived_id("fork", agent.casefold(), session_id, new_id),  # the same for a retry
                    at_turn=at_turn,
                    is_before=is_before,
                    lasting_state={TranscriptProvider.SOURCE_ID},
                )
                if fork.session.sealed.namespace:
                    await fork.store(self._storage.open_store(), session_owner(agent, new_id))
            except CorruptStateError:
                if await self._documents.read(agent, session_id) == state:
                    raise
                continue  # what it has copied is swept
            reach("fork.after_copy")
            if not self._external_sessions.has_owner(agent):
                break
            name = SessionKey(agent, session_id)
            await self._external_sessions.copy(name, record, provider_session_id, at_turn=at_turn, is_before=is_before)
            now = await self._documents.read(agent, session_id)
            if now is None:  # deleted meanwhile, perhaps before its messages were copied
                return None
            if now == state:
                break
        else:
            raise TurnRejectedError(f"session {session_id!r} keeps changing: try again")
        reach("fork.before_head")
        copy = replace(fork.session, owner=owner)
        if owner is not None:
            copy = replace(copy, used_at=datetime.now(UTC).isoformat())
        await self._documents.put(agent, new_id, encode_session(copy), instead_of=None)
        return fork.session.message_count


def _get_namespace(state: Any) -> str:
    """Return the home of a stored session; empty when it has none, or cannot be read."""
    try:
        return decode_session(state).sealed.namespace
    except StateError:
        return ""
