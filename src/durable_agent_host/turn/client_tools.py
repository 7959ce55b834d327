"""Tools that a request brings along, and what the answer to a pending call must fit: a schema, and a size. Pure."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, cast

from agent_framework import FunctionTool

from durable_agent_host.codec.session_blobs import json_bytes_of
from durable_agent_host.codec.strict_json import has_python_class
from durable_agent_host.errors import InvalidAnswerError, RequestError
from durable_agent_host.turn.message_input import read_parts
from durable_agent_host.turn.response_format import TooMuchToCheckError, check_response_format, validate_response

MAX_TOOLS: Final = 128
"""Maximum tools in a request; the services take as many."""
LIMITED_FIELDS: Final = frozenset({"result", "error", "reason", "arguments"})
"""The fields of an answer that are as long as its sender likes."""
_MAX_CHARACTERS: Final = 4096
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FORM: Final = 'give a list of {"name": "…", "description": "…", "parameters": {…}}'
_PART_TYPES: Final = ("text", "image", "audio", "file")


def read_client_tools(value: Any) -> tuple[Mapping[str, Any], ...]:
    """Check the tools of a request.

    Returns:
        Each tool's ``name``, ``description`` and ``parameters``, a JSON schema.

    Raises:
        RequestError: a tool is not usable, or two have one name; says which.
    """
    if value is None:
        return ()
    if not isinstance(value, list) or len(cast("list[Any]", value)) > MAX_TOOLS:
        raise RequestError(f"'client_tools' is not a list of at most {MAX_TOOLS} tools: {_FORM}")
    tools = [_read_tool(tool, f"client_tools[{number}]") for number, tool in enumerate(cast("list[Any]", value))]
    names = [tool["name"] for tool in tools]
    if repeated_names := sorted({name for name in names if names.count(name) > 1}):
        raise RequestError(f"'client_tools' has {repeated_names[0]!r} twice: give each tool a name of its own")
    return tuple(tools)


def _read_tool(value: Any, location: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RequestError(f"{location} is not an object: {_FORM}")
    fields = cast("dict[str, Any]", value)
    if unknown := sorted(fields.keys() - {"name", "description", "parameters"}):
        raise RequestError(f"{location} has {', '.join(map(repr, unknown))}, which no tool has: {_FORM}")
    name = fields.get("name")
    description = fields.get("description") or ""
    parameters: Any = fields.get("parameters") or {"type": "object", "properties": {}}
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RequestError(f"'name' of {location} has to be 1 to 64 letters, digits, '_' or '-'")
    if not isinstance(description, str) or len(description) > _MAX_CHARACTERS:
        raise RequestError(f"'description' of {location} has to be a text of at most {_MAX_CHARACTERS} characters")
    if not isinstance(parameters, dict) or cast("dict[str, Any]", parameters).get("type") != "object":
        raise RequestError(f'\'parameters\' of {location} has to be a JSON schema with "type": "object"')
    if has_python_class(parameters):
        raise RequestError(f"'parameters' of {location} names a Python class: leave that out")
    check_schema(cast("dict[str, Any]", parameters), f"'parameters' of {location}")
    return {"name": name, "description": description, "parameters": parameters}


def client_tool(fields: Mapping[str, Any]) -> FunctionTool:
    """Make a tool without a function, whose calls wait for the client."""
    return FunctionTool(
        name=fields["name"], description=fields["description"], func=None, input_model=fields["parameters"]
    )


def tool_result_of(reply: Mapping[str, Any]) -> Any:
    """Return what a tool would return: the reply to a pending call, for the framework.

    Returns:
        An error as text; contents for a list of message parts; any other result as it is.

    Raises:
        RequestError: a part of the result is not usable.
    """
    if "error" in reply:
        return f"Error: {reply['error']}"
    result = reply.get("result")
    return read_parts(result, "'result'") if _is_list_of_parts(result) else result


def _is_list_of_parts(result: Any) -> bool:
    if not isinstance(result, list) or not result:
        return False
    return all(
        isinstance(part, dict) and cast("dict[str, Any]", part).get("type") in _PART_TYPES
        for part in cast("list[Any]", result)
    )


def check_result(reply: Mapping[str, Any]) -> None:
    """Refuse a result that could not be given to the model.

    Raises:
        RequestError: a part of it is not usable.
    """
    tool_result_of(reply)
    if has_python_class(reply.get("result")):
        raise RequestError("'result' names a Python class: leave that out")


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
