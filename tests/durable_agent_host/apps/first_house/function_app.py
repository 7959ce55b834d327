"""The app whose data `tests/replay/first_house` holds: every kind of session that was stored before the rooms moved.

It imports the package that its interpreter has installed, so that an older checkout can run it too.
"""

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent_framework import Agent, HistoryProvider, Message, tool
from agent_framework_openai import OpenAIChatClient
from agent_framework_orchestrations import SequentialBuilder

from durable_agent_host import CoalescingHistoryProvider, DurableAgentApp, durable_tool

FOLDER = Path(os.environ["FIRST_HOUSE"])
LONG_SECONDS = 600


def trace(line: str) -> None:
    """Append a line to the ledger; it is written when this returns."""
    with (FOLDER / "ledger.txt").open("a") as ledger:
        ledger.write(f"{line}\n")


def note(text: str) -> str:
    """Note a text."""
    trace(f"note {text}")
    return f"noted {text}"


async def linger(text: str) -> str:
    """Note a text and wait, unless it was noted before."""
    known = (FOLDER / "ledger.txt").read_text().splitlines()
    trace(f"linger {text}")
    if f"linger {text}" not in known:
        await asyncio.sleep(LONG_SECONDS)
    return f"lingered {text}"


@durable_tool(idempotent=True)
async def linger_again(text: str) -> str:
    """Wait; may run again."""
    return await linger(text)


@durable_tool(in_doubt="ask")
async def linger_asked(text: str) -> str:
    """Wait; a person decides when the outcome is in doubt."""
    return await linger(text)


@tool(approval_mode="always_require")
def pay(text: str) -> str:
    """Pay; a person has to approve it."""
    trace(f"pay {text}")
    return f"paid {text}"


class Notebook(HistoryProvider):
    """Keeps each session in a file of its own, one message a line."""

    def _file(self, session_id: str | None) -> Path:
        FOLDER.joinpath(self.source_id).mkdir(parents=True, exist_ok=True)
        return FOLDER / self.source_id / f"{session_id}.jsonl"

    async def get_messages(self, session_id: str | None, **kwargs: Any) -> list[Message]:
        """Read the messages."""
        file = self._file(session_id)
        lines = file.read_text().splitlines() if file.exists() else []
        return [Message.from_dict(json.loads(line)) for line in lines]

    async def save_messages(self, session_id: str | None, messages: Sequence[Message], **kwargs: Any) -> None:
        """Append messages."""
        with self._file(session_id).open("a") as file:
            file.writelines(json.dumps(message.to_dict()) + "\n" for message in messages)


def chat_client(model: str) -> OpenAIChatClient:
    """Make a client of the practice model."""
    return OpenAIChatClient(model=model, api_key="practice", base_url=os.environ["OPENAI_BASE_URL"])


client, thinking = chat_client("practice"), chat_client("practice-reasoning")
python = client.get_code_interpreter_tool()
tools: list[Any] = [note, linger, linger_again, linger_asked, pay, python]
apart = {"store": False, "include": ["code_interpreter_call.outputs"]}
worker = Agent(client, "Work.", name="Worker", tools=tools, default_options=apart)
kept = Agent(client, "Work.", name="Kept", tools=tools)


def team() -> Any:
    """Make two agents that work one after the other."""
    members = [Agent(client, f"You are {name}.", name=name) for name in ("writer", "reviewer")]
    return SequentialBuilder(participants=members).build().as_agent("Team")


def with_history(name: str, provider: HistoryProvider) -> Agent:
    """Make an agent whose conversation is kept outside."""
    return Agent(client, name=name, context_providers=[provider], tools=[note], default_options={"store": False})


app = DurableAgentApp(
    agents=[
        worker,
        kept,
        Agent(thinking, "Think.", name="Thinker", tools=tools, default_options=apart),
        with_history("Noted", Notebook("notebook")),
        with_history("Folded", CoalescingHistoryProvider(Notebook("folded"))),
        team,
    ]
)
