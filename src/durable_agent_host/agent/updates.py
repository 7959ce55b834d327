"""The stream of an agent of the framework, whatever its ``run`` returns."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Any, cast

from agent_framework import AgentResponse, AgentResponseUpdate, AgentSession, Message, SupportsAgentRun

from durable_agent_host.model.turn import TurnRequest


async def updates_of(
    agent: SupportsAgentRun,
    messages: Sequence[Message],
    session: AgentSession,
    options: dict[str, Any],
    take_result: Callable[[AgentResponse[Any]], None] | None = None,
) -> AsyncGenerator[AgentResponseUpdate]:
    """Run an agent and yield what it streams.

    Args:
        agent: the app's, as it was put together for this run.
        messages: of the run.
        session: of the run; the framework changes it.
        options: for the agent, see `options_of`.
        take_result: receives the response with which a stream of the framework ends.
    """
    arguments: dict[str, Any] = {"options": options} if options else {}
    running: Any = cast("Any", agent.run)(messages, stream=True, session=session, **arguments)
    if not hasattr(running, "__aiter__"):
        running = await running
    if isinstance(running, AgentResponse):
        for update in cast("AgentResponse[Any]", running).to_updates():
            yield update
        return
    try:
        async for update in running:
            yield update
        if callable(finish := getattr(running, "get_final_response", None)):
            result = await cast("Awaitable[Any]", finish())  # runs the framework's end: providers, the session's id
            if take_result is not None and isinstance(result, AgentResponse):
                take_result(cast("AgentResponse[Any]", result))
    finally:
        # a stream of the framework, or the generator of an agent of the app's own
        if callable(close := getattr(running, "close", None) or getattr(running, "aclose", None)):
            closing = close()
            if isawaitable(closing):
                await closing


def options_of(request: TurnRequest) -> dict[str, Any]:
    """Return the options with which the agent runs.

    Args:
        request: the turn's.
    """
    asked_for: Any = {} if request.response_format is None else {"response_format": _named(request.response_format)}
    options: dict[str, Any] = {**request.options, **asked_for}
    if not request.enable_tool_calls:
        options.pop("tools", None)
        options["tool_choice"] = "none"
    return options


def _named(response_format: Mapping[str, Any]) -> dict[str, Any]:
    """Wrap a bare schema without one type, such as an ``enum``: not every client takes it for a schema."""
    if isinstance(response_format.get("type"), str):
        return dict(response_format)
    schema = {name: value for name, value in response_format.items() if name != "title"}
    named = {"name": str(response_format.get("title") or "response"), "schema": schema, "strict": True}
    return {"type": "json_schema", "json_schema": named}
