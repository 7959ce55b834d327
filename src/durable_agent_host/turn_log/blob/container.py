"""The container of the turn logs' blobs: its requests, retried while the storage does not answer."""

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from typing import Any, Final, cast
from urllib.request import getproxies

from azure.core import MatchConditions
from azure.core.exceptions import (
    ClientAuthenticationError,
    DecodeError,
    HttpResponseError,
    IncompleteReadError,
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.core.pipeline.transport import AioHttpTransport
from azure.storage.blob.aio import ContainerClient

from durable_agent_host.errors import LogError
from durable_agent_host.storage.backoff import retry
from durable_agent_host.turn_log.blob.write_rate import WriteRate

MAX_BLOCK_BYTES: Final = 4 * 1024 * 1024
MAX_BLOCKS: Final = 50_000
_TIMEOUTS: Final = {"connection_timeout": 5, "read_timeout": 20}
_LARGE_BYTES: Final = 512 * 1024
_PASSING_STATUS: Final = {408, 429, 500, 502, 503, 504}
_FIRST_OFFSET: Final = "first_offset"
_ATTEMPT: Final = "attempt"


class BlobMissingError(Exception):
    """The blob does not exist."""


class BlobMovedError(Exception):
    """The blob does not end at the expected position, or takes no more blocks."""


@dataclass(frozen=True)
class Part:
    """One append blob of a log.

    Attributes:
        number: from 0.
        first_offset: of its first entry.
        attempt: the current one at its creation.
    """

    number: int
    first_offset: int
    attempt: int


@dataclass(frozen=True)
class Piece:
    """The result of a ranged read.

    Attributes:
        data: the bytes; empty at the end of the blob.
        size: of the whole blob.
        blocks: how many it has.
    """

    data: bytes
    size: int
    blocks: int


class BlobContainer:
    """Requests to one container, which is created if it is missing. All calls come from one loop.

    Args:
        make_client: creates the client, in that loop, with a given transport.
        give_up_seconds: how long a request is retried.

    Attributes:
        durable_writes: appended blocks.
        write_rate: of appends; a writer rests after each one.
    """

    def __init__(self, make_client: Callable[[Any], ContainerClient], give_up_seconds: float) -> None:
        self.durable_writes = 0
        self.write_rate = WriteRate()
        self._make_client = make_client
        self._give_up_seconds = give_up_seconds
        self._made: ContainerClient | None = None

    async def append(self, name: str, block: bytes, position: int) -> None:
        """Append a block at the expected end of the blob.

        Raises:
            BlobMovedError: it ends elsewhere (perhaps because this block is there already), or is full.
            BlobMissingError: it does not exist.
            LogError: the storage does not answer.
        """

        async def call() -> None:
            async with self.write_rate.slot():
                body = BytesIO(block) if len(block) > _LARGE_BYTES else block  # aiohttp wants large bodies as files
                blob = self._client().get_blob_client(name)
                await blob.append_block(body, len(block), appendpos_condition=position)

        try:
            await self._retry(call)
        except ResourceNotFoundError as error:
            raise BlobMissingError from error
        except HttpResponseError as error:
            if error.status_code == 412 or _code_of(error) in {"BlockCountExceedsLimit", "BlobIsSealed"}:  # noqa: PLR2004
                raise BlobMovedError(_code_of(error)) from error
            raise self._explain(error) from error
        self.durable_writes += 1

    async def create(self, name: str, *, first_offset: int, attempt: int) -> None:
        """Create an append blob, unless it exists. Creates the container if that is missing."""
        metadata = {_FIRST_OFFSET: str(first_offset), _ATTEMPT: str(attempt)}

        async def call() -> Any:
            return (
                await self._client()
                .get_blob_client(name)
                .create_append_blob(metadata=metadata, match_condition=MatchConditions.IfMissing)
            )

        await self._make(call)

    async def mark(self, name: str, content: bytes, *, give_up_seconds: float | None = None) -> None:
        """Create or replace a small blob. Creates the container if that is missing."""

        async def call() -> Any:
            return await self._client().get_blob_client(name).upload_blob(content, overwrite=True)

        await self._make(call, give_up_seconds)

    async def _make(self, call: Callable[[], Any], give_up_seconds: float | None = None) -> None:
        try:
            try:
                await self._retry(call, give_up_seconds)
            except ResourceNotFoundError:
                with suppress(ResourceExistsError):
                    await self._retry(self._client().create_container, give_up_seconds)
                await self._retry(call, give_up_seconds)
        except ResourceExistsError:
            pass
        except HttpResponseError as error:
            raise self._explain(error) from error

    async def exists(self, name: str) -> bool:
        """Tell whether a blob exists."""
        return await self.etag(name) is not None

    async def etag(self, name: str) -> str | None:
        """Return the etag of a blob, or None if it does not exist."""
        try:
            return str((await self._retry(self._client().get_blob_client(name).get_blob_properties)).etag)
        except ResourceNotFoundError:
            return None
        except HttpResponseError as error:
            raise self._explain(error) from error

    async def read(self, name: str, position: int, length: int) -> Piece:
        """Read a range.

        Raises:
            BlobMissingError: the blob does not exist.
            LogError: the storage does not answer.
        """
        blob = self._client().get_blob_client(name)
        start = max(position - 1, 0)  # one byte before, so that the answer tells the size even at the end

        async def call() -> Piece:
            try:
                download = await blob.download_blob(offset=start, length=position - start + length)
                return _piece((await download.readall())[position - start :], download.properties)
            except HttpResponseError as error:
                if error.status_code != 416:  # noqa: PLR2004
                    raise
            return _piece(b"", await blob.get_blob_properties())

        try:
            return await self._retry(call)
        except ResourceNotFoundError as error:
            raise BlobMissingError from error
        except HttpResponseError as error:
            raise self._explain(error) from error

    async def parts(self, log_id: str) -> list[Part]:
        """List the append blobs of a log, in order; empty without one."""

        async def call() -> list[Part]:
            found: list[Part] = []
            async for blob in self._client().list_blobs(name_starts_with=f"{log_id}/", include=["metadata"]):
                name, metadata = str(blob.name), blob.metadata or {}
                if _FIRST_OFFSET in metadata:
                    number = int(name.rpartition("/")[2])
                    found.append(Part(number, int(metadata[_FIRST_OFFSET]), int(metadata[_ATTEMPT])))
            return sorted(found, key=lambda part: part.number)

        try:
            return await self._retry(call)
        except ResourceNotFoundError:  # the container
            return []
        except HttpResponseError as error:
            raise self._explain(error) from error

    async def names(self, prefix: str = "") -> list[tuple[str, datetime]]:
        """List all blobs with their last modification."""

        async def call() -> list[tuple[str, datetime]]:
            listed = cast("AsyncIterator[Any]", self._client().list_blobs(name_starts_with=prefix))
            return [(str(blob.name), blob.last_modified) async for blob in listed]

        try:
            return await self._retry(call)
        except ResourceNotFoundError:
            return []
        except HttpResponseError as error:
            raise self._explain(error) from error

    async def delete(self, name: str) -> None:
        """Delete a blob, if it exists."""
        try:
            await self._retry(self._client().get_blob_client(name).delete_blob)
        except ResourceNotFoundError:
            pass
        except HttpResponseError as error:
            raise self._explain(error) from error

    async def close(self) -> None:
        """Close the connections."""
        if self._made is not None:
            await self._made.close()

    def _client(self) -> ContainerClient:
        if self._made is None:
            is_behind_proxy = bool({"http", "https", "all"} & getproxies().keys())
            # With the environment's settings, each request would look for a .netrc file, in a thread.
            transport = AioHttpTransport(use_env_settings=is_behind_proxy, **_TIMEOUTS)
            self._made = self._make_client(transport)
        return self._made

    async def _retry(self, call: Callable[[], Any], give_up_seconds: float | None = None) -> Any:
        seconds = self._give_up_seconds if give_up_seconds is None else give_up_seconds
        return await retry(call, _is_passing, what="the blob storage", give_up_seconds=seconds)

    def _explain(self, error: HttpResponseError) -> LogError:
        reason = _code_of(error) or " ".join(str(error).split())[:200]
        return LogError(
            f"the blob storage refused the turn log ({error.status_code} {reason}): see that the account may "
            "read and write blobs (role Storage Blob Data Contributor)"
        )


def _is_passing(error: Exception) -> bool:
    if isinstance(error, ClientAuthenticationError):
        return False
    if isinstance(error, HttpResponseError):
        # A container that is being deleted, or whose creation was answered late, settles.
        return (
            error.status_code in _PASSING_STATUS
            or error.status_code is None
            or _code_of(error) == "ContainerBeingDeleted"
        )
    return isinstance(
        error, ServiceRequestError | ServiceResponseError | IncompleteReadError | DecodeError | TimeoutError | OSError
    )


def _code_of(error: HttpResponseError) -> str:
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code) or "")


def _piece(data: bytes, properties: Any) -> Piece:
    content_range = str(getattr(properties, "content_range", None) or "")
    size = content_range.rpartition("/")[2] or properties.size
    return Piece(data, int(size), int(properties.append_blob_committed_block_count or 0))
