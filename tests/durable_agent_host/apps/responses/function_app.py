"""Agents for clients, with tools of their own, with options, redaction, and an agent or a question within them."""

from agent_framework import Agent, Executor, Message, WorkflowBuilder, WorkflowContext, handler, response_handler, tool

from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment


@tool
def weather(city: str) -> str:
    """Look up the weather."""
    return f"sunny in {city}"


@tool(approval_mode="always_require")
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


class Booking(Executor):
    """Asks for a number."""

    @handler
    async def book(self, messages: list[Message], ctx: WorkflowContext[None, str]) -> None:
        """Ask."""
        await ctx.request_info("How many seats?", int)

    @response_handler
    async def confirm(self, question: str, seats: int, ctx: WorkflowContext[None, str]) -> None:
        """Answer."""
        await ctx.yield_output(f"{seats} seats are booked.")


def make_booking():
    """Make the agent that books."""
    return WorkflowBuilder(name="booking", start_executor=Booking(id="booking")).build().as_agent("Booking")


model = chat_client_from_environment()
app = DurableAgentApp(agents=[Agent(model, "Talk.", name="Talker", default_options={"store": False})])
app.add_agent(Agent(model, "Help.", name="Helper", tools=[weather, pay], default_options={"store": False}))
app.add_agent(
    Agent(model, "Talk.", name="Open", default_options={"store": False}),
    allowed_options={"instructions": True, "temperature": True, "metadata": True},
)
app.add_agent(
    Agent(model, "Help.", name="Discreet", tools=[pay], default_options={"store": False}),
    redact=lambda content: content,
)
app.add_agent(make_booking)
app.add_agent(Agent(model, "Talk.", name="Hidden"), enable_http_endpoint=False)
