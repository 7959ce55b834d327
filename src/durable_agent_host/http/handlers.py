"""What the routes do. Each handler takes the host, the request and a turn client, and gives an answer."""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import azure.functions as func
from azurefunctions.extensions.http.fastapi import Response

from durable_agent_host.durable.client import TurnClient
from durable_agent_host.errors import DurableAgentHostError, NotFoundError
from durable_agent_host.http.problems import problem, problem_of_error
from durable_agent_host.http.views import header_value, session_view
from durable_agent_host.log.log import TurnLog
from durable_agent_host.model.ids import check_session_id
from durable_agent_host.settings import Settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Host:
    """What every handler needs.

    Attributes:
        agents: descriptions of the agents that are reachable by HTTP, by name; a live view.
        settings: bounds and waits.
        open_log: gives the turn log of the process; the store is opened at the first call.
    """

    agents: Mapping[str, str | None]
    settings: Settings
    open_log: Callable[[], TurnLog]

    def agent(self, name: str) -> str:
        """Find an agent by the name in a URL, upper and lower case aside.

        Raises:
            NotFoundError: there is none that is reachable by HTTP.
        """
        for known in self.agents:
            if known.casefold() == name.casefold():
                return known
        hosted = ", ".join(sorted(self.agents)) or "none"
        raise NotFoundError(f"there is no agent {name!r} here; hosted are: {hosted}")


Answer = func.HttpResponse | Response
"""Of the Functions SDK, or of the streaming extension where it streams."""

Handler = Callable[[Host, func.HttpRequest, TurnClient], Awaitable[Answer]]


def answered(handler: Handler) -> Handler:
    """Turn what a handler raises into a problem; unexpected errors are logged and not shown.

    Args:
        handler: of a route.

    Returns:
        The handler, which raises nothing any more.
    """

    @wraps(handler)
    async def answer(host: Host, req: func.HttpRequest, client: TurnClient) -> Answer:
        try:
            return await handler(host, req, client)
        except DurableAgentHostError as error:
            return problem_of_error(error)
        except Exception as error:
            logger.exception("%s %s failed", req.method, req.url)
            return problem_of_error(error)

    return answer


@answered
async def list_agents(host: Host, req: func.HttpRequest, client: TurnClient) -> func.HttpResponse:
    """``GET /agents``: what is hosted."""
    del client
    base = base_url(req)
    agents = [
        {
            "name": name,
            "description": description,
            "run_url": f"{base}/agents/{quote(name)}/run",
        }
        for name, description in sorted(host.agents.items())
    ]
    return json_answer(HTTPStatus.OK, {"agents": agents}, {})


@answered
async def health(host: Host, req: func.HttpRequest, client: TurnClient) -> func.HttpResponse:
    """``GET /health``: whether the host is up and its store answers."""
    del req
    try:
        await client.check_store()
    except Exception:
        logger.exception("the durable store does not answer")
        return problem(
            HTTPStatus.SERVICE_UNAVAILABLE, "the durable store does not answer: see the host's log", healthy=False
        )
    return json_answer(HTTPStatus.OK, {"status": "healthy", "agent_count": len(host.agents)}, {})


@answered
async def read_session(host: Host, req: func.HttpRequest, client: TurnClient) -> func.HttpResponse:
    """``GET /agents/{agent}/sessions/{session}``: the conversation."""
    agent, session_id = host.agent(path_part(req, "agent")), check_session_id(path_part(req, "session"))
    session = await client.session(agent, session_id)
    if session is None:
        raise NotFoundError(f"agent {agent!r} has no session {session_id!r}")
    name = header_value(session_id)
    names = {"x-ms-session-id": name, "x-ms-thread-id": name}
    return json_answer(HTTPStatus.OK, session_view(agent, session_id, session), names)


def base_url(req: func.HttpRequest) -> str:
    """Give the URL of the app's routes, prefix included. Guarantee: pure.

    Args:
        req: any request to a route below ``/agents``.

    Returns:
        The URL without a slash at its end.
    """
    return str(req.url).partition("?")[0].partition("/agents")[0]


def path_part(req: func.HttpRequest, name: str) -> str:
    """Give a part of the request's path. Guarantee: pure.

    Args:
        req: the request.
        name: as the route's template has it.

    Returns:
        The part, decoded.
    """
    return str(req.route_params.get(name, ""))


def json_answer(status: HTTPStatus, body: Any, headers: Mapping[str, str]) -> func.HttpResponse:
    """Answer with JSON. Guarantee: pure.

    Args:
        status: the HTTP status.
        body: what JSON can hold.
        headers: further headers.

    Returns:
        The answer.
    """
    return func.HttpResponse(
        json.dumps(body), status_code=int(status), mimetype="application/json", headers=dict(headers)
    )
