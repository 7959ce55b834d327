"""The routes of pending calls: list those that the caller may answer, and answer them."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from operator import itemgetter
from typing import Any, Final, cast

from azurefunctions.extensions.http.fastapi import Response

from durable_agent_host.codec.entity_state import decode_owner, encode_owner
from durable_agent_host.durable.turn_client import PROGRESS_SECONDS, TurnClient, WorkflowQuestion
from durable_agent_host.errors import ForbiddenError, NotFoundError, RequestError
from durable_agent_host.http.parse import parse_callback, parse_replies
from durable_agent_host.http.problem_details import problem
from durable_agent_host.http.request_handling import HandlerContext, RouteRequest, read_log
from durable_agent_host.http.response_types import (
    AnsweredRunWire,
    AnsweredTurnWire,
    CallbackWire,
    CallReplyWire,
    PendingPageWire,
    PendingRunCallWire,
    PendingTurnCallWire,
    ShownCallWire,
    TurnStateWire,
)
from durable_agent_host.http.response_views import (
    answer_view,
    json_response,
    turn_headers,
    turn_identity,
    turn_urls,
)
from durable_agent_host.http.turn_routes import (
    RECEIPT_WAIT_SECONDS,
    named_turn,
    sign_replies,
    turn_conflict,
    view_for_caller,
)
from durable_agent_host.http.workflow_routes import INSTANCE_ID, can_be_named, find_run
from durable_agent_host.model.call_path import parse_call_path
from durable_agent_host.model.log_entry import EVENT
from durable_agent_host.model.pending_call import DECISIONS, is_answer_to
from durable_agent_host.model.principal import ANOTHER, Owner, Principal
from durable_agent_host.model.turn import Turn
from durable_agent_host.turn.client_tools import LIMITED_FIELDS, check_fit
from durable_agent_host.turn.response_format import STEPS_AT_ONCE
from durable_agent_host.turn.turn_events import CALL_PENDING, CALL_REPLIED


async def submit_replies(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``POST …/turns/{turn}/answers``: answer one or more pending calls."""
    replies = parse_replies(call.body)
    turn = await named_turn(host, call, client)
    if turn.outcome is None and not _are_calls_known(turn, replies):
        turn = await client.wait_for_calls(turn.request.turn_id, replies.keys()) or turn
    principal = client.context.principal
    visible_ids = turn.replies.keys()
    calls, turn = await _find_calls(host, client, turn, replies, principal)
    new_ids = replies.keys() - turn.replies.keys()
    status = turn.outcome.status if turn.outcome else "running"
    detail = f"the turn is {status} and waits for no answer to {', '.join(sorted(new_ids))}"
    if unknown_ids := sorted(new_ids - calls.keys()):
        if turn.pending:
            waiting_ids = ", ".join(call["call_id"] for call in turn.pending)
            detail = f"the turn waits for no answer to {', '.join(unknown_ids)}; it waits for {waiting_ids}"
        raise NotFoundError(detail)
    for pending in calls.values():
        _check_approver(pending, turn, principal)
    if new_ids and not turn.pending:
        return turn_conflict(turn, detail)
    replies = await client.with_digests(turn.request.turn_id, replies)
    if (conflict := _find_conflict(turn, replies)) is not None:
        return turn_conflict(turn, *conflict)
    for call_id in new_ids:
        check_form(calls[call_id], replies[call_id], host, turn.request.agent)
    await client.check_log()  # without the log the turn could not continue, and its work so far would be lost
    signed_replies = sign_replies(principal, replies)
    new_replies = {call_id: answer for call_id, answer in signed_replies.items() if call_id not in visible_ids}
    if new_replies and turn.outcome is None:
        turn = await client.submit_replies(turn, new_replies, seconds=RECEIPT_WAIT_SECONDS if new_ids else 0)
        if turn.outcome is not None:  # it shows the newest answers alone
            _, turn = await _find_calls(host, client, turn, replies, principal)
    return _replies_response(call, turn, replies, await view_for_caller(call, client, turn))


