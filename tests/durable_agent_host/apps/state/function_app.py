"""An agent whose tools, middleware and context provider keep things in the session's state, and bare chat clients."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatContext,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    ContextProvider,
    FunctionInvocationContext,
    Message,
    ResponseStream,
    chat_middleware,
    function_middleware,
    tool,
)

from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment


def trace(line: str) -> None:
    """Write a line to the ledger; it is there when this returns."""
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(line + "\n")


def save_word(ctx: FunctionInvocationContext, word: str) -> str:
    """Remember a word."""
    ctx.session.state.setdefault("words", []).append(word)
    trace(f"remember {word}")
    return f"I know {len(ctx.session.state['words'])} words."


async def save_word_late(ctx: FunctionInvocationContext, word: str, seconds: float) -> str:
    """Remember a word after some seconds."""
    await asyncio.sleep(seconds)
    return save_word(ctx, word)


def clear_state(ctx: FunctionInvocationContext) -> str:
    """Forget all words."""
    ctx.session.state.pop("words", None)
    return "Forgotten."


def hide(ctx: FunctionInvocationContext) -> str:
    """Keep what JSON cannot hold."""
    ctx.session.state["hidden"] = object()
    return "Hidden."


@tool(approval_mode="always_require")
def publish(ctx: FunctionInvocationContext) -> str:
    """Tell the words."""
    ctx.session.state["published"] = list(ctx.session.state.get("words", []))
    return ", ".join(ctx.session.state["published"])


@function_middleware
async def count_calls(context: FunctionInvocationContext, call_next: Any) -> None:
    """Count the calls of tools."""
    trace(f"before {context.function.name}")
    context.session.state["calls"] = context.session.state.get("calls", 0) + 1
    await call_next()


@chat_middleware
async def count_questions(context: ChatContext, call_next: Any) -> None:
    """Count the calls of the model."""
    context.session.state["questions"] = context.session.state.get("questions", 0) + 1
    await call_next()


class Visits(ContextProvider):
    """Counts the runs."""

    def __init__(self) -> None:
        super().__init__("visits")

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        """Count one."""
        state["begun"] = state.get("begun", 0) + 1

    async def after_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        """Count one."""
        state["ended"] = state.get("ended", 0) + 1


class Bare(BaseChatClient):
    """A chat client without the framework's layers, that takes a while."""

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> Any:
        async def create_text() -> str:
            trace("bare")
            await asyncio.sleep(30 if "slowly" in messages[-1].text else 0)
            return "bare answer"

        async def updates() -> AsyncIterator[ChatResponseUpdate]:
            yield ChatResponseUpdate(contents=[Content.from_text(await create_text())], role="assistant")

        async def create_response() -> ChatResponse:
            return ChatResponse(messages=[Message("assistant", [await create_text()])])

        if not stream:
            return create_response()
        return ResponseStream(updates(), finalizer=ChatResponse.from_updates)


client = chat_client_from_environment()
state_agent = Agent(
    client,
    "Remember.",
    name="Keeper",
    tools=[
        tool(save_word, name="remember"),
        tool(save_word_late, name="remember_late"),
        tool(clear_state, name="forget"),
        hide,
        publish,
    ],
    middleware=[count_calls, count_questions],
    context_providers=[Visits()],
    default_options={"store": False},
)
app = DurableAgentApp(agents=[state_agent, Agent(Bare(), "Be bare.", name="BareAgent")])
