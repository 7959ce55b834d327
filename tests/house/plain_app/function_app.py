"""The plainest app that calls a tool: one agent, one tool, and a chat client that plays its model."""

from collections.abc import AsyncIterator
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
    tool,
)

from durable_agent_host import DurableAgentApp


@tool(approval_mode="never_require")
def time_of_train(city: str) -> str:
    """Tell when the next train leaves."""
    return f"The train to {city} leaves at noon."


class _TimetableModel(BaseChatClient):
    """Calls the tool, then answers in two chunks."""

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> Any:
        has_result = any(content.type == "function_result" for content in messages[-1].contents)
        answer = [Content.from_text("At "), Content.from_text("noon.")]
        call = Content.from_function_call(call_id="call_1", name="time_of_train", arguments='{"city": "Ghent"}')
        return ResponseStream(_updates(answer if has_result else [call]), finalizer=ChatResponse.from_updates)


async def _updates(contents: list[Content]) -> AsyncIterator[ChatResponseUpdate]:
    for content in contents:
        yield ChatResponseUpdate(role="assistant", contents=[content])
    yield ChatResponseUpdate(role="assistant", contents=[], finish_reason="stop")


class Client(FunctionInvocationLayer, ChatMiddlewareLayer, _TimetableModel):
    """The model with the framework's layers."""


app = DurableAgentApp(agents=[Agent(client=Client(), name="Station", instructions="Help.", tools=[time_of_train])])
