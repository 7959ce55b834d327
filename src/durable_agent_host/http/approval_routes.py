"""The route by which people approve or deny a turn's pending tool calls."""

from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from azurefunctions.extensions.http.fastapi import Response

from durable_agent_host.codec.entity_state import decode_owner, encode_owner
from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.errors import ForbiddenError, NotFoundError
from durable_agent_host.http.parse import parse_approvals
from durable_agent_host.http.request_handling import HandlerContext, RouteRequest
from durable_agent_host.http.response_views import approval_view, json_response, turn_headers, turn_urls
from durable_agent_host.http.turn_routes import named_turn, turn_conflict, view_for_caller
from durable_agent_host.model.principal import ANOTHER, Owner, Principal
from durable_agent_host.model.turn import Turn

PENDING_VISIBLE_SECONDS: Final = 3.0
"""A client may know a call from its event this long before the turn shows it as pending."""

RECEIPT_WAIT_SECONDS: Final = 10.0


async def submit_approvals(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``POST …/turns/{turn}/approvals``: answer one or more calls that wait for a person."""
    approvals = parse_approvals(call.body)
    turn = await named_turn(host, call, client)
    if turn.outcome is None and not _are_calls_known(turn, approvals):
        turn = (
            await client.wait_for_calls(turn.request.turn_id, approvals.keys(), seconds=PENDING_VISIBLE_SECONDS) or turn
        )
    pending = [call["call_id"] for call in turn.pending]
    unknown_ids = sorted(approvals.keys() - turn.approvals.keys() - set(pending))
    if unknown_ids and not pending:
        status = turn.outcome.status if turn.outcome else "running"
        return turn_conflict(turn, f"the turn is {status} and waits for no approval of {', '.join(unknown_ids)}")
    if unknown_ids:
        raise NotFoundError(
            f"the turn waits for no approval of {', '.join(unknown_ids)}; it waits for {', '.join(pending)}"
        )
    if conflict := _find_conflict(turn, approvals):
        return turn_conflict(turn, conflict)
    for pending_call in turn.pending:
        if pending_call["call_id"] in approvals:
            _check_approver(pending_call, turn, client.context.principal)
    if (principal := client.context.principal) is not None:
        decided_by = {"by": encode_owner(principal.owner), "at": datetime.now(UTC).isoformat()}
        approvals = {call_id: approval | decided_by for call_id, approval in approvals.items()}
    await client.check_log()  # without the log the turn could not continue, and its work so far would be lost
    if new_approvals := {call_id: approval for call_id, approval in approvals.items() if call_id not in turn.approvals}:
        turn = await client.submit_approvals(turn, new_approvals, seconds=RECEIPT_WAIT_SECONDS)
        if conflict := _find_conflict(turn, approvals):
            return turn_conflict(turn, conflict)
    return _approvals_response(call, turn, approvals, await view_for_caller(client, turn))


def _check_approver(pending: Mapping[str, Any], turn: Turn, principal: Principal | None) -> None:
    """Refuse an answer from someone who may not give it."""
    required_approver = pending.get("approved_by")
    if required_approver is None:
        return
    if principal is None:
        raise ForbiddenError(
            f"call {pending['call_id']} needs the approval of {required_approver!r}, and the app does not identify its "
            "callers: "
            "it needs identify"
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


def _approvals_response(
    call: RouteRequest, turn: Turn, approvals: Mapping[str, Mapping[str, Any]], view: Mapping[str, Any]
) -> Response:
    """Report which answers the turn has received; 202 while one is on its way."""
    is_received = approvals.keys() <= turn.approvals.keys()
    if not is_received and turn.outcome is not None:
        return turn_conflict(turn, f"the turn is {turn.outcome.status}: the answer came too late")
    received_views = {
        call_id: approval_view(turn.approvals[call_id]) if call_id in turn.approvals else None for call_id in approvals
    }
    status = HTTPStatus.OK if is_received else HTTPStatus.ACCEPTED
    return json_response(
        status, {**view, "answers": received_views} | turn_urls(call.base_url, turn.request), turn_headers(turn.request)
    )


def _are_calls_known(turn: Turn, approvals: Mapping[str, Any]) -> bool:
    return approvals.keys() <= {*turn.approvals, *(call["call_id"] for call in turn.pending)}


def _find_conflict(turn: Turn, approvals: Mapping[str, Mapping[str, Any]]) -> str | None:
    for call_id, approval in approvals.items():
        earlier = turn.approvals.get(call_id)
        is_offloaded = earlier is not None and (earlier.get("truncated") or earlier.get("stored"))
        compared_fields = ("approved",) if is_offloaded else ("approved", "reason", "arguments")
        if earlier is not None and any(earlier.get(name) != approval[name] for name in compared_fields):
            decision = "approved" if earlier.get("approved") else "denied"
            reason = f" ({earlier['reason']})" if earlier.get("reason") else ""
            return f"call {call_id} already has a different answer: it was {decision}{reason}"
    return None
