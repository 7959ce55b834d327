"""Agents that read files and make some, and whose clients may choose options."""

import base64
from contextlib import suppress
from typing import Any

from agent_framework import (
    Agent,
    AgentResponse,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
)
from agent_framework_openai import OpenAIChatClient
from openai import AsyncOpenAI, NotFoundError

from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment
from practice_model.dialects.responses.items import PIXEL


def draw() -> list[Content]:
    """Draw a picture, and write a table."""
    table = b"a,b\n" * 8192
    return [
        Content.from_text("drawn"),
        Content.from_uri(PIXEL, media_type="image/png"),
        Content("data", uri=f"data:text/csv;base64,{base64.b64encode(table).decode()}", media_type="text/csv"),
    ]


class Hostile:
    """An agent that answers with a file whose name and type were made to deceive."""

    id = name = "Hostile"
    description = "deceives"

    def run(self, messages: list[Message], *, stream: bool = False, session: Any = None, **options: Any) -> Any:
        """Answer with a page that is called a picture."""
        del messages, stream, session, options

        async def answer() -> AgentResponse[Any]:
            page = base64.b64encode(b"<script>alert(1)</script>").decode()
            file = Content("data", uri=f"data:text/html;base64,{page}", media_type="text/html\r\nX-Evil: 1")
            file.name = 'a"\r\nSet-Cookie: b=c; \u202e.png'
            return AgentResponse(messages=[Message("assistant", [file])])

        return answer()


class _Asks(BaseChatClient):
    """A client that asks its service again and again before it answers."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.service = AsyncOpenAI()

    def _inner_get_response(self, *, messages: list[Message], stream: bool, options: Any, **_: Any) -> Any:
        del options
        response = self._build_response_stream(self._updates(int(messages[-1].text)))
        return response if stream else response.get_final_response()

    async def _updates(self, times: int) -> Any:
        for number in range(times):
            with suppress(NotFoundError):
                await self.service.responses.retrieve(f"asked-{number}")
        yield ChatResponseUpdate(contents=[Content.from_text("asked")], role="assistant", finish_reason="stop")


class Asks(FunctionInvocationLayer, ChatMiddlewareLayer, _Asks):
    """The same with the framework's layers."""


client = chat_client_from_environment()
OUTPUTS = {"store": False, "include": ["code_interpreter_call.outputs"]}
code = OpenAIChatClient.get_code_interpreter_tool()
app = DurableAgentApp(
    agents=[
        Agent(client, "Read.", name="Reader", tools=[draw], default_options={"store": False}),
        Agent(client, "Calculate.", name="Coder", tools=[code], default_options=OUTPUTS),
        Hostile(),
        Agent(Asks(), "Ask.", name="Asker"),
    ],
    allowed_options={"temperature": True, "user": True, "model": ["practice", "practice-2"]},
)


@app.orchestration_trigger(context_name="context")
def ask_by_hand(context):
    """Run a turn with what the input has."""
    return (yield context.call_sub_orchestrator("agent_turn", context.get_input()))


@app.function_name("look")
@app.orchestration_trigger(context_name="context")
def show_picture(context):
    """Show a picture to an agent, and wait for the answer or not."""
    agent = app.get_agent(context, "Reader")
    session = agent.create_session(session_id=context.get_input()["session_id"])
    response = yield agent.run(
        [Message("user", ["look", Content.from_uri(PIXEL, media_type="image/png")])], session=session
    )
    return response.text


app.add_agent(Agent(client, "Read.", name="Strict"), allowed_options={})
