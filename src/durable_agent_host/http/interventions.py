"""Routes by which people step in: cancel a turn, approve or deny what its tools are about to do."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, cast

import azure.functions as func

from durable_agent_host.durable.client import TurnClient
from durable_agent_host.errors import NotFoundError, RequestError
from durable_agent_host.http.handlers import Answer, Host, answered, base_url, json_answer
from durable_agent_host.http.problems import problem
from durable_agent_host.http.turns import named_turn
from durable_agent_host.http.views import turn_headers, turn_identity, turn_urls, turn_view
from durable_agent_host.model.turn import Turn

SHOWN_WITHIN_SECONDS: Final = 3.0
"""How long a call may be known to a client by its event before the turn shows it as pending."""

NOTED_WITHIN_SECONDS: Final = 10.0

_FIELDS: Final = frozenset({"call_id", "approved", "reason", "arguments"})


@answered
async def cancel_turn(host: Host, req: func.HttpRequest, client: TurnClient) -> Answer:
    """``POST …/turns/{turn}/cancel``: 202 it is being cancelled, 200 it was cancelled, 409 it ended otherwise."""
    turn = await named_turn(host, req, client)
    urls = turn_urls(base_url(req), turn.request)
    headers = turn_headers(turn.request) | {"Location": urls["turn_url"]}
    if turn.outcome is None:
        await client.cancel(turn)
        return json_answer(HTTPStatus.ACCEPTED, turn_identity(turn.request) | {"status": "cancelling"} | urls, headers)
    if turn.outcome.status == "cancelled":
        return json_answer(HTTPStatus.OK, turn_view(turn) | urls, headers)
    return _conflict(turn, f"the turn is {turn.outcome.status}, so there is nothing to cancel")


@answered
async def answer_approvals(host: Host, req: func.HttpRequest, client: TurnClient) -> Answer:
    """``POST …/turns/{turn}/approvals``: answer one call that waits for a person, or several."""
    answers = parse_answers(req.get_body())
    turn = await named_turn(host, req, client)
    if turn.outcome is None and not _knows(turn, answers):
        turn = await client.wait_for_calls(turn.request.turn_id, answers.keys(), seconds=SHOWN_WITHIN_SECONDS) or turn
    pending = [call["call_id"] for call in turn.pending]
    unknown = sorted(answers.keys() - turn.answers.keys() - set(pending))
    if unknown and not pending:
        status = turn.outcome.status if turn.outcome else "running"
        return _conflict(turn, f"the turn is {status} and waits for no approval of {', '.join(unknown)}")
    if unknown:
        raise NotFoundError(
            f"the turn waits for no approval of {', '.join(unknown)}; it waits for {', '.join(pending)}"
        )
    if other := _answered_otherwise(turn, answers):
        return _conflict(turn, other)
    if new := {call_id: answer for call_id, answer in answers.items() if call_id not in turn.answers}:
        turn = await client.answer(turn, new, seconds=NOTED_WITHIN_SECONDS)
        if other := _answered_otherwise(turn, answers):
            return _conflict(turn, other)
    return _noted(req, turn, answers)


def _noted(req: func.HttpRequest, turn: Turn, answers: Mapping[str, Mapping[str, Any]]) -> func.HttpResponse:
    """Say what the turn has taken note of; an answer that is on its way is a 202."""
    is_noted = answers.keys() <= turn.answers.keys()
    if not is_noted and turn.outcome is not None:
        return _conflict(turn, f"the turn is {turn.outcome.status}: the answer came too late")
    view = turn_view(turn) | {"answers": {call_id: turn.answers.get(call_id) for call_id in answers}}
    status = HTTPStatus.OK if is_noted else HTTPStatus.ACCEPTED
    return json_answer(status, view | turn_urls(base_url(req), turn.request), turn_headers(turn.request))


def _conflict(turn: Turn, detail: str) -> func.HttpResponse:
    status = turn.outcome.status if turn.outcome else "running"
    return problem(
        HTTPStatus.CONFLICT,
        detail,
        headers=turn_headers(turn.request),
        turn_status=status,
        **turn_identity(turn.request),
    )


def _knows(turn: Turn, answers: Mapping[str, Any]) -> bool:
    return answers.keys() <= {*turn.answers, *(call["call_id"] for call in turn.pending)}


def _answered_otherwise(turn: Turn, answers: Mapping[str, Mapping[str, Any]]) -> str | None:
    for call_id, answer in answers.items():
        known = turn.answers.get(call_id)
        compared = ("approved",) if known and known.get("truncated") else ("approved", "reason", "arguments")
        if known is not None and any(known.get(name) != answer[name] for name in compared):
            was = "approved" if known.get("approved") else "denied"
            reason = f" ({known['reason']})" if known.get("reason") else ""
            return f"call {call_id} has been answered before, and otherwise: it was {was}{reason}"
    return None


def parse_answers(body: bytes) -> dict[str, dict[str, Any]]:
    """Read the body of an approval.

    Guarantee: pure.

    Args:
        body: JSON: ``{call_id, approved, reason?, arguments?}``, or a list of such objects.

    Returns:
        Answers by call id, each with ``approved``, ``reason``, ``arguments``.

    Raises:
        RequestError: it is something else, or answers a call twice; the message says what is expected.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not valid JSON: {error}") from None
    given = cast("list[Any]", value) if isinstance(value, list) else [value]
    if not given:
        raise RequestError('the body is an empty list: send {"call_id": "…", "approved": true}')
    answers: dict[str, dict[str, Any]] = {}
    for one in given:
        call_id, answer = _parse_answer(one)
        if call_id in answers:
            raise RequestError(f"call {call_id} is answered twice in one request: answer it once")
        answers[call_id] = answer
    return answers


def _parse_answer(value: Any) -> tuple[str, dict[str, Any]]:
    if not isinstance(value, dict):
        raise RequestError('an approval is an object: send {"call_id": "…", "approved": true}')
    fields = cast("dict[str, Any]", value)
    if unknown := sorted(fields.keys() - _FIELDS):
        raise RequestError(f"an approval has no {', '.join(map(repr, unknown))}: it has {', '.join(sorted(_FIELDS))}")
    call_id, approved = fields.get("call_id"), fields.get("approved")
    reason, arguments = fields.get("reason"), fields.get("arguments")
    if not isinstance(call_id, str) or not call_id:
        raise RequestError("an approval needs 'call_id': the text that the pending approval has")
    if not isinstance(approved, bool):
        raise RequestError("an approval needs 'approved': true or false")
    if reason is not None and not isinstance(reason, str):
        raise RequestError("'reason' has to be a text")
    if arguments is not None and (not isinstance(arguments, dict) or not approved):
        raise RequestError("'arguments' has to be an object, and comes with 'approved': true")
    return call_id, {"approved": approved, "reason": reason, "arguments": arguments}
