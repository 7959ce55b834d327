"""A workflow of two agents, of which one hands its answer to the other, and an agent of its own."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "src"))

from agent_framework import Agent, WorkflowBuilder

from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment

client = chat_client_from_environment()
writer = Agent(client, "You write.", name="Writer")
reviewer = Agent(client, "You review.", name="Reviewer")
pipeline = WorkflowBuilder(name="pipeline", start_executor=writer).add_edge(writer, reviewer).build()
app = DurableAgentApp(agents=[Agent(client, "You are alone.", name="Solo")], workflow=pipeline)
