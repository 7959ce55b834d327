"""A container of blobs: its requests, retried while the storage does not answer."""

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
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
from azure.storage.blob import BlobBlock
from azure.storage.blob.aio import ContainerClient

from durable_agent_host.errors import LogError, SettingError
from durable_agent_host.storage.storage_retry import retry

_SDK_RETRIES: Final = 0
"""The stores retry themselves, with shorter and longer waits than the SDK."""
_SDK_LOGGER: Final = logging.getLogger("durable_agent_host.storage.requests")
_SDK_LOGGER.setLevel(logging.WARNING)  # at INFO the SDK logs every request and its headers


_SETTING: Final = "AzureWebJobsStorage"


def container_of_app(container: str, *, label: str) -> Callable[[Any], ContainerClient]:
    """Return a factory for clients of the app's storage account.

    Returns:
        A function that creates a client of the container with a given transport, in the loop that will use it. Connects
        to nothing.

    Raises:
        SettingError: none of the settings exists.
    """
    connection_string = os.environ.get(_SETTING, "").strip()
    if connection_string:
        return lambda transport: _connect(connection_string, container, transport)
    account = os.environ.get(f"{_SETTING}__accountName", "").strip()
    url = os.environ.get(f"{_SETTING}__blobServiceUri", "").strip()
    url = url or (f"https://{account}.blob.core.windows.net" if account else "")
    if not url:
        raise SettingError(
            f"{label} needs a storage account: set {_SETTING} to a connection string, or "
            f"{_SETTING}__accountName for an identity"
        )
    client_id = os.environ.get(f"{_SETTING}__clientId", "").strip() or None
    is_managed = os.environ.get(f"{_SETTING}__credential", "").strip().casefold() == "managedidentity"

    def make_client(transport: Any) -> ContainerClient:
        from azure.identity.aio import DefaultAzureCredential, ManagedIdentityCredential

        credential = (
            ManagedIdentityCredential(client_id=client_id)
            if is_managed
            else DefaultAzureCredential(managed_identity_client_id=client_id)
        )
        return ContainerClient(
            url, container, credential, transport=transport, retry_total=_SDK_RETRIES, logger=_SDK_LOGGER
        )

    return make_client


def _connect(connection_string: str, container: str, transport: Any) -> ContainerClient:
    try:
        return ContainerClient.from_connection_string(
            connection_string, container, transport=transport, retry_total=_SDK_RETRIES, logger=_SDK_LOGGER
        )
    except ValueError as error:
        raise SettingError(f"{_SETTING} is no connection string of a storage account ({error}): copy it anew") from None


MAX_BLOCK_BYTES: Final = 4 * 1024 * 1024
_CONNECTION_SECONDS: Final = 5
_READ_SECONDS: Final = 20
_LARGE_BYTES: Final = 512 * 1024
_PASSING_STATUS: Final = {408, 429, 500, 502, 503, 504}
_CONDITION_FAILED: Final = 412


class BlobMissingError(Exception):
    """The blob does not exist."""


@dataclass(frozen=True)
class BlobRange:
    """The result of a ranged read.

    Attributes:
        data: the bytes; empty at the end of the blob.
        size: of the whole blob.
    """

    data: bytes
    size: int


@dataclass(frozen=True)
class BlobListItem:
    """A blob in a listing.

    Attributes:
        name: of the blob.
        size: bytes.
        etag: of its state.
        age_seconds: since it was last written, by the storage's clock, which counts whole seconds: up to one too many
            or too few.
    """

    name: str
    size: int
    etag: str
    age_seconds: float


