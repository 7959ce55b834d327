"""Calls of the app's tools and their results, in the form that the service accepts.

The service rejects a conversation in which an id recurs or a call has no result, a name with other characters than its
own, or an input that is not an object. A turn can end with an open call: of a tool that the app only declares, or at
the framework's limit of iterations. A model can give two calls one id, and write any name and any JSON. The stored
conversation does not change; the sent one is repaired.
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


def pair_calls(messages: Sequence[Block]) -> list[Block]:
    """Give calls unique ids, and results; remove results without a call.

    Guarantee: pure; the blocks given are shared where nothing changed.

    Args:
        messages: of a request, adjacent ones of different roles.

    Returns:
        As many messages; the calls of a last message may still wait for their results.
    """
    id_counts: Counter[str] = Counter()
    pending_calls: _Open = []
    paired_messages: list[Block] = []
    for message in resting(messages):
        if message["role"] == "assistant":
            blocks = list(_with_unique_ids(message["content"], id_counts, pending_calls := []))
        else:
            results = list(_matched_results(message["content"], pending_calls))
            missing_results = [
                {"type": "tool_result", "tool_use_id": sent_id, "content": LOST_RESULT} for _, sent_id in pending_calls
            ]
            blocks = [
                *results,
                *missing_results,
                *(block for block in message["content"] if block.get("type") != "tool_result"),
            ]
            pending_calls = []
        paired_messages.append({**message, "content": blocks})
    return paired_messages


def _with_unique_ids(blocks: Sequence[Block], id_counts: Counter[str], pending_calls: _Open) -> Iterator[Block]:
    for block in blocks:
        if block.get("type") != "tool_use":
            yield block
            continue
        call_id = block.get("id")
        id_counts[str(call_id)] += 1
        is_valid = isinstance(call_id, str) and id_counts[call_id] == 1 and CALL_ID.fullmatch(call_id) is not None
        sent_id = call_id if is_valid else "toolu_" + derived_id(str(call_id), str(id_counts[str(call_id)]))
        pending_calls.append((call_id, str(sent_id)))
        yield block if is_valid else {**block, "id": sent_id}


def _matched_results(blocks: Sequence[Block], pending_calls: _Open) -> Iterator[Block]:
    """Yield the results of the calls that wait, which then no longer do."""
    for block in blocks:
        if block.get("type") == "tool_result":
            call_id = block.get("tool_use_id")
            match = next((call for call in pending_calls if call[0] == call_id), None)
            if match is not None:
                pending_calls.remove(match)
                yield block if match[1] == call_id else {**block, "tool_use_id": match[1]}


def with_valid_calls(messages: Sequence[Block], tool_names: Collection[str]) -> list[Block]:
    """Give calls names that the service accepts, and objects as inputs.

    Guarantee: pure; the blocks given are shared where nothing changed.

    Args:
        messages: of a request.
        tool_names: names of the request's tools.
    """
    return [
        {**message, "content": [_accepted_block(block, tool_names) for block in message["content"]]}
        if message["role"] == "assistant"
        else message
        for message in resting(messages)
    ]


def _accepted_block(block: Block, tool_names: Collection[str]) -> Block:
    if block.get("type") != "tool_use":
        return block
    name = accepted_name(block.get("name"), _NAME, tool_names)
    input_value = block.get("input")
    if name == block.get("name") and isinstance(input_value, dict):
        return block
    return {**block, "name": name, "input": _as_object(input_value)}


def _as_object(input_value: Any) -> Any:
    """Return the input of a call as the framework gives it to a tool."""
    if isinstance(input_value, dict):
        return cast("Any", input_value)
    return {} if input_value is None else {"raw": input_value}
