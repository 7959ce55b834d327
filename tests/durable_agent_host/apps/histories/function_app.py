"""Agents whose conversations are kept by history providers: of the framework, wrapped, and one of this app."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "src"))

from agent_framework import Agent, FileHistoryProvider, HistoryProvider, InMemoryHistoryProvider, Message
from agent_framework_azure_cosmos import CosmosHistoryProvider

from durable_agent_host import CoalescingHistoryProvider, DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment

FOLDER = Path(os.environ["HISTORIES"])


class Notebook(HistoryProvider):
    """Keeps each session in a file of its own, one message a line."""

    def _file(self, session_id: str | None) -> Path:
        FOLDER.joinpath(self.source_id).mkdir(parents=True, exist_ok=True)
        return FOLDER / self.source_id / f"{session_id}.jsonl"

    async def get_messages(self, session_id: str | None, **kwargs: Any) -> list[Message]:
        """Read them."""
        file = self._file(session_id)
        lines = file.read_text().splitlines() if file.exists() else []
        return [Message.from_dict(json.loads(line)) for line in lines]

    async def save_messages(self, session_id: str | None, messages: Sequence[Message], **kwargs: Any) -> None:
        """Append them."""
        with self._file(session_id).open("a") as file:
            file.writelines(json.dumps(message.to_dict()) + "\n" for message in messages)

    async def clear(self, session_id: str | None) -> None:
        """Forget them."""
        self._file(session_id).unlink(missing_ok=True)


async def dawdle(text: str) -> str:
    """Take a while."""
    await asyncio.sleep(60)
    return text


def note(text: str) -> str:
    """Note a text."""
    return f"noted {text}"


client = chat_client_from_environment()
cosmos = CosmosHistoryProvider(
    endpoint="http://127.0.0.1:9", credential="Zm9v", database_name="chats", container_name="messages"
)


def hosted(name: str, provider: HistoryProvider) -> Agent:
    """An agent with a history of its own."""
    tools = [note, dawdle]
    return Agent(client, name=name, context_providers=[provider], tools=tools, default_options={"store": False})


app = DurableAgentApp(
    agents=[
        hosted("Noted", Notebook("notebook")),
        hosted("Folded", CoalescingHistoryProvider(Notebook("folded"))),
        hosted("Filed", FileHistoryProvider(FOLDER / "files")),
        hosted("Clouded", cosmos),
        hosted("CloudFolded", CoalescingHistoryProvider(cosmos)),
        hosted("Kept", InMemoryHistoryProvider()),
        hosted("Audited", Notebook("audit", load_messages=False)),
    ]
)
