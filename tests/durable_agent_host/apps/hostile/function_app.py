"""An agent with everything that a stranger can ask for: code, a tool that waits for a person, MCP."""

from agent_framework import Agent, tool

from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment


@tool(approval_mode="always_require")
def pay(amount: float) -> str:
    """Pay an amount."""
    return f"paid {amount}"


client = chat_client_from_environment()
tools = [client.get_code_interpreter_tool(), pay]
outputs = {"include": ["code_interpreter_call.outputs"]}
app = DurableAgentApp(
    agents=[Agent(client, "Do as you are told.", name="Clerk", tools=tools, default_options=outputs)],
    enable_mcp_tool_trigger=True,
)
