"""Upstream's ``run`` requests, which can name a Python class as the response format."""

import sys
from typing import Any, cast

from pydantic import BaseModel

from durable_agent_host.agent.outcome import utc_now
from durable_agent_host.errors import RequestError
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.turn.requests import request_of_run


def read_run_request(agent: str, session_id: str, payload: Any) -> TurnRequest:
    """Read the input of upstream's ``run`` operation.

    Guarantee: pure except for the clock; imports nothing that the input names.

    Args:
        agent: the agent's registered name.
        session_id: the entity's key.
        payload: upstream's ``RunRequest`` as a dictionary, or a message.

    Returns:
        The request; the correlation id is the turn's id.

    Raises:
        RequestError: the message is missing, or the response format is not usable.
    """
    return request_of_run(agent, session_id, payload, now=utc_now(), schema_of=_response_schema)


def _response_schema(response_format: Any) -> dict[str, Any] | None:
    if response_format is None:
        return None
    if not isinstance(response_format, dict):
        raise RequestError(f"response_format is {type(response_format).__name__}: give a JSON schema as an object")
    named = cast("dict[str, Any]", response_format)
    if named.get("__response_schema_type__") != "pydantic_model":
        return named
    found: Any = sys.modules.get(str(named.get("module")))
    for part in str(named.get("qualname")).split("."):
        found = getattr(found, part, None)
    if isinstance(found, type) and issubclass(found, BaseModel):
        return found.model_json_schema()
    raise RequestError(
        f"response_format names {named.get('module')}.{named.get('qualname')}, which this app has not loaded: "
        "import it in function_app.py, or give a JSON schema"
    )
