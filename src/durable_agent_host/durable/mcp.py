"""An agent as an MCP tool: one call of the tool is one turn."""

import hashlib
import json
import uuid
from typing import Any, cast

from durable_agent_host.durable.client import TurnClient
from durable_agent_host.durable.outcomes import utc_now
from durable_agent_host.errors import RequestError, TurnError
from durable_agent_host.model.ids import check_session_id, derived_id
from durable_agent_host.model.turn import TurnRequest


async def answer_tool_call(agent: str, call: str, client: TurnClient, *, wait_seconds: float) -> str:
    """Run a turn for an MCP tool call.

    Args:
        agent: the agent's registered name.
        call: the trigger's value: JSON with ``arguments`` {``query``, ``sessionId``?, ``threadId``?,
            ``idempotencyKey``?}; calls with the same key and query are one turn.
        client: starts the turn and waits for it.
        wait_seconds: how long at the most.

    Returns:
        The answer's text.

    Raises:
        RequestError: the call has no query, or a session id that cannot be used.
        TurnError: the turn has no answer; says why.
        TurnTimedOutError: the turn is still running; it goes on.
        IdempotencyKeyReusedError: the key came before with another query.

    Source: upstream's tool properties, agent-framework-azurefunctions 1.0.0b260922.
    """
    arguments = _arguments(call)
    query = arguments.get("query")
    if not isinstance(query, str) or not query.strip():
        raise RequestError("the tool call has no 'query': give the text that the agent is to answer")
    given = next((arguments[name] for name in ("sessionId", "threadId") if arguments.get(name)), None)
    session_id, key = check_session_id(_key(str(given))) if given else "", str(arguments.get("idempotencyKey") or "")
    if key:
        session_id = session_id or derived_id("session", agent, key)
    session_id = session_id or uuid.uuid4().hex
    request = TurnRequest(
        agent=agent,
        session_id=session_id,
        turn_id=derived_id("turn", agent, session_id, key) if key else uuid.uuid4().hex,
        message=query,
        created_at=utc_now(),
        request_hash=hashlib.sha256(query.encode("utf-8", "surrogatepass")).hexdigest(),
    )
    ended = await (client.start_once(request, key) if key else client.start(request))
    turn = ended or await client.wait(request.turn_id, seconds=wait_seconds, or_people=True)
    if turn.outcome is None:
        called = ", ".join(str(call["name"]) for call in turn.pending)
        raise TurnError(
            f"turn {request.turn_id} of session {session_id} waits for a person to approve {called}: "
            "answer over HTTP, then call again with the same idempotencyKey"
        )
    if turn.outcome.error is not None:
        raise TurnError(str(turn.outcome.error.get("message")))
    return turn.outcome.text


def _arguments(call: str) -> dict[str, Any]:
    try:
        value = json.loads(call)
    except ValueError as error:
        raise RequestError(f"the tool call is not JSON: {error}") from None
    arguments: Any = cast("dict[str, Any]", value).get("arguments") if isinstance(value, dict) else None
    return cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {}


def _key(session_id: str) -> str:
    """Take the key out of upstream's form ``@name@key``."""
    return session_id.split("@", 2)[2] if session_id.startswith("@") and session_id.count("@") > 1 else session_id
