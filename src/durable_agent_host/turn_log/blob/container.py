"""The container of the turn logs' blobs: creates them and appends to them."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.storage.blob.aio import ContainerClient

from durable_agent_host.storage.azure_blob_container import BlobContainer, BlobMissingError, as_body, code_of

_AT_ONCE: Final = 16
"""Maximum concurrent requests to the storage."""
_SHARE: Final = 0.5
"""The part of the processor time that requests may take."""
_MAX_SECONDS: Final = 1.0
"""The longest pause before a request."""
_AVERAGED_REQUESTS: Final = 16
_BUSY_SECONDS: Final = 0.5


class WriteRate:
    """Limits requests to what the storage answers, and to a share of one processor. Belongs to one loop.

    A writer waits *after* its request, when its entries are durable and delivered. The output of its turn until then
    goes into one request, which starts at once. A wait before the request would only delay its entries. Writers wait
    before a request only if many start together.
    """

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._requests = 0
        self._measured_at = 0.0
        self._used_seconds = 0.0
        self._cost_seconds = 0.0
        self._answer_seconds = 0.0
        self._free_at = 0.0

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[None]:
        """Enter when a request may start; leave when it is answered."""
        async with self._slots:
            started_at = time.monotonic()
            yield
            now = time.monotonic()
            self._answer_seconds += (now - started_at - self._answer_seconds) / _AVERAGED_REQUESTS
            self._requests += 1
            if self._requests % _AVERAGED_REQUESTS == 0:
                self._measure(now)

    async def wait_for_slot(self) -> None:
        """Wait until the caller may make its next request; callers queue."""
        now = time.monotonic()
        start_at = max(self._free_at, now)
        # Half of the slots stay free, so that a writer that has waited here does not wait for a slot as well.
        self._free_at = start_at + max(self._cost_seconds / _SHARE, self._answer_seconds / (_AT_ONCE / 2))
        if start_at > now:
            await asyncio.sleep(min(start_at - now, _MAX_SECONDS))

    def _measure(self, now: float) -> None:
        """Estimate the processor time per request from what the loop's thread used for the last ones."""
        used = time.thread_time()
        is_busy = now < self._measured_at + _BUSY_SECONDS  # otherwise most of it went elsewhere
        self._cost_seconds = (used - self._used_seconds) / _AVERAGED_REQUESTS if is_busy else 0.0
        self._used_seconds = used
        self._measured_at = now


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
        write_rate: of appends; a writer rests after each one.
    """

    def __init__(self, make_client: Callable[[Any], ContainerClient], retry_seconds: float) -> None:
        super().__init__(make_client, retry_seconds, label="the turn log")
        self.durable_writes = 0
        self.write_rate = WriteRate()

    async def append(self, name: str, block: bytes, position: int) -> None:
        """Append a block at the expected end of the blob.

        Raises:
            BlobMovedError: it ends elsewhere (perhaps because this block is there already), or is full.
            BlobMissingError: it does not exist.
            LogError: the storage does not answer.
        """

        async def call() -> None:
            async with self.write_rate.slot():
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
