"""Routes of turns: run one, also as the answer to a question of the session's turn, read, follow, cancel one."""

import asyncio
import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from azurefunctions.extensions.http.fastapi import Response

from durable_agent_host.codec.entity_state import encode_owner
from durable_agent_host.durable.turn_client import ADMISSION_SECONDS, TurnClient
from durable_agent_host.errors import NotFoundError, RequestError, TurnTimedOutError
from durable_agent_host.http.event_stream import EventStream, check_readable, first_sign, follow_turn, has_all_events
from durable_agent_host.http.file_routes import keep_sent_files, with_sent_files
from durable_agent_host.http.parse import parse_hidden_events, parse_limit, parse_position, parse_resume
from durable_agent_host.http.problem_details import problem, problem_of_error, problem_of_outcome
from durable_agent_host.http.request_handling import HandlerContext, RouteRequest, named_session, read_log
from durable_agent_host.http.response_types import (
    AcceptedTurnWire,
    CancelledTurnWire,
    CancellingTurnWire,
    QueuedTurnWire,
    ResumingTurnWire,
    TurnWire,
    WaitingTurnWire,
)
from durable_agent_host.http.response_views import (
    accepted_view,
    figures_of,
    json_response,
    large_json_response,
    response_view,
    turn_headers,
    turn_identity,
    turn_names,
    turn_urls,
    turn_view,
    waiting_view,
)
from durable_agent_host.model.access import RequestContext
from durable_agent_host.model.ending import visible_turn_status
from durable_agent_host.model.ids import check_session_id
from durable_agent_host.model.log_entry import LogRecord
from durable_agent_host.model.principal import Principal
from durable_agent_host.model.turn import Turn, TurnOutcome, TurnRequest
from durable_agent_host.segments.turn_data_storage import redact_in_thread
from durable_agent_host.turn.client_tools import check_fit
from durable_agent_host.turn.model_call_reader import CallReader, ModelCallListWire
from durable_agent_host.turn.request_options import check_options
from durable_agent_host.turn.response_format import STEPS_AT_ONCE
from durable_agent_host.turn.step_reader import StepReader, turn_summary
from durable_agent_host.turn.step_types import StepPageWire
from durable_agent_host.turn.turn_events import ProblemTurnWire, turn_queued
from durable_agent_host.turn.turn_redactor import Redactor
from durable_agent_host.turn.turn_requests import ClientRequest, SessionTarget, request_of_client

_PARSED_AT_ONCE: Final = 16 * 1024
"""Bodies longer than this many bytes are parsed off the event loop: a schema of some kilobytes takes a second."""

_STEPS: Final = 200


