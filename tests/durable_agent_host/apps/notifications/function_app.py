"""An agent whose tool needs a person, in an app that is notified: by a URL, else by a function, or not at all."""

import json
import os
import signal
from dataclasses import asdict
from pathlib import Path

from agent_framework import (
    Agent,
    Executor,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    handler,
    response_handler,
    tool,
)

from durable_agent_host import DurableAgentApp, Notification
from durable_agent_host.providers.openai import chat_client_from_environment


@tool(approval_mode="always_require")
def pay(amount: float) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def write_notification(notification: Notification) -> None:
    """Write the notification to the ledger; where the test wants it, die before anybody knows."""
    ledger = Path(os.environ["LEDGER"])
    with ledger.open("a") as file:
        file.write(json.dumps(asdict(notification)) + "\n")
    deadly = ledger.with_name("die")
    if deadly.exists():
        deadly.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


class Asker(Executor):
    """Asks a person, line by line, and then once more."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext) -> None:
        """Ask."""
        for line in text.splitlines():
            await ctx.request_info(line, str)

    @response_handler
    async def ask_again(self, original: str, answer: str, ctx: WorkflowContext[None, str]) -> None:
        """Ask once more, or say what was answered."""
        if answer == "Perhaps.":
            await ctx.request_info("Sure?", str)
        await ctx.yield_output(f"{original} {answer}")


asking = WorkflowBuilder(name="asking", start_executor=Asker(id="asker")).build()
outer = WorkflowBuilder(name="outer", start_executor=WorkflowExecutor(asking, id="inner")).build()
agent = Agent(chat_client_from_environment(), "Pay.", name="Payer", tools=[pay], default_options={"store": False})
notify = None if os.environ.get("SILENT") else os.environ.get("HOOK") or write_notification
app = DurableAgentApp(agents=[agent], workflows=[asking, outer], notify=notify)
