"""Serve the agents of the long sessions by the framework alone: one process, sessions in memory, no durability.

``POST /api/agents/{agent}/run?thread_id=…`` with a text streams the model's answer and returns it as JSON when it is
whole, as the host's route does.
"""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from agent_framework import AgentSession
from agents import long_agents
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

_agents: dict[str, Any] = {str(agent.name): agent for agent in long_agents()}
_sessions: dict[tuple[str, str], AgentSession] = {}


async def run(request: Request) -> Response:
    """Run one turn of a session."""
    agent = _agents[request.path_params["agent"]]
    key = (str(agent.name), request.query_params["thread_id"])
    session = _sessions.setdefault(key, AgentSession(session_id=key[1]))
    text = (await request.body()).decode()
    stream = agent.run(text, stream=True, session=session)
    async for _ in stream:
        pass
    return JSONResponse({"response": (await stream.get_final_response()).text})


class Server(uvicorn.Server):
    """Prints its address when it is ready."""

    async def startup(self, sockets: Any = None) -> None:
        """Listen, and say where."""
        await super().startup(sockets)
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        print(f"ready: http://{host}:{port}", flush=True)


@contextlib.asynccontextmanager
async def _nothing(_: Starlette) -> AsyncIterator[None]:
    yield


if __name__ == "__main__":
    app = Starlette(routes=[Route("/api/agents/{agent}/run", run, methods=["POST"])], lifespan=_nothing)
    Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", timeout_keep_alive=600)).run()
