"""Agents whose conversations are kept by history providers: of the framework, wrapped, and of the tests."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from agent_framework import Agent, FileHistoryProvider, HistoryProvider, InMemoryHistoryProvider, Message, tool
from agent_framework_azure_cosmos import CosmosHistoryProvider

from durable_agent_host import CoalescingHistoryProvider, DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment
from tests.kit_histories import Carving, Gist, Notebook, RedisLists, cosmos_client

FOLDER = Path(os.environ["HISTORIES"])


class Moody(Notebook):
    """While there is a file ``mood``: saves a part of what it is given, and says that it failed; or reads nothing."""

    def is_in_mood(self, mood: str) -> bool:
        """Tell whether it is in a mood."""
        return (FOLDER / mood).exists()

    async def get_messages(self, session_id: str | None, **kwargs: Any) -> list[Message]:
        """Read them, or not."""
        if self.is_in_mood("unreadable"):
            raise ConnectionError("no answer from the shelf")
        return await super().get_messages(session_id, **kwargs)

    async def save_messages(self, session_id: str | None, messages: Sequence[Message], **kwargs: Any) -> None:
        """Append them, or some of them."""
        if self.is_in_mood("full"):
            await super().save_messages(session_id, messages[:-1])
            raise ConnectionError("the shelf is full")
        await super().save_messages(session_id, messages)


async def dawdle(text: str) -> str:
    """Take a while."""
    await asyncio.sleep(60)
    return text


@tool(name="note")
def write_text(text: str) -> str:
    """Note a text."""
    return f"noted {text}"


client = chat_client_from_environment()


def build_agent(name: str, *providers: HistoryProvider) -> Agent:
    """An agent with a history of its own."""
    tools = [write_text, dawdle]
    return Agent(client, name=name, context_providers=providers, tools=tools, default_options={"store": False})


def cosmos(source_id: str) -> CosmosHistoryProvider:
    """The framework's provider for Cosmos DB."""
    emulator = cosmos_client(int(os.environ.get("COSMOS_PORT", "9")))
    return CosmosHistoryProvider(source_id, cosmos_client=emulator, database_name="chats", container_name="messages")


app = DurableAgentApp(
    agents=[
        build_agent("Noted", Notebook(FOLDER, "notebook")),
        build_agent("Folded", CoalescingHistoryProvider(Notebook(FOLDER, "folded"))),
        build_agent("Filed", FileHistoryProvider(FOLDER / "files")),
        build_agent("Listed", RedisLists(int(os.environ.get("REDIS_PORT", "9")))),
        build_agent("Clouded", cosmos("clouded")),
        build_agent("CloudFolded", CoalescingHistoryProvider(cosmos("folded"))),
        build_agent("Carved", Carving(FOLDER, "stone")),
        build_agent("Told", Gist(FOLDER, "gist")),
        build_agent("Moody", Moody(FOLDER, "moody")),
        build_agent("Plain"),
        build_agent("Kept", InMemoryHistoryProvider()),
        build_agent("Audited", Notebook(FOLDER, "audit", load_messages=False)),
    ]
)
