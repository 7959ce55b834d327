"""Results of calls that come from outside: their forms, and what they must fit. Pure."""

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from durable_agent_host.codec.session_blobs import json_bytes_of
from durable_agent_host.errors import InvalidAnswerError, RequestError
from durable_agent_host.turn.message_input import read_parts
from durable_agent_host.turn.response_format import check_response_format, validate_response

_PART_TYPES: Final = frozenset({"text", "image", "audio", "file"})


def check_schema(schema: Mapping[str, Any]) -> None:
    """Refuse a schema that no result can be checked against.

    Raises:
        RequestError: it breaks the rules of JSON Schema.
    """
    try:
        check_response_format(_format_of(schema))
    except RequestError as error:
        raise RequestError(f"the schema of the result is not usable: {_reason_of(error)}") from None


def parse_result(result: Any, schema: Mapping[str, Any] | None, *, max_bytes: int) -> Any:
    """Parse the result of a call.

    Args:
        result: JSON; a list of parts of a message (text, image, audio, file) when nothing else is asked for.
        schema: of the result, or None.
        max_bytes: limit on the result.

    Returns:
        The result as a tool would return it: a text, contents, or JSON.

    Raises:
        RequestError: it is larger, does not fit the schema, or has an invalid part; says where.
    """
    if (size := len(json_bytes_of(result))) > max_bytes:
        raise RequestError(f"the result has {size} bytes, and {max_bytes} are allowed: send less")
    if schema is None:
        return read_parts(cast("list[Any]", result), "'result'") if _are_parts(result) else result
    try:
        validate_response(json.dumps(result), _format_of(schema))
    except (InvalidAnswerError, RequestError) as error:
        raise RequestError(f"the result does not fit the schema of the call: {_reason_of(error)}") from None
    return result


def _are_parts(result: Any) -> bool:
    items = cast("list[Any]", result) if isinstance(result, list) else []
    types = [cast("dict[str, Any]", item).get("type") if isinstance(item, dict) else None for item in items]
    return bool(types) and all(isinstance(name, str) and name in _PART_TYPES for name in types)


def _format_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"schema": dict(schema)}}


def _reason_of(error: Exception) -> str:
    """Return the reason alone: the errors of a response format begin with its name."""
    text = str(error)
    return text.partition(": ")[2] or text
