"""An app whose own functions use its agents: one of them calls a client's method for whoever asks."""

import json
import os
from dataclasses import asdict
from inspect import isasyncgen
from pathlib import Path
from typing import Any

import azure.functions as func
from agent_framework import Agent, tool

from durable_agent_host import THE_APP, AgentClientError, DurableAgentApp, Principal
from durable_agent_host.http.gate import IncomingRequest
from durable_agent_host.providers.openai import chat_client_from_environment


def identify(request: IncomingRequest) -> Principal | None:
    """Believe the caller."""
    name = request.headers.get("x-who")
    return Principal(name) if name else None


@tool(approval_mode="always_require")
def pay(amount: float) -> str:
    """Pay an amount."""
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(f"paid {amount}\n")
    return f"paid {amount}"


model = chat_client_from_environment()
app = DurableAgentApp(identify=identify, http_auth_level=func.AuthLevel.ANONYMOUS)
for name in ("Payer", "Hidden"):
    agent = Agent(model, "Pay.", name=name, tools=[pay], default_options={"store": False})
    app.add_agent(agent, enable_http_endpoint=name != "Hidden")


@app.route("desk/{principal}/{method}", methods=["POST"])
@app.durable_client_input(client_name="durable")
async def call_method(req: func.HttpRequest, durable) -> func.HttpResponse:
    """Call a method of the client of a principal, or of the app, with the body's arguments."""
    name = req.route_params["principal"]
    client = app.client(durable, principal=THE_APP if name == "the-app" else Principal(name))
    result: Any = getattr(client, req.route_params["method"])(**req.get_json())
    try:
        value = [asdict(event) async for event in result] if isasyncgen(result) else await result
    except AgentClientError as error:
        body = {"message": str(error), "status": error.status, "problem": error.problem}
        return func.HttpResponse(json.dumps({"error": body}))
    return func.HttpResponse(json.dumps({"value": value}, default=asdict))
