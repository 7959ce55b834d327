"""An agent whose tools leave their results to jobs elsewhere, and show their progress; callers are identified."""

import asyncio
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from agent_framework import Agent

from durable_agent_host import DurableAgentApp, Principal, current_tool_call, durable_tool
from durable_agent_host.providers.openai import chat_client_from_environment

COUNT = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}


def write_line(line: str) -> None:
    """Leave a line in the ledger."""
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(f"{line}\n")


def begin(name: str, *, schema: dict[str, Any] | None = None, **expires: float) -> Any:
    """Begin a job, whose callback stands in the ledger."""
    deferred = current_tool_call().defer(timedelta(**expires or {"days": 2}), schema)
    write_line(f"{name} {deferred.path}")
    return deferred


def render(film: str) -> Any:
    """Render a film."""
    return begin(film)


async def count_words(book: str) -> Any:
    """Count the words of a book."""
    return begin(book, schema=COUNT)


def race(horse: str) -> Any:
    """Run a short race."""
    return begin(horse, seconds=1.5)


@durable_tool(approved_by="role:boss", in_doubt="ask")
def build(house: str) -> Any:
    """Build a house."""
    return begin(house)


def wait_for_ever() -> Any:
    """Defer a result for longer than the log is kept."""
    return begin("for ever", days=400)


def wait_for_a_number() -> Any:
    """Defer a result for a time that has no unit."""
    return current_tool_call().defer(3600)  # pyright: ignore[reportArgumentType]


async def climb(steps: int) -> str:
    """Climb a mountain."""
    call = current_tool_call()
    for step in range(steps):
        call.progress(f"step {step}", step / steps)
        await asyncio.sleep(0.02)
    call.progress("at the top for sam@example.com", 1)
    return "climbed"


def dive(metres: int) -> str:
    """Dive; in a thread."""
    call = current_tool_call()
    call.progress(f"{metres} m deep")
    time.sleep(0.05)
    return "dived"


def introduce() -> str:
    """Say for whom the tool runs."""
    call = current_tool_call()
    return f"{call.principal.id}@{call.principal.tenant} {call.agent} {call.session_id} {call.turn_id} {call.path}"


def identify(request: Any) -> Principal | None:
    """Know those who say who they are."""
    name, _, role = request.headers.get("x-who", "").partition("/")
    return Principal(name, "contoso", frozenset({role} - {""})) if name else None


def authorize(principal: Principal, action: str, session: Any) -> bool:
    """Let bosses answer in the sessions of others."""
    del session
    return action == "turn.answer" and "boss" in principal.roles


client = chat_client_from_environment()
tools = [render, count_words, race, build, wait_for_ever, wait_for_a_number, climb, dive, introduce]
options = {"store": False}
cutter = Agent(client, "Cut.", name="cutter", description="Cuts.", tools=[render], default_options=options)
app = DurableAgentApp(
    agents=[
        Agent(client, "Work.", name="Studio", tools=tools, default_options=options),
        Agent(client, "Direct.", name="Director", tools=[cutter.as_tool()], default_options=options),
    ],
    identify=identify,
    authorize=authorize,
)
