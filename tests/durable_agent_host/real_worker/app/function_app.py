"""Agents that echo, that pay after an approval, and that leave a result to a job for some seconds."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from agent_framework import Agent, tool

from durable_agent_host import DurableAgentApp, current_tool_call
from durable_agent_host.providers.openai import chat_client_from_environment


def echo(text: str) -> str:
    """Return the text."""
    return text


@tool(approval_mode="always_require")
def pay(amount: float) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def race(horse: str, seconds: float) -> Any:
    """Leave the result to a job, whose callback stands in the ledger."""
    deferred = current_tool_call().defer(timedelta(seconds=seconds))
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(f"{horse} {deferred.path}\n")
    return deferred


app = DurableAgentApp(
    agents=[
        Agent(
            chat_client_from_environment(),
            "Work.",
            name="Worker",
            tools=[echo, pay, race],
            default_options={"store": False},
        )
    ]
)
