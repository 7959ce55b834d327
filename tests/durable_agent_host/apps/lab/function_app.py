"""Agents that show how the host behaves at its edges."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent_framework import Agent, AgentResponse, Message, tool
from agent_framework_openai import OpenAIChatClient
from azure.durable_functions import EntityId

from durable_agent_host import DurableAgentApp, DurableAgentEntity
from durable_agent_host.providers.openai import chat_client_from_environment


def charge(amount: float) -> str:
    """Charge an amount, and note it in the ledger."""
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(f"{amount}\n")
    return f"charged {amount}"


@tool(name="look_up")
def find_city(city: str) -> str:
    """Tell the weather of a city."""
    return f"rain in {city}"


class Instant:
    """An agent that has its answer at once; it gives back what it was told and how much came before."""

    id = name = "Instant"
    description = "answers at once"

    def run(self, messages: list[Message], *, stream: bool = False, session: Any = None, **options: Any) -> Any:
        """Answer with the last message."""
        del stream, session, options

        async def answer() -> AgentResponse[Any]:
            return AgentResponse(messages=[Message("assistant", [f"{len(messages)}: {messages[-1].text}"])])

        return answer()


class Raising:
    """An agent that fails."""

    id = name = "Raising"
    description = "fails"

    def run(self, messages: list[Message], **options: Any) -> Any:
        """Fail, unless the message is ``work``."""
        del options

        async def answer() -> AgentResponse[Any]:
            if messages[-1].text != "work":
                raise ValueError(f"cannot do {messages[-1].text}")
            return AgentResponse(messages=[Message("assistant", [f"worked, {len(messages)} seen"])])

        return answer()


class SeededEntity(DurableAgentEntity):
    """An entity whose state a test can put, and that keeps labels of its own."""

    def operations(self) -> dict[str, Any]:
        """Add an operation."""
        return super().operations() | {"label": self._label}

    def _label(self, session: Any, label: str, context: Any) -> tuple[Any, int]:
        labels = [*session.app_state.get("labels", ()), label]
        return replace(session, app_state={**session.app_state, "labels": labels}), len(labels)

    def handle(self, context: Any) -> None:
        """Put the input as the state, or do what the base class does."""
        if context.operation_name == "put":
            context.set_state(context.get_input())
        else:
            super().handle(context)


client = chat_client_from_environment()
thinking = OpenAIChatClient(model="practice-reasoning", api_key="practice", base_url=os.environ.get("OPENAI_BASE_URL"))
unreachable = OpenAIChatClient(model="practice", api_key="practice", base_url="http://127.0.0.1:9/v1")
app = DurableAgentApp(
    agents=[
        Instant(),
        Raising(),
        Agent(client, "Charge with the tool.", name="Ledger", tools=[charge], default_options={"store": False}),
        Agent(client, "Talk.", name="Kept"),
        Agent(thinking, "Think.", name="Thinker", tools=[find_city], default_options={"store": False}),
        Agent(thinking, "Think.", name="KeptThinker", tools=[find_city]),
        Agent(unreachable, "Talk.", name="Unreachable"),
    ],
    entity_class=SeededEntity,
)


@app.orchestration_trigger(context_name="context")
def erase(context):
    """Erase the session that the input names."""
    return (yield context.call_sub_orchestrator("erase_session", context.get_input()))


@app.orchestration_trigger(context_name="context")
def call_session(context):
    """Call an operation of a session's entity."""
    request = context.get_input()
    return (
        yield context.call_entity(
            EntityId("dafx-Instant", request["session"]), request["operation"], request["payload"]
        )
    )


@app.orchestration_trigger(context_name="context")
def ask(context):
    """Run an agent twice in one session, as an orchestration written against upstream does."""
    request = context.get_input()
    agent = app.get_agent(context, request["agent"])
    session_id = request.get("session_id")
    session = agent.get_session(session_id) if request.get("goes_on") else agent.create_session(session_id=session_id)
    texts = []
    for message in request["messages"]:
        response = yield agent.run(message, session=session)
        texts.append(response.text)
    return texts
