"""Agents with tools of an MCP server: one starts it (stdio), one finds it at a URL, and one asks an agent that does.

Two more find it behind a gateway, and at the URL with tools that need approval.
"""

import os
import sys
from pathlib import Path
from typing import Any

from agent_framework import Agent, FunctionTool, MCPStdioTool, MCPStreamableHTTPTool

from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment

FOLDER = Path(os.environ["FOLDER"])
SERVER = Path(__file__).with_name("server.py")
client = chat_client_from_environment()


def agent(name: str, *tools: Any) -> Agent:
    """Make an agent with tools."""
    return Agent(client, name=name, tools=[*tools], default_options={"store": False})


command = [str(SERVER), *(str(FOLDER / name) for name in ("pids", "ledger", "tools"))]
local = MCPStdioTool("ledger", sys.executable, args=command, load_prompts=False)
inner = MCPStdioTool("inner", sys.executable, args=command, load_prompts=False)
remote = MCPStreamableHTTPTool("remote", os.environ["MCP_URL"], load_prompts=False)
behind = MCPStreamableHTTPTool("behind", os.environ["GATEWAY_URL"], load_prompts=False)
approving = MCPStreamableHTTPTool(
    "approving", os.environ["MCP_URL"], load_prompts=False, approval_mode="always_require"
)
helper = agent("Helper", inner).as_tool(name="ask_helper", arg_name="task")
locate = FunctionTool(name="locate", func=None, input_model={"type": "object", "properties": {}})
app = DurableAgentApp(
    agents=[
        *(agent("Local", local), agent("Remote", remote), agent("Asking", helper)),
        *(agent("Behind", behind), agent("Approving", approving, locate)),
    ]
)
