"""Agents of several clients, and a function that counts what the process keeps."""

import gc
import os

import azure.functions as func
from agent_framework import Agent, Message
from agent_framework_anthropic import AnthropicClient
from agent_framework_openai import OpenAIChatClient, OpenAIChatCompletionClient
from anthropic import AsyncAnthropic

from durable_agent_host import DurableAgentApp

URL = os.environ["MODEL_URL"]
responses = OpenAIChatClient(model="m", api_key="practice", base_url=f"{URL}/v1")
completions = OpenAIChatCompletionClient(model="m", api_key="practice", base_url=f"{URL}/v1")
claude = AnthropicClient(model="m", anthropic_client=AsyncAnthropic(api_key="practice", base_url=URL))

app = DurableAgentApp(
    agents=[
        Agent(responses, "Talk.", name="Responses", default_options={"store": False}),
        Agent(completions, "Talk.", name="Completions"),
        Agent(claude, "Talk.", name="Claude", default_options={"max_tokens": 100}),
    ],
)


@app.route(route="kept", auth_level=func.AuthLevel.ANONYMOUS)
def count_messages(req: func.HttpRequest) -> func.HttpResponse:
    """Count the messages that are alive when there is no garbage."""
    del req
    gc.collect()
    return func.HttpResponse(str(sum(type(item) is Message for item in gc.get_objects())))
