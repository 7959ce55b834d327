"""Declarations of tools that would have no effect keep the app from starting, wherever the tool is."""

from collections.abc import Callable
from typing import Any

import pytest
from agent_framework import (
    Agent,
    BaseChatClient,
    Executor,
    FunctionTool,
    Message,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    handler,
    step,
    tool,
    workflow,
)
from agent_framework.openai import OpenAIChatClient
from agent_framework_orchestrations import (
    ConcurrentBuilder,
    GroupChatBuilder,
    HandoffBuilder,
    MagenticBuilder,
    SequentialBuilder,
)

from durable_agent_host import DurableAgentApp, durable_tool
from durable_agent_host.errors import RegistrationError

CLIENT = OpenAIChatClient(model="m", api_key="k")
DECLARATIONS = {
    "approved_by='another'": {"approved_by": "another"},
    "approved_by='role:finance', in_doubt='ask'": {"approved_by": "role:finance", "in_doubt": "ask"},
    "in_doubt='ask'": {"in_doubt": "ask"},
    "in_doubt='fail'": {},
    "idempotent=True": {"idempotent": True},
}


def pay(amount: float) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def payer(name: str = "payer", **declaration: Any) -> Agent:
    """Make an agent with a tool that is declared; by default one that another has to approve."""
    tools = [durable_tool(pay, **(declaration or {"approved_by": "another"}))]
    return Agent(CLIENT, "Pay.", name=name, tools=tools, require_per_service_call_history_persistence=True)


def plain(name: str = "plain", *tools: Any) -> Agent:
    """Make an agent with tools that declare nothing."""
    options = {"require_per_service_call_history_persistence": True}
    return Agent(CLIENT, "Talk.", name=name, tools=[pay, *tools], **options)


def sequential(*members: Any) -> Any:
    """Make a workflow of agents."""
    return SequentialBuilder(participants=list(members)).build()


def functional() -> Any:
    """Make a functional workflow, one of whose steps runs an agent."""
    helper = payer()

    @step
    async def ask(text: str) -> str:
        return (await helper.run(text)).text

    @workflow(name="functional")
    async def flow(text: str) -> str:
        return await ask(text)

    return flow.build()


class Holder(Executor):
    """An executor that keeps agents in a dictionary."""

    def __init__(self, *agents: Any) -> None:
        super().__init__(id="holder")
        self.agents = {agent.name: agent for agent in agents}

    @handler
    async def ask_all(self, messages: list[Message], ctx: WorkflowContext[None, str]) -> None:
        """Ask all."""
        for agent in self.agents.values():
            await ctx.yield_output((await agent.run(messages)).text)


class Wrapper:
    """An agent of the app that runs another."""

    id = name = "Wrapper"
    description = "wraps"

    def __init__(self) -> None:
        self.inner = payer()

    def run(self, *args: Any, **options: Any) -> Any:
        """Let the other run."""
        return self.inner.run(*args, **options)


class OwnClient(BaseChatClient):
    """A chat client without the framework's layers."""

    async def _inner_get_response(self, **arguments: Any) -> Any:
        raise NotImplementedError


def sub_workflow() -> Any:
    """Make a workflow whose executor is a workflow."""
    inner = WorkflowExecutor(sequential(payer(), plain()), id="inner")
    return WorkflowBuilder(start_executor=inner).build()


def round_robin(state: Any) -> str:
    """Choose the first."""
    return next(iter(state.participants))


JOURNALED: dict[str, Callable[[], Any]] = {
    "sequential": lambda: sequential(plain(), payer()).as_agent("Team"),
    "concurrent": lambda: ConcurrentBuilder(participants=[plain(), payer()]).build().as_agent("Team"),
    "group chat": lambda: (
        GroupChatBuilder(participants=[plain(), payer()], selection_func=round_robin).build().as_agent("Team")
    ),
    "group chat's leader": lambda: (
        GroupChatBuilder(participants=[plain()], orchestrator_agent=payer()).build().as_agent("Team")
    ),
    "magentic": lambda: MagenticBuilder(participants=[plain()], manager_agent=payer()).build().as_agent("Team"),
    "hand-off": lambda: (
        HandoffBuilder(participants=(team := [plain(), payer()])).with_start_agent(team[0]).build().as_agent("Team")
    ),
    "sub-workflow": lambda: sub_workflow().as_agent("Team"),
    "workflow's tool": lambda: sequential(plain("outer", payer().as_tool())).as_agent("Team"),
    "sub-agent": lambda: plain("Team", payer().as_tool()),
    "declared sub-agent": lambda: plain("Team", durable_tool(payer().as_tool(), idempotent=True)),
    "sub-sub-agent": lambda: plain("Team", plain("middle", payer().as_tool()).as_tool()),
    "workflow as a tool": lambda: plain("Team", sequential(payer()).as_agent("inner").as_tool()),
}
"""Agents within agents whose calls the host journals."""

