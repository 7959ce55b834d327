"""Agents whose tools leave traces in a file, so that a test can count what has happened."""

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agent_framework import Agent, AgentResponse, Content, FunctionTool, Message, tool
from agent_framework_openai import OpenAIChatClient
from agent_framework_orchestrations import SequentialBuilder

from durable_agent_host import DurableAgentApp, current_tool_call, durable_tool
from durable_agent_host.providers.openai import chat_client_from_environment

THREADS = ThreadPoolExecutor(2)


def trace(line: str) -> None:
    """Write a line to the ledger; it is there when this returns."""
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(line + "\n")


@tool(name="note")
def write_text(text: str) -> str:
    """Note a text."""
    trace(text)
    return f"noted {text}"


def linger(text: str, seconds: float) -> str:
    """Note a text, and take a while; blocks its thread."""
    call = current_tool_call()
    trace(f"begin {text} {call.idempotency_key} {call.attempt}")
    call.cancelled.wait(seconds if call.attempt == 1 else 0)
    trace(f"{'cancelled' if call.is_cancelled else 'end'} {text}")
    return f"lingered {text}"


async def dawdle(text: str, seconds: float) -> str:
    """Note a text, and take a while; async."""
    trace(f"begin {text}")
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        trace(f"cancelled {text}")
        raise
    trace(f"end {text}")
    return f"dawdled {text}"


def identify() -> str:
    """Tell of the call."""
    call = current_tool_call()
    trace(f"{call.idempotency_key} {call.attempt}")
    return call.idempotency_key


def book(room: str) -> str:
    """Book a room; the process is killed in the first attempt at the last one."""
    call = current_tool_call()
    trace(f"{call.attempt} {room} {call.name} {call.idempotency_key} {call.call_id} {call.turn_id}")
    if room == "last" and call.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"booked {room}"


def fail(text: str) -> str:
    """Fail."""
    trace(text)
    raise TypeError(f"cannot stream {text}")


def leave() -> str:
    """Do what ends a program."""
    trace("leave")
    raise SystemExit(3)


async def leave_async() -> str:
    """Do what ends a program, on the event loop."""
    trace("leave")
    raise KeyboardInterrupt


RAISED: dict[str, BaseException] = {
    "generator": GeneratorExit("end"),
    "keyboard": KeyboardInterrupt("end"),
    "exit": SystemExit("end"),
    "cancelled": asyncio.CancelledError("end"),
    "stop": StopIteration("end"),
    "async-stop": StopAsyncIteration("end"),
    "group": BaseExceptionGroup("end", [KeyboardInterrupt()]),
}


def throw(kind: str) -> str:
    """Raise anything."""
    raise RAISED[kind]


async def throw_async(kind: str) -> str:
    """Raise anything, on the event loop or in a thread that the tool waits for."""
    if kind.startswith("thread-"):
        return await asyncio.get_running_loop().run_in_executor(THREADS, throw, kind.removeprefix("thread-"))
    if kind.startswith("cancels-itself"):
        asyncio.current_task().cancel()
        await asyncio.sleep(0) if kind.endswith("and-waits") else None
        return "cancelled myself"
    return throw(kind)


def paint() -> list[Content]:
    """Give a picture and words."""
    trace("paint")
    return [Content.from_text("a picture"), Content.from_data(b"picture", "image/png")]


def strange() -> Any:
    """Give what JSON cannot hold."""
    trace("strange")
    return [Content.from_text("odd", additional_properties={"when": object()})]


def large(megabytes: int) -> str:
    """Give a large text."""
    trace("large")
    return "x" * (megabytes * 1024 * 1024)


@tool(approval_mode="always_require")
def pay(amount: float) -> str:
    """Pay an amount."""
    trace(f"pay {amount}")
    return f"paid {amount}"


class Plain:
    """An agent without a client, that takes a while."""

    id = name = "Plain"
    description = "has no journal"

    def run(self, messages: list[Message], *, stream: bool = False, session: Any = None, **options: Any) -> Any:
        """Answer with the last message."""
        del stream, session, options

        async def answer() -> AgentResponse[Any]:
            trace("plain")
            await asyncio.sleep(1 if "slowly" in messages[-1].text else 0)
            return AgentResponse(messages=[Message("assistant", ["done"])])

        return answer()


class PlainAgain(Plain):
    """The same, and harmless."""

    id = name = "PlainAgain"
    may_run_again = True


TOOLS: list[Any] = [
    write_text,
    linger,
    dawdle,
    identify,
    fail,
    leave,
    leave_async,
    throw,
    throw_async,
    paint,
    strange,
    large,
    pay,
    durable_tool(FunctionTool(name="linger_again", func=linger, description="Linger."), idempotent=True),
    durable_tool(FunctionTool(name="linger_asked", func=linger, description="Linger."), in_doubt="ask"),
]

client = chat_client_from_environment()
thinking = OpenAIChatClient(model="practice-reasoning", api_key="practice", base_url=os.environ.get("OPENAI_BASE_URL"))
inner = Agent(client, "Help.", name="inner", description="Helps.", tools=[write_text], default_options={"store": False})
booker = Agent(client, "Book.", name="booker", tools=[book], default_options={"store": False})


def team():
    """Make a workflow whose agents book."""
    return SequentialBuilder(participants=[booker]).build().as_agent("Team")


app = DurableAgentApp(
    agents=[
        Agent(client, "Work.", name="Worker", tools=TOOLS, default_options={"store": False}),
        Agent(client, "Work.", name="Kept", tools=TOOLS),
        Agent(thinking, "Think.", name="Thinker", tools=TOOLS, default_options={"store": False}),
        Agent(thinking, "Think.", name="KeptThinker", tools=TOOLS),
        Agent(client, "Ask others.", name="Outer", tools=[inner.as_tool()], default_options={"store": False}),
        team,
        Plain(),
        PlainAgain(),
    ]
)
