"""Upstream's host extension with agents that need no model: they tell what they were given."""
# ruff: noqa: D102 - the methods are those of SupportsAgentRun

import asyncio
import json
from datetime import UTC, datetime

from agent_framework import AgentResponse, AgentResponseUpdate, AgentSession, Message, ResponseStream
from agent_framework_azurefunctions import AgentFunctionApp


class TellingAgent:
    """Answers with the number of messages and the last text; takes its time when told ``slow``."""

    def __init__(self, name: str) -> None:
        self.id = self.name = name
        self.description = "tells what it was given"

    def run(self, messages=None, *, stream=False, session=None, **_):
        if stream:
            return ResponseStream(self._stream(messages), finalizer=AgentResponse.from_updates)
        return self._answer(messages)

    async def _answer(self, messages):
        message_list = list(messages or [])
        text = message_list[-1].text
        if text == "slow":
            await asyncio.sleep(2)
        message = Message("assistant", [json.dumps([len(message_list), text])])
        return AgentResponse(messages=[message], created_at=datetime.now(UTC).isoformat())

    async def _stream(self, messages):
        response = await self._answer(messages)
        contents = response.messages[0].contents
        yield AgentResponseUpdate(contents=contents, role="assistant", created_at=response.created_at)

    def create_session(self, *, session_id=None):
        return AgentSession(session_id=session_id)

    def get_session(self, service_session_id, *, session_id=None):
        return AgentSession(service_session_id=service_session_id, session_id=session_id)


app = AgentFunctionApp(
    agents=[TellingAgent("Teller"), TellingAgent("Other")], enable_health_check=True, enable_mcp_tool_trigger=True
)


@app.orchestration_trigger(context_name="context")
def two_turns(context):
    """Run an agent twice on one session, as upstream's durable agents are used in orchestrations."""
    agent = app.get_agent(context, "Teller")
    session = agent.create_session()
    first = yield agent.run(messages="one", session=session)
    second = yield agent.run(messages="two", session=session)
    return [first.text, second.text]
