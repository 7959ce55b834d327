"""What the routes do. Each handler takes the host, the request and a turn client, and gives an answer."""

import json
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import quote

import azure.functions as func

from durable_agent_host.codec.message import response_id_of
from durable_agent_host.codec.packing import unpack_entry
from durable_agent_host.codec.state import encode_stats
from durable_agent_host.durable.client import TurnClient
from durable_agent_host.errors import DurableAgentHostError, IdempotencyKeyReusedError, NotFoundError, TurnTimedOutError
from durable_agent_host.http.parse import RunCall, parse_run
from durable_agent_host.http.problems import problem, problem_of_error, problem_of_outcome
from durable_agent_host.model.ids import check_session_id, derived_id
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import Turn, TurnOutcome, TurnRequest
from durable_agent_host.settings import Settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Host:
    """What every handler needs.

    Attributes:
        agents: descriptions of the agents that are reachable by HTTP, by name; a live view.
        settings: bounds and waits.
    """

    agents: Mapping[str, str | None]
    settings: Settings

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


Handler = Callable[[Host, func.HttpRequest, TurnClient], Awaitable[func.HttpResponse]]


def answered(handler: Handler) -> Handler:
    """Turn what a handler raises into a problem; unexpected errors are logged and not shown.

    Args:
        handler: of a route.

    Returns:
        The handler, which raises nothing any more.
    """

    @wraps(handler)
    async def answer(host: Host, req: func.HttpRequest, client: TurnClient) -> func.HttpResponse:
        try:
            return await handler(host, req, client)
        except DurableAgentHostError as error:
            return problem_of_error(error)
        except Exception as error:
            logger.exception("%s %s failed", req.method, req.url)
            return problem_of_error(error)

    return answer


@answered
async def run(host: Host, req: func.HttpRequest, client: TurnClient) -> func.HttpResponse:
    """``POST /agents/{agent}/run``: run a turn, and wait for its answer unless asked not to."""
    agent = host.agent(path_part(req, "agent"))
    call = parse_run(
        req.get_body(),
        cast("Mapping[str, str]", req.headers),
        cast("Mapping[str, str]", req.params),
        max_bytes=host.settings.max_request_bytes,
    )
    request = _turn_request(agent, call)
    headers = _headers(request)
    known = await client.read(request.turn_id) if call.idempotency_key else None
    if known is not None and known.request.request_hash != request.request_hash:
        raise IdempotencyKeyReusedError(
            f"Idempotency-Key {call.idempotency_key!r} was used for another request: "
            "send the same body again, or another key"
        )
    if known is None:
        await client.start(request)
    urls = _urls(req, request)
    if not call.wait:
        return json_answer(HTTPStatus.ACCEPTED, _accepted(request) | urls, headers | {"Location": urls["turn_url"]})
    try:
        turn = await client.wait(request.turn_id, seconds=host.settings.wait_seconds)
    except TurnTimedOutError as error:
        return problem_of_error(error, headers=headers | {"Location": urls["turn_url"]}, **_identity(request), **urls)
    outcome = cast("TurnOutcome", turn.outcome)
    if outcome.error is not None:
        return problem_of_outcome(outcome.error, headers=headers, **_identity(request))
    if not call.wants_json:
        return func.HttpResponse(outcome.text, status_code=200, mimetype="text/plain", headers=headers)
    return json_answer(HTTPStatus.OK, _answer(request, outcome), headers)


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
    names = {"x-ms-session-id": session_id, "x-ms-thread-id": session_id}
    return json_answer(HTTPStatus.OK, _session_view(agent, session_id, session), names)


@answered
async def read_turn(host: Host, req: func.HttpRequest, client: TurnClient) -> func.HttpResponse:
    """``GET /agents/{agent}/sessions/{session}/turns/{turn}``: status, answer, usage."""
    agent, session_id = host.agent(path_part(req, "agent")), check_session_id(path_part(req, "session"))
    turn_id = check_session_id(path_part(req, "turn"))
    turn = await client.read(turn_id)
    if turn is None or (turn.request.agent, turn.request.session_id) != (agent, session_id):
        raise NotFoundError(f"session {session_id!r} of agent {agent!r} has no turn {turn_id!r}")
    return json_answer(HTTPStatus.OK, _turn_view(turn), _headers(turn.request))


