"""Agents that are workflows of several agents, each built by a function; TEAM names one that is given as it is."""

import os
from pathlib import Path

from agent_framework import (
    Agent,
    ContextProvider,
    Executor,
    Message,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
    tool,
)
from agent_framework_orchestrations import (
    ConcurrentBuilder,
    GroupChatBuilder,
    HandoffBuilder,
    MagenticBuilder,
    MagenticManagerBase,
    MagenticProgressLedger,
    SequentialBuilder,
)

from durable_agent_host import DurableAgentApp, durable_tool
from durable_agent_host.providers.openai import chat_client_from_environment

client = chat_client_from_environment()


def member(name: str, **more) -> Agent:
    """Make a member of a team; the model knows it by its name."""
    return Agent(client, f"You are {name}.", name=name, **more)


def line():
    """Make two agents that work one after the other."""
    return SequentialBuilder(participants=[member("writer"), member("reviewer")]).build().as_agent("Line")


def crowd():
    """Make two agents that work at the same time."""
    return ConcurrentBuilder(participants=[member("left"), member("right")]).build().as_agent("Crowd")


def chat():
    """Make a chat in which two agents take turns."""
    members = [member("first"), member("second")]

    def choose(state) -> str:
        return members[state.current_round % 2].name

    def has_ended(conversation) -> bool:
        return conversation[-1].author_name == "second"

    built = GroupChatBuilder(participants=members, selection_func=choose, termination_condition=has_ended).build()
    return built.as_agent("Chat")


def desk():
    """Make a desk that hands its customer to another agent, and asks the customer on."""
    keep = {"require_per_service_call_history_persistence": True}
    front, refunds = member("front", **keep), member("refunds", **keep)
    built = HandoffBuilder(name="desk", participants=[front, refunds]).with_start_agent(front).build()
    return built.as_agent("Desk")


def count_answers(conversation) -> int:
    """Count what members have said."""
    return sum(message.role == "assistant" for message in conversation)


def panel():
    """Make a chat of three rounds, which ends for two reasons."""
    members = [member("first"), member("second")]
    built = GroupChatBuilder(
        participants=members,
        selection_func=lambda state: members[state.current_round % 2].name,
        max_rounds=3,
        termination_condition=lambda conversation: count_answers(conversation) >= 3,
    )
    return built.build().as_agent("Panel")


def transfers():
    """Make a desk that ends with the first answer."""
    keep = {"require_per_service_call_history_persistence": True}
    front, refunds = member("front", **keep), member("refunds", **keep)
    built = HandoffBuilder(
        name="transfers", participants=[front, refunds], termination_condition=lambda said: count_answers(said) >= 1
    )
    return built.with_start_agent(front).build().as_agent("Transfers")


class Manager(MagenticManagerBase):
    """Asks each member once; needs no model."""

    async def plan(self, magentic_context) -> Message:
        """Make the plan."""
        return Message("assistant", ["The plan."])

    replan = prepare_final_answer = plan

    async def create_progress_ledger(self, magentic_context) -> MagenticProgressLedger:
        """Choose who is next."""
        speakers = [message.author_name for message in magentic_context.chat_history]
        remaining = [name for name in magentic_context.participant_descriptions if name not in speakers]
        answers = {"is_request_satisfied": not remaining, "next_speaker": (remaining or [""])[0]}
        answers |= {"is_progress_being_made": True, "is_in_loop": False, "instruction_or_question": "Go on."}
        return MagenticProgressLedger.from_dict({name: {"answer": answer} for name, answer in answers.items()})


def research():
    """Make a team with a manager."""
    built = MagenticBuilder(participants=[member("left"), member("right")], manager=Manager(max_round_count=3))
    return built.build().as_agent("Research")


class Counter(Executor):
    """Counts what it was told, and asks for a number."""

    def __init__(self, texts: list | None = None) -> None:
        super().__init__(id="counter")
        self.texts = [] if texts is None else texts

    @handler
    async def add_message(self, messages: list[Message], ctx: WorkflowContext[None, str]) -> None:
        """Take a message."""
        self.texts.append(messages[-1].text)
        if messages[-1].text == "odd":
            self.texts.append(object())
        await ctx.yield_output(f"told {len(self.texts)}")
        if messages[-1].text.startswith("ask"):
            await ctx.request_info("How many?", int)
        if messages[-1].text == "ask both":
            await ctx.request_info("For whom?", str)

    @response_handler
    async def add_number(self, question: str, number: int, ctx: WorkflowContext[None, str]) -> None:
        """Take the number."""
        await ctx.yield_output(f"{question} {number + 1}")
        if number == 99:
            await ctx.request_info("Really?", bool)

    @response_handler
    async def add_name(self, question: str, name: str, ctx: WorkflowContext[None, str]) -> None:
        """Take the name."""
        await ctx.yield_output(f"{question} {name}")

    @response_handler
    async def add_decision(self, question: str, decision: bool, ctx: WorkflowContext[None, str]) -> None:
        """Take the decision."""
        await ctx.yield_output(f"{question} {decision}")

    async def on_checkpoint_save(self) -> dict:
        """Give what it keeps."""
        if "cannot" in self.texts:
            raise OSError("cannot be saved")
        return {"told": lambda: 1} if "strange" in self.texts else {"told": list(self.texts)}

    async def on_checkpoint_restore(self, state: dict) -> None:
        """Take what it kept."""
        self.texts = state["told"]


def counting():
    """Make a workflow with an executor of the app."""
    return WorkflowBuilder(name="counting", start_executor=Counter()).build().as_agent("Counting")


def write(line: str) -> None:
    """Write a line to the ledger."""
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(f"{line}\n")


@tool(approval_mode="always_require")
def pay(amount: float) -> str:
    """Pay an amount."""
    write(f"paid {amount}")
    return f"paid {amount}"


@durable_tool(approved_by="another")
def transfer(amount: float) -> str:
    """Transfer an amount."""
    write(f"transferred {amount}")
    return f"transferred {amount}"


class AddsTransfer(ContextProvider):
    """Gives an agent a tool while it runs."""

    async def before_run(self, *, context, **_) -> None:
        """Add the tool."""
        context.extend_tools(self.source_id, [transfer])


def cashiers():
    """Make a workflow of one agent whose tool needs approval."""
    return SequentialBuilder(participants=[member("cashier", tools=[pay])]).build().as_agent("Cashiers")


def adder(name: str) -> Agent:
    """Make an agent that gets a tool while it runs, which somebody else has to approve."""
    return member(name, context_providers=[AddsTransfer("adds")])


def adders():
    """Make a workflow of one such agent."""
    return SequentialBuilder(participants=[adder("adder")]).build().as_agent("Adders")


def over(name: str, make) -> Agent:
    """Make an agent whose tool is another."""
    return member(name, tools=[make(f"inner{name}").as_tool(name="ask")])


counter = Counter()
built = line()
TEAMS = {
    "": [
        line,
        crowd,
        chat,
        desk,
        panel,
        transfers,
        research,
        counting,
        member("Alone"),
        cashiers,
        adders,
        over("Adder", adder),
    ],
    "instance": [built],
    "tool": [member("Outer", tools=[built.as_tool()])],
    "same": [lambda: built],
    "executor": [lambda: WorkflowBuilder(name="x", start_executor=counter).build().as_agent("X")],
    "nothing": [lambda: None],
}
app = DurableAgentApp(agents=TEAMS[os.environ.get("TEAM", "")])
