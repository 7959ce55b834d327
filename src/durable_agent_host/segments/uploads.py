"""Files that callers have uploaded, and that no message has used yet.

The bytes are a blob in a namespace of the session's uploads, named by the file's id; the caller's description is a
small blob beside it. Once a message uses a file, the conversation has its own copy, and
the upload is no longer needed: the sweep removes it after the grace period, like everything without a reference.
"""

import asyncio
from typing import Any, Final

from durable_agent_host.codec.offloaded_text import blob_name
from durable_agent_host.codec.session_blobs import json_bytes_of, json_of_bytes
from durable_agent_host.errors import RequestError
from durable_agent_host.model.conversation_file import ConversationFile
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.principal import Owner
from durable_agent_host.segments.protocol import OWNER, BlobStore
from durable_agent_host.session.entry_files import FileBytes

_DESCRIPTION: Final = "description."
"""Begins the names of descriptions."""
MAX_UPLOADS: Final = 1000
"""Maximum unused uploads of one session."""


def upload_namespace(agent: str, session_id: str, owner: Owner | None) -> str:
    """Return the namespace of a session's uploads."""
    owner_names = (owner.tenant, owner.principal) if owner is not None else ()
    return derived_id("uploads", agent.casefold(), session_id, *owner_names)


class Uploads:
    """The uploads of one session.

    Args:
        store: of the blobs.
        agent: the agent's registered name.
        session_id: without the agent's name.
        session: the owner of the namespace.
        owner: of the session.
    """

    def __init__(self, store: BlobStore, agent: str, session_id: str, session: str, owner: Owner | None = None) -> None:
        self._store = store
        self._session = session
        self._namespace = upload_namespace(agent, session_id, owner)

    async def add(self, *files: FileBytes) -> list[ConversationFile]:
        """Store files, all or none of them. Guarantee: idempotent; the same bytes are stored once.

        Returns:
            The files in the same order, with their ids.

        Raises:
            RequestError: the session would have too many unused uploads; nothing is stored.
            LogError: the store does not answer; some may be stored.
        """
        ids = await asyncio.to_thread(lambda: [blob_name(file.data) for file in files])  # hashing takes time
        new_files = [
            self._file(file_id, file.name, file.media_type, len(file.data))
            for file_id, file in zip(ids, files, strict=True)
        ]
        lines = [
            json_bytes_of({"file": file.file_id, "name": file.name, "mediaType": file.media_type, "size": file.size})
            for file in new_files
        ]
        description_blobs = {_DESCRIPTION + blob_name(line): line for line in lines}
        if len({*await self._list_descriptions(), *description_blobs}) > MAX_UPLOADS:
            raise RequestError(
                f"a session holds {MAX_UPLOADS} uploads that no message has used: send fewer, use them, or wait"
            )
        data = {file_id: file.data for file_id, file in zip(ids, files, strict=True)}
        for blobs in (data, description_blobs):  # in this order: what has a description is there
            await self._store.put(self._namespace, {OWNER: self._session.encode(), **blobs})
        return new_files

    async def all(self) -> list[ConversationFile]:
        """List the uploads, newest first; one uploaded under several names has the newest."""
        names = await self._list_descriptions()
        found: dict[str, ConversationFile] = {}
        descriptions = await self._store.get(self._namespace, names) if names else {}
        for name in names:
            wire: Any = json_of_bytes(descriptions[name], "what is said of an upload")
            file_id = str(wire["file"])
            found.setdefault(file_id, self._file(file_id, wire["name"], wire["mediaType"], int(wire["size"])))
        return list(found.values())

    async def find(self, file_id: str) -> ConversationFile | None:
        """Find an upload by its id; None when it does not exist or no longer does."""
        return next((file for file in await self.all() if file.file_id == file_id), None)

    async def delete(self) -> None:
        """Delete the uploads. Guarantee: idempotent."""
        names = [blob.name async for blob in self._store.list_blobs(self._namespace)]
        await self._store.delete(self._namespace, names)

    async def _list_descriptions(self) -> list[str]:
        """Return the names of the uploads' descriptions, newest first."""
        blobs = [blob async for blob in self._store.list_blobs(self._namespace) if blob.name.startswith(_DESCRIPTION)]
        return [blob.name for blob in sorted(blobs, key=lambda blob: blob.age_seconds)]

    def _file(self, file_id: str, name: str | None, media_type: str | None, size: int) -> ConversationFile:
        blob = (self._namespace, file_id)
        return ConversationFile(file_id, name, media_type, size, "user", blob=blob)
