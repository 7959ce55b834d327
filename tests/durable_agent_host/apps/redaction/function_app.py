"""Agents that have something redacted, one that has nothing, and functions that redact in ways of their own."""

import asyncio
import copy
import os
import re
from pathlib import Path
from typing import Any

from agent_framework import Agent, Content, ContextProvider, FileHistoryProvider, Message, tool
from agent_framework.observability import configure_otel_providers

from durable_agent_host import DurableAgentApp, durable_tool
from durable_agent_host.providers.openai import chat_client_from_environment
from tests.durable_agent_host.canaries import hide_canaries


def find(card: str) -> str:
    """Find the holder of a card."""
    return f"{card} is held by {os.environ['HOLDER']}"


def broken(key: str) -> str:
    """Fail with what it was given."""
    raise ValueError(f"{key} of {os.environ['IN_ERROR']} is refused")


@durable_tool(idempotent=True)
async def dawdle(card: str) -> str:
    """Take long the first time."""
    ledger = Path(os.environ["LEDGER"])
    if not ledger.exists():
        ledger.write_text("began")
        await asyncio.sleep(60)
    return f"looked at {card}"


@tool(approval_mode="always_require")
def pay(card: str, reason: str) -> str:
    """Pay."""
    return f"paid with {card} {reason}"


def redact_text(content: Content) -> Content:
    """Hide code words."""
    if not content.text or "word-" not in content.text:
        return content
    hidden = copy.copy(content)
    hidden.text = re.sub(r"word-\d+( and \d+)*", "(hidden)", content.text)
    return hidden


class Papers(ContextProvider):
    """Lays a message before the model that nobody has said."""

    async def before_run(self, *, context: Any, **more: Any) -> None:
        """Add it."""
        context.extend_messages(self, [Message("user", [f"The file says {os.environ['HOLDER']}."])])


def fail(content: Content) -> Content:
    """Fail for what has a certain word."""
    if content.text and "stumble" in content.text:
        raise KeyError(content.text)
    return content


if "OTEL_EXPORTER_OTLP_ENDPOINT" in os.environ:
    configure_otel_providers()
client = chat_client_from_environment()


def agent(name: str, *providers: ContextProvider) -> Agent:
    """Make an agent with tools."""
    tools = [find, broken, dawdle, pay, client.get_code_interpreter_tool()]
    options = {"store": False, "include": ["code_interpreter_call.outputs"]}
    return Agent(client, "Help.", name=name, tools=tools, default_options=options, context_providers=providers)


app = DurableAgentApp(redact=hide_canaries, enable_mcp_tool_trigger=True)
app.add_agent(agent("Teller"))
app.add_agent(agent("Words"), redact=redact_text)
app.add_agent(agent("Stumbles"), redact=fail)
if "FILES" in os.environ:
    history_provider = FileHistoryProvider(os.environ["FILES"], store_context_messages=True)
    app.add_agent(agent("Filed", Papers("papers"), history_provider))
app.add_agent(Agent(client, "Ask.", name="Asks", tools=[agent("clerk").as_tool()]))
app.add_agent(agent("Open"), redact=lambda content: content)
