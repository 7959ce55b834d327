"""An app with wrong functions: ``authorize`` says neither yes nor no, or nobody is known."""

import os
import time
from pathlib import Path
from typing import Any

from agent_framework import Agent, tool

from durable_agent_host import DurableAgentApp, Principal, durable_tool
from durable_agent_host.providers.openai import chat_client_from_environment


def identify(request: Any) -> Principal | None:
    """Believe the caller."""
    return Principal(request.headers["x-who"]) if "x-who" in request.headers else None


def authorize(principal: Principal, *_: Any) -> Any:
    """Answer by the caller's name; block for one until there is a file."""
    while principal.id == "slow" and not Path(os.environ["RELEASE"]).exists():
        time.sleep(0.01)
    return {"wordy": "no", "forgetful": authorize, "listing": ["nobody"], "silent": None, "friend": True, "slow": True}[
        principal.id
    ]


@durable_tool(approved_by="another")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


wrong: dict[str, Any] = {
    "authorize": {"identify": identify, "authorize": authorize},
    "nobody": {},
    "twice": {},
}[os.environ["WRONG"]]
helper = Agent(
    chat_client_from_environment(), "Help.", name="Helper", tools=[tool(pay) if os.environ["WRONG"] == "twice" else pay]
)
app = DurableAgentApp(agents=[helper], **wrong)
