"""Requests of turns: the only place that builds them, for every caller."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, cast

from durable_agent_host.codec.entity_state import encode_owner
from durable_agent_host.codec.strict_json import SURROGATE
from durable_agent_host.errors import RequestError
from durable_agent_host.model.access import RequestContext
from durable_agent_host.model.ids import check_session_id, derived_id
from durable_agent_host.model.principal import Owner
from durable_agent_host.model.turn import Policy, TurnRequest
from durable_agent_host.turn.message_input import MessageInput, read_message
from durable_agent_host.turn.turn_wire import decode_turn_request


class SessionTarget(NamedTuple):
    """Where a request finds or begins a session.

    Attributes:
        session_id: the id of the session, without the agent's name.
        owner: its owner or future owner; None where nobody is identified.
    """

    session_id: str
    owner: Owner | None

    def claim(self, request: TurnRequest) -> TurnRequest:
        """Put the required owner of its session into a request, before anything of it is stored."""
        if self.owner is None or self.owner == request.session_owner:
            return request
        return replace(request, owner=encode_owner(self.owner))


_TRACEPARENT_CHARACTERS: Final = 55
"""Length of a ``traceparent`` of version 00."""
_TRACEPARENT: Final = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")


def hash_of(request: Any) -> str:
    """Hash a client's request, to distinguish a retry from another request.

    Returns:
        A SHA-256 in hexadecimal digits.
    """
    if isinstance(request, str):
        return hashlib.sha256(request.encode("utf-8", "surrogatepass")).hexdigest()
    return hashlib.sha256(json.dumps(request, sort_keys=True, default=str).encode()).hexdigest()


def valid_traceparent(value: Any) -> str | None:
    """Return a ``traceparent`` that names a trace.

    Returns:
        Version, ids and flags, or None when they are malformed; then the turn starts a trace of its own. What a later
        version appends is left out: anybody may write anything there.

    Source: W3C Trace Context, sections 3.2.2 and 4.
    """
    match = _TRACEPARENT.fullmatch(value) if isinstance(value, str) else None
    return None if match is None or (match[1] == "00" and match[2]) else match[0][:_TRACEPARENT_CHARACTERS]


@dataclass(frozen=True)
class ClientRequest:
    """What a client asks of an agent: over HTTP, MCP or any other dialect.

    Attributes:
        message: the user's.
        request_hash: SHA-256 of the request's content; equal for a retry.
        session_id: None to begin a new session.
        key: the client's idempotency key, or None.
        response_format: a JSON schema, or None.
        enable_tool_calls: False offers the model no tools.
        options: for the agent, checked.
        policy: what to do when the session is busy.
        client_tools: tools that the client runs, checked.
    """

    message: MessageInput
    request_hash: str
    session_id: str | None
    key: str | None
    response_format: Mapping[str, Any] | None = None
    enable_tool_calls: bool = True
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    policy: Policy = "queue"
    client_tools: tuple[Mapping[str, Any], ...] = ()


def id_of_key(*parts: str, context: RequestContext, secret: str) -> str:
    """Derive the id of a session or a turn from a client's key, which is the last of the parts."""
    principal = context.principal
    return derived_id(*parts, *((principal.tenant, principal.id) if principal is not None else ()), secret)


def request_of_client(
    agent: str,
    request: ClientRequest,
    context: RequestContext,
    *,
    secret: str,
    new_id: Callable[[], str],
    created_at: str,
) -> TurnRequest:
    """Build the request of a client; ids that are derived from its key contain the secret."""
    session_id = request.session_id
    if session_id is None:
        session_id = (
            id_of_key("session", agent, request.key, context=context, secret=secret) if request.key else new_id()
        )
    return TurnRequest(
        agent=agent,
        session_id=session_id,
        turn_id=(
            id_of_key("turn", agent, session_id, request.key, context=context, secret=secret)
            if request.key
            else new_id()
        ),
        message=request.message.text,
        contents=request.message.contents,
        response_format=request.response_format,
        enable_tool_calls=request.enable_tool_calls,
        options=request.options,
        client_tools=request.client_tools,
        policy=request.policy,
        created_at=created_at,
        request_hash=request.request_hash,
        principal=context.principal_id,
        tenant=context.tenant,
        traceparent=context.traceparent,
    )


