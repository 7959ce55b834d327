"""The route by which people approve or deny a turn's pending tool calls."""

from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

import azure.functions as func

from durable_agent_host.codec.entity_state import decode_owner, encode_owner
from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.errors import ForbiddenError, NotFoundError
from durable_agent_host.http.parse import parse_answers
from durable_agent_host.http.request_handling import Answer, Call, Host
from durable_agent_host.http.response_views import approval_view, json_answer, turn_headers, turn_urls
from durable_agent_host.http.turn_routes import named_turn, turn_conflict, view_for_caller
from durable_agent_host.model.principal import ANOTHER, Owner, Principal
from durable_agent_host.model.turn import Turn

SHOWN_WITHIN_SECONDS: Final = 3.0
"""A client may know a call from its event this long before the turn shows it as pending."""

NOTED_WITHIN_SECONDS: Final = 10.0


async def answer_approvals(host: Host, call: Call, client: TurnClient) -> Answer:
    """``POST …/turns/{turn}/approvals``: answer one or more calls that wait for a person."""
    answers = parse_answers(call.body)
    turn = await named_turn(host, call, client)
    if turn.outcome is None and not _knows(turn, answers):
        turn = await client.wait_for_calls(turn.request.turn_id, answers.keys(), seconds=SHOWN_WITHIN_SECONDS) or turn
    pending = [call["call_id"] for call in turn.pending]
    unknown = sorted(answers.keys() - turn.answers.keys() - set(pending))
    if unknown and not pending:
        status = turn.outcome.status if turn.outcome else "running"
        return turn_conflict(turn, f"the turn is {status} and waits for no approval of {', '.join(unknown)}")
    if unknown:
        raise NotFoundError(
            f"the turn waits for no approval of {', '.join(unknown)}; it waits for {', '.join(pending)}"
        )
    if other := _answered_otherwise(turn, answers):
        return turn_conflict(turn, other)
    for pending_call in turn.pending:
        if pending_call["call_id"] in answers:
            _check_approver(pending_call, turn, call.caller.principal)
    if (principal := call.caller.principal) is not None:
        said_by = {"by": encode_owner(principal.owner), "at": datetime.now(UTC).isoformat()}
        answers = {call_id: answer | said_by for call_id, answer in answers.items()}
    await client.check_log()  # without the log the turn could not continue, and its work so far would be lost
    if new := {call_id: answer for call_id, answer in answers.items() if call_id not in turn.answers}:
        turn = await client.answer(turn, new, seconds=NOTED_WITHIN_SECONDS)
        if other := _answered_otherwise(turn, answers):
            return turn_conflict(turn, other)
    return _noted(call, turn, answers, await view_for_caller(host, call, client, turn))


def _check_approver(pending: Mapping[str, Any], turn: Turn, principal: Principal | None) -> None:
    """Refuse an answer from someone who may not give it.

    Raises:
        ForbiddenError: calls of this tool need somebody else's answer.
    """
    demanded = pending.get("approved_by")
    if demanded is None:
        return
    if principal is None:
        raise ForbiddenError(
            f"call {pending['call_id']} needs the answer of {demanded!r}, and the app does not identify its callers: "
            "it needs identify"
        )
    request = turn.request
    changer = decode_owner(pending.get("changed_by"))
    if changer is not None and principal.owner == changer:
        raise ForbiddenError(
            f"call {pending['call_id']} must be answered by a principal other than the one who changed its arguments"
        )
    if demanded == ANOTHER:
        asker = Owner(request.principal, request.tenant or "") if request.principal else None
        if changer is None and (asker is None or principal.owner == asker):
            raise ForbiddenError(
                f"call {pending['call_id']} must be answered by a principal other than the one who requested the turn"
            )
    elif not principal.is_one_of(str(demanded)):
        raise ForbiddenError(f"call {pending['call_id']} must be answered by a principal with {demanded!r}")


def _noted(
    call: Call, turn: Turn, answers: Mapping[str, Mapping[str, Any]], view: Mapping[str, Any]
) -> func.HttpResponse:
    """Report which answers the turn has received; 202 while one is on its way."""
    is_noted = answers.keys() <= turn.answers.keys()
    if not is_noted and turn.outcome is not None:
        return turn_conflict(turn, f"the turn is {turn.outcome.status}: the answer came too late")
    noted = {call_id: approval_view(turn.answers[call_id]) if call_id in turn.answers else None for call_id in answers}
    status = HTTPStatus.OK if is_noted else HTTPStatus.ACCEPTED
    return json_answer(
        status, {**view, "answers": noted} | turn_urls(call.base_url, turn.request), turn_headers(turn.request)
    )


def _knows(turn: Turn, answers: Mapping[str, Any]) -> bool:
    return answers.keys() <= {*turn.answers, *(call["call_id"] for call in turn.pending)}


def _answered_otherwise(turn: Turn, answers: Mapping[str, Mapping[str, Any]]) -> str | None:
    for call_id, answer in answers.items():
        known = turn.answers.get(call_id)
        is_elsewhere = known is not None and (known.get("truncated") or known.get("stored"))
        compared = ("approved",) if is_elsewhere else ("approved", "reason", "arguments")
        if known is not None and any(known.get(name) != answer[name] for name in compared):
            was = "approved" if known.get("approved") else "denied"
            reason = f" ({known['reason']})" if known.get("reason") else ""
            return f"call {call_id} already has a different answer: it was {was}{reason}"
    return None
