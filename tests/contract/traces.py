"""Whether a text stands anywhere in what a store has written."""

import asyncio
import time
from pathlib import Path
from typing import Protocol

from tests.durable_agent_host.stored_bytes import decompress_parts
from tests.kit_services import azurite_connection


class Holder(Protocol):
    """A backend under test."""

    erasing_seconds: float

    async def holds(self, text: bytes) -> bool:
        """Tell whether a text stands in any file, blob or key of the store."""
        ...


async def loses(backend: Holder, text: bytes) -> bool:
    """Tell whether a deleted text leaves all files, blobs and keys within the time that the store promises."""
    deadline = time.monotonic() + backend.erasing_seconds
    while is_there := await backend.holds(text):
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(0.05)
    return not is_there


def text_in_files(folder: Path, text: bytes) -> bool:
    """Look into every file of a folder."""
    return any(text in file.read_bytes() for file in folder.iterdir())


async def text_in_blobs(port: int, container: str, text: bytes) -> bool:
    """Look into every blob of a container, and for what is staged, deleted or kept as a version."""
    from azure.storage.blob.aio import ContainerClient

    async with ContainerClient.from_connection_string(azurite_connection(port), container) as client:
        async for blob in client.list_blobs(include=["deleted", "snapshots", "versions"]):
            if blob.size:
                data = await (await client.get_blob_client(blob.name).download_blob()).readall()
                if text in data or text in decompress_parts(data):
                    return True
    return False
