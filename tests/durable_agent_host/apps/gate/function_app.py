"""An app with a gate of its own: it notes what it is asked, and sends some callers away."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Never

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "src"))

import azure.functions as func
from agent_framework import AgentResponse, Executor, Message, WorkflowBuilder, WorkflowContext, handler

from durable_agent_host import DurableAgentApp
from durable_agent_host.errors import ForbiddenError
from durable_agent_host.http.gate import ANONYMOUS, Action, Gate, SessionName


class Echo:
    """An agent that needs no model."""

    id = name = "Echo"
    description = "echoes"

    def run(self, messages: list[Message], **options: Any) -> Any:
        """Say the same."""
        del options

        async def answer() -> AgentResponse[Any]:
            return AgentResponse(messages=[Message("assistant", [messages[-1].text])])

        return answer()


class Upper(Executor):
    """One step of a workflow."""

    @handler
    async def shout(self, text: str, ctx: WorkflowContext[Never, str]) -> None:
        """Give the text out in capitals."""
        await ctx.yield_output(text.upper())


def identify(headers: Mapping[str, str]) -> str:
    """Believe the caller."""
    return headers.get("x-who", ANONYMOUS)


async def authorize(principal: str, action: Action, session: SessionName | None) -> bool:
    """Note the question; let everybody in but two."""
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(json.dumps([principal, action, session]) + "\n")
    if principal == "banned":
        raise ForbiddenError("you are banned")
    return principal != "nobody"


shouting = WorkflowBuilder(name="shouting", start_executor=Upper(id="upper")).build()
app = DurableAgentApp(
    agents=[Echo()],
    workflows=[shouting],
    http_auth_level=func.AuthLevel.ANONYMOUS,
    enable_mcp_tool_trigger=True,
    gate=Gate(identify, authorize),
)


@app.orchestration_trigger(context_name="context")
def pass_on(context):
    """Run the agent on behalf of whom the input names."""
    caller = context.get_input()
    answer = yield app.get_agent(context, "Echo", **caller).run("hello")
    return answer.text


@app.route("own", methods=["GET"])
def own(req: func.HttpRequest) -> str:
    """Answer whoever comes: the app's own functions are its own matter."""
    return req.headers.get("x-who", "")