OPAQUE: dict[str, Callable[[], Any]] = {
    "functional": lambda: functional().as_agent("Team"),
    "functional's tool": lambda: plain("Team", functional().as_agent("Flow").as_tool()),
    "executor": lambda: WorkflowBuilder(start_executor=Holder(plain(), payer())).build().as_agent("Team"),
    "client": lambda: plain(
        "Team", Agent(OwnClient(), name="payer", tools=[durable_tool(pay, approved_by="another")]).as_tool()
    ),
    "agent of the app": Wrapper,
}
"""Agents within agents whose calls it does not see."""


@pytest.mark.parametrize("kind", JOURNALED)
def test_a_declaration_within_an_agent_is_accepted(kind: str):
    """It holds there as in the agent itself."""
    assert DurableAgentApp(agents=[lambda: JOURNALED[kind]()])  # noqa: PLW0108 - a class is no function


@pytest.mark.filterwarnings("ignore:.*FUNCTIONAL_WORKFLOWS")
@pytest.mark.parametrize("kind", OPAQUE)
def test_a_declaration_without_effect_is_rejected(kind: str):
    """The sentence has the agent, the tool, the declaration, and what to do."""
    sentence = r"'(Team|Wrapper)' cannot keep what tool 'pay' of its inner agent '(payer|helper)' declares, "
    with pytest.raises(RegistrationError, match=sentence + r".*approved_by='another'\): .*Remove the declaration, or"):
        DurableAgentApp(agents=[lambda: OPAQUE[kind]()])  # noqa: PLW0108 - a class is no function


@pytest.mark.parametrize("declaration", DECLARATIONS)
def test_every_kind_of_declaration_is_rejected(declaration: str):
    """Whatever `durable_tool` declares has an effect only where the host journals the calls."""
    inner = Agent(CLIENT, name="inner", tools=[durable_tool(pay, **DECLARATIONS[declaration])])
    with pytest.raises(RegistrationError, match=rf"durable_tool\({declaration}"):
        DurableAgentApp(agents=[lambda: WorkflowBuilder(start_executor=Holder(inner)).build().as_agent("T")])


def test_declarations_of_an_agent_without_a_journal_are_rejected():
    """A chat client that the host cannot see into keeps no declaration of its agent's own tools."""
    agent = Agent(OwnClient(), name="Own", tools=[durable_tool(pay, idempotent=True)])
    with pytest.raises(
        RegistrationError, match=r"agent 'Own' cannot keep what tool 'pay' declares.*lacks the framework"
    ):
        DurableAgentApp(agents=[agent])


def test_declarations_within_a_workflow_executor_are_rejected():
    """An executor calls its agents itself; a node that is an agent keeps what its tools declare."""
    with pytest.raises(RegistrationError, match=r"executor '.*' of workflow 'flow' cannot keep what tool 'pay'"):
        DurableAgentApp(workflows=[WorkflowBuilder(name="flow", start_executor=Holder(payer())).build()])
    assert DurableAgentApp(workflows=[WorkflowBuilder(name="flow", start_executor=payer()).build()])


@pytest.mark.parametrize("kind", [SequentialBuilder, HandoffBuilder, GroupChatBuilder])
def test_workflows_that_can_only_be_agents_are_rejected(kind: Any):
    """Upstream gives their agents empty texts, or each agent's answer to all others without end."""
    members = [plain("a"), plain("b")]
    builder = kind(participants=members, **({"selection_func": max} if kind is GroupChatBuilder else {}))
    team = (builder.with_start_agent(members[0]) if kind is HandoffBuilder else builder).build()
    team.name = "team"
    with pytest.raises(RegistrationError, match=r"host it as an agent, agents=\[make_agent\]"):
        DurableAgentApp(workflows=[team])


def test_effective_declarations_are_accepted():
    """Tools of a hosted agent, and tools that are agents."""

    @tool(approval_mode="always_require")
    def ask(text: str) -> str:
        """Ask."""
        return text

    every = [
        durable_tool(FunctionTool(name=f"pay_{number}", description="Pay.", func=pay), **declaration)
        for number, declaration in enumerate(DECLARATIONS.values())
    ]
    outer = plain("Outer", durable_tool(plain("inner", ask).as_tool(), in_doubt="ask"), *every)
    assert DurableAgentApp(agents=[outer, lambda: sequential(plain("writer", ask)).as_agent("Team")])
