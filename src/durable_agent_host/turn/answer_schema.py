"""The format that a client asks of an answer: a JSON schema, and whether an answer fits it. Pure; fetches nothing."""

import json
from collections.abc import Mapping
from typing import Any, cast

from jsonschema import SchemaError, ValidationError, validate
from jsonschema.exceptions import UnknownType
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from durable_agent_host.errors import InvalidAnswerError, RequestError


def schema_of(response_format: Mapping[str, Any]) -> dict[str, Any] | None:
    """Find the schema in a response format.

    Guarantee: pure.

    Args:
        response_format: a JSON schema, bare or as ``{"type": "json_schema", "json_schema": {"schema": …}}``, or
            ``{"type": "json_object"}``.

    Returns:
        The schema, or None when any JSON will do.
    """
    if response_format.get("type") == "json_object":
        return None
    schema: Any = response_format
    if response_format.get("type") == "json_schema":
        schema = cast("dict[str, Any]", response_format.get("json_schema", response_format)).get("schema")
    return cast("dict[str, Any]", schema) if isinstance(schema, dict) else None


def check_response_format(response_format: Mapping[str, Any]) -> None:
    """Refuse a response format whose schema is none, before a model is asked.

    Guarantee: pure.

    Args:
        response_format: as `schema_of` takes it.

    Raises:
        RequestError: the schema breaks the rules of JSON Schema; says where.
    """
    schema = schema_of(response_format)
    if schema is None:
        return
    try:
        validator_for(schema).check_schema(schema)
    except SchemaError as error:
        raise _unusable(error.message) from None


def check_answer(text: str, response_format: Mapping[str, Any]) -> None:
    """Hold an answer against the format that was asked for.

    Guarantee: pure.

    Args:
        text: the model's answer.
        response_format: as `schema_of` takes it.

    Raises:
        InvalidAnswerError: the answer is not JSON, or does not fit the schema; says where.
        RequestError: the schema is none, or refers to another document; nothing is fetched.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidAnswerError(f"the model's answer is not JSON, as response_format asks: {error}") from None
    schema = schema_of(response_format)
    if schema is None:
        return
    try:
        validate(value, schema, registry=cast("Any", Registry)())
    except (SchemaError, UnknownType, Unresolvable) as error:
        raise _unusable(str(error).partition("\n")[0]) from None
    except ValidationError as error:
        raise InvalidAnswerError(
            f"the model's answer does not fit response_format: {error.message} at {error.json_path}"
        ) from None


def with_value(view: dict[str, Any], text: str, response_format: Mapping[str, Any] | None) -> dict[str, Any]:
    """Add a structured answer to what clients get. Guarantee: pure.

    Args:
        view: of a turn that has completed.
        text: the answer's.
        response_format: what was asked for, or None.

    Returns:
        The view, with the parsed answer as ``value`` when a format was asked for.
    """
    if response_format is None:
        return view
    try:
        return view | {"value": json.loads(text)}
    except (ValueError, RecursionError):  # a text of another version, which was not checked
        return view


def _unusable(reason: str) -> RequestError:
    return RequestError(f"response_format is no JSON schema that can be used: {reason}")
