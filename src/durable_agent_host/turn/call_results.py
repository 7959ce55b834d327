"""What the result of a pending call must fit: a schema, and a size. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from durable_agent_host.codec.session_blobs import json_bytes_of
from durable_agent_host.errors import InvalidAnswerError, RequestError
from durable_agent_host.turn.response_format import check_response_format, validate_response


def check_schema(schema: Mapping[str, Any]) -> None:
    """Refuse a schema that no result can be checked against.

    Raises:
        RequestError: it breaks the rules of JSON Schema.
    """
    try:
        check_response_format(_format_of(schema))
    except RequestError as error:
        raise RequestError(f"the schema of the result is not usable: {_reason_of(error)}") from None


def check_fit(result: Any, schema: Mapping[str, Any] | None, *, max_bytes: int) -> None:
    """Refuse a result that is too large or does not fit its schema.

    Raises:
        RequestError: says where.
    """
    if (size := len(json_bytes_of(result))) > max_bytes:
        raise RequestError(f"'result' has {size} bytes, and {max_bytes} are allowed: send less")
    if schema is None:
        return
    try:
        validate_response(json.dumps(result), _format_of(schema))
    except (InvalidAnswerError, RequestError) as error:
        raise RequestError(f"'result' does not fit the schema of the call: {_reason_of(error)}") from None


def _format_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"schema": dict(schema)}}


def _reason_of(error: Exception) -> str:
    """Return the reason alone: the errors of a response format begin with its name."""
    text = str(error)
    return text.partition(": ")[2] or text
