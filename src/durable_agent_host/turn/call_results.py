"""What the answer to a pending call must fit: a schema, and a size. Pure."""

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from durable_agent_host.codec.session_blobs import json_bytes_of
from durable_agent_host.errors import InvalidAnswerError, RequestError
from durable_agent_host.turn.response_format import TooMuchToCheckError, check_response_format, validate_response

LIMITED_FIELDS: Final = frozenset({"result", "error", "reason", "arguments"})
"""The fields of an answer that are as long as its sender likes."""


def check_schema(schema: Mapping[str, Any], subject: str) -> None:
    """Refuse a schema that breaks the rules of JSON Schema.

    Raises:
        RequestError: says of the subject why it is not usable.
    """
    try:
        check_response_format(_format_of(schema))
    except RequestError as error:
        raise RequestError(f"{subject} is not a usable JSON schema: {_reason_of(error)}") from None


def check_fit(
    result: Any,
    schema: Mapping[str, Any] | None,
    *,
    max_bytes: int,
    max_steps: int | None = None,
    field: str = "result",
) -> None:
    """Refuse a field of an answer that is too large or does not fit its schema.

    Args:
        result: what the field has, as JSON.
        schema: None when anything will do.
        max_bytes: of the field.
        field: its name.
        max_steps: where a check that takes more is left to whoever has asked for the result; None for all it takes.

    Raises:
        RequestError: says where.
    """
    if (size := len(json_bytes_of(result))) > max_bytes:
        raise RequestError(f"{field!r} has {size} bytes, and {max_bytes} are allowed: send less")
    if schema is None:
        return
    try:
        with suppress(TooMuchToCheckError):
            validate_response(json.dumps(result), _format_of(schema), max_steps=max_steps)
    except (InvalidAnswerError, RequestError) as error:
        names = f"; the tool takes {', '.join(schema.get('properties', ()))}" if field == "arguments" else ""
        raise RequestError(f"{field!r} does not fit the schema of the call: {_reason_of(error)}{names}") from None


def _format_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"schema": dict(schema)}}


def _reason_of(error: Exception) -> str:
    """Return the reason alone: the errors of a response format begin with its name."""
    text = str(error)
    return text.partition(": ")[2] or text
