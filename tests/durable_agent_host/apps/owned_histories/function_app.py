"""Agents with history providers; with OWNERS, their sessions belong to callers that the header ``x-who`` names."""

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from agent_framework import Agent, FileHistoryProvider, HistoryProvider

from durable_agent_host import DurableAgentApp, Principal
from durable_agent_host.providers.openai import chat_client_from_environment
from tests.kit_histories import Carving, Notebook

FOLDER = Path(os.environ["HISTORIES"])

client = chat_client_from_environment()


def caller(request: Any) -> Principal | None:
    """Believe the header."""
    return Principal(request.headers["x-who"]) if "x-who" in request.headers else None


def build_agent(name: str, provider: HistoryProvider) -> Agent:
    """An agent with a history of its own."""
    return Agent(client, name=name, context_providers=[provider], default_options={"store": False})


shared_notebook = Notebook(FOLDER, "shared")
app = DurableAgentApp(
    agents=[
        build_agent("Noted", Notebook(FOLDER, "notebook")),
        build_agent("Filed", FileHistoryProvider(FOLDER / "files")),
        build_agent("Carved", Carving(FOLDER, "stone")),
        build_agent("One", shared_notebook),
        build_agent("Two", shared_notebook),
    ],
    identify=caller if "OWNERS" in os.environ else None,
)
