"""Names of calls in requests: a model can call a tool by any name, and services reject some of them.

The call is stored with the name that the model wrote, and its result reports that the tool does not exist. Only the
request has another name, so the call still matches its result.

A tool of the service whose calls the client runs is a tool without a function for the framework.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, cast

from agent_framework import FunctionTool

UNNAMED: Final = "unnamed"
"""The name that is sent for a call without one; every service accepts it."""

_MAX_CHARACTERS: Final = 64
_ODD: Final = re.compile("[^a-zA-Z0-9_-]+|^(?=[0-9-])")


def accepted_name(name: Any, tool_names: Collection[str]) -> str:
    """Return the name of a call to send: that of a tool unchanged, another one such that every service accepts it."""
    if isinstance(name, str) and name in tool_names:
        return name
    return _ODD.sub("_", str(name or ""))[:_MAX_CHARACTERS] or UNNAMED


def declared_tool_names(tools: Any) -> frozenset[str]:
    """Return the names of a request's tools."""
    return frozenset(name for tool in cast("Iterable[Any]", tools or ()) for name in _names_in(tool))


def _names_in(tool: Any) -> Iterable[str]:
    if not isinstance(tool, Mapping):
        return
    fields = cast("Mapping[str, Any]", tool)
    for holder in (fields, *fields.values()):
        name: Any = cast("Mapping[str, Any]", holder).get("name") if isinstance(holder, Mapping) else None
        if isinstance(name, str):
            yield name


_SERVICE_TOOL: Final = "durable_agent_host.service_tool"


def client_function(name: str, service_tool: Any) -> FunctionTool:
    """Make a tool for a function of a service's own tool, whose calls wait for the client."""
    properties = {_SERVICE_TOOL: service_tool}
    parameters: dict[str, Any] = {"type": "object", "properties": {}}
    return FunctionTool(name=name, func=None, input_model=parameters, additional_properties=properties)


def with_service_tools(tools: Iterable[Any]) -> list[Any]:
    """Return the tools of a request with the service's own, each once, in place of what `client_function` made."""
    sent_tools: dict[int, Any] = {}
    for tool in tools:
        properties: Mapping[str, Any] = getattr(tool, "additional_properties", None) or {}
        sent_tool = properties.get(_SERVICE_TOOL, tool)
        sent_tools[id(sent_tool)] = sent_tool
    return list(sent_tools.values())
