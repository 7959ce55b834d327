"""Calls of the app's tools and their results, in the form that the service accepts. Pure.

The service refuses a conversation in which an id recurs or a call has no result, a name with other characters than its
own, or an input that is no object. A turn can end with an unanswered call: of a tool that the app only declares, or at
the framework's limit of iterations. A model can give two calls one id, and write any name and any JSON. The stored
conversation stays as it is; the sent one is mended.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, cast

from durable_agent_host.loops.giving_way import resting
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.provider_item import LOST_RESULT
from durable_agent_host.providers.anthropic.assembly import Block
from durable_agent_host.providers.call_names import accepted_name

CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""Ids of calls that the service accepts."""

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")

_Open = list[tuple[Any, str]]
"""The calls of a message, in order: the id that their results name, and the id to send."""


def paired_calls(messages: Sequence[Block]) -> list[Block]:
    """Give calls ids of their own, and results; leave out results without a call.

    Guarantee: pure; the blocks given are shared where nothing changed.

    Args:
        messages: of a request, adjacent ones of different roles.

    Returns:
        As many messages; the calls of a last message may still wait for their results.
    """
    times: Counter[str] = Counter()
    waiting: _Open = []
    paired: list[Block] = []
    for message in resting(messages):
        if message["role"] == "assistant":
            blocks = list(_renamed(message["content"], times, waiting := []))
        else:
            results = list(_answered(message["content"], waiting))
            lost = [{"type": "tool_result", "tool_use_id": sent, "content": LOST_RESULT} for _, sent in waiting]
            blocks = [*results, *lost, *(one for one in message["content"] if one.get("type") != "tool_result")]
            waiting = []
        paired.append({**message, "content": blocks})
    return paired


def _renamed(blocks: Sequence[Block], times: Counter[str], called: _Open) -> Iterator[Block]:
    for block in blocks:
        if block.get("type") != "tool_use":
            yield block
            continue
        name = block.get("id")
        times[str(name)] += 1
        is_good = isinstance(name, str) and times[name] == 1 and CALL_ID.fullmatch(name) is not None
        sent = name if is_good else "toolu_" + derived_id(str(name), str(times[str(name)]))
        called.append((name, str(sent)))
        yield block if is_good else {**block, "id": sent}


def _answered(blocks: Sequence[Block], waiting: _Open) -> Iterator[Block]:
    """Yield the results of the calls that wait, which then no longer do."""
    for block in blocks:
        if block.get("type") == "tool_result":
            name = block.get("tool_use_id")
            found = next((call for call in waiting if call[0] == name), None)
            if found is not None:
                waiting.remove(found)
                yield block if found[1] == name else {**block, "tool_use_id": found[1]}


def acceptable_calls(messages: Sequence[Block], offered: Collection[str]) -> list[Block]:
    """Give calls names that the service accepts, and objects as inputs.

    Guarantee: pure; the blocks given are shared where nothing changed.

    Args:
        messages: of a request.
        offered: names of the request's tools.
    """
    return [
        {**message, "content": [_acceptable(block, offered) for block in message["content"]]}
        if message["role"] == "assistant"
        else message
        for message in resting(messages)
    ]


def _acceptable(block: Block, offered: Collection[str]) -> Block:
    if block.get("type") != "tool_use":
        return block
    name, given = accepted_name(block.get("name"), _NAME, offered), block.get("input")
    if name == block.get("name") and isinstance(given, dict):
        return block
    return {**block, "name": name, "input": _as_object(given)}


def _as_object(given: Any) -> Any:
    """Return the input of a call as the framework gives it to a tool."""
    if isinstance(given, dict):
        return cast("Any", given)
    return {} if given is None else {"raw": given}
