"""Agents whose clients name their service, each with the same tools; all ask the endpoint ``SERVICE_URL``."""

import os

from agent_framework import Agent, Content
from agent_framework_anthropic import AnthropicClient
from agent_framework_gemini import GeminiChatClient
from agent_framework_openai import OpenAIChatClient, OpenAIChatCompletionClient
from google.genai import Client
from google.genai.types import ComputerUse, Tool

from durable_agent_host import DurableAgentApp

URL = os.environ["SERVICE_URL"]
FILES = (
    Content.from_data(b"png", media_type="image/png", additional_properties={"filename": "plot.png"}),
    Content.from_data(b"%PDF", media_type="application/pdf", additional_properties={"filename": "report.pdf"}),
    Content.from_data(b"sound", media_type="audio/wav"),
    Content.from_data(b"P\xff", media_type="application/zip"),
)


def look(what: str = "", raw: str = "") -> str:
    """Look at something."""
    return f"saw {what}{raw}" if what != "nothing" else ""


def recite(raw: str) -> str:
    """Return what was asked for."""
    return raw


def fetch(broken: bool = False) -> list[Content]:
    """Fetch files, or one that cannot be read."""
    files = [Content.from_data(b"broken", media_type="image/png")] if broken else FILES
    return [Content.from_text("Here they are."), *files]


def chat(service: str):
    """Make a client that asks a service."""
    client = OpenAIChatCompletionClient(model="m", api_key="k", base_url=f"{URL}/v1")
    client.additional_properties["service"] = service
    return client


def responses(service: str):
    """Make a client of the Responses API that asks a service."""
    client = OpenAIChatClient(model="m", api_key="k", base_url=f"{URL}/v1")
    client.additional_properties["service"] = service
    return client


CHATS = ("unknown", "OpenAI", "Mistral", "Groq", "DeepSeek", "xAI", "vLLM", "Ollama", "llama.cpp", "Bedrock")
tools = [look, fetch, recite]
gemini = Client(api_key="k", http_options={"base_url": URL})
clients = {
    **{f"Chat{service.replace('.', '')}": chat(service) for service in CHATS},
    **{f"Responses{service}": responses(service) for service in ("unknown", "Foundry", "vLLM")},
    "Claude": AnthropicClient(model="m", api_key="k", base_url=URL),
    "Gemini": GeminiChatClient(model="m", client=gemini),
}
CLAUDES_TOOLS = [
    {"type": "bash_20250124", "name": "bash"},
    {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
    {"type": "computer_20250124", "name": "computer", "display_width_px": 800, "display_height_px": 600},
    {"type": "memory_20250818", "name": "memory"},
]
COMPUTER = Tool(computer_use=ComputerUse(excluded_predefined_functions=["search"]))
options = {"parallel_tool_calls": False}
app = DurableAgentApp(
    agents=[
        Agent(
            client,
            "Help.",
            name=name,
            tools=tools,
            default_options={"store": False, **options} if name.startswith("Responses") else options,
        )
        if name.startswith(("Chat", "Responses"))
        else Agent(client, "Help.", name=name, tools=tools)
        for name, client in clients.items()
    ]
    + [
        Agent(clients["Chatunknown"], name="Plain"),
        Agent(clients["Claude"], name="ClaudeAtWork", tools=[look, *CLAUDES_TOOLS]),
        Agent(clients["Gemini"], name="GeminiAtWork", tools=[look, COMPUTER]),
    ]
)
