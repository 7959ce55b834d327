"""An app whose redaction of long texts waits until another turn has called a tool."""

import os
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "src"))

from agent_framework import Agent, Content, tool
from agent_framework_openai import OpenAIChatClient

from durable_agent_host import DurableAgentApp

LONG = 100_000
OTHERS_GO_ON = threading.Event()


@tool
def look_up() -> str:
    """Give a long text."""
    return "word " * LONG


@tool
def let_go() -> str:
    """Let the redaction of long texts end."""
    OTHERS_GO_ON.set()
    return "gone on"


def redact(content: Content) -> Content:
    """Wait at long texts; a loop that waits here runs no other turn."""
    if len(content.text or "") > LONG and not OTHERS_GO_ON.wait(20):
        raise TimeoutError("no other turn went on")
    return content


client = OpenAIChatClient(model="m", api_key="practice", base_url=f"{os.environ['MODEL_URL']}/v1")
app = DurableAgentApp(
    agents=[Agent(client, "Talk.", name="Agent", tools=[look_up, let_go], default_options={"store": False})],
    redact=redact,
)
