"""Whether a text stands anywhere in what a store has written."""

from pathlib import Path

from tests.durable_agent_host.stored_bytes import decompress_parts
from tests.kit_services import azurite_connection


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
