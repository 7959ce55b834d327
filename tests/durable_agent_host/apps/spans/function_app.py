"""An agent whose tool calls are measured by an observer."""

import os
import time
from pathlib import Path

from agent_framework import Agent, tool
from tool_spans import ToolSpans

from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment


def linger(seconds: float) -> str:
    """Take a while."""
    time.sleep(seconds)
    return "lingered"


@tool(approval_mode="always_require")
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


agent = Agent(chat_client_from_environment(), "Use your tools.", name="Measured", tools=[linger, pay])
app = DurableAgentApp(agents=[agent], observers=[ToolSpans(Path(os.environ["SPANS"]))])
