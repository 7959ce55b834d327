"""A workflow of two agents, of which one hands its answer to the other, ones that ask or break, and an agent."""

from typing import Never

import azure.functions as func
from agent_framework import (
    Agent,
    Executor,
    WorkflowBuilder,
    WorkflowContext,
    WorkflowExecutor,
    handler,
    response_handler,
)

from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment


class Asker(Executor):
    """Asks a person, line by line, and gives the answers out."""

    @handler
    async def ask(self, text: str, ctx: WorkflowContext) -> None:
        """Ask."""
        for line in text.splitlines():
            await ctx.request_info(line, str)

    @response_handler
    async def yield_answer(self, original: str, answer: str, ctx: WorkflowContext[Never, str]) -> None:
        """Say what was answered."""
        await ctx.yield_output(f"{original} {answer}")


class Mute:
    """Has no form that could be shown."""

    def __str__(self) -> str:
        raise TypeError("this has no words")


class Breaker(Executor):
    """Fails, or gives out what cannot be shown."""

    @handler
    async def go(self, text: str, ctx: WorkflowContext[Never, Mute]) -> None:
        """Do so."""
        if text == "mute":
            await ctx.yield_output(Mute())
        else:
            raise ConnectionError(f"no store at {text}\nit is away")


client = chat_client_from_environment()
writer = Agent(client, "You write.", name="Writer")
reviewer = Agent(client, "You review.", name="Reviewer")
pipeline = WorkflowBuilder(name="pipeline", start_executor=writer).add_edge(writer, reviewer).build()
asking = WorkflowBuilder(name="asking", start_executor=Asker(id="asker")).build()
breaking = WorkflowBuilder(name="breaking", start_executor=Breaker(id="breaker")).build()
outer = WorkflowBuilder(name="outer", start_executor=WorkflowExecutor(breaking, id="inner")).build()
solo = Agent(client, "You are alone.", name="Solo")
app = DurableAgentApp(agents=[solo], workflows=[pipeline, asking, breaking, outer])


@app.route(route="length", methods=["POST"])
def length(req: func.HttpRequest) -> func.HttpResponse:
    """Say how long the body is."""
    return func.HttpResponse(str(len(req.get_body())))
