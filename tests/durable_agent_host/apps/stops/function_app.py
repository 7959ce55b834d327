"""Agents whose tool, or message, ends the process; the tools leave lines in the file ``LEDGER``."""

import asyncio
import os
import time
from pathlib import Path

from agent_framework import Agent, ContextProvider

from durable_agent_host import DurableAgentApp, durable_tool
from durable_agent_host.providers.openai import chat_client_from_environment


def write(line: str) -> None:
    """Write a line to the ledger."""
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(f"{line}\n")


@durable_tool(idempotent=True)
def die() -> str:
    """End the process, as a crash in native code does; a tool beside it has begun in this life, if there is one."""
    for _ in range(60):
        lines = Path(os.environ["LEDGER"]).read_text().splitlines()
        begun_count = sum(line.startswith("begin") for line in lines)
        if not begun_count or begun_count > lines.count("die"):
            break
        time.sleep(0.05)
    write("die")
    os._exit(139)


@durable_tool(idempotent=True)
async def rest(file: str) -> str:
    """Rest until a file exists."""
    write(f"begin {file}")
    while not Path(os.environ["LEDGER"]).with_name(file).exists():
        await asyncio.sleep(0.05)
    write(f"end {file}")
    return "rested"


class Poison(ContextProvider):
    """Ends the process before the first model call."""

    async def before_run(self, **_arguments) -> None:
        """End the process."""
        write("poison")
        os._exit(139)


client = chat_client_from_environment()
app = DurableAgentApp(
    agents=[
        Agent(client, "You work.", name="Worker", tools=[die, rest]),
        Agent(client, "You are poisoned.", name="Poisoned", context_providers=[Poison("poison")]),
    ]
)
