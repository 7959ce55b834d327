"""Agents that do what agents should not, and tools whose results are unusual."""

import json
import os
from pathlib import Path
from typing import Any

from agent_framework import Agent, AgentResponse, AgentResponseUpdate, Content, Message
from agent_framework_durabletask import AgentCallbackContext
from azure.durable_functions import EntityId

from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment


def write_line(line: str) -> None:
    """Note a line in the ledger."""
    with Path(os.environ["LEDGER"]).open("a") as ledger:
        ledger.write(f"{line}\n")


class Listener:
    """A callback as upstream defines it; it notes what it is told beside the ledger, and may fail."""

    async def on_streaming_response_update(self, update: AgentResponseUpdate, context: AgentCallbackContext) -> None:
        """Note an update."""
        self._record("update", update.text, context)

    async def on_agent_response(self, response: AgentResponse[Any], context: AgentCallbackContext) -> None:
        """Note a response."""
        self._record("response", response.text, context)
        if context.request_message == "tire the listener":
            raise ValueError("the listener is tired")

    def _record(self, kind: str, text: str, context: AgentCallbackContext) -> None:
        event = {"kind": kind, "text": text, "agent": context.agent_name, "turn": context.correlation_id}
        with Path(os.environ["LEDGER"]).with_suffix(".told").open("a") as notes:
            notes.write(json.dumps(event | {"session": context.session_id}) + "\n")


def link() -> Content:
    """Give a link to something of which nobody knows what it is."""
    write_line("linked")
    return Content.from_uri("https://example.com/thing")


class Odd:
    """An agent whose answer is what it is told."""

    id = name = "Odd"
    description = "answers in odd ways"

    def run(self, messages: list[Message], *, stream: bool = False, session: Any = None, **options: Any) -> Any:
        """Answer; with ``unstorable`` what JSON cannot hold, with ``TypeError`` not at all, with ``link`` a link."""
        del stream, session, options
        text = messages[-1].text

        async def answer() -> AgentResponse[Any]:
            write_line(text)
            if text == "TypeError":
                raise TypeError("run() got an unexpected keyword argument 'stream'")
            more = {"when": object()} if text == "unstorable" else {}
            contents = [Content.from_text(f"{len(messages)}: {text}", additional_properties=more)]
            if text == "link":
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
    request = context.get_input()
    calls = [context.call_entity(EntityId(*request["entity"]), "run", payload) for payload in request["inputs"]]
    results = []
    for task in calls:
        try:
            results.append((yield task)["messages"][-1]["contents"][0]["text"])
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller sees it
            results.append(f"failed: {error}")
    return results
