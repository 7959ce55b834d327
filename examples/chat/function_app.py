"""An app with one agent, and a page that shows its answers as they are written: open /api/chat."""

from pathlib import Path

import azure.functions as func
from agent_framework import Agent

from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment

PAGE = Path(__file__).with_name("page.html")

helper = Agent(chat_client_from_environment(), "You are helpful.", name="Helper")
app = DurableAgentApp(agents=[helper], http_auth_level=func.AuthLevel.ANONYMOUS)


@app.route(route="chat", methods=["GET"])
async def chat(req: func.HttpRequest) -> func.HttpResponse:
    """Give the page."""
    del req
    return func.HttpResponse(PAGE.read_text(encoding="utf-8"), mimetype="text/html")
