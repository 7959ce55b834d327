"""The container of the turn logs' blobs: creates them and appends to them."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.storage.blob.aio import ContainerClient

from durable_agent_host.storage.azure_blob_container import BlobContainer, BlobMissingError, as_body, code_of

_AT_ONCE: Final = 16


class BlobMovedError(Exception):
    """The blob does not end at the expected position, or takes no more blocks."""


class LogContainer(BlobContainer):
    """Requests to the container of turn logs. All calls come from one loop.

    Args:
        make_client: creates the client, in that loop, with a given transport.
        retry_seconds: how long a request is retried.
    """

    def __init__(self, make_client: Callable[[Any], ContainerClient], retry_seconds: float) -> None:
        super().__init__(make_client, retry_seconds, label="the turn log")
        self._append_slots = asyncio.Semaphore(_AT_ONCE)

    async def append(self, name: str, block: bytes, position: int) -> None:
        """Append a block at the expected end of the blob.

        Raises:
            BlobMovedError: it ends elsewhere (perhaps because this block is there already), or is full.
            BlobMissingError: it does not exist.
            LogError: the storage does not answer.
        """

        async def call() -> None:
            async with self._append_slots:
                blob = self.client().get_blob_client(name)
                await blob.append_block(as_body(block), len(block), appendpos_condition=position)

        try:
            await self.retry(call)
        except ResourceNotFoundError as error:
            raise BlobMissingError from error
        except HttpResponseError as error:
            if error.status_code == 412 or code_of(error) in {"BlockCountExceedsLimit", "BlobIsSealed"}:  # noqa: PLR2004
                raise BlobMovedError(code_of(error)) from error
            raise self.explain(error) from error

    async def create(self, name: str) -> None:
        """Create an append blob, unless it exists. Creates the container if that is missing."""

        async def call() -> Any:
            blob = self.client().get_blob_client(name)
            return await blob.create_append_blob(match_condition=MatchConditions.IfMissing)

        await self.make(call)
