"""Agents whose services keep files and conversations, for callers that the header ``x-who`` names."""

import azure.functions as func
from agent_framework import Agent
from agent_framework_anthropic import AnthropicClient

from durable_agent_host import DurableAgentApp, Principal
from durable_agent_host.http.gate import Action, AuthorizationTarget, IncomingRequest
from durable_agent_host.providers.openai import chat_client_from_environment


def identify(request: IncomingRequest) -> Principal | None:
    """Believe the caller."""
    header = request.headers.get("x-who")
    return Principal(header) if header else None


def authorize(principal: Principal, action: Action, session: AuthorizationTarget) -> bool:
    """Let everybody import results of tools."""
    del principal, session
    return action == "session.import"


client, claude = chat_client_from_environment(), AnthropicClient()
python = client.get_code_interpreter_tool()
app = DurableAgentApp(
    agents=[
        Agent(client, "Calculate.", name="Coder", tools=[python], default_options={"store": False}),
        Agent(client, "Talk.", name="Kept"),
        Agent(claude, "Calculate.", name="Claude", tools=[claude.get_code_interpreter_tool()]),
    ],
    http_auth_level=func.AuthLevel.ANONYMOUS,
    identify=identify,
    authorize=authorize,
)