async def submit_callback(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``POST /callbacks/{token}``: answer the one call that the token is for; tells nothing else about the turn.

    A job may be done before its call waits: the token says that the call exists, and what it sends is recorded.
    """
    token = await client.parse_token(call.path_part("token"))
    if token is None:
        raise NotFoundError("there is no such callback")
    call_id = token.call_id
    answer = parse_callback(call.body, call_id)
    turn = await client.read(token.turn_id)
    if turn is None or token.log_id != turn.request.log_id:
        return problem(HTTPStatus.GONE, "the turn has ended, and its record is gone: the result came too late")
    replies = await client.with_digests(token.turn_id, {call_id: answer})
    has_reply = call_id in turn.replies
    calls, turn = await _find_calls(host, client, turn, replies, None)
    is_known = call_id in turn.replies
    if not is_known:
        if turn.outcome is not None or token.expires_at <= datetime.now(UTC):
            return _reject_result(token.expires_at)
        pending = calls.get(call_id, {"call_id": call_id, "kind": "callback"})
        if "progress" in answer:
            if _is_progress_due(pending):
                await client.show_progress(turn, call_id, answer["progress"])
            return json_response(HTTPStatus.ACCEPTED, CallbackWire(call_id=call_id, status="waiting"), {})
        check_form(pending, answer, host)
        await client.check_log()
    if turn.outcome is None and not has_reply and "progress" not in answer:
        is_pending = any(pending["call_id"] == call_id for pending in turn.pending)
        reply = {call_id: replies[call_id] | {"at": datetime.now(UTC).isoformat()}}
        turn = await client.submit_replies(turn, reply, seconds=RECEIPT_WAIT_SECONDS if is_pending else 0)
        is_known = is_known or (is_pending and call_id in turn.replies)
    if (conflict := _find_conflict(turn, replies)) is not None:
        return problem(conflict[1], conflict[0])
    view = CallbackWire(call_id=call_id, status="answered" if is_known else "accepted")
    return json_response(HTTPStatus.OK if is_known else HTTPStatus.ACCEPTED, view, {})


async def _find_calls(
    host: HandlerContext,
    client: TurnClient,
    turn: Turn,
    replies: Mapping[str, Mapping[str, Any]],
    principal: Principal | None,
) -> tuple[dict[str, Mapping[str, Any]], Turn]:
    """Find the calls that replies are for, except those that the caller has answered before.

    The turn shows some of the calls that wait, and the newest answers: the others are read from its log and its inbox.

    Returns:
        The calls, and the turn with the answers that these calls have.
    """
    calls: dict[str, Mapping[str, Any]] = {c["call_id"]: c for c in turn.pending if c["call_id"] in replies}
    caller = None if principal is None else encode_owner(principal.owner)
    other_ids = {
        name
        for name in replies.keys() - calls.keys()
        if name not in turn.replies or turn.replies[name].get("by") != caller
    }
    if not other_ids:
        return calls, turn
    earlier_replies = await client.recorded_replies(turn)
    is_open = turn.outcome is None  # otherwise the log has the calls whose answers were used
    found_replies = {name: earlier_replies[name] for name in other_ids & earlier_replies.keys() if is_open}
    has_log = False
    async for records in read_log(host, turn.request):
        has_log = has_log or bool(records)
        for event in (record.entry.data for record in records if record.entry.kind == EVENT):
            call_id = event["data"].get("call_id")
            if event["event"] == CALL_PENDING and call_id in other_ids:
                calls[call_id] = event["data"]
            elif event["event"] == CALL_REPLIED and call_id in other_ids:
                is_expired = event["data"]["outcome"] == "expired"
                expiry_reply: Mapping[str, Any] = {"expired": True}
                found_replies[call_id] = expiry_reply if is_expired else earlier_replies.get(call_id) or event["data"]
    if turn.outcome is not None and not has_log:
        calls |= {call_id: {} for call_id in other_ids}
    return calls, replace(turn, replies={**found_replies, **turn.replies})


def _reject_result(expires_at: datetime) -> Response:
    """Refuse a result that comes too late."""
    if expires_at <= datetime.now(UTC):
        return problem(HTTPStatus.GONE, f"the call has expired at {expires_at.isoformat()}")
    return problem(HTTPStatus.CONFLICT, "the turn has ended: the result came too late")


def _is_progress_due(pending: Mapping[str, Any]) -> bool:
    """Return whether progress may be shown again."""
    progress: Mapping[str, Any] | None = pending.get("progress")
    return progress is None or datetime.now(UTC) - datetime.fromisoformat(progress["at"]) > timedelta(
        seconds=PROGRESS_SECONDS
    )


async def answer_run(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``POST /workflow/{workflow}/respond/{run}``: answer questions for which a run of a workflow waits."""
    replies = parse_replies(call.body)
    workflow_name = call.path_part("workflow").casefold()
    workflow = next((name for name in host.workflows if name.casefold() == workflow_name), None)
    run_id = call.path_part("run")
    questions: list[WorkflowQuestion] = []
    if workflow is not None and can_be_named({INSTANCE_ID: run_id}, INSTANCE_ID):
        run_id = await find_run(client, workflow, run_id, "workflow.respond")
        questions = await client.workflow_runs.list_questions(workflow, run_id)
    questions_by_id = {question.call["call_id"]: question for question in questions}
    if unknown_ids := sorted(replies.keys() - questions_by_id.keys()):
        raise NotFoundError(f"no run that you may answer waits for an answer to {', '.join(map(repr, unknown_ids))}")
    for call_id, reply in replies.items():
        if questions_by_id[call_id].reply_digest is None:
            check_form(questions_by_id[call_id].call, reply, host)
        if "result" not in reply:
            raise RequestError(f"call {call_id} is a question of a workflow, which takes no 'error': send a 'result'")
    results = {call_id: reply["result"] for call_id, reply in replies.items()}
    if other_ids := await client.workflow_runs.answer(str(workflow), run_id, results):
        return problem(HTTPStatus.CONFLICT, f"{', '.join(other_ids)} has another answer already")
    reply_views = [cast("CallReplyWire", {"call_id": call_id, **reply}) for call_id, reply in replies.items()]
    return json_response(HTTPStatus.OK, AnsweredRunWire(workflow=str(workflow), run_id=run_id, answers=reply_views), {})


async def _questions_of_run(
    call: RouteRequest, client: TurnClient, workflow: str, run_id: str
) -> list[PendingRunCallWire]:
    """List the questions of a workflow's run if the caller may answer them."""
    if await find_run(client, workflow, run_id, "workflow.respond") != run_id:
        return []
    may_read = await find_run(client, workflow, run_id, "workflow.read") == run_id
    answer_url = f"{call.base_url}/workflow/{workflow}/respond/{run_id}"
    return [
        {
            "workflow": workflow,
            "run_id": run_id,
            "answer_url": answer_url,
            **_public_fields(question.call, may_read=may_read),
        }
        for question in await client.workflow_runs.list_questions(workflow, run_id)
        if question.reply_digest is None
    ]


async def list_pending(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``GET /pending``: the pending calls that the caller may answer, over all agents, sessions and workflows."""
    turns, runs, following = await client.list_waiting(call.query.get("cursor", ""), host.workflows)
    pending_calls: list[PendingTurnCallWire | PendingRunCallWire] = [
        {
            "agent": turn.request.agent,
            **turn_identity(turn.request),
            "turn_url": turn_url,
            "answer_url": f"{turn_url}/answers",
            **_public_fields(pending_call, may_read=may_read),
        }
        for turn in turns
        if turn.request.agent in host.descriptions
        for may_read in ["pending_calls" in await view_for_caller(call, client, turn)]
        for turn_url in [turn_urls(call.base_url, turn.request)["turn_url"]]
        for pending_call in turn.pending
        if _may_answer(pending_call, turn, client.context.principal)
    ]
    for workflow, run_id in runs:
        pending_calls += await _questions_of_run(call, client, workflow, run_id)
    pending_calls.sort(key=itemgetter("created_at"))
    view = PendingPageWire(pending_calls=pending_calls, cursor=following or None)
    return json_response(HTTPStatus.OK, view, {})


_PUBLIC_FIELDS: Final = ("call_id", "kind", "created_at", "expires_at")
"""What of a pending call is shown to a caller who may answer it and may not read its turn."""


def _public_fields(pending: Mapping[str, Any], *, may_read: bool) -> ShownCallWire:
    return cast("ShownCallWire", pending if may_read else {name: pending[name] for name in _PUBLIC_FIELDS})


def _may_answer(pending: Mapping[str, Any], turn: Turn, principal: Principal | None) -> bool:
    try:
        _check_approver(pending, turn, principal)
    except ForbiddenError:
        return False
    return True


def check_form(pending: Mapping[str, Any], answer: Mapping[str, Any], host: HandlerContext, agent: str = "") -> None:
    """Refuse an answer of another form than the call needs, or a result or arguments that it does not accept."""
    kind = str(pending["kind"])
    if not is_answer_to(kind, answer):
        decision = "'approved': true or false, and no 'arguments' except for an 'approval'"
        form = decision if kind in DECISIONS else "a 'result' or an 'error'"
        raise RequestError(f"call {pending['call_id']} is of the kind {kind!r}: its answer has {form}")
    schemas: dict[str, Mapping[str, Any] | None] = {"result": pending.get("schema")}
    if answer.get("arguments") is not None and not parse_call_path(pending["path"]).is_nested:
        schemas["arguments"] = host.agents[agent].hosted.find_parameters(pending["name"])
    for field in answer.keys() & LIMITED_FIELDS:
        max_bytes = host.settings.max_tool_result_bytes
        check_fit(answer[field], schemas.get(field), max_bytes=max_bytes, max_steps=STEPS_AT_ONCE, field=field)


def _check_approver(pending: Mapping[str, Any], turn: Turn, principal: Principal | None) -> None:
    """Refuse an answer from someone who may not give it."""
    required_approver = pending.get("approved_by")
    if required_approver is None:
        return
    if principal is None:
        raise ForbiddenError(
            f"call {pending['call_id']} needs the approval of {required_approver!r}, and the caller is not known: "
            "the app has to identify its callers, and a client in the app to name a principal"
        )
    request = turn.request
    changer = decode_owner(pending.get("changed_by"))
    if changer is not None and principal.owner == changer:
        raise ForbiddenError(
            f"call {pending['call_id']} must be answered by a principal other than the one who changed its arguments"
        )
    if required_approver == ANOTHER:
        requester = Owner(request.principal, request.tenant or "") if request.principal else None
        if changer is None and (requester is None or principal.owner == requester):
            raise ForbiddenError(
                f"call {pending['call_id']} must be answered by a principal other than the one who requested the turn"
            )
    elif not principal.is_one_of(str(required_approver)):
        raise ForbiddenError(f"call {pending['call_id']} must be answered by a principal with {required_approver!r}")


def _replies_response(
    call: RouteRequest, turn: Turn, replies: Mapping[str, Mapping[str, Any]], view: TurnStateWire
) -> Response:
    """Report which answers the turn has received; 202 while one is on its way."""
    if (conflict := _find_conflict(turn, replies)) is not None:
        return turn_conflict(turn, *conflict)
    is_received = replies.keys() <= turn.replies.keys()
    if not is_received and turn.outcome is not None:
        return turn_conflict(turn, f"the turn is {turn.outcome.status}: the answer came too late")
    reply_views = [answer_view(name, turn.replies[name]) for name in replies if name in turn.replies]
    status = HTTPStatus.OK if is_received else HTTPStatus.ACCEPTED
    body: AnsweredTurnWire = {**view, "answers": reply_views, **turn_urls(call.base_url, turn.request)}
    return json_response(status, body, turn_headers(turn.request))


def _are_calls_known(turn: Turn, replies: Mapping[str, Any]) -> bool:
    return replies.keys() <= {*turn.replies, *(call["call_id"] for call in turn.pending)}


def _find_conflict(turn: Turn, replies: Mapping[str, Mapping[str, Any]]) -> tuple[str, HTTPStatus] | None:
    """Find an answer to a call that has another, or none because it came too late; the same answer is accepted."""
    for call_id, answer in replies.items():
        earlier = turn.replies.get(call_id)
        if earlier is None or _is_same_answer(earlier, answer):
            continue
        if earlier.get("expired"):
            return f"call {call_id} has expired: its turn continues without your answer", HTTPStatus.GONE
        changed_id = next((c["call_id"] for c in turn.pending if c["call_id"].startswith(f"{call_id}:")), None)
        hint = f", and waits with other arguments as {changed_id}" if changed_id else ""
        return f"call {call_id} already has a different answer: {_describe(earlier)}{hint}", HTTPStatus.CONFLICT
    return None


def _is_same_answer(earlier: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
    if "digest" in earlier:
        return earlier["digest"] == answer["digest"]
    # from an event of an orchestration
    return all(earlier.get(name) == answer.get(name) for name in ("approved", "reason", "arguments", "result", "error"))


def _describe(answer: Mapping[str, Any]) -> str:
    if "approved" not in answer:
        return "an error" if "error" in answer else "a result"
    decision = "approved" if answer["approved"] else "denied"
    return f"it was {decision}" + (f" ({answer['reason']})" if answer.get("reason") else "")
