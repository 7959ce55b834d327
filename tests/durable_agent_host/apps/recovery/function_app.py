"""Agents of every kind of client, all of which ask the practice model."""

import json
import os
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable

from agent_framework import (
    Agent,
    ChatContext,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    ResponseStream,
    SummarizationStrategy,
    chat_middleware,
)
from agent_framework_anthropic import AnthropicClient
from agent_framework_gemini import GeminiChatClient
from agent_framework_openai import OpenAIChatClient, OpenAIChatCompletionClient
from anthropic import AsyncAnthropic
from google.genai import Client

from durable_agent_host import Budget, Budgets, DurableAgentApp

URL = os.environ["OPENAI_BASE_URL"]
HOST = URL.removesuffix("/v1")


def find_word(word: str = "") -> str:
    """Look a word up."""
    return f"found {word}"


def responses(model: str = "practice") -> OpenAIChatClient:
    """Make a client of the Responses API."""
    return OpenAIChatClient(model=model, api_key="k", base_url=URL)


def chat_of(model: str) -> OpenAIChatCompletionClient:
    """Make a client of Chat Completions."""
    return OpenAIChatCompletionClient(model=model, api_key="k", base_url=URL)


@chat_middleware
async def answer_instead(context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
    """Answer when the model does not."""
    try:
        await call_next()
    except Exception as error:  # noqa: BLE001 - whatever the model call raises
        text = f"Caught {type(error).__name__}."

        async def updates() -> AsyncIterator[ChatResponseUpdate]:
            yield ChatResponseUpdate(role="assistant", contents=[Content.from_text(text)])

        context.result = ResponseStream(updates(), finalizer=ChatResponse.from_updates)


chat = chat_of("practice")
claude = AnthropicClient(model="practice", anthropic_client=AsyncAnthropic(api_key="k", base_url=f"{HOST}/anthropic"))
gemini = GeminiChatClient(model="practice", client=Client(api_key="k", http_options={"base_url": f"{HOST}/gemini"}))
stateless = {"store": False}

app = DurableAgentApp(
    agents=[
        Agent(responses(), "Talk.", name="Responses", tools=[find_word], default_options=stateless),
        Agent(responses(), "Talk.", name="Stored", tools=[find_word]),
        Agent(chat, "Talk.", name="Chat", tools=[find_word]),
        Agent(claude, "Talk.", name="Claude", tools=[find_word], default_options={"max_tokens": 100}),
        Agent(gemini, "Talk.", name="Gemini", tools=[find_word]),
    ],
)
for name, client, fallbacks in (
    ("ToClaude", responses("down"), [claude]),
    ("ToChat", responses("down"), [chat]),
    ("ToGemini", responses("down"), [gemini]),
    ("ToResponses", chat_of("down"), [responses()]),
    ("ToSame", responses("down"), [responses("away"), responses()]),
):
    app.add_agent(Agent(client, "Talk.", name=name, tools=[find_word]), fallbacks=fallbacks)
with urllib.request.urlopen(f"{URL}/conversations", b"{}") as created:
    named = {"conversation_id": json.load(created)["id"]}
app.add_agent(
    Agent(responses("down"), "Talk.", name="Named", tools=[find_word], default_options=named), fallbacks=[chat]
)
app.add_agent(Agent(responses(), "Talk.", name="Caught", middleware=[answer_instead], default_options=stateless))
app.add_agent(
    Agent(responses(), "Talk.", name="Background", default_options={"background": True}),
    budgets=Budgets(turn=Budget(model_calls=5)),
)
app.add_agent(
    Agent(responses(), "Talk.", name="Summing", default_options=stateless),
    compaction=SummarizationStrategy(client=responses(), target_count=8, threshold=8),
)
