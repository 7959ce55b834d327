"""The files of one session, wherever the bytes are: in the conversation, in blobs, in uploads, at the service."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace

from durable_agent_host.model.conversation_file import ConversationFile, ServiceFilesOf, no_files
from durable_agent_host.model.principal import Owner
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.segments.conversation_reader import ConversationReader
from durable_agent_host.segments.turn_data_storage import SessionKey, TurnDataStorage, session_owner
from durable_agent_host.segments.uploads import Uploads
from durable_agent_host.session.entry_files import (
    FileBytes,
    files_of_entries,
    named_files,
    with_named_files,
)


class SessionFiles:
    """Lists, finds and reads the files of a session.

    Args:
        turn_data_storage: has the blob store.
        agent: the agent's registered name.
        session_id: without the agent's name.
        session: the head; None for a session that has not begun, which can have uploads.
        owner: of the uploads, when the head does not name it.

    Attributes:
        service_files: finds the files of the agent's service; by default those are left out.
        is_response_files_only: a file of the service counts only if the service named it in a response that this host
            has recorded, and not because a caller names it: for apps that identify their callers.
    """

    def __init__(
        self,
        turn_data_storage: TurnDataStorage,
        agent: str,
        session_id: str,
        session: Session | None,
        *,
        owner: Owner | None = None,
    ) -> None:
        self._owner = (session and session.owner) or owner
        self._turn_data_storage = turn_data_storage
        self._names = agent, session_id
        self._record: ConversationReader = turn_data_storage.record(session or Session(), SessionKey(agent, session_id))
        self.service_files: ServiceFilesOf = no_files
        self.is_response_files_only = False

    @property
    def uploads(self) -> Uploads:
        return Uploads(self._turn_data_storage.open_store(), *self._names, session_owner(*self._names), self._owner)

    async def all(self) -> list[ConversationFile]:
        """List the files, newest first: uploads that no message has used, then those of the conversation.

        Returns:
            Each file once, with its latest name.

        Raises:
            CorruptStateError: a blob of the conversation is missing.
            LogError: the store does not answer.
        """
        files: dict[str, ConversationFile] = {}
        unused_uploads = await self.uploads.all()
        async for file in self._of_conversation():
            earlier_file = files.setdefault(file.file_id, file)
            if earlier_file.name is None and file.name is not None:
                files[file.file_id] = replace(earlier_file, name=file.name)
        return [*(file for file in unused_uploads if file.file_id not in files), *files.values()]

    async def find(self, file_id: str) -> ConversationFile | None:
        """Find a file by its id, with the name that `all` gives; None when the session has none.

        Raises:
            CorruptStateError: a blob of the conversation is missing.
            LogError: the store does not answer.
        """
        found: ConversationFile | None = None
        async for file in self._of_conversation():
            if file.file_id == file_id:
                found = file if found is None else replace(found, name=file.name)
                if found.name is not None:
                    return found
        return found or await self.uploads.find(file_id)

    async def read(self, file: ConversationFile) -> bytes:
        """Read the bytes of a file that is stored here.

        Raises:
            CorruptStateError: the bytes are gone.
            LogError: the store does not answer.
        """
        if file.data is not None or file.blob is None:
            return file.data or b""
        namespace, name = file.blob
        return (await self._turn_data_storage.open_store().get(namespace, [name]))[name]

    async def slices(self, file: ConversationFile) -> AsyncGenerator[bytes]:
        """Read the bytes of a stored file slice by slice, the first one now; see `ConversationReader.slices`."""
        assert file.blob is not None
        assert file.size is not None
        return await prefetch_first(self._record.slices(*file.blob, file.size))

    async def with_files(self, request: TurnRequest) -> TurnRequest:
        """Put the bytes of files into a request that refers to them.

        Returns:
            The request, unchanged when it refers to none.

        Raises:
            RequestError: a file is not the session's, or no longer.
            LogError: the store does not answer.
        """
        file_names = named_files(request.contents)
        if not file_names:
            return request
        files: dict[str, FileBytes] = {}
        for file_id in dict.fromkeys(file_names):
            if (found := await self._find_upload_first(file_id)) is not None and found.service is None:
                files[file_id] = FileBytes(found.name, found.media_type, await self.read(found))
        return replace(request, contents=with_named_files(request.contents, files))

    async def _find_upload_first(self, file_id: str) -> ConversationFile | None:
        return await self.uploads.find(file_id) or await self.find(file_id)

    async def _of_conversation(self) -> AsyncIterator[ConversationFile]:
        mark = secrets.token_hex(16)
        async for chunk in self._record.newest_first():
            found = await asyncio.to_thread(
                files_of_entries,
                chunk.entries,
                self._record.session.sealed.namespace,
                mark=mark,
                service_files=self.service_files,
                is_response_files_only=self.is_response_files_only,
            )
            for file in reversed(found):
                yield file


async def prefetch_first(parts: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """Read the first part now, so that its errors are raised before anything is sent."""
    first = await anext(parts)

    async def all_parts() -> AsyncGenerator[bytes]:
        async with aclosing(parts):
            yield first
            async for part in parts:
                yield part

    return all_parts()
