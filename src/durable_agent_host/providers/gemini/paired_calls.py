"""Calls and their responses in a request: as many responses as calls, directly after them. Pure; needs no SDK.

A turn can end with an unanswered call: of a tool that the app only declares, or at the framework's limit of iterations.
A model can also call by any name, and the service refuses most of them. The stored conversation stays as it is; the
sent one is closed, with names that are accepted.
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


def paired_calls(contents: Sequence[Json]) -> list[Json]:
    """Answer the calls that have no response, and leave out responses without a call.

    Guarantee: pure; the contents given are not changed.

    Args:
        contents: of a request, in order; the calls of a last one may still wait for their responses.
    """
    paired: list[Json] = []
    waiting: list[Json] = []
    for content in resting(contents):
        parts = [part for part in content["parts"] if _RESPONSE not in part or _takes(waiting, part[_RESPONSE])]
        lost = [{_RESPONSE: _unknown(call)} for call in waiting]
        if any(_RESPONSE in part for part in parts):
            parts += lost
        elif lost:
            paired.append({"role": "user", "parts": lost})
        if parts:
            paired.append({**content, "parts": parts})
        waiting = [part[_CALL] for part in parts if _CALL in part]
    return paired


def named_calls(contents: Sequence[Json], offered: Collection[str]) -> list[Json]:
    """Give calls and their responses names that the service accepts.

    Guarantee: pure; the contents given are not changed.

    Args:
        contents: of a request.
        offered: names of the request's functions.
    """
    return [{**one, "parts": [_named(part, offered) for part in one["parts"]]} for one in resting(contents)]


def _named(part: Json, offered: Collection[str]) -> Json:
    kind = next((kind for kind in (_CALL, _RESPONSE) if isinstance(part.get(kind), dict)), None)
    if kind is None:
        return part
    name = accepted_name(part[kind].get("name"), _NAME, offered)
    return part if name == part[kind].get("name") else {**part, kind: {**part[kind], "name": name}}


def _takes(waiting: list[Json], response: Json) -> bool:
    """Return whether a response answers one of the calls, which then no longer waits; ids are optional."""
    for name in ("id", "name"):
        for call in waiting:
            if response.get(name) and call.get(name) == response[name]:
                waiting.remove(call)
                return True
    return False


def _unknown(call: Json) -> Json:
    known = {name: call[name] for name in ("id", "name") if name in call}
    return {**known, "response": {"result": LOST_RESULT}}
