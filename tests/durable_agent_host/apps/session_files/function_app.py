"""The framework's harness agent, agents whose providers keep files and todos, and one that asks such an agent."""

import os
from pathlib import Path
from typing import Any

from agent_framework import (
    Agent,
    FileAccessProvider,
    FileMemoryProvider,
    FileSystemAgentFileStore,
    InMemoryAgentFileStore,
    TodoFileStore,
    TodoProvider,
    create_harness_agent,
)

from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment

FOLDER = Path(os.environ["FOLDER"])
os.chdir(FOLDER)

client = chat_client_from_environment()


def agent(name: str, *providers: Any, **more: Any) -> Agent:
    """Make an agent with context providers, whose service keeps nothing."""
    return Agent(client, name=name, context_providers=[*providers], default_options={"store": False}, **more)


workspace = FileAccessProvider(
    InMemoryAgentFileStore(),
    session_scoped=True,
    disable_readonly_tool_approval=True,
    disable_write_tool_approval=True,
)
shared_memory = FileMemoryProvider(FileSystemAgentFileStore(FOLDER / "shared"), scope="everybody")
helper = agent("Noting", FileMemoryProvider(FileSystemAgentFileStore(FOLDER / "helper")))
app = DurableAgentApp(
    agents=[
        create_harness_agent(client, name="Harness", disable_web_search=True, default_options={"store": False}),
        agent("Working", workspace, TodoProvider(store=TodoFileStore(FOLDER / "todos"))),
        agent("Sharing", shared_memory),
        agent("Asking", tools=[helper.as_tool(name="ask_helper", arg_name="task")]),
    ]
)
