"""Agents within agents: tools at two levels, and workflows; their tools leave lines in the file ``LEDGER``."""

import asyncio
import os
from pathlib import Path

from agent_framework import Agent, FunctionInvocationContext, tool
from agent_framework_orchestrations import ConcurrentBuilder, GroupChatBuilder, HandoffBuilder, SequentialBuilder

from durable_agent_host import DurableAgentApp, current_tool_call, durable_tool
from durable_agent_host.providers.openai import chat_client_from_environment

client = chat_client_from_environment()


def write(line: str) -> None:
    """Write a line to the ledger."""
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(f"{line}\n")


@durable_tool(idempotent=True)
async def note(text: str, ctx: FunctionInvocationContext) -> str:
    """Note a text, and count the notes of the agent's session."""
    call = current_tool_call()
    count = ctx.session.state["notes"] = ctx.session.state.get("notes", 0) + 1
    write(f"note {text} {call.path} {call.idempotency_key}")
    return f"note {count}: {text}"


@tool(approval_mode="always_require")
def pay(amount: float) -> str:
    """Pay an amount."""
    write(f"paid {amount}")
    return f"paid {amount}"


@durable_tool(in_doubt="ask")
async def charge(amount: float) -> str:
    """Charge an amount, which takes a while."""
    write(f"begin charge {amount}")
    await asyncio.sleep(0.5)
    write(f"charged {amount} {current_tool_call().idempotency_key}")
    return f"charged {amount}"


async def linger(text: str) -> str:
    """Take a while."""
    write(f"begin {text}")
    await asyncio.sleep(1)
    write(f"end {text}")
    return f"lingered {text}"


TOOLS = [note, pay, charge, linger]


def member(name: str, *tools, **options) -> Agent:
    """Make an agent; the model knows it by its name."""
    return Agent(client, f"You are {name}.", name=name, description=f"Is {name}.", tools=[*tools], **options)


def line():
    """Make two agents that work one after the other."""
    return SequentialBuilder(participants=[member("first", *TOOLS), member("second", *TOOLS)]).build().as_agent("Line")


def crowd(name: str = "Crowd"):
    """Make three agents that work at the same time."""
    members = [member(name, *TOOLS) for name in ("left", "middle", "right")]
    return ConcurrentBuilder(participants=members).build().as_agent(name)


def desk():
    """Make a desk that hands its customer to another agent."""
    options = {"require_per_service_call_history_persistence": True}
    front, refunds = member("front", **options), member("refunds", *TOOLS, **options)
    return HandoffBuilder(name="desk", participants=[front, refunds]).with_start_agent(front).build().as_agent("Desk")


def chat():
    """Make a chat in which two agents take turns."""
    members = [member("one", *TOOLS), member("two", *TOOLS)]

    def choose(state) -> str:
        return members[state.current_round % 2].name

    builder = GroupChatBuilder(participants=members, selection_func=choose, max_rounds=3)
    return builder.build().as_agent("Chat")


clerk = member("clerk", *TOOLS)
app = DurableAgentApp(
    agents=[
        member("Over", clerk.as_tool()),
        member("Helper", *TOOLS, clerk.as_tool()),
        member("OverKeeper", member("keeper", *TOOLS, default_options={"store": False}).as_tool()),
        member("Deep", member("manager", clerk.as_tool(), note).as_tool()),
        lambda: member("WithCrowd", crowd("crowd").as_tool()),
        line,
        crowd,
        desk,
        chat,
    ],
)