def request_of_run(
    agent: str, session_id: str, payload: Any, *, now: str, schema_of: Callable[[Any], dict[str, Any] | None]
) -> TurnRequest:
    """Build the request of upstream's ``run`` operation.

    Returns:
        The request; the correlation id is the turn's id.

    Raises:
        RequestError: the message is missing, or the message or response format is not usable.
    """
    fields = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {"message": payload}
    message: Any = fields.get("message")
    if not isinstance(message, str | list) or not message:
        raise RequestError("the operation 'run' needs an object with a 'message'")
    message_input = MessageInput(message) if isinstance(message, str) else read_message(message)
    created_at = str(fields.get("created_at") or now)
    hashed_values: list[Any] = [
        message,
        *(fields.get(name) for name in ("role", "response_format", "enable_tool_calls", "options")),
    ]
    return TurnRequest(
        agent=agent,
        session_id=session_id,
        turn_id=str(
            fields.get("correlationId") or derived_id(agent, session_id, created_at, _message_as_text(message))
        ),
        message=message_input.text,
        contents=message_input.contents,
        role=str(fields.get("role") or "user"),
        response_format=schema_of(fields.get("response_format")),
        enable_tool_calls=fields.get("enable_tool_calls", True) is not False,
        created_at=created_at,
        request_hash=hash_of(hashed_values),
        options=fields.get("options") or {},
        orchestration_id=fields.get("orchestrationId"),
        principal=_text(fields, "principal"),
        tenant=_text(fields, "tenant"),
        traceparent=valid_traceparent(fields.get("traceparent")),
    )


def request_of_call(agent: str, call_id: str, message: Any, *, created_at: str) -> TurnRequest:
    """Build the request of an agent in an activity of your own orchestration.

    Returns:
        The request, in a session known only to its journal.

    Raises:
        RequestError: a part is invalid.
    """
    message_input = read_message(message) if isinstance(message, list) else MessageInput(message)
    return TurnRequest(
        agent=agent,
        session_id=derived_id("call", call_id),
        turn_id=call_id,
        message=message_input.text,
        contents=message_input.contents,
        created_at=created_at,
    )


def read_turn_request(wire: Any, *, instance_id: str, created_at: str) -> TurnRequest:
    """Decode the input of a turn's orchestration, and fill in what its caller left out.

    Raises:
        RequestError: something is missing, or of another type.
    """
    if not isinstance(wire, Mapping):
        raise RequestError("the input is not an object: give an object with 'agent' and 'message'")
    fields = _with_contents(cast("Mapping[str, Any]", wire))
    for name in ("agent", "message"):
        if not fields.get(name) and not (name == "message" and (fields.get("contents") or fields.get("stored"))):
            raise RequestError(f"the input has no {name!r}: give an object with 'agent' and 'message'")
    for name, value in fields.items():
        if isinstance(value, str) and SURROGATE.search(value):
            raise RequestError(f"{name!r} has half of a surrogate pair, which is no character: send whole characters")
    if fields.get("role", "user") != "user":
        raise RequestError(f"'role' is {fields['role']!r}: a turn begins with a message of role 'user'")
    if fields.get("turn_id", instance_id) != instance_id:
        raise RequestError(
            f"'turn_id' is {fields['turn_id']!r}, and the orchestration has the instance id {instance_id!r}: "
            "start it with the turn's id as its instance id, or leave turn_id out"
        )
    fields["session_id"] = fields.get("session_id") or derived_id("session", instance_id)
    fields["traceparent"] = valid_traceparent(fields.get("traceparent"))
    defaults = {"turn_id": instance_id, "created_at": created_at}
    request = decode_turn_request(defaults | fields)
    check_session_id(request.session_id)
    hashed_values = [request.message, request.role, request.response_format, request.enable_tool_calls, request.options]
    hashed_values += [list(request.contents)] if request.contents else []
    return request if request.request_hash else replace(request, request_hash=hash_of(hashed_values))


def _with_contents(wire: Mapping[str, Any]) -> dict[str, Any]:
    """Read a message of several parts, if it is one; omit None values."""
    fields = {name: value for name, value in wire.items() if value is not None}
    if not isinstance(fields.get("message"), list):
        return fields
    message_input = read_message(fields["message"])
    return fields | {"message": message_input.text, "contents": list(message_input.contents)}


def _message_as_text(message: Any) -> str:
    """Write a message as part of an id: a text is itself."""
    return message if isinstance(message, str) else json.dumps(message, sort_keys=True, default=str)


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise RequestError(f"{name!r} is {type(value).__name__}: give a text")
    return value or None
