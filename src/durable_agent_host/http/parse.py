"""Requests to values. Pure."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from durable_agent_host.codec.answer import check_response_format
from durable_agent_host.errors import RequestError, RequestTooLargeError
from durable_agent_host.http.sse import accepts_events, parse_resume
from durable_agent_host.model.ids import check_session_id
from durable_agent_host.model.turn import Policy

_TRUE: Final = frozenset({"true", "1", "yes", "y", "on"})
_FALSE: Final = frozenset({"false", "0", "no", "n", "off"})
_MAX_KEY_CHARACTERS: Final = 255


@dataclass(frozen=True)
class RunCall:
    """A call of ``run`` that makes sense.

    Attributes:
        message: the user's text, not blank.
        session_id: the client's, or None to begin a new session.
        response_format: a JSON schema, or None.
        enable_tool_calls: False offers no tools.
        wait: whether the client waits for the answer.
        policy: what to do when the session is busy.
        wants_json: whether the answer is JSON, or the bare text.
        wants_events: whether the answer is a stream of events.
        last_event_id: the last event of the turn that the client has, or None to begin with the first.
        idempotency_key: the client's, or None.
        request_hash: SHA-256 of what is asked; equal for a retry.
    """

    message: str
    session_id: str | None
    response_format: dict[str, Any] | None
    enable_tool_calls: bool
    wait: bool
    policy: Policy
    wants_json: bool
    wants_events: bool
    last_event_id: int | None
    idempotency_key: str | None
    request_hash: str


def parse_run(body: bytes, headers: Mapping[str, str], params: Mapping[str, str], *, max_bytes: int) -> RunCall:
    """Read a call of ``POST /agents/{agent}/run``.

    Guarantee: pure.

    Args:
        body: as it came: text, or JSON when the content type says so.
        headers: of the request, names in any case.
        params: of the query.
        max_bytes: largest body.

    Returns:
        The call.

    Raises:
        RequestError: it cannot be carried out; the message names the rule that it breaks.
        RequestTooLargeError: the body is over the limit.
    """
    if len(body) > max_bytes:
        raise RequestTooLargeError(
            f"the body has {len(body)} bytes, and {max_bytes} are allowed: "
            "send less, or raise DURABLE_AGENT_HOST_MAX_REQUEST_BYTES"
        )
    lowered = {name.lower(): value for name, value in headers.items()}
    content_type = lowered.get("content-type", "").partition(";")[0].strip().lower()
    is_json = content_type == "application/json" or content_type.endswith("+json")
    fields = _json_object(body) if is_json else {"message": _text(body).strip()}
    _check_role(fields)
    asked = {
        "message": _message(fields),
        "session_id": _session_id(fields, params),
        "response_format": _response_format(fields),
        "enable_tool_calls": _flag(fields.get("enable_tool_calls"), "enable_tool_calls", default=True),
        "policy": _policy(fields),
    }
    key = _idempotency_key(lowered.get("idempotency-key"))
    wait = lowered.get("x-ms-wait-for-response") or params.get("wait_for_response") or fields.get("wait_for_response")
    return RunCall(
        **cast("dict[str, Any]", asked),
        wait=_flag(wait, "wait_for_response", default=True),
        wants_json=is_json or _accepts_json(lowered.get("accept", "")),
        wants_events=accepts_events(lowered.get("accept", "")),
        last_event_id=_last_event_id(lowered, key),
        idempotency_key=key,
        request_hash=hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest(),
    )


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        raise RequestError("the body is not UTF-8 text: send it as UTF-8") from None


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(_text(body))
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise RequestError('the body is JSON, but not an object: send {"message": "…"}')
    return cast("dict[str, Any]", value)


def _message(fields: Mapping[str, Any]) -> str:
    message = fields.get("message")
    if message is None or message == "":
        raise RequestError('Message is required: send text, or JSON like {"message": "Hello"}')
    if not isinstance(message, str):
        raise RequestError(f"'message' is {_json_name(message)}: it has to be a text")
    if not message.strip():
        raise RequestError("'message' is blank: write what the agent is to answer")
    if any("\ud800" <= character <= "\udfff" for character in message):
        raise RequestError("'message' has half of a surrogate pair, which is no character: send whole characters")
    return message


def _session_id(fields: Mapping[str, Any], params: Mapping[str, str]) -> str | None:
    given: dict[str, str] = {}
    for place, source in (("body", fields), ("query", params)):
        for name in ("session_id", "thread_id"):
            value = source.get(name)
            if value is None or (isinstance(value, str) and not value.strip()):
                continue
            if not isinstance(value, str):
                raise RequestError(f"'{name}' is {_json_name(value)}: it has to be a text")
            given[f"{name} in the {place}"] = value
    if len(set(given.values())) > 1:
        named = ", ".join(f"{name} = {value!r}" for name, value in sorted(given.items()))
        raise RequestError(f"Conflicting session identifiers supplied: {named}: send one")
    return check_session_id(next(iter(given.values()))) if given else None


def _check_role(fields: Mapping[str, Any]) -> None:
    role = fields.get("role")
    if role is not None and role != "user":
        raise RequestError(f"'role' is {role!r}: a turn begins with a message of role 'user'")


def _response_format(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    value = fields.get("response_format")
    if value is None:
        return None
    if not isinstance(value, dict) or not value:
        raise RequestError(f"'response_format' is {_json_name(value)}: give a JSON schema as an object")
    schema = cast("dict[str, Any]", value)
    if "__response_schema_type__" in schema:
        raise RequestError("'response_format' names a Python class: give its JSON schema instead")
    check_response_format(schema)
    return schema


def _policy(fields: Mapping[str, Any]) -> Policy:
    match fields.get("policy", "queue"):
        case "queue" | "reject" | "interrupt" as policy:
            return policy
        case other:
            raise RequestError(f"'policy' is {other!r}: use 'queue' (the default), 'reject' or 'interrupt'")


def _flag(value: Any, name: str, *, default: bool) -> bool:
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and (lowered := value.strip().lower()) in _TRUE | _FALSE:
        return lowered in _TRUE
    raise RequestError(f"'{name}' is {value!r}: use true or false")


def _accepts_json(accept: str) -> bool:
    return any(part.partition(";")[0].strip().lower() == "application/json" for part in accept.split(","))


def _idempotency_key(key: str | None) -> str | None:
    if key is None:
        return None
    if not key.strip() or len(key) > _MAX_KEY_CHARACTERS:
        raise RequestError(f"Idempotency-Key has {len(key)} characters: use 1 to {_MAX_KEY_CHARACTERS}, not blank")
    return key


def _last_event_id(headers: Mapping[str, str], key: str | None) -> int | None:
    last = parse_resume(headers.get("last-event-id"), None)
    if last is not None and key is None:
        raise RequestError(
            "Last-Event-ID goes on with a turn, and without Idempotency-Key this request begins another: "
            "send the key of the first request again, or get the turn's events_url"
        )
    return last


def _json_name(value: Any) -> str:
    if value is None:
        return "null"
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", int: "a number"}
    return names.get(cast("type[Any]", type(value)), "a number")
