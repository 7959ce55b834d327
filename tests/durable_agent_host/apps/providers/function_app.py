"""An agent of every kind of client, all of which ask the endpoint at ``MODEL_URL``."""

import os

from agent_framework import Agent
from agent_framework_anthropic import AnthropicClient
from agent_framework_gemini import GeminiChatClient
from agent_framework_openai import OpenAIChatClient, OpenAIChatCompletionClient
from anthropic import AsyncAnthropic
from google import genai

from durable_agent_host import DurableAgentApp

URL = os.environ["MODEL_URL"]
KEY = os.environ.get("MODEL_KEY", "a-key-of-the-model-1")


def connect() -> str:
    """Connect to the database."""
    raise ConnectionError(f"cannot connect to postgres://admin:{os.environ['DB_PASSWORD']}@db.example/orders")


def quote() -> str:
    """Fail with a page of a service, of the kind that a search for secrets takes long for."""
    raise ConnectionError("a." * 32_000 + " ://x@")


def no_arguments(number: int) -> str:
    """Take a number."""
    return str(number)


responses = OpenAIChatClient(model="m", api_key=KEY, base_url=f"{URL}/v1")
azure = OpenAIChatClient(model="m", api_key=KEY, azure_endpoint=URL)
completions = OpenAIChatCompletionClient(model="m", api_key=KEY, base_url=f"{URL}/v1")
claude = AnthropicClient(model="m", anthropic_client=AsyncAnthropic(api_key=KEY, base_url=URL))
options = genai.types.HttpOptions(base_url=URL)
gemini = GeminiChatClient(model="m", client=genai.Client(api_key=KEY, vertexai=False, http_options=options))

app = DurableAgentApp(
    agents=[
        Agent(
            responses, "Talk.", name="Responses", tools=[connect, quote, no_arguments], default_options={"store": False}
        ),
        Agent(responses, "Talk.", name="Background", default_options={"background": True}),
        Agent(azure, "Talk.", name="Azure", default_options={"store": False}),
        Agent(completions, "Talk.", name="Completions", tools=[connect]),
        Agent(claude, "Talk.", name="Claude", default_options={"max_tokens": 100}),
        Agent(gemini, "Talk.", name="Gemini"),
    ],
)