def _turn_request(agent: str, call: RunCall) -> TurnRequest:
    session_id, turn_id = call.session_id, uuid.uuid4().hex
    if call.idempotency_key is not None:
        session_id = session_id or derived_id("session", agent, call.idempotency_key)
        turn_id = derived_id("turn", agent, session_id, call.idempotency_key)
    return TurnRequest(
        agent=agent,
        session_id=session_id or uuid.uuid4().hex,
        turn_id=turn_id,
        message=call.message,
        response_format=call.response_format,
        enable_tool_calls=call.enable_tool_calls,
        policy=call.policy,
        created_at=datetime.now(UTC).isoformat(),
        request_hash=call.request_hash,
    )


def _identity(request: TurnRequest) -> dict[str, Any]:
    return {
        "session_id": request.session_id,
        "thread_id": request.session_id,
        "turn_id": request.turn_id,
        "correlation_id": request.turn_id,
    }


def _headers(request: TurnRequest) -> dict[str, str]:
    return {
        "x-ms-session-id": request.session_id,
        "x-ms-thread-id": request.session_id,
        "x-ms-turn-id": request.turn_id,
    }


def _accepted(request: TurnRequest) -> dict[str, Any]:
    return {"status": "accepted", "message": request.message} | _identity(request)


def _answer(request: TurnRequest, outcome: TurnOutcome) -> dict[str, Any]:
    return {
        "response": outcome.text,
        "message": request.message,
        "status": "success",
        "message_count": outcome.message_count,
        "usage": outcome.usage,
    } | _identity(request)


def _turn_view(turn: Turn) -> dict[str, Any]:
    view = _identity(turn.request) | {
        "agent": turn.request.agent,
        "message": turn.request.message,
        "created_at": turn.request.created_at,
        "status": "running",
    }
    if turn.outcome is not None:
        view |= {
            "status": turn.outcome.status,
            "response": turn.outcome.text if turn.outcome.status == "completed" else None,
            "error": turn.outcome.error,
            "usage": turn.outcome.usage,
            "message_count": turn.outcome.message_count,
            "ended_at": turn.outcome.ended_at,
            "stats": encode_stats(turn.outcome.stats),
        }
    return view


def _session_view(agent: str, session_id: str, session: Session) -> dict[str, Any]:
    messages = [
        {"createdAt": entry.get("createdAt")} | message | {"turn_id": entry.get("correlationId")}
        for entry in session.entries
        for message in cast("list[dict[str, Any]]", unpack_entry(entry).get("messages") or [])
    ]
    response_ids = {entry.get("correlationId"): response_id_of(entry) for entry in session.entries}
    return {
        "agent": agent,
        "session_id": session_id,
        "thread_id": session_id,
        "message_count": len(session.entries),
        "messages": messages,
        "running_turn_id": session.running,
        "queued_turn_ids": list(session.queue),
        "turns": [
            {
                "turn_id": receipt.turn_id,
                "status": receipt.status,
                "ended_at": receipt.ended_at,
                "error": receipt.error,
                "response_id": response_ids.get(receipt.turn_id),
                "stats": encode_stats(receipt.stats) if receipt.stats else None,
            }
            for receipt in session.receipts
        ],
    }


def base_url(req: func.HttpRequest) -> str:
    """Give the URL of the app's routes, prefix included. Guarantee: pure.

    Args:
        req: any request to a route below ``/agents``.

    Returns:
        The URL without a slash at its end.
    """
    return str(req.url).partition("?")[0].partition("/agents")[0]


def _urls(req: func.HttpRequest, request: TurnRequest) -> dict[str, str]:
    session_url = f"{base_url(req)}/agents/{quote(request.agent)}/sessions/{quote(request.session_id, safe='')}"
    return {"session_url": session_url, "turn_url": f"{session_url}/turns/{request.turn_id}"}


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
