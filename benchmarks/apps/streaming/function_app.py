"""Agents that stream: one that asks the model, one that makes its own chunks, and what the turn log has written."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from typing import Any

import azure.functions as func
from agent_framework import Agent, AgentResponse, AgentResponseUpdate, AgentSession, Content, ResponseStream
from agent_framework_openai import OpenAIChatClient

from durable_agent_host import DurableAgentApp


class Ticker:
    """Streams the time, without a model; the message is ``CHUNKS PER_SECOND``."""

    id = name = "Ticker"
    description = "streams the time"

    def run(self, messages: Any = None, *, stream: bool = False, session: Any = None, **options: Any) -> Any:
        """Stream as many chunks as were asked for, each the nanoseconds of the Unix epoch and a blank."""
        del stream, session, options
        chunks, per_second = messages[-1].text.split()
        return ResponseStream(self._ticks(int(chunks), float(per_second)), finalizer=AgentResponse.from_updates)

    async def _ticks(self, chunks: int, per_second: float) -> AsyncIterator[AgentResponseUpdate]:
        began = time.monotonic()
        for number in range(1, chunks + 1):
            yield AgentResponseUpdate(
                contents=[Content.from_text(f"{time.time_ns():019d} ")], role="assistant", response_id="resp_ticker"
            )
            await asyncio.sleep(max(0.0, began + number / per_second - time.monotonic()))

    def create_session(self, *, session_id: str | None = None) -> AgentSession:
        """Give a session, as the framework's agents do."""
        return AgentSession(session_id=session_id)

    def get_session(self, service_session_id: str, *, session_id: str | None = None) -> AgentSession:
        """Give a session that a service keeps, as the framework's agents do."""
        return AgentSession(service_session_id=service_session_id, session_id=session_id)


client = OpenAIChatClient(
    model=os.environ["OPENAI_MODEL"], api_key=os.environ["OPENAI_API_KEY"], base_url=os.environ["OPENAI_BASE_URL"]
)
app = DurableAgentApp(
    agents=[Ticker(), Agent(client, "Answer.", name="Writer", default_options={"store": False})],
    http_auth_level=func.AuthLevel.ANONYMOUS,
)


log: Any = app._open_log()  # noqa: SLF001 - nobody else asks
append, append_count = log.append, 0


async def counted_append(*arguments: Any, **options: Any) -> int:
    """Append to the turn log, and count it."""
    global append_count  # noqa: PLW0603 - of this process
    append_count += 1
    return await append(*arguments, **options)


log.append = counted_append


@app.route("log-writes", methods=["GET"])
def log_writes(req: func.HttpRequest) -> func.HttpResponse:
    """Tell how many appends to the turn log there were."""
    del req
    return func.HttpResponse(json.dumps(append_count))
