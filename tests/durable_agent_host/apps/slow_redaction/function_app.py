"""An app whose redaction of long texts waits until another turn has called a tool."""

import os
import threading

import azure.functions as func
from agent_framework import Agent, Content, tool
from agent_framework_openai import OpenAIChatClient

from durable_agent_host import DurableAgentApp

LONG = 100_000
IS_WAITING = threading.Event()
OTHERS_GO_ON = threading.Event()
WAITED_IN_VAIN = threading.Event()


@tool(name="look_up")
def find_text() -> str:
    """Give a long text."""
    return "word " * LONG


@tool(name="note")
def receive_text(text: str) -> str:
    """Take a long text."""
    return f"{len(text)} characters"


@tool(approval_mode="always_require")
def send(text: str) -> str:
    """Take a long text when a person agrees."""
    return f"{len(text)} characters"


@tool
def let_go() -> str:
    """Let the redaction of long texts end."""
    OTHERS_GO_ON.set()
    return "gone on"


def redact(content: Content) -> Content:
    """Wait at long texts; a loop that waits here runs no other turn."""
    if len(content.text or "") > LONG:
        IS_WAITING.set()
        if not OTHERS_GO_ON.wait(10):
            WAITED_IN_VAIN.set()
    if WAITED_IN_VAIN.is_set():
        raise TimeoutError("no other turn went on")
    return content


client = OpenAIChatClient(model="m", api_key="practice", base_url=f"{os.environ['MODEL_URL']}/v1")
tools = [find_text, receive_text, send, let_go]
app = DurableAgentApp(
    agents=[Agent(client, "Talk.", name="Agent", tools=tools, default_options={"store": False})],
    redact=redact,
)


@app.route(route="waits", auth_level=func.AuthLevel.ANONYMOUS)
def is_waiting(req: func.HttpRequest) -> func.HttpResponse:
    """Tell whether a redaction waits."""
    del req
    return func.HttpResponse("yes" if IS_WAITING.is_set() else "")
