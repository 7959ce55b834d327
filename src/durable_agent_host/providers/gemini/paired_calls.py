"""Calls and their responses in a request: as many responses as calls, directly after them. Pure; needs no SDK.

A turn can end with an unanswered call: of a tool that the app only declares, or at the framework's limit of iterations.
The stored conversation stays as it is; the sent one is closed.
"""

from collections.abc import Sequence
from typing import Any, Final

from durable_agent_host.loops.giving_way import resting
from durable_agent_host.model.provider_item import LOST_RESULT

Json = dict[str, Any]

_CALL: Final = "functionCall"
_RESPONSE: Final = "functionResponse"


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
