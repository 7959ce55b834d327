"""Routes of turns: run one, read one, follow one."""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import cast

import azure.functions as func

from durable_agent_host.durable.client import TurnClient
from durable_agent_host.errors import NotFoundError, TurnTimedOutError
from durable_agent_host.http.events import EventStream, early_outcome, follow_turn
from durable_agent_host.http.handlers import Answer, Host, answered, base_url, json_answer, path_part
from durable_agent_host.http.parse import RunCall, parse_run
from durable_agent_host.http.problems import problem_of_error, problem_of_outcome
from durable_agent_host.http.sse import parse_resume
from durable_agent_host.http.views import (
    accepted_view,
    answer_view,
    turn_headers,
    turn_identity,
    turn_urls,
    turn_view,
    waiting_view,
)
from durable_agent_host.model.ids import check_session_id, derived_id
from durable_agent_host.model.turn import Turn, TurnRequest


@answered
async def run(host: Host, req: func.HttpRequest, client: TurnClient) -> Answer:
    """``POST /agents/{agent}/run``: run a turn, and wait for its answer unless asked not to, or stream it."""
    agent = host.agent(path_part(req, "agent"))
    call = parse_run(
        req.get_body(),
        cast("Mapping[str, str]", req.headers),
        cast("Mapping[str, str]", req.params),
        max_bytes=host.settings.max_request_bytes,
    )
    request = _turn_request(agent, call)
    headers = turn_headers(request)
    key = call.idempotency_key
    ended = await (client.start_once(request, key) if key else client.start(request))
    urls = turn_urls(base_url(req), request)
    if not call.wait:
        return json_answer(HTTPStatus.ACCEPTED, accepted_view(request) | urls, headers | {"Location": urls["turn_url"]})
    if call.wants_events:
        return await _streamed_run(host, client, request, call, ended)
    try:
        turn = ended or await client.wait(request.turn_id, seconds=host.settings.wait_seconds, or_people=True)
    except TurnTimedOutError as error:
        return problem_of_error(
            error, headers=headers | {"Location": urls["turn_url"]}, **turn_identity(request), **urls
        )
    if (outcome := turn.outcome) is None:
        return json_answer(HTTPStatus.ACCEPTED, waiting_view(turn) | urls, headers | {"Location": urls["turn_url"]})
    if outcome.error is not None:
        return problem_of_outcome(
            outcome.error, headers=headers, **turn_identity(request), turn_status=outcome.status, **urls
        )
    if not call.wants_json:
        said = outcome.text.encode(errors="replace")  # a model can cut a text within a character
        return func.HttpResponse(said, status_code=200, mimetype="text/plain", headers=headers)
    return json_answer(HTTPStatus.OK, answer_view(request, outcome), headers)


@answered
async def read_turn(host: Host, req: func.HttpRequest, client: TurnClient) -> Answer:
    """``GET /agents/{agent}/sessions/{session}/turns/{turn}``: status, answer, usage."""
    turn = await named_turn(host, req, client)
    return json_answer(HTTPStatus.OK, turn_view(turn), turn_headers(turn.request))


@answered
async def read_events(host: Host, req: func.HttpRequest, client: TurnClient) -> Answer:
    """``GET /agents/{agent}/sessions/{session}/turns/{turn}/events``: what a turn has told and will tell."""
    headers = cast("Mapping[str, str]", req.headers)
    last = parse_resume(headers.get("last-event-id"), cast("Mapping[str, str]", req.params).get("after"))
    turn = await named_turn(host, req, client)
    return _stream(host, client, turn.request, last, has_ended=turn.outcome is not None)


async def named_turn(host: Host, req: func.HttpRequest, client: TurnClient) -> Turn:
    """Read the turn that a request names by its path.

    Args:
        host: knows the agents.
        req: to a route below ``…/turns/{turn}``.
        client: reads the turn.

    Returns:
        The turn.

    Raises:
        NotFoundError: there is no such agent, or the session has no such turn.
    """
    agent, session_id = host.agent(path_part(req, "agent")), check_session_id(path_part(req, "session"))
    turn_id = check_session_id(path_part(req, "turn"))
    turn = await client.find(agent, session_id, turn_id)
    if turn is None:
        raise NotFoundError(f"session {session_id!r} of agent {agent!r} has no turn {turn_id!r}")
    return turn


async def _streamed_run(
    host: Host, client: TurnClient, request: TurnRequest, call: RunCall, ended: Turn | None
) -> Answer:
    """Stream a turn that was asked for; what is refused before it runs has its status, and no stream."""
    if ended is None:
        outcome = await early_outcome(host.open_log(), client, request)
    else:
        outcome = ended.outcome if ended.outcome and ended.outcome.status == "rejected" else None
    if outcome is not None and outcome.error is not None:
        return problem_of_outcome(outcome.error, headers=turn_headers(request), **turn_identity(request))
    return _stream(host, client, request, call.last_event_id, has_ended=ended is not None)


def _stream(
    host: Host, client: TurnClient, request: TurnRequest, last_event_id: int | None, *, has_ended: bool = False
) -> EventStream:
    first = 0 if last_event_id is None else last_event_id + 1
    heartbeat = host.settings.stream_heartbeat_seconds
    log = host.open_log()
    events = follow_turn(log, client, request, first, heartbeat_seconds=heartbeat, has_ended=has_ended)
    return EventStream(events, turn_headers(request))


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
