"""An agent of many steps without a model: its chat client answers at once; it and the tool look at the clock."""

import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    ResponseStream,
)

STEPS = int(os.environ.get("BENCHMARK_STEPS", "200"))
TIMES_FILE = "BENCHMARK_TIMES_FILE"
"""Environment variable: the file to which every turn appends its moments, a JSON list each."""


class Clock:
    """Notes when a model call begins and when its tool begins, by turns."""

    def __init__(self) -> None:
        self.moments: list[float] = []

    def look(self) -> None:
        """Note the time."""
        self.moments.append(time.perf_counter())

    def end(self) -> None:
        """Write a turn's moments down."""
        if file := os.environ.get(TIMES_FILE):
            with Path(file).open("a") as times:
                times.write(json.dumps(self.moments) + "\n")


CLOCK = Clock()


class StepClient(FunctionInvocationLayer[Any], ChatMiddlewareLayer[Any], BaseChatClient[Any]):
    """Asks for the tool as often as there are steps, and then says that it is done."""

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **_: Any) -> Any:
        del options
        assert stream
        steps = sum(message.role == "tool" for message in messages)
        if steps == 0:
            CLOCK.moments = []
        CLOCK.look()
        return ResponseStream(self._answer(steps), finalizer=ChatResponse.from_updates)

    async def _answer(self, steps: int) -> AsyncIterator[ChatResponseUpdate]:
        content = (
            Content.from_function_call(f"call_{steps}", "take_note", arguments=json.dumps({"text": f"step {steps}"}))
            if steps < STEPS
            else Content.from_text("Done.")
        )
        yield ChatResponseUpdate(
            contents=[content], role="assistant", response_id=f"resp_{steps}", message_id=f"{steps}"
        )
        if steps == STEPS:
            CLOCK.end()


async def take_note(text: str) -> str:
    """Take a note."""
    CLOCK.look()
    return f"noted: {text}"


def step_agent() -> Agent:
    """Make the agent."""
    client = StepClient(function_invocation_configuration={"max_iterations": STEPS + 10})
    return Agent(client, "Take notes.", name="Steps", tools=[take_note])
