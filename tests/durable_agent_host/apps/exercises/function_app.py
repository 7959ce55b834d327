"""Exercises of CONTRIBUTING.md, "I want to change one thing": each row is tried here, and in no source file.

What a maintainer would write into a table of the source, this app adds to that table before it makes the app.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypedDict

import azure.functions as func
from agent_framework import Agent
from azurefunctions.extensions.http.fastapi import Response
from folder_store import FolderStore

from durable_agent_host import THE_APP, DurableAgentApp, Settings, store_factory
from durable_agent_host import app as app_module
from durable_agent_host.agent.event_writer import EventWriter
from durable_agent_host.agent.observer import Moment, ToolCallCompleted
from durable_agent_host.durable.function_registration import AppFeature
from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.http import api_document, route_transport
from durable_agent_host.http.request_handling import HandlerContext, Route, RouteRequest, named_session
from durable_agent_host.http.response_views import session_response
from durable_agent_host.http.routes import ROUTES
from durable_agent_host.providers.openai import chat_client_from_environment
from durable_agent_host.session.ownership import unknown_session
from durable_agent_host.turn.turn_events import EVENTS, EventRule, LiveEvent

# --- a feature of the app: it writes down each turn that has ended ---------------------------------------------


def write_down(context: Any) -> Any:
    """Write a line, as an orchestration."""
    yield context.call_activity("write_line", context.get_input())


async def write_line(wire: Mapping[str, Any], client: Any) -> None:
    """Write a line, as the activity of that orchestration."""
    del client
    with Path(os.environ["REPORTS"]).open("a") as file:
        file.write(json.dumps(wire) + "\n")


async def report(wire: Mapping[str, Any], client: Any) -> None:
    """Have a line written of what happened to a turn."""
    await client.start_new("write_down", f"line-{wire['turn_id']}", wire)


LINES = AppFeature(orchestrations={"write_down": write_down}, activities={"write_line": write_line}, report=report)
features_of_host = app_module.app_features
app_module.app_features = lambda *arguments: [*features_of_host(*arguments), LINES]

# --- a store of blobs ------------------------------------------------------------------------------------------


def open_folder(setting: str, settings: Settings) -> FolderStore:
    """Create the store that the setting names."""
    return FolderStore(Path(setting.partition(":")[2]))


stores: Any = store_factory.SEGMENT_STORES
stores["folder"] = store_factory.StoreKind("'folder:PATH'", bool, open_folder)

# --- a route ---------------------------------------------------------------------------------------------------


class LengthWire(TypedDict):
    """How long a conversation is."""

    agent: str
    session_id: str
    message_count: int


async def read_length(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``GET /agents/{agent}/sessions/{session}/length``: how many messages the session has."""
    agent, session_id = named_session(host, call)
    session = await client.documents.session(agent, session_id)
    if session is None:
        raise unknown_session(agent, session_id)
    return session_response(LengthWire(agent=agent, session_id=session_id, message_count=session.message_count))


LENGTH = Route(
    "http-length",
    "GET",
    "agents/{agent}/sessions/{session}/length",
    "session.read",
    read_length,
    {HTTPStatus.OK: (LengthWire,)},
)
for module in (app_module, api_document, route_transport):
    module.ROUTES = (*ROUTES, LENGTH)

# --- a live event ----------------------------------------------------------------------------------------------


class ToolWarnedWire(TypedDict):
    """The result of a tool is a warning."""

    call_id: str
    text: str


events: Any = EVENTS
events["tool.warned"] = EventRule(ToolWarnedWire, is_discardable=True)
events_of_host = EventWriter._build_call_events


def build_call_events(writer: EventWriter, moment: Moment, run: str) -> Sequence[LiveEvent]:
    """Add the event to those of a call that has ended."""
    match moment:
        case ToolCallCompleted(call_id, result=str(text), replayed=False) if text.startswith("warning: "):
            return *events_of_host(writer, moment, run), LiveEvent(
                "tool.warned", ToolWarnedWire(call_id=call_id, text=text)
            )
        case _:
            return events_of_host(writer, moment, run)


EventWriter._build_call_events = build_call_events

# --- a setting -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShopSettings(Settings):
    """The host's settings, and what the agent is told."""

    instructions: str = "Sell."


# --- the app ---------------------------------------------------------------------------------------------------


def order(item: str) -> str:
    """Order an item."""
    return f"warning: {item} is sold out"


settings = ShopSettings.from_environment()
shop = Agent(chat_client_from_environment(), settings.instructions, name="Shop", tools=[order])
app = DurableAgentApp(agents=[shop], settings=settings, http_auth_level=func.AuthLevel.ANONYMOUS)

# --- a dialect over the same turns -----------------------------------------------------------------------------


@app.route("chat/completions", methods=["POST"])
@app.durable_client_input(client_name="durable")
async def complete_chat(req: func.HttpRequest, durable: Any) -> func.HttpResponse:
    """Answer as OpenAI's Chat Completions does; the user's name is that of the session."""
    body = req.get_json()
    client = app.client(durable, principal=THE_APP)
    turn = await client.run(body["model"], body["messages"][-1]["content"], session_id=body["user"])
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": turn.response}}
    completion = {"id": turn.turn_id, "object": "chat.completion", "created": 0, "model": turn.agent}
    return func.HttpResponse(json.dumps(completion | {"choices": [choice]}), mimetype="application/json")
