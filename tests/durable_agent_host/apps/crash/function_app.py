"""Agents whose tools leave a line in a file: whoever counts the lines knows how often each tool took effect."""

import asyncio
import json
import os
import time
from datetime import timedelta
from typing import Any

from agent_framework import (
    Agent,
    AgentExecutor,
    AgentExecutorRequest,
    AgentExecutorResponse,
    Executor,
    FunctionTool,
    Message,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
    tool,
)
from agent_framework_anthropic import AnthropicClient
from agent_framework_gemini import GeminiChatClient
from agent_framework_openai import OpenAIChatClient, OpenAIChatCompletionClient
from agent_framework_orchestrations import ConcurrentBuilder, SequentialBuilder
from anthropic import AsyncAnthropic
from azure.ai.agents.aio import AgentsClient
from azure.core.credentials import AzureKeyCredential
from azure.core.pipeline.policies import AzureKeyCredentialPolicy, HeadersPolicy
from azure.functions import AuthLevel, HttpRequest, HttpResponse
from google import genai

from durable_agent_host import Budget, Budgets, DurableAgentApp, Principal
from durable_agent_host.http.gate import Action, AuthorizationTarget
from durable_agent_host.tool_calls import current_tool_call, durable_tool
from durable_agent_host_azure_ai_agents import AzureAIAgentsChatClient
from functions_host.engine import crash_points
from tests.durable_agent_host.canaries import hide_canaries
from tests.durable_agent_host.crash.points import arm

PAUSE_SECONDS = 0.01
"""Before and after the effect, so that kills find a tool in all its states."""
CANARY = os.environ.get("CANARY", "")
"""What tools say beside their result, and what must be found nowhere when it is redacted or encrypted."""
FEATURES = frozenset(os.environ.get("FEATURES", "").split(","))
"""Which of ``redaction``, ``budgets`` and ``owners`` the app has."""
MAX_WAIT_SECONDS = 120
CROWD = ("left", "middle", "right")