class BlobContainer:
    """Requests to one container, which is created if it is missing. All calls come from one loop.

    Args:
        make_client: creates the client, in that loop, with a given transport.
        retry_seconds: how long a request is retried.
        label: the contents of the container, for messages.
    """

    def __init__(self, make_client: Callable[[Any], ContainerClient], retry_seconds: float, *, label: str) -> None:
        self._make_client = make_client
        self._retry_seconds = retry_seconds
        self._label = label
        self._sdk_client: ContainerClient | None = None

    async def mark(self, name: str, content: bytes, *, retry_seconds: float | None = None) -> None:
        """Create or replace a small blob. Creates the container if that is missing."""

        async def call() -> Any:
            blob = self.client().get_blob_client(name)
            return await blob.upload_blob(content, overwrite=True)

        await self.make(call, retry_seconds)

    async def create_blob(self, name: str, content: bytes) -> bool:
        """Create a blob in one request, unless it exists; `MAX_BLOCK_BYTES` at most. Creates the container.

        Returns:
            Whether it did not exist. False also if the answer to the request that created it was lost.
        """

        async def call() -> Any:
            blob = self.client().get_blob_client(name)
            return await blob.upload_blob(as_body(content), length=len(content), overwrite=False)

        return await self.make(call)

    async def stage(self, name: str, block_id: str, block: bytes | memoryview) -> None:
        """Store a block of a blob that `create_staged` will create. Creates the container."""

        async def call() -> Any:
            return await self.client().get_blob_client(name).stage_block(block_id, as_body(bytes(block)), len(block))

        await self.make(call)

    async def create_staged(self, name: str, block_ids: Sequence[str]) -> bool:
        """Create a blob from its blocks, unless it exists.

        Returns:
            Whether it was created. False also if another writer has created it, so that the blocks are gone.
        """

        async def call() -> Any:
            blocks = [BlobBlock(block_id) for block_id in block_ids]
            blob = self.client().get_blob_client(name)
            return await blob.commit_block_list(blocks, match_condition=MatchConditions.IfMissing)

        try:
            await self.retry(call)
        except ResourceExistsError:
            return False
        except HttpResponseError as error:
            if error.status_code == _CONDITION_FAILED or code_of(error) == "InvalidBlockList":
                return False
            raise self.explain(error) from error
        return True

    async def touch(self, name: str) -> bool:
        """Give a blob a new age and etag; return whether it exists."""

        async def call() -> Any:
            return await self.client().get_blob_client(name).set_blob_metadata({})

        try:
            await self._request(call)
        except BlobMissingError:
            return False
        return True

    async def exists(self, name: str) -> bool:
        """Return whether a blob exists."""
        return await self.etag(name) is not None

    async def etag(self, name: str) -> str | None:
        """Return the etag of a blob, or None if it does not exist."""
        try:
            return str((await self._request(self.client().get_blob_client(name).get_blob_properties)).etag)
        except BlobMissingError:
            return None

    async def read(self, name: str, position: int, length: int) -> BlobRange:
        """Read a range.

        Raises:
            BlobMissingError: the blob does not exist.
            LogError: the storage does not answer.
        """
        blob = self.client().get_blob_client(name)
        start = max(position - 1, 0)  # one byte before, so that the answer has the size even at the end

        async def call() -> BlobRange:
            try:
                download = await blob.download_blob(offset=start, length=position - start + length)
                return _range((await download.readall())[position - start :], download.properties)
            except HttpResponseError as error:
                if error.status_code != 416:  # noqa: PLR2004
                    raise
            return _range(b"", await blob.get_blob_properties())

        return await self._request(call)

    async def list_blobs(self, prefix: str) -> list[BlobListItem]:
        """List blobs by name prefix; empty without the container."""

        async def call() -> list[BlobListItem]:
            now = datetime.now(UTC)

            def record_time(response: Any) -> None:
                nonlocal now
                with suppress(TypeError, ValueError):
                    now = parsedate_to_datetime(response.http_response.headers.get("date"))

            found: list[BlobListItem] = []
            blobs = self.client().list_blobs(name_starts_with=prefix, raw_response_hook=record_time)
            async for blob in cast("AsyncIterator[Any]", blobs):
                age = (now - blob.last_modified).total_seconds()
                found.append(BlobListItem(str(blob.name), int(blob.size), str(blob.etag), age))
            return found

        return await self._list(call)

    async def folders(self) -> list[str]:
        """List the parts of blobs' names before the first slash, each once; empty without the container."""

        async def call() -> list[str]:
            found = cast("AsyncIterator[Any]", self.client().walk_blobs())
            return [name.rstrip("/") async for blob in found if (name := str(blob.name)).endswith("/")]

        return await self._list(call)

    async def _list[T](self, call: Callable[[], Awaitable[list[T]]]) -> list[T]:
        try:
            return await self._request(call)
        except BlobMissingError:
            return []

    async def delete(self, name: str, *, etag: str | None = None) -> None:
        """Delete a blob, if it exists, and if it still has the state."""

        async def call() -> Any:
            blob = self.client().get_blob_client(name)
            if etag is None:
                return await blob.delete_blob()
            return await blob.delete_blob(etag=etag, match_condition=MatchConditions.IfNotModified)

        try:
            await self.retry(call)
        except ResourceNotFoundError:
            pass
        except HttpResponseError as error:
            if error.status_code != _CONDITION_FAILED:
                raise self.explain(error) from error

    async def close(self) -> None:
        """Close the connections."""
        if self._sdk_client is not None:
            await self._sdk_client.close()

    def client(self) -> ContainerClient:
        """Return the SDK's client, made at the first call."""
        if self._sdk_client is None:
            is_behind_proxy = bool({"http", "https", "all"} & getproxies().keys())
            # With the environment's settings, each request would look for a .netrc file, in a thread.
            transport = AioHttpTransport(
                use_env_settings=is_behind_proxy, connection_timeout=_CONNECTION_SECONDS, read_timeout=_READ_SECONDS
            )
            self._sdk_client = self._make_client(transport)
        return self._sdk_client

    async def make(self, call: Callable[[], Any], retry_seconds: float | None = None) -> bool:
        """Create a blob by a request, and the container before it if missing.

        Returns:
            Whether the blob did not exist.
        """
        try:
            try:
                await self.retry(call, retry_seconds)
            except ResourceNotFoundError:
                with suppress(ResourceExistsError):
                    await self.retry(self.client().create_container, retry_seconds)
                await self.retry(call, retry_seconds)
        except ResourceExistsError:
            return False
        except HttpResponseError as error:
            raise self.explain(error) from error
        return True

    async def _request(self, call: Callable[[], Any]) -> Any:
        """Make a request about what exists.

        Raises:
            BlobMissingError: it does not.
            LogError: the storage does not answer, or refuses.
        """
        try:
            return await self.retry(call)
        except ResourceNotFoundError as error:
            raise BlobMissingError from error
        except HttpResponseError as error:
            raise self.explain(error) from error

    async def retry(self, call: Callable[[], Any], retry_seconds: float | None = None) -> Any:
        """Make a request until the storage answers.

        Raises:
            LogError: it does not.
            HttpResponseError: its answer, except for server trouble.
        """
        seconds = self._retry_seconds if retry_seconds is None else retry_seconds
        return await retry(call, _is_passing, label="the blob storage", retry_seconds=seconds)

    def explain(self, error: HttpResponseError) -> LogError:
        """Return an error that explains the storage's answer and what to do."""
        reason = code_of(error) or " ".join(str(error).split())[:200]
        return LogError(
            f"the blob storage refused {self._label} ({error.status_code} {reason}): see that the account may "
            "read and write blobs (role Storage Blob Data Contributor)"
        )


def as_body(content: bytes) -> bytes | BytesIO:
    """Return bytes in the transport's preferred form: aiohttp wants large bodies as files."""
    return BytesIO(content) if len(content) > _LARGE_BYTES else content


def _is_passing(error: Exception) -> bool:
    if isinstance(error, ClientAuthenticationError):
        return False
    if isinstance(error, IncompleteReadError | DecodeError):
        return True  # an answer that broke off; its status is that of a complete one
    if isinstance(error, HttpResponseError):
        # A container under deletion, or whose creation was answered late, settles.
        return (
            error.status_code in _PASSING_STATUS
            or error.status_code is None
            or code_of(error) == "ContainerBeingDeleted"
        )
    return isinstance(error, ServiceRequestError | ServiceResponseError | TimeoutError | OSError)


def code_of(error: HttpResponseError) -> str:
    """Return the storage's code of an error, or an empty text."""
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code) or "")


def _range(data: bytes, properties: Any) -> BlobRange:
    content_range = str(getattr(properties, "content_range", None) or "")
    size = content_range.rpartition("/")[2] or properties.size
    return BlobRange(data, int(size))