async def run(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``POST /agents/{agent}/run``: run a turn, and wait for its answer unless asked not to, or stream it."""
    agent = host.agent(call.path_part("agent"))
    if len(call.body) > _PARSED_AT_ONCE:
        await asyncio.to_thread(lambda: call.run)
    parameters = call.run
    if parameters.wants_events:
        parse_hidden_events(call.query)  # before the turn begins
    # A session that the host names cannot be somebody else's.
    session_id = parameters.request.session_id
    if not session_id or not client.context.access.is_restricted:
        return await _run_in(host, call, client, SessionTarget(session_id or "", None))
    location = await client.claims.resolve_session(agent, session_id)
    try:
        return await _run_in(host, call, client, location)
    except NotFoundError:  # somebody else began a session of this name in between
        if (other := await client.claims.resolve_session(agent, session_id)) == location:
            raise
        return await _run_in(host, call, client, other)


async def _run_in(host: HandlerContext, call: RouteRequest, client: TurnClient, location: SessionTarget) -> Response:
    """Run a turn in a session."""
    agent = host.agent(call.path_part("agent"))
    sent_request = replace(call.run.request, session_id=location.session_id or None)
    max_bytes = host.settings.max_tool_result_bytes
    if host.agents[agent].may_ask and (
        turn := await answer_question(client, agent, sent_request, max_result_bytes=max_bytes)
    ):
        redacted_request = await client.storage.redact_request(turn.request)
        return await _respond(host, call, client, redacted_request, own_turn_id=turn.request.turn_id, turn=None)
    key = sent_request.key
    sent_request = replace(
        sent_request,
        message=with_sent_files(sent_request.message, call.run.files),
        options=check_options(sent_request.options, host.options[agent].allowed_options),
    )
    request = location.claim(
        _turn_request(host, agent, sent_request, client.context, await client.claims.id_secret() if key else "")
    )
    if call.run.files:
        await keep_sent_files(client, request, call.run.files)
    redacted_request = await client.storage.redact_request(request)
    completed_turn = await (client.start_once(request, key) if key else client.start(request))
    own_turn_id = request.turn_id
    if request.policy == "steer" and host.agents[agent].hosted.has_journal:
        turn_id = await _steered_turn_id(host, client, request, completed_turn)
        redacted_request = replace(redacted_request, turn_id=turn_id)
    return await _respond(host, call, client, redacted_request, own_turn_id=own_turn_id, turn=completed_turn)


async def _respond(
    host: HandlerContext,
    call: RouteRequest,
    client: TurnClient,
    request: TurnRequest,
    *,
    own_turn_id: str,
    turn: Turn | None,
) -> Response:
    """Answer with a turn, as the client asks; one whose message came too late for the running turn has its own."""
    if not call.run.wait:
        admission_outcome = turn.outcome if turn else await _admission(host, client, request)
        if admission_outcome and admission_outcome.status == "rejected":
            return _failed_run(call, request, admission_outcome)
        view = accepted_view(call.base_url, request)
        if own_turn_id != request.turn_id:
            view["queued_turn_id"] = own_turn_id
        return _accepted_response(request, view)
    if call.run.wants_events:
        return await _streamed_run(host, call, client, request, turn)
    try:
        turn = turn or await client.wait_or_queue(request, seconds=host.settings.wait_seconds)
        if turn.outcome is not None and request.turn_id != own_turn_id:
            turn = await client.wait(own_turn_id, seconds=host.settings.wait_seconds, or_people=True)
            request = replace(request, turn_id=(turn.outcome and turn.outcome.joined_turn_id) or own_turn_id)
    except TurnTimedOutError as error:
        names = turn_names(call.base_url, request)
        headers = turn_headers(request) | {"Location": names["turn_url"]}
        return problem_of_error(error, headers=headers, turn_status="running", **names)
    await client.claims.reject_foreign_turn(request, turn.outcome)
    if (outcome := turn.outcome) is None:
        return _accepted_response(request, await _unfinished_view(call, client, request, turn))
    if outcome.error is not None:
        return _failed_run(call, request, outcome)
    return _answer(call, request, outcome)


def _failed_run(call: RouteRequest, request: TurnRequest, outcome: TurnOutcome) -> Response:
    """Explain why a turn has no answer."""
    names: ProblemTurnWire = {
        **turn_names(call.base_url, request),
        "turn_status": visible_turn_status(outcome.status, outcome.finish_reason),
        **figures_of(outcome),
    }
    if outcome.status == "cancelled":
        names["response"] = outcome.text
    return problem_of_outcome(outcome.error or {}, headers=turn_headers(request), **names)


async def _steered_turn_id(
    host: HandlerContext, client: TurnClient, request: TurnRequest, completed_turn: Turn | None
) -> str:
    """Return the id of the running turn that gets the message of a request, or else of the request's own turn."""
    outcome = completed_turn.outcome if completed_turn else await _admission(host, client, request)
    if outcome is None:
        return await client.find_steered_turn(request)
    return outcome.joined_turn_id or request.turn_id


def _accepted_response(
    request: TurnRequest,
    view: AcceptedTurnWire
    | WaitingTurnWire
    | QueuedTurnWire
    | CancellingTurnWire
    | CancelledTurnWire
    | ResumingTurnWire,
    status: HTTPStatus = HTTPStatus.ACCEPTED,
) -> Response:
    """Answer with the state of a turn, and where to follow it."""
    return json_response(status, view, turn_headers(request) | {"Location": view["turn_url"]})


async def _unfinished_view(
    call: RouteRequest, client: TurnClient, request: TurnRequest, running: Turn
) -> WaitingTurnWire | QueuedTurnWire:
    """Return that a turn waits, or stands behind the turn that does."""
    if running.request.turn_id == request.turn_id:
        return waiting_view(call.base_url, running)
    data = turn_queued(request, running, may_read=await client.can_read(running.request))
    return {**turn_names(call.base_url, request), **data, "message": request.message}


def _answer(call: RouteRequest, request: TurnRequest, outcome: TurnOutcome) -> Response:
    headers = turn_headers(request)
    if call.run.wants_json:
        return json_response(HTTPStatus.OK, response_view(request, outcome, call.base_url), headers)
    text = outcome.plain_text.encode(errors="replace")  # a model may cut a text inside a character
    return Response(text, headers=headers, media_type="text/plain")


async def read_turn(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``GET /agents/{agent}/sessions/{session}/turns/{turn}``: status, answer, usage."""
    turn = await named_turn(host, call, client)
    return json_response(HTTPStatus.OK, turn_view(turn, call.base_url), turn_headers(turn.request))


async def read_steps(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``GET …/turns/{turn}/steps``: attempts, model calls, tool calls, waits, retries; ``limit`` from ``cursor``."""
    limit = parse_limit(call.query, default=_STEPS)
    first = parse_position(call.query) or 0
    turn = await named_turn(host, call, client)
    request = turn.request
    reader = StepReader(turn, host.feature_views)
    redactor = client.storage.find_redactor(request.agent)
    async for records in read_log(host, request):
        visible_records = (
            records
            if redactor is None
            else await redact_in_thread(redactor, partial(_redact_records, records, redactor))
        )
        for record in visible_records:
            await asyncio.sleep(0)
            reader.add(record)
    steps = reader.steps()
    following = str(first + limit) if first + limit < len(steps) else None
    page_steps = steps[first : first + limit]
    view: StepPageWire = {**turn_summary(turn), "steps": page_steps, "cursor": following}
    return await large_json_response(len(page_steps), lambda: view, turn_headers(request))


async def list_calls(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``GET …/turns/{turn}/calls``: the model calls of a turn without the texts of their bodies."""
    turn, calls = await _read_calls(host, call, client)
    return json_response(HTTPStatus.OK, ModelCallListWire(calls=calls.calls()), turn_headers(turn.request))


async def read_call(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``GET …/turns/{turn}/calls/{call}``: one call with both bodies, as far as they are kept."""
    turn, calls = await _read_calls(host, call, client)
    name = call.path_part("call")
    if (view := calls.find(name)) is None:
        raise NotFoundError(f"turn {turn.request.turn_id!r} has no model call {name[:40]!r}, or it was not kept")
    return json_response(HTTPStatus.OK, view, turn_headers(turn.request))


async def _read_calls(host: HandlerContext, call: RouteRequest, client: TurnClient) -> tuple[Turn, CallReader]:
    turn = await named_turn(host, call, client)
    calls = CallReader(has_ended=turn.outcome is not None)
    async for records in read_log(host, turn.request):
        calls.read(records)
    return turn, calls


def _redact_records(records: Sequence[LogRecord], redactor: Redactor) -> list[LogRecord]:
    return [replace(record, entry=replace(record.entry, data=redactor.value(record.entry.data))) for record in records]


async def read_events(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``GET /agents/{agent}/sessions/{session}/turns/{turn}/events``: its past and future events."""
    last = parse_resume(call.headers.get("last-event-id"), call.query.get("after"))
    turn = await named_turn(host, call, client)
    await client.check_log()
    await check_readable(host.open_log(), turn.request, _first_offset(last))
    return await _stream(host, call, client, turn.request, last_event_id=last, turn=turn)


async def cancel_turn(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``POST …/turns/{turn}/cancel``: 202 it is being cancelled, 200 it was cancelled, 409 it ended otherwise."""
    turn = await named_turn(host, call, client)
    if turn.outcome is None:
        await client.cancel(turn)
        cancelling: CancellingTurnWire = {**turn_names(call.base_url, turn.request), "status": "cancelling"}
        return _accepted_response(turn.request, cancelling)
    if turn.outcome.status == "cancelled":
        urls = turn_urls(call.base_url, turn.request)
        cancelled: CancelledTurnWire = {**await view_for_caller(call, client, turn), **urls}
        return _accepted_response(turn.request, cancelled, HTTPStatus.OK)
    return turn_conflict(turn, f"the turn is {turn.outcome.status}, so there is nothing to cancel")


async def resume_turn(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``POST …/turns/{turn}/resume``: 202 a failed turn goes on from its journal, 409 it cannot, 410 that is gone."""
    turn = await named_turn(host, call, client)
    if turn.outcome is None:
        return turn_conflict(turn, "the turn has not ended, so there is nothing to resume")
    if (obstacle := await client.find_resume_obstacle(turn)) is not None:
        return turn_conflict(turn, obstacle)
    await client.resume(turn)
    return _accepted_response(turn.request, {**turn_names(call.base_url, turn.request), "status": "resuming"})


async def view_for_caller(call: RouteRequest, client: TurnClient, turn: Turn) -> TurnWire:
    """Return a turn's state for a caller who has changed it: without what was said if the caller may not read it."""
    request = turn.request
    if await client.can_read(request):
        return turn_view(turn, call.base_url)
    return {**turn_identity(request), "agent": request.agent, "status": turn_view(turn, call.base_url)["status"]}


def turn_conflict(turn: Turn, detail: str, http_status: HTTPStatus = HTTPStatus.CONFLICT) -> Response:
    """Answer that a request does not fit a turn's status."""
    outcome = turn.outcome
    status = visible_turn_status(outcome.status, outcome.finish_reason) if outcome else "running"
    return problem(
        http_status,
        detail,
        headers=turn_headers(turn.request),
        turn_status=status,
        **turn_identity(turn.request),
    )


async def named_turn(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Turn:
    """Read the turn named by the path.

    Raises:
        NotFoundError: there is no such agent, or the session has no such turn.
    """
    agent, session_id = named_session(host, call)
    turn_id = check_session_id(call.path_part("turn"))
    turn = await client.find(agent, session_id, turn_id)
    if turn is None:
        raise NotFoundError(f"session {session_id!r} of agent {agent!r} has no turn {turn_id!r}")
    return turn


async def _admission(host: HandlerContext, client: TurnClient, request: TurnRequest) -> TurnOutcome | None:
    """Wait until a turn is admitted or refused; where sessions have owners, until it is known to be the caller's."""
    seconds = host.settings.wait_seconds if client.context.access.is_restricted else ADMISSION_SECONDS
    outcome = await client.admission(request, seconds=seconds)
    await client.claims.reject_foreign_turn(request, outcome)
    return outcome


async def _streamed_run(
    host: HandlerContext, call: RouteRequest, client: TurnClient, request: TurnRequest, completed_turn: Turn | None
) -> Response:
    """Stream a turn; what is refused before it runs gets a status and no stream."""
    if completed_turn is None:
        if client.context.access.is_restricted:
            await _admission(host, client, request)
        outcome = await first_sign(host.open_log(), client, request)
    else:
        outcome = completed_turn.outcome
    if outcome and outcome.error and (completed_turn is None or outcome.status == "rejected"):
        return _failed_run(call, request, outcome)
    return await _stream(host, call, client, request, last_event_id=call.run.last_event_id, turn=completed_turn)


async def _stream(
    host: HandlerContext,
    call: RouteRequest,
    client: TurnClient,
    request: TurnRequest,
    *,
    last_event_id: int | None,
    turn: Turn | None,
) -> Response:
    """Stream a turn's events; 204 for a client that has them all, which an ``EventSource`` takes as the end."""
    log = host.open_log()
    outcome = turn.outcome if turn else None
    if outcome and last_event_id is not None and await has_all_events(log, request, outcome, last_event_id):
        return Response(status_code=HTTPStatus.NO_CONTENT, headers=turn_headers(request))
    events = follow_turn(
        log,
        client,
        request,
        _first_offset(last_event_id),
        base_url=call.base_url,
        has_ended=outcome is not None,
        hidden_events=parse_hidden_events(call.query),
    )
    return EventStream(events, turn_headers(request))


def _first_offset(last_event_id: int | None) -> int:
    return 0 if last_event_id is None else last_event_id + 1


def _turn_request(
    host: HandlerContext, agent: str, request: ClientRequest, context: RequestContext, secret: str
) -> TurnRequest:
    if request.client_tools and not host.allows_client_tools:
        raise RequestError("this app takes no tools from clients: leave client_tools out")
    host.agents[agent].hosted.check_client_tools(request.client_tools)
    return request_of_client(
        agent,
        request,
        context,
        secret=secret,
        new_id=lambda: uuid.uuid4().hex,
        created_at=datetime.now(UTC).isoformat(),
    )


RECEIPT_WAIT_SECONDS: Final = 10.0


async def answer_question(
    client: TurnClient, agent: str, request: ClientRequest, *, max_result_bytes: int
) -> Turn | None:
    """Take a message as the answer to the one question for which a session's turn waits.

    Returns:
        The turn, which continues; None when the message begins a turn of its own.

    Raises:
        RequestError: the question needs another type.
    """
    session_id = request.session_id
    if session_id is None or request.key is not None or request.policy != "queue":
        return None
    session = await client.documents.session(agent, session_id)
    running_id = session.running if session is not None else None
    turn = await client.find(agent, session_id, running_id) if running_id is not None else None
    if turn is None or [call["kind"] for call in turn.pending] != ["input"]:
        return None
    (question,) = turn.pending
    answer = {"result": read_result(request.message.text, question.get("schema"))}
    check_fit(answer["result"], question.get("schema"), max_bytes=max_result_bytes, max_steps=STEPS_AT_ONCE)
    replies = await client.with_digests(turn.request.turn_id, {str(question["call_id"]): answer})
    await client.check_log()
    signed_replies = sign_replies(client.context.principal, replies)
    return await client.submit_replies(turn, signed_replies, seconds=RECEIPT_WAIT_SECONDS)


def sign_replies(
    principal: Principal | None, replies: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Mapping[str, Any]]:
    """Add to answers who gives them, and when; nothing where nobody is identified."""
    if principal is None:
        return replies
    signature = {"by": encode_owner(principal.owner), "at": datetime.now(UTC).isoformat()}
    return {call_id: {**reply, **signature} for call_id, reply in replies.items()}


def read_result(text: str, schema: Mapping[str, Any] | None) -> Any:
    """Read an answer to a question: JSON, unless the schema is that of a text."""
    if schema is not None and schema.get("type") != "string":
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    return text
