"""Calls and their responses in a request: as many responses as calls, directly after them.

A turn can end with an open call: of a tool that the app only declares, or at the framework's limit of iterations. A
model can also call by any name, and the service rejects most of them. The stored conversation does not change; the sent
one is closed, with names that are accepted.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any, Final

from durable_agent_host.loops.giving_way import resting
from durable_agent_host.model.provider_item import LOST_RESULT
from durable_agent_host.providers.call_names import accepted_name

Json = dict[str, Any]

_CALL: Final = "functionCall"
_RESPONSE: Final = "functionResponse"
_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")


def pair_calls(contents: Sequence[Json]) -> list[Json]:
    """Add a response to calls without one, and remove responses without a call.

    Guarantee: pure; the contents are not changed.

    Args:
        contents: of a request, in order; the calls of a last one may still wait for their responses.
    """
    paired_contents: list[Json] = []
    pending_calls: list[Json] = []
    for content in resting(contents):
        parts = [
            part
            for part in content["parts"]
            if _RESPONSE not in part or _remove_matching_call(pending_calls, part[_RESPONSE])
        ]
        missing_responses = [{_RESPONSE: _unknown_result(call)} for call in pending_calls]
        if any(_RESPONSE in part for part in parts):
            parts += missing_responses
        elif missing_responses:
            paired_contents.append({"role": "user", "parts": missing_responses})
        if parts:
            paired_contents.append({**content, "parts": parts})
        pending_calls = [part[_CALL] for part in parts if _CALL in part]
    return paired_contents


def with_valid_names(contents: Sequence[Json], tool_names: Collection[str]) -> list[Json]:
    """Give calls and their responses names that the service accepts.

    Guarantee: pure; the contents are not changed.

    Args:
        contents: of a request.
        tool_names: names of the request's functions.
    """
    return [
        {**content, "parts": [_with_valid_name(part, tool_names) for part in content["parts"]]}
        for content in resting(contents)
    ]


def _with_valid_name(part: Json, tool_names: Collection[str]) -> Json:
    kind = next((kind for kind in (_CALL, _RESPONSE) if isinstance(part.get(kind), dict)), None)
    if kind is None:
        return part
    name = accepted_name(part[kind].get("name"), _NAME, tool_names)
    return part if name == part[kind].get("name") else {**part, kind: {**part[kind], "name": name}}


def _remove_matching_call(pending_calls: list[Json], response: Json) -> bool:
    """Remove the call that a response belongs to, and return whether there was one; ids are optional."""
    for name in ("id", "name"):
        for call in pending_calls:
            if response.get(name) and call.get(name) == response[name]:
                pending_calls.remove(call)
                return True
    return False


def _unknown_result(call: Json) -> Json:
    call_fields = {name: call[name] for name in ("id", "name") if name in call}
    return {**call_fields, "response": {"result": LOST_RESULT}}
