"""An agent as an MCP tool: one call of the tool is one turn."""

import json
import logging
import time
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from math import isfinite
from typing import Any, Final

from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.errors import (
    HOST_FAILED,
    DurableAgentHostError,
    NotFoundError,
    RequestError,
    RequestTooLargeError,
    TurnError,
)
from durable_agent_host.http.gate import Authorizer, IncomingRequest, wait_for_even_time
from durable_agent_host.model.access import RequestContext
from durable_agent_host.model.ids import check_idempotency_key, check_session_id
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.turn.error_texts import format_problem
from durable_agent_host.turn.message_input import MessageInput, checked_text
from durable_agent_host.turn.turn_requests import ClientRequest, SessionTarget, hash_of, request_of_client

_LOGGER = logging.getLogger(__name__)


def _property(name: str, description: str, *, is_required: bool = False) -> dict[str, Any]:
    about = {"propertyName": name, "propertyType": "string", "description": description}
    return about | {"isRequired": is_required, "isArray": False}


TOOL_PROPERTIES: Final = (
    _property("query", "The query to send to the agent.", is_required=True),
    _property("sessionId", "Optional session identifier for conversation continuity: the one that a result names."),
    _property(
        "idempotencyKey",
        "Optional key of this call: a call that is repeated with the same key and query gets the first one's answer.",
    ),
)
"""The tool's arguments: upstream's, and the key."""


async def identify_caller(agent: str, gate: Authorizer, call: str) -> RequestContext:
    """Identify who calls an agent's tool.

    Raises:
        TurnError: see `answer_tool_call`.
    """
    with _errors_for_callers(agent):
        return await gate.identify(IncomingRequest(_headers(_value(call)), {}), "turn.run")


async def answer_tool_call(
    agent: str, call: str, client: TurnClient, *, wait_seconds: float, max_query_bytes: int
) -> str:
    """Run a turn for an MCP tool call.

    Returns:
        A result of the MCP trigger with ``useResultSchema``: the answer's text, then a text with the session's id, and
        both as structured content.

    Raises:
        TurnError: the call is refused, or the turn has no answer; says why, for the caller: the trigger shows callers
            the text of any exception. When the host has failed, its log says why.

    Source: upstream's tool properties, agent-framework-azurefunctions 1.0.0b260922.
    """
    started_at = time.monotonic()
    with _errors_for_callers(agent):
        arguments = object_at(_value(call), "arguments")
        query = _query(arguments, max_query_bytes)
        try:
            return await _run_turn(agent, query, arguments, client, wait_seconds=wait_seconds)
        except NotFoundError:
            if client.context.access.is_restricted:
                await wait_for_even_time(started_at)
            raise


@contextmanager
def _errors_for_callers(agent: str) -> Generator[None]:
    try:
        yield
    except DurableAgentHostError as error:
        raise TurnError(format_problem(error)) from None
    except Exception as error:
        _LOGGER.exception("the MCP tool %s failed", agent)
        raise TurnError(HOST_FAILED) from error


async def _run_turn(
    agent: str, query: str, arguments: Mapping[str, Any], client: TurnClient, *, wait_seconds: float
) -> str:
    session_argument = next((_text(arguments, name) for name in ("sessionId", "threadId") if arguments.get(name)), None)
    session_id = check_session_id(_key(session_argument)) if session_argument else None
    key = check_idempotency_key(_text(arguments, "idempotencyKey") or None, "idempotencyKey")
    claims = client.claims
    location = SessionTarget("", None) if session_id is None else await claims.resolve_session(agent, session_id)
    request = request_of_client(
        agent,
        ClientRequest(MessageInput(query), hash_of(query), location.session_id or None, key),
        client.context,
        secret=await client.claims.id_secret() if key else "",
        new_id=lambda: uuid.uuid4().hex,
        created_at=datetime.now(UTC).isoformat(),
    )
    request = location.claim(request)
    completed_turn = await (client.start_once(request, key) if key else client.start(request))
    turn = completed_turn or await client.wait_or_queue(request, seconds=wait_seconds)
    await client.claims.reject_foreign_turn(request, turn.outcome)
    is_queued = turn.request.turn_id != request.turn_id
    if is_queued or turn.outcome is None:
        reason = "is queued behind a turn that waits" if is_queued else "waits"
        result = "call again with the same idempotencyKey"
        if not key:
            result = f"GET /api/agents/{agent}/sessions/{request.session_id}/turns/{request.turn_id} for the result"
        raise TurnError(
            f"the turn {reason} for a person's answer: GET /api/pending shows where to give it; then {result}"
        )
    if turn.outcome.error is not None:
        raise TurnError(str(turn.outcome.error.get("message")))
    return _result(turn.outcome.plain_text, request)


def _query(arguments: Mapping[str, Any], max_bytes: int) -> str:
    query: Any = arguments.get("query")
    if not isinstance(query, str) or not query.strip():
        raise RequestError("the tool call has no 'query': give the text that the agent is to answer")
    if len(query) > max_bytes or len(checked_text(query).encode()) > max_bytes:
        raise RequestTooLargeError(f"the query is over {max_bytes} bytes: send less")
    return query


def _text(arguments: Mapping[str, Any], name: str) -> str:
    """Read an argument that is a text, or a number; empty when it is missing."""
    value: Any = arguments.get(name) or ""
    is_number = (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, float) and isfinite(value)
    )
    if not isinstance(value, str) and not is_number:
        raise RequestError(f"{name!r} of the tool call is {json.dumps(value)[:100]}: give a text")
    return str(value)


def _result(text: str, request: TurnRequest) -> str:
    session_text = f"(sessionId of this conversation: {request.session_id})"
    content = [{"type": "text", "text": text}, {"type": "text", "text": session_text}]
    structured_content = {"response": text, "sessionId": request.session_id, "turnId": request.turn_id}
    # the trigger's result has JSON texts in its fields
    return json.dumps(
        {
            "type": "multi_content_result",
            "content": json.dumps(content),
            "structuredContent": json.dumps(structured_content),
        }
    )


def _value(call: str) -> dict[str, Any]:
    try:
        return object_at(json.loads(call))
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the tool call is not JSON: {error}") from None


def _headers(value: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers of the request that brought the call; only the HTTP transports of MCP have any."""
    headers = object_at(value, "transport", "properties", "headers")
    return {name.lower(): str(text) for name, text in headers.items()}


def _key(session_id: str) -> str:
    """Extract the key from upstream's form ``@name@key``."""
    return session_id.split("@", 2)[2] if session_id.startswith("@") and session_id.count("@") > 1 else session_id
