"""Agents whose sessions are kept for different times, and an orchestration of the app's own."""

from datetime import timedelta
from typing import Any

from agent_framework import Agent, AgentResponse, Message, tool

from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment


class Echo:
    """An agent that gives back what it was told, unless it is told to fail."""

    description = "gives back what it was told"

    def __init__(self, name: str) -> None:
        self.id = self.name = name

    def run(self, messages: list[Message], **options: Any) -> Any:
        """Answer with the last message."""
        del options

        async def answer() -> AgentResponse[Any]:
            if messages[-1].text.startswith("fail"):
                raise ValueError(messages[-1].text)
            return AgentResponse(messages=[Message("assistant", [f"{len(messages)}: {messages[-1].text}"])])

        return answer()


@tool(approval_mode="always_require")
def pay(amount: float, to: str) -> str:
    """Pay an amount."""
    return f"paid {amount} to {to}"


payer = Agent(chat_client_from_environment(), "Pay.", name="Payer", tools=[pay], default_options={"store": False})
app = DurableAgentApp(agents=[Echo("Brief"), payer], session_ttl=timedelta(seconds=1))
app.add_agent(Echo("Lasting"), session_ttl=0)
app.add_agent(Echo("Daily"), session_ttl=86400.0)


@app.function_name("own")
@app.orchestration_trigger(context_name="context")
def ask_agent(context):
    """Ask an agent, as a part of something else."""
    session = app.get_agent(context, "Lasting").create_session(session_id=context.get_input()["session_id"])
    response = yield app.get_agent(context, "Lasting").run("from outside", session=session)
    return response.text


@app.function_name("waiting")
@app.orchestration_trigger(context_name="context")
def ask_and_wait(context):
    """Ask an agent, then wait, and give the answer."""
    agent = app.get_agent(context, "Lasting")
    session = agent.create_session(session_id="of-orchestration")
    response = yield agent.run(context.get_input()["message"], session=session)
    context.set_custom_status("waits")
    yield context.wait_for_external_event("go")
    return response.text
