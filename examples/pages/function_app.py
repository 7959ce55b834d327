"""An app for the pages of this folder: its agent asks before it refunds, and takes tools that a page brings."""

from pathlib import Path

import azure.functions as func
from agent_framework import Agent, tool

from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment

PAGE = Path(__file__).with_name("eventsource.html")


@tool(approval_mode="always_require")
def refund(order: int) -> str:
    """Refund an order."""
    return f"Order {order} is refunded."


helper = Agent(chat_client_from_environment(), "You are helpful.", name="Helper", tools=[refund])
app = DurableAgentApp(agents=[helper], http_auth_level=func.AuthLevel.ANONYMOUS)


@app.route(route="eventsource", methods=["GET"])
async def eventsource(req: func.HttpRequest) -> func.HttpResponse:
    """Give the page that needs no build."""
    del req
    return func.HttpResponse(PAGE.read_text(encoding="utf-8"), mimetype="text/html")
