"""Agents of the Azure AI Agents service at ``MODEL_URL``; a tool leaves a line in the file ``EFFECTS``."""

import os
from pathlib import Path

from agent_framework import Agent, tool
from agent_framework_openai import OpenAIChatClient

from durable_agent_host import DurableAgentApp
from durable_agent_host_azure_ai_agents import AzureAIAgentsChatClient


def write_line(line: str) -> str:
    """Leave a line."""
    with Path(os.environ["EFFECTS"]).open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    return f"noted {line}"


@tool(approval_mode="always_require")
def careful(line: str) -> str:
    """Leave a line that needs approval."""
    return write_line(line)


def agent(name: str, *tools: object) -> Agent:
    """Make an agent that is found or created at the service by its name."""
    client = AzureAIAgentsChatClient(
        agent_name=name, model="practice", endpoint=os.environ["MODEL_URL"], api_key="agents-key", poll_seconds=0.1
    )
    return Agent(client, "Be brief.", name=name, tools=list(tools))


SERVER = {
    "type": "mcp",
    "server_label": "docs",
    "server_url": "https://docs.example/mcp",
    "headers": {"X-Docs": "docs-header"},
    "require_approval": "always",
}
responses_client = OpenAIChatClient(model="practice", api_key="k", base_url=os.environ["RESPONSES_URL"])
app = DurableAgentApp(
    agents=[
        agent("Worker", tool(write_line, name="note"), careful, {"type": "code_interpreter"}),
        agent("Reader", SERVER),
    ],
)
app.add_agent(agent("Falling", tool(write_line, name="note")), fallbacks=[responses_client])
