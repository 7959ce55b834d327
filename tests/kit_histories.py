"""History providers that tests give to agents, and what they need."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_framework import HistoryProvider, Message
from azure.core.pipeline.transport import AioHttpTransport
from azure.cosmos.aio import CosmosClient
from redis.asyncio import Redis

COSMOS_KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
"""The emulator's published key."""


class ForEmulator(AioHttpTransport):
    """Says the partition key in every operation of a batch: the emulator looks there, the service in the header."""

    async def send(self, request, **kwargs):
        """Send a request, a batch in the emulator's form."""
        if "x-ms-cosmos-is-batch-request" in request.headers:
            key = request.headers["x-ms-documentdb-partitionkey"]
            body = json.dumps([operation | {"partitionKey": key} for operation in json.loads(request.data)])
            request.data = body
            request.headers["Content-Length"] = str(len(body.encode()))
        return await super().send(request, **kwargs)


def cosmos_client(port: int) -> CosmosClient:
    """A client of the emulator. It would call the endpoints that the emulator names, which are not without TLS."""
    options = {"enable_endpoint_discovery": False, "transport": ForEmulator()}
    return CosmosClient(f"http://127.0.0.1:{port}", COSMOS_KEY, **options)


class Notebook(HistoryProvider):
    """Keeps each session in a file of its own, one message a line. Saves what it is given, once or twice."""

    def __init__(self, folder: Path, source_id: str, **flags: Any) -> None:
        super().__init__(source_id, **flags)
        self.folder = folder / source_id
        self.folder.mkdir(parents=True, exist_ok=True)

    def file(self, session_id: str | None) -> Path:
        """Where a session is."""
        return self.folder / f"{session_id}.jsonl"

    async def get_messages(self, session_id: str | None, **kwargs: Any) -> list[Message]:
        """Read them."""
        file = self.file(session_id)
        lines = file.read_text().splitlines() if file.exists() else []
        return [Message.from_dict(json.loads(line)) for line in lines]

    async def save_messages(self, session_id: str | None, messages: Sequence[Message], **kwargs: Any) -> None:
        """Append them."""
        with self.file(session_id).open("a") as file:
            file.writelines(json.dumps(message.to_dict()) + "\n" for message in messages)

    def clear(self, session_id: str | None) -> None:
        """Forget them."""
        self.file(session_id).unlink(missing_ok=True)


class Carving(Notebook):
    """Cannot forget."""

    clear = None


class Gist(Notebook):
    """Keeps who said what, and nothing else."""

    async def save_messages(self, session_id: str | None, messages: Sequence[Message], **kwargs: Any) -> None:
        """Append the words."""
        await super().save_messages(
            session_id, [Message(message.role, [message.text]) for message in messages if message.text]
        )


class RedisLists(HistoryProvider):
    """Keeps each session in a list of a Redis server.

    So does the framework's provider, which has no release for the redis client that this project uses.
    """

    def __init__(self, port: int, source_id: str = "lists") -> None:
        super().__init__(source_id)
        self.client = Redis(port=port, decode_responses=True)

    def key(self, session_id: str | None) -> str:
        """Name the list of a session."""
        return f"{self.source_id}|{session_id}"

    async def get_messages(self, session_id: str | None, **kwargs: Any) -> list[Message]:
        """Read them."""
        return [Message.from_dict(json.loads(text)) for text in await self.client.lrange(self.key(session_id), 0, -1)]

    async def save_messages(self, session_id: str | None, messages: Sequence[Message], **kwargs: Any) -> None:
        """Append them."""
        await self.client.rpush(self.key(session_id), *(json.dumps(message.to_dict()) for message in messages))

    async def clear(self, session_id: str | None) -> None:
        """Forget them."""
        await self.client.delete(self.key(session_id))
