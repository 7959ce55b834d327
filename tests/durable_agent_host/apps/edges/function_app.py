"""Agents that do what agents should not, and tools whose results are unusual."""

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "src"))

from agent_framework import Agent, AgentResponse, AgentResponseUpdate, Content, Message
from agent_framework_durabletask import AgentCallbackContext
from azure.durable_functions import EntityId

from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment


def note(line: str) -> None:
    """Note a line in the ledger."""
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(f"{line}\n")


class Listener:
    """A callback as upstream defines it; it notes what it is told beside the ledger, and may fail."""

    async def on_streaming_response_update(self, update: AgentResponseUpdate, context: AgentCallbackContext) -> None:
        """Note an update."""
        self._note("update", update.text, context)

    async def on_agent_response(self, response: AgentResponse[Any], context: AgentCallbackContext) -> None:
        """Note a response."""
        self._note("response", response.text, context)
        if context.request_message == "tire the listener":
            raise ValueError("the listener is tired")

    def _note(self, kind: str, text: str, context: AgentCallbackContext) -> None:
        told = {"kind": kind, "text": text, "agent": context.agent_name, "turn": context.correlation_id}
        with Path(os.environ["LEDGER"]).with_suffix(".told").open("a") as notes:
            notes.write(json.dumps(told | {"session": context.session_id}) + "\n")


def link() -> Content:
    """Give a link to something of which nobody knows what it is."""
    note("linked")
    return Content.from_uri("https://example.com/thing")


class Odd:
    """An agent whose answer is what it is told."""

    id = name = "Odd"
    description = "answers in odd ways"

    def run(self, messages: list[Message], *, stream: bool = False, session: Any = None, **options: Any) -> Any:
        """Answer; with ``unstorable`` what JSON cannot hold, with ``TypeError`` not at all, with ``link`` a link."""
        del stream, session, options
        told = messages[-1].text

        async def answer() -> AgentResponse[Any]:
            note(told)
            if told == "TypeError":
                raise TypeError("run() got an unexpected keyword argument 'stream'")
            more = {"when": object()} if told == "unstorable" else {}
            contents = [Content.from_text(f"{len(messages)}: {told}", additional_properties=more)]
            if told == "link":
                contents.append(Content.from_uri("https://example.com/thing"))
            return AgentResponse(messages=[Message("assistant", contents)])

        return answer()


client = chat_client_from_environment()
app = DurableAgentApp(
    agents=[Odd(), Agent(client, "Link.", name="Linker", tools=[link], default_options={"store": False})],
    enable_mcp_tool_trigger=True,
    default_callback=Listener(),
)


@app.orchestration_trigger(context_name="context")
def call_entity(context):
    """Call the operation ``run`` of an entity once for each input, all at the same time."""
    asked = context.get_input()
    calls = [context.call_entity(EntityId(*asked["entity"]), "run", one) for one in asked["inputs"]]
    answers = []
    for task in calls:
        try:
            answers.append((yield task)["messages"][-1]["contents"][0]["text"])
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller sees it
            answers.append(f"failed: {error}")
    return answers
