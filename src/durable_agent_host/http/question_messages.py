"""Messages that are answers to questions, as clients send them that only know ``run``."""

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from durable_agent_host.codec.entity_state import encode_owner
from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.http.parse import RunParameters
from durable_agent_host.model.principal import Principal
from durable_agent_host.model.turn import Turn
from durable_agent_host.turn.client_tools import check_fit
from durable_agent_host.turn.response_format import STEPS_AT_ONCE

RECEIPT_WAIT_SECONDS: Final = 10.0


async def answer_question(
    client: TurnClient, agent: str, parameters: RunParameters, *, max_result_bytes: int
) -> Turn | None:
    """Take a message as the answer to the one question for which a session's turn waits.

    Returns:
        The turn, which continues; None when the message begins a turn of its own.

    Raises:
        RequestError: the question needs another type.
    """
    session_id = parameters.session_id
    if session_id is None or parameters.idempotency_key is not None or parameters.policy != "queue":
        return None
    session = await client.documents.session(agent, session_id)
    running_id = session.running if session is not None else None
    turn = await client.find(agent, session_id, running_id) if running_id is not None else None
    if turn is None or [call["kind"] for call in turn.pending] != ["input"]:
        return None
    (question,) = turn.pending
    answer = {"result": _result_of(parameters.message.text, question.get("schema"))}
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


def _result_of(text: str, schema: Mapping[str, Any] | None) -> Any:
    if schema is not None and schema.get("type") != "string":
        with suppress(ValueError, RecursionError):
            return json.loads(text)
    return text