def leave_line(name: str, line: str, **more: str) -> None:
    """Append what a harness counts, in one write."""
    call = current_tool_call()
    effect = {"tool": name, "line": line, "at": time.time(), "pid": os.getpid()} | more
    if call is not None:
        effect |= {"key": call.idempotency_key, "attempt": call.attempt}
    file = os.open(os.environ["EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, (json.dumps(effect) + "\n").encode())
    finally:
        os.close(file)


@tool(name="note")
def write_line(line: str, secret: str = "") -> str:
    """Note a line; says nothing about being run twice."""
    time.sleep(PAUSE_SECONDS)
    leave_line("note", line)
    time.sleep(PAUSE_SECONDS)
    return f"noted {line}{CANARY}"


@durable_tool(idempotent=True)
async def again(line: str, secret: str = "") -> str:
    """Note a line; may be run again."""
    await asyncio.sleep(PAUSE_SECONDS)
    leave_line("again", line)
    await asyncio.sleep(PAUSE_SECONDS)
    return f"noted {line} again{CANARY}"


@durable_tool(in_doubt="ask")
async def careful(line: str, secret: str = "") -> str:
    """Note a line; a person decides when it is in doubt."""
    await asyncio.sleep(PAUSE_SECONDS)
    leave_line("careful", line)
    await asyncio.sleep(PAUSE_SECONDS)
    return f"carefully noted {line}{CANARY}"


@tool(approval_mode="always_require")
async def pay(line: str, secret: str = "") -> str:
    """Note a line; a person has to approve it."""
    await asyncio.sleep(PAUSE_SECONDS)
    leave_line("pay", line)
    await asyncio.sleep(PAUSE_SECONDS)
    return f"paid {line}{CANARY}"


@durable_tool(approved_by="another")
async def transfer(line: str, secret: str = "") -> str:
    """Note a line; somebody else has to approve it."""
    await asyncio.sleep(PAUSE_SECONDS)
    leave_line("transfer", line)
    await asyncio.sleep(PAUSE_SECONDS)
    return f"transferred {line}{CANARY}"


async def begin(name: str, line: str) -> Any:
    """Begin a job that calls back."""
    await asyncio.sleep(PAUSE_SECONDS)
    deferred = current_tool_call().defer(timedelta(hours=1))
    leave_line(name, line, callback=deferred.path)
    await asyncio.sleep(PAUSE_SECONDS)
    return deferred


@tool
async def order(line: str, secret: str = "") -> Any:
    """Note a line; the result comes later."""
    return await begin("order", line)


@durable_tool(idempotent=True)
async def reorder(line: str, secret: str = "") -> Any:
    """Note a line, which may be done again; the result comes later."""
    return await begin("reorder", line)


@durable_tool(idempotent=True)
async def linger(line: str, secret: str = "") -> str:
    """Note a line and wait until somebody cancels."""
    leave_line("linger", line)
    await asyncio.sleep(MAX_WAIT_SECONDS)
    return "nobody cancelled"


@durable_tool(idempotent=True)
def brood(line: str, secret: str = "") -> str:
    """Note a line and wait in a thread for the signal that the turn is cancelled."""
    leave_line("brood", line)
    call = current_tool_call()
    return "told to stop" if call is not None and call.cancelled.wait(MAX_WAIT_SECONDS) else "nobody cancelled"


LINE = {"line": {"type": "string"}, "secret": {"type": "string"}}
browse = FunctionTool(
    name="browse", description="What the user sees.", func=None, input_model={"type": "object", "properties": LINE}
)
TOOLS = [write_line, again, careful, pay, transfer, order, reorder, linger, brood, browse]
PROCESS = {"x-process": str(os.getpid())}
"""Header by which the model's log tells the lives of the host apart."""
URL = os.environ["OPENAI_BASE_URL"]
SERVICE: dict[str, Any] = {
    "model": os.environ["OPENAI_MODEL"],
    "api_key": os.environ["OPENAI_API_KEY"],
    "base_url": URL,
    "default_headers": PROCESS,
}
client = OpenAIChatClient(**SERVICE)
chat = OpenAIChatCompletionClient(**SERVICE)
google = genai.Client(
    api_key="practice", http_options={"base_url": URL.removesuffix("v1") + "gemini", "headers": PROCESS}
)
gemini = GeminiChatClient(model="gemini-3-practice", client=google)
claude = AnthropicClient(
    model="practice",
    anthropic_client=AsyncAnthropic(
        api_key="practice", base_url=URL.removesuffix("v1") + "anthropic", default_headers=PROCESS
    ),
)
key = AzureKeyCredential("practice")
agents = AgentsClient(
    URL.removesuffix("v1") + "agents",
    key,
    authentication_policy=AzureKeyCredentialPolicy(key, "api-key"),
    headers_policy=HeadersPolicy(PROCESS),
)
threads = AzureAIAgentsChatClient(agent_name="Threads", model="practice", agents_client=agents, poll_seconds=0.1)


def member(name: str, *agents: Agent) -> Agent:
    """Make an agent that the model knows by its name, with agents as tools."""
    tools = [*TOOLS, *(agent.as_tool(arg_name="line") for agent in agents)]
    options = {"store": False}
    return Agent(client, f"You are {name}.", name=name, description=name, tools=tools, default_options=options)


def make_pair() -> Any:
    """Make two agents that work one after the other."""
    return SequentialBuilder(participants=[member("first"), member("second")]).build().as_agent("Pair")


def make_crowd() -> Any:
    """Make three agents that work at the same time."""
    return ConcurrentBuilder(participants=[member(name) for name in CROWD]).build().as_agent("Crowd")


class Survey(Executor):
    """Asks two questions at once, then a third, and passes the answers on."""

    def __init__(self) -> None:
        super().__init__(id="survey")
        self._replies: dict[str, Any] = {}

    @handler
    async def ask(self, response: AgentExecutorResponse, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        """Ask the first two, once."""
        if self._replies:
            await ctx.send_message(AgentExecutorRequest(messages=response.full_conversation))
            return
        text = response.full_conversation[0].text
        mark = text[: text.index("]") + 1]
        await ctx.request_info(f"{mark} What?", str)
        await ctx.request_info(f"{mark} How many?", int)

    @response_handler
    async def take_text(self, question: str, reply: str, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        """Take a text."""
        await self._take(question, reply, ctx)

    @response_handler
    async def take_number(self, question: str, reply: int, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        """Take a number."""
        await self._take(question, reply, ctx)

    @response_handler
    async def take_decision(self, question: str, reply: bool, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        """Take the decision."""
        await self._take(question, reply, ctx)

    async def _take(self, question: str, reply: Any, ctx: WorkflowContext[AgentExecutorRequest]) -> None:
        assert question not in self._replies, question
        self._replies[question] = reply
        mark = question[: question.index("]") + 1]
        if len(self._replies) == 2:
            await ctx.request_info(f"{mark} Really?", bool)
        elif len(self._replies) == 3:
            text = f"{mark} {json.dumps(self._replies, sort_keys=True)}"
            await ctx.send_message(AgentExecutorRequest(messages=[Message("user", [text])]))

    async def on_checkpoint_save(self) -> dict[str, Any]:
        """Give the answers."""
        return dict(self._replies)

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        """Take the answers."""
        self._replies = dict(state)


def make_survey() -> Any:
    """Make a workflow that asks its user between two agents."""
    asker, survey, closer = AgentExecutor(member("asker")), Survey(), AgentExecutor(member("closer"))
    builder = WorkflowBuilder(name="survey", start_executor=asker).add_edge(asker, survey).add_edge(survey, closer)
    return builder.build().as_agent("Survey")


def identify(request: Any) -> Principal | None:
    """Believe the caller."""
    caller = request.headers.get("x-caller")
    return Principal(caller) if caller else None


def authorize(principal: Principal, action: Action, session: AuthorizationTarget) -> bool:
    """Let the owner of all sessions import what tools have returned, and the auditor answer."""
    return (principal.id, action) in {("ann", "session.import"), ("eve", "turn.answer")}


LIMITS = Budget(tokens=10**9, model_calls=10**4, tool_calls=10**4, seconds=10**5)
BUDGETS = Budgets(turn=LIMITS, session=LIMITS)
app = DurableAgentApp(
    identify=identify if "owners" in FEATURES else None,
    authorize=authorize if "owners" in FEATURES else None,
    redact=hide_canaries if "redaction" in FEATURES else None,
    budgets=BUDGETS if "budgets" in FEATURES else None,
    agents=[
        Agent(client, "Work with the tools.", name="Worker", tools=TOOLS, default_options={"store": False}),
        Agent(client, "Work with the tools; the service keeps the conversation.", name="Kept", tools=TOOLS),
        Agent(client, "Work with the tools.", name="Background", tools=TOOLS, default_options={"background": True}),
        Agent(gemini, "Work with the tools.", name="Gemini", tools=TOOLS),
        Agent(chat, "Work with the tools.", name="Chatter", tools=TOOLS),
        Agent(threads, "Work with the tools.", name="Threads", tools=TOOLS),
        Agent(claude, "Work with the tools.", name="Claude", tools=TOOLS, default_options={"max_tokens": 4000}),
        member("Deep", member("manager", member("clerk"))),
        member("Fan", *(member(name) for name in CROWD)),
        make_pair,
        make_crowd,
        make_survey,
    ],
)


@app.route("crash", methods=["POST"], auth_level=AuthLevel.ANONYMOUS)
def plan_crash(req: HttpRequest) -> HttpResponse:
    """Let the process die at a point of the journal or of the engine, counted from now."""
    plan = req.get_body().decode()
    (crash_points.arm if plan.partition(":")[0] in crash_points.POINTS else arm)(plan)
    return HttpResponse(status_code=204)
