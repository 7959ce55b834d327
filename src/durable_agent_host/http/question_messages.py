"""Answers to questions: their check, and messages that are answers, as clients send them that only know ``run``."""

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from durable_agent_host.codec.entity_state import encode_owner
from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.errors import InvalidAnswerError, RequestError
from durable_agent_host.http.parse import RunParameters
from durable_agent_host.model.turn import Turn
from durable_agent_host.turn.response_format import STEPS_AT_ONCE, TooMuchToCheckError, validate_response

_RECEIPT_WAIT_SECONDS: Final = 10.0


def check_result(pending: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
    """Refuse a result that does not fit the schema of its call, unless the check would take long: who asks checks, too.

    Raises:
        RequestError: it does not fit; says where.
    """
    schema = pending.get("schema")
    if schema is None or "result" not in answer:
        return
    response_format = {"type": "json_schema", "json_schema": {"schema": schema}}
    try:
        with suppress(TooMuchToCheckError):
            validate_response(json.dumps(answer["result"]), response_format, max_steps=STEPS_AT_ONCE)
    except (InvalidAnswerError, RequestError) as error:
        reason = str(error).partition(": ")[2]  # the errors of a response format begin with its name
        raise RequestError(f"the result of call {pending['call_id']} does not fit its schema: {reason}") from None


async def answer_question(client: TurnClient, agent: str, parameters: RunParameters) -> Turn | None:
    """Take a message as the answer to the one question for which a session's turn waits.

    Returns:
        The turn, which continues; None when the message begins a turn of its own.

    Raises:
        RequestError: the question needs another type.
    """
    session_id, message = parameters.session_id, parameters.message.text
    if session_id is None or parameters.idempotency_key is not None or parameters.policy != "queue":
        return None
    session = await client.documents.session(agent, session_id)
    running_id = session.running if session is not None else None
    turn = await client.find(agent, session_id, running_id) if running_id is not None else None
    if turn is None or [call["kind"] for call in turn.pending] != ["input"]:
        return None
    (question,) = turn.pending
    answer = {"result": message if _takes_text(question) else _parse(message)}
    check_result(question, answer)
    replies = await client.with_digests(turn.request.turn_id, {str(question["call_id"]): answer})
    if (principal := client.context.principal) is not None:
        replied_by = {"by": encode_owner(principal.owner), "at": datetime.now(UTC).isoformat()}
        replies = {call_id: reply | replied_by for call_id, reply in replies.items()}
    await client.check_log()
    return await client.submit_replies(turn, replies, seconds=_RECEIPT_WAIT_SECONDS)


def _takes_text(question: Mapping[str, Any]) -> bool:
    schema = question.get("schema")
    return schema is None or schema.get("type") == "string"


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
