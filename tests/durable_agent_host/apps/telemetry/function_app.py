"""Agents whose app sends telemetry as the framework documents it; with ``NO_TELEMETRY`` it sends none."""

import logging
import os
import time

from agent_framework import Agent, tool
from agent_framework.observability import configure_otel_providers
from opentelemetry.sdk._logs import LoggingHandler

from durable_agent_host import DurableAgentApp, durable_tool
from durable_agent_host.providers.openai import chat_client_from_environment

if "NO_TELEMETRY" not in os.environ:
    configure_otel_providers()  # of log lines, this sends the framework's own
    logging.getLogger("durable_agent_host").addHandler(LoggingHandler())


@durable_tool(idempotent=True)
@tool(name="note")
def write_text(text: str) -> str:
    """Note a text."""
    return f"noted {text}"


@tool
def linger(seconds: float) -> str:
    """Take a while."""
    time.sleep(seconds)
    return "lingered"


@tool(approval_mode="always_require")
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


client = chat_client_from_environment()
clerk = Agent(client, "You are the clerk.", name="clerk", description="A clerk.", tools=[write_text])
tools = [write_text, linger, pay, clerk.as_tool()]
agent = Agent(client, "Use your tools.", name="Traced", tools=tools)
app = DurableAgentApp(agents=[agent], enable_mcp_tool_trigger=True)


@app.orchestration_trigger(context_name="context")
def talk(context):
    """Hold two turns of a session in the trace that the input names."""
    agent = app.get_agent(context, "Traced", traceparent=context.get_input()["traceparent"])
    session = agent.create_session()
    yield agent.run("hello", session=session)
    answer = yield agent.run("and again", session=session)
    return answer.text
