"""A workflow of two agents, of which one hands its answer to the other, one that asks a person, and an agent."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "src"))

from typing import Never

from agent_framework import Agent, Executor, WorkflowBuilder, WorkflowContext, handler, response_handler

from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment


class Asker(Executor):
    """Asks a person, and gives the answer out."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext) -> None:
        """Ask."""
        await ctx.request_info(text, str)

    @response_handler
    async def answered(self, original: str, answer: str, ctx: WorkflowContext[Never, str]) -> None:
        """Say what was answered."""
        await ctx.yield_output(f"{original} {answer}")


client = chat_client_from_environment()
writer = Agent(client, "You write.", name="Writer")
reviewer = Agent(client, "You review.", name="Reviewer")
pipeline = WorkflowBuilder(name="pipeline", start_executor=writer).add_edge(writer, reviewer).build()
asking = WorkflowBuilder(name="asking", start_executor=Asker(id="asker")).build()
app = DurableAgentApp(agents=[Agent(client, "You are alone.", name="Solo")], workflows=[pipeline, asking])
