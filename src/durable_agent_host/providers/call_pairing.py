"""Calls of the app's tools and their results in a request: every call has a result, and every result a call.

A turn can end with an open call: of a tool that the app only declares, or at the framework's limit of iterations. A
model can give two calls one id, or call a tool by any name. Services reject that. The stored conversation does not
change; the sent one is repaired. The result of a call by an odd name reports that the tool does not exist, and still
matches the call.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from agent_framework import FunctionTool

from durable_agent_host.codec.strict_json import reject_constant
from durable_agent_host.model.ids import derived_id

Json = dict[str, Any]


@dataclass(frozen=True)
class PartFormat:
    """Where a service has calls and results, if both are parts of messages.

    Attributes:
        parts: the field of a message with its parts.
        call: a part → the call in it, or None.
        result: a part → the ``id`` or the ``name`` of the call that it is the result of, or None.
        lost_result: a call → a part that reports its result as unknown.
    """

    parts: str
    call: Callable[[Json], Json | None]
    result: Callable[[Json], Mapping[str, Any] | None]
    lost_result: Callable[[Json], Json]


def pair_results(messages: Iterable[Json], part_format: PartFormat) -> list[Json]:
    """Add a result to calls without one, and remove results without a call.

    Returns:
        New messages: the results of calls directly after them; the calls of the last message may wait for theirs.
    """
    paired_messages: list[Json] = []
    open_calls: list[Json] = []
    for message in messages:
        parts = [
            part
            for part in message[part_format.parts]
            if (result := part_format.result(part)) is None or _remove_matching_call(open_calls, result)
        ]
        lost_results = [part_format.lost_result(call) for call in open_calls]
        if any(part_format.result(part) is not None for part in parts):
            parts += lost_results
        elif lost_results:
            paired_messages.append({"role": "user", part_format.parts: lost_results})
        if parts:
            paired_messages.append({**message, part_format.parts: parts})
        open_calls = [call for part in parts if (call := part_format.call(part)) is not None]
    return paired_messages


def _remove_matching_call(open_calls: list[Json], result: Mapping[str, Any]) -> bool:
    """Remove the call that a result belongs to, and return whether there was one; ids are optional."""
    for name in ("id", "name"):
        for call in open_calls:
            if result.get(name) and call.get(name) == result[name]:
                open_calls.remove(call)
                return True
    return False


def unique_id(call_id: Any, id_counts: Counter[str], valid_ids: re.Pattern[str], prefix: str) -> str:
    """Return the id to send for the next call: its own, or a derived one where that is invalid or occurs again.

    Args:
        call_id: of the call.
        id_counts: how often each id has occurred so far; changed here.
        valid_ids: the ids that the service accepts.
        prefix: of derived ids.
    """
    id_counts[str(call_id)] += 1
    if isinstance(call_id, str) and id_counts[call_id] == 1 and valid_ids.fullmatch(call_id):
        return call_id
    digits = derived_id(str(call_id), str(id_counts[str(call_id)]))
    return prefix + digits if valid_ids.fullmatch(prefix + digits) else digits[:_SHORT_ID_CHARACTERS]


_SHORT_ID_CHARACTERS: Final = 9
"""Length of the ids of the one service that accepts no longer ones."""


def object_arguments(arguments: Any) -> Any:
    """Return the arguments of a call as the text of a JSON object.

    Returns:
        The same text if it is one, or ``null``; other text as the field ``raw`` of an object, and no text as an empty
        one.
    """
    if not isinstance(arguments, str) or arguments.strip() == "null":
        return arguments
    try:
        value: Any = json.loads(arguments, parse_constant=reject_constant) if arguments.strip() else {}
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        return arguments if arguments.strip() else "{}"
    return json.dumps({"raw": arguments})


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
