"""An app whose sessions have owners: it believes the header ``x-who``, which says ``NAME[@TENANT][:ROLE,…]``."""

import json
import os
from pathlib import Path
from typing import Any, Never

import azure.functions as func
from agent_framework import (
    Agent,
    AgentResponse,
    Content,
    Executor,
    FunctionInvocationContext,
    Message,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    handler,
    response_handler,
    tool,
)
from azure.durable_functions import EntityId

from durable_agent_host import ANONYMOUS, DurableAgentApp, Principal, current_tool_call, durable_tool
from durable_agent_host.errors import ForbiddenError
from durable_agent_host.http.gate import Action, AuthorizationTarget, IncomingRequest
from durable_agent_host.providers.openai import chat_client_from_environment


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


class Asks(Executor):
    """A step of a workflow that asks a person."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext) -> None:
        """Ask whether the text is to be shouted."""
        await ctx.request_info(request_data=text, response_type=str)

    @response_handler
    async def shout(self, text: str, response: str, ctx: WorkflowContext[Never, str]) -> None:
        """Give the text out in capitals."""
        await ctx.yield_output(f"{text} {response}".upper())


class Parses(Executor):
    """A step that parses the field ``json`` of what it is given."""

    @handler
    async def parse(self, value: dict[str, Any], ctx: WorkflowContext[dict[str, Any]]) -> None:
        """Send on what was parsed, or what has no such field."""
        await ctx.send_message(json.loads(value["json"]) if "json" in value else value)


class Repeats(Executor):
    """A step that gives out what it is given."""

    @handler
    async def repeat(self, value: dict[str, Any], ctx: WorkflowContext[Never, dict[str, Any]]) -> None:
        """Give it out."""
        await ctx.yield_output(value)


async def identify(request: IncomingRequest) -> Principal | None:
    """Believe the caller."""
    header = request.headers.get("x-who", "")
    if header == "banned":
        raise ForbiddenError("you are banned")
    if header == "broken":
        raise RuntimeError("the list of users is away")
    if header == "nobody-known":
        return ANONYMOUS
    name, _, roles = header.partition(":")
    name, _, tenant = name.partition("@")
    return Principal(name, tenant, frozenset(roles.split(",") if roles else ())) if name else None


def authorize(principal: Principal, action: Action, session: AuthorizationTarget) -> bool:
    """Let support read and approve whatever belongs to somebody, approvers a turn, others one action; note it."""
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        owner = session.owner and [session.owner.principal, session.owner.tenant]
        ledger.write(
            json.dumps([f"{principal.id}@{principal.tenant}", action, session.agent, session.session_id, owner]) + "\n"
        )
    if f"only-{action}" in principal.roles:
        return True
    if "approver" in principal.roles:
        return action in {"turn.read", "turn.answer"}
    is_support = bool(principal.roles & {"support", "finance"})
    return is_support and (action.endswith((".read", ".follow", ".answer")) or action in {"turn.run", "session.fork"})


@durable_tool(approved_by="another")
def pay(amount: float) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@durable_tool(approved_by="role:finance")
def lend(amount: float) -> str:
    """Lend an amount."""
    return f"lent {amount}"


@durable_tool(approved_by="another", in_doubt="ask")
def transfer(amount: float) -> str:
    """Transfer an amount; the first attempt takes a minute."""
    call = current_tool_call()
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(json.dumps(f"transfer {amount}") + "\n")
    call.cancelled.wait(60 if call.attempt == 1 else 0)
    return f"transferred {amount}"


@tool(name="remember")
def save_value(ctx: FunctionInvocationContext, text: str) -> Content:
    """Parse a text, keep the value in the session's state, and give both back."""
    ctx.session.state["value"] = json.loads(text)
    return Content.from_text(text, additional_properties={"value": json.loads(text)})


def recall(ctx: FunctionInvocationContext) -> dict[str, Any]:
    """Give the value in the session's state."""
    return ctx.session.state["value"]


agents: list[Any] = [Echo()]
if "OPENAI_API_KEY" in os.environ:
    tools = [pay, lend, transfer, save_value, recall]
    client = chat_client_from_environment()
    agents.append(Agent(client, "Pay.", name="Payer", tools=tools, default_options={"store": False}))
shouting = WorkflowBuilder(name="shouting", start_executor=Asks(id="asks")).build()
repeating = WorkflowBuilder(name="repeating", start_executor=Repeats(id="repeats")).build()
parses, inner = Parses(id="parses"), WorkflowExecutor(repeating, id="inner", allow_direct_output=True)
nesting = WorkflowBuilder(name="nesting", start_executor=parses).add_edge(parses, inner).build()
app = DurableAgentApp(
    agents=agents,
    workflows=[shouting, nesting],
    http_auth_level=func.AuthLevel.ANONYMOUS,
    enable_mcp_tool_trigger=True,
    **({} if os.environ.get("NOBODY_IS_KNOWN") else {"identify": identify, "authorize": authorize}),
)


@app.orchestration_trigger(context_name="context")
def pass_on(context):
    """Run the agent on behalf of whom the input names."""
    request = context.get_input()
    principal = request.get("principal")
    agent = app.get_agent(
        context,
        "Echo",
        principal=principal and Principal(*principal.split("@")),
        traceparent=request.get("traceparent"),
    )
    session = agent.create_session(session_id=request["session"]) if request.get("session") else None
    answer = yield agent.run("hello", session=session)
    return answer.text


@app.orchestration_trigger(context_name="context")
def call_session(context):
    """Call a session's entity on behalf of whom the input names."""
    request = context.get_input()
    entity = EntityId(f"dafx-{request.get('agent', 'Echo')}", request["session"])
    answer = yield context.call_entity(entity, "run", request["request"])
    return answer


@app.orchestration_trigger(context_name="context")
def pass_input_on(context):
    """Call the orchestration that the input names, with what else it has."""
    request = context.get_input()
    return (yield context.call_sub_orchestrator(request["name"], request["input"]))


@app.route("orchestrators/{functionName}", methods=["POST"])
@app.durable_client_input(client_name="durable")
async def start_any(req: func.HttpRequest, durable) -> func.HttpResponse:
    """Start any orchestration, as the quickstart of Durable Functions does."""
    instance_id = await durable.start_new(req.route_params["functionName"], client_input=req.get_json())
    return durable.create_check_status_response(req, instance_id)


@app.route("own", methods=["GET"])
def read_caller(req: func.HttpRequest) -> str:
    """Answer whoever comes: the app's own functions are its own matter."""
    return req.headers.get("x-who", "")
