"""This project's app, with an agent of every kind of client for the long sessions, and the small one beside them."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from agent_framework import Agent, SlidingWindowStrategy
from agent_framework_anthropic import AnthropicClient
from agent_framework_gemini import GeminiChatClient
from agent_framework_openai import OpenAIChatCompletionClient
from agents import long_agents, window_agent
from anthropic import AsyncAnthropic
from google import genai

from durable_agent_host import DurableAgentApp

SAYS = "Answer in a few words."
URL = os.environ["OPENAI_BASE_URL"].removesuffix("/v1")

completions = OpenAIChatCompletionClient(model="practice", api_key="practice", base_url=f"{URL}/v1")
claude = AnthropicClient(model="practice", anthropic_client=AsyncAnthropic(api_key="practice", base_url=URL))
options = genai.types.HttpOptions(base_url=URL)
gemini = GeminiChatClient(
    model="practice", client=genai.Client(api_key="practice", vertexai=False, http_options=options)
)

app = DurableAgentApp(
    agents=[
        *long_agents(),
        Agent(completions, SAYS, name="Completions"),
        Agent(claude, SAYS, name="Claude", default_options={"max_tokens": 1000}),
        Agent(gemini, SAYS, name="Gemini"),
    ]
)
app.add_agent(window_agent(), compaction=SlidingWindowStrategy(keep_last_groups=40))
