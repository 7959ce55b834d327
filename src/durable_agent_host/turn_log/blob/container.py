"""The container of the turn logs' blobs: creates them and appends to them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.storage.blob.aio import ContainerClient

from durable_agent_host.storage.azure_blob_container import BlobContainer, BlobMissingError, as_body, code_of

_AT_ONCE: Final = 16
MAX_BLOCKS: Final = 50_000
_FIRST_OFFSET: Final = "first_offset"
_ATTEMPT: Final = "attempt"


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


class LogContainer(BlobContainer):
    """Requests to the container of turn logs. All calls come from one loop.

    Args:
        make_client: creates the client, in that loop, with a given transport.
        retry_seconds: how long a request is retried.

    Attributes:
        durable_writes: appended blocks.
    """

    def __init__(self, make_client: Callable[[Any], ContainerClient], retry_seconds: float) -> None:
        super().__init__(make_client, retry_seconds, label="the turn log")
        self.durable_writes = 0
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
        self.durable_writes += 1

    async def create(self, name: str, *, first_offset: int, attempt: int) -> None:
        """Create an append blob, unless it exists. Creates the container if that is missing."""
        metadata = {_FIRST_OFFSET: str(first_offset), _ATTEMPT: str(attempt)}

        async def call() -> Any:
            return (
                await self.client()
                .get_blob_client(name)
                .create_append_blob(metadata=metadata, match_condition=MatchConditions.IfMissing)
            )

        await self.make(call)

    async def parts(self, log_id: str) -> list[Part]:
        """List the append blobs of a log, in order; empty without one."""
        found = [
            Part(int(blob.name.rpartition("/")[2]), int(blob.metadata[_FIRST_OFFSET]), int(blob.metadata[_ATTEMPT]))
            for blob in await self.list_blobs(f"{log_id}/", with_metadata=True)
            if _FIRST_OFFSET in blob.metadata
        ]
        return sorted(found, key=lambda part: part.number)
