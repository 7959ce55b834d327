"""The messages of a request: unmodified blocks of the service, in the roles and order that it accepts.

Blocks with metadata are sent back verbatim, in the assistant's message. Adjacent messages of one role are merged, as
the service reads them; so the result of a call is in the message of its call when a pause came between. Content that
the service always rejects is omitted: empty texts, reasoning without its signature, and calls of its own tools without
a result, unless they belong to an unfinished response: code may wait for a tool of the app. Calls of the app's tools
are paired with their results.
"""

import copy
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.model.provider_item import LOST_RESULT
from durable_agent_host.providers.anthropic.block_mapping import (
    find_container,
    find_item_metadata,
    item_blocks,
    split_by_item,
)
from durable_agent_host.providers.anthropic.block_types import is_hosted_result
from durable_agent_host.providers.anthropic.message_accumulator import Block
from durable_agent_host.providers.call_pairing import PartFormat, accepted_name, pair_results, unique_id
from durable_agent_host.providers.cross_provider_history import as_neutral
from durable_agent_host.providers.item_metadata import is_edited
from durable_agent_host.providers.lost_state import LossRules, with_contents

# Removes what the service has lost or can no longer read; see `providers.lost_state`.

WITHOUT_THOUGHTS: Final = "anthropic.without_thoughts"
"""Key in the properties of the empty text that replaces a thought that the service cannot read, for one request."""

_THINKING_TYPES: Final = frozenset({"thinking", "redacted_thinking"})
_CONTAINER_PROPERTIES: Final = frozenset({"container_id", "container_expires_at", "container_details"})


def _without_lost(content: Content, is_unreadable: bool) -> Content:
    if is_unreadable:
        return Content("text", text="", additional_properties={WITHOUT_THOUGHTS: True})
    clone = copy.copy(content)
    properties = content.additional_properties
    clone.additional_properties = {n: v for n, v in properties.items() if n not in _CONTAINER_PROPERTIES}
    return clone


def _signatures(content: Content) -> list[str]:
    """Return the signature of a thought, as the only element."""
    if (find_item_metadata(content) or {}).get("type") not in _THINKING_TYPES:
        return []
    [block] = item_blocks([content])
    return [str(block.get("signature") or block.get("data") or "")]


def _last_container(contents: Sequence[Content]) -> list[str]:
    container = find_container(contents)
    return [str(container["container_id"])] if container else []


LOSS_RULES: Final = LossRules(_signatures, _last_container, _without_lost)
"""Thoughts are replaced, and containers are not named."""


# Calls of the app's tools and their results, in the form that the service accepts.
#
# The service rejects a conversation in which an id recurs or a call has no result (`call_pairing`), a name with other
# characters than its own, or an input that is not an object. A model can write any name and any JSON.

_CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def _lost_result(call: Block) -> Block:
    return {"type": "tool_result", "tool_use_id": call["id"], "content": LOST_RESULT}


_PART_FORMAT: Final = PartFormat(
    "content",
    lambda block: block if block.get("type") == "tool_use" else None,
    lambda block: {"id": block.get("tool_use_id")} if _is_result(block) else None,
    _lost_result,
)


def _with_unique_ids(messages: Iterable[Block]) -> Iterator[Block]:
    """Give calls ids that the service accepts, each once, and their results the same."""
    id_counts: Counter[str] = Counter()
    sent_ids: dict[Any, list[str]] = {}
    for message in messages:
        if message["role"] == "assistant":
            sent_ids = {}
        blocks: list[Block] = []
        for block in message["content"]:
            if block.get("type") == "tool_use":
                sent_id = unique_id(block.get("id"), id_counts, _CALL_ID, "toolu_")
                sent_ids.setdefault(block.get("id"), []).append(sent_id)
                blocks.append({**block, "id": sent_id})
            elif _is_result(block) and (ids := sent_ids.get(block.get("tool_use_id"))):
                blocks.append({**block, "tool_use_id": ids.pop(0)})
            else:
                blocks.append(block)
        yield {**message, "content": blocks}


def with_valid_calls(messages: Sequence[Block], tool_names: Collection[str]) -> list[Block]:
    """Give calls names that the service accepts, and objects as inputs."""
    return [
        {**message, "content": [_accepted_block(block, tool_names) for block in message["content"]]}
        if message["role"] == "assistant"
        else message
        for message in messages
    ]


def _accepted_block(block: Block, tool_names: Collection[str]) -> Block:
    if block.get("type") != "tool_use":
        return block
    name = accepted_name(block.get("name"), tool_names)
    input_value = block.get("input")
    if name == block.get("name") and isinstance(input_value, dict):
        return block
    return {**block, "name": name, "input": _as_object(input_value)}


def _as_object(input_value: Any) -> Any:
    """Return the input of a call as the framework gives it to a tool."""
    if isinstance(input_value, dict):
        return cast("Any", input_value)
    return {} if input_value is None else {"raw": input_value}


Prepare = Callable[[Message], list[Block]]
"""A message without metadata → the framework's messages of it."""

PAUSED: Final = "anthropic.paused"
"""Key in the properties of a message for one request: the model paused after it, and is to continue there."""

_HOSTED_CALLS: Final = frozenset({"server_tool_use", "mcp_tool_use"})


def request_groups(message: Message, prepare: Prepare) -> list[Block]:
    """Write one message.

    Returns:
        Messages with ``role`` and ``content``, as many as the roles of its blocks need.
    """
    request_messages: list[Block] = []
    for is_item, contents in split_by_item(message.contents):
        if is_item and not is_edited(contents):
            request_messages.append({"role": "assistant", "content": item_blocks(contents)})
        elif message.role == "assistant":
            neutral_contents = [as_neutral(content) for content in contents]
            request_messages += prepare(with_contents(message, neutral_contents))
        else:
            request_messages += prepare(with_contents(message, contents))
    return request_messages


def accepted_messages(messages: Iterable[Block]) -> list[Block]:
    """Bring messages into the form that the service accepts."""
    merged_messages: list[Block] = []
    for message in messages:
        blocks = to_blocks(message["content"])
        if merged_messages and merged_messages[-1]["role"] == message["role"]:
            merged_messages[-1]["content"] += blocks
        elif blocks:
            merged_messages.append({"role": message["role"], "content": blocks})
    merged_messages = pair_results(_with_unique_ids(merged_messages), _PART_FORMAT)
    last_request_index = max((n for n, message in enumerate(merged_messages) if _is_user_request(message)), default=-1)
    completed_call_ids, call_ids = _hosted_call_ids(merged_messages)
    sendable_messages: list[Block] = []
    for index, message in enumerate(merged_messages):
        blocks = [block for block in message["content"] if not _is_rejected(block)]
        blocks = _remove_unpaired(blocks, call_ids, completed_call_ids if index < last_request_index else None)
        if not blocks:
            continue
        blocks.sort(key=lambda block: not _is_result(block))  # results come first
        if sendable_messages and sendable_messages[-1]["role"] == message["role"]:
            sendable_messages[-1] = {**message, "content": [*sendable_messages[-1]["content"], *blocks]}
        else:
            sendable_messages.append({**message, "content": blocks})
    return sendable_messages


def with_pause(messages: Sequence[Message]) -> list[Message]:
    """Mark messages after which the model paused."""
    marked_messages = [with_contents(message, list(message.contents)) for message in messages]
    for message in marked_messages[-1:]:
        message.additional_properties = {**message.additional_properties, PAUSED: True}
    return marked_messages


def is_paused(messages: Sequence[Message]) -> bool:
    """Return whether a request asks the model to continue its last message."""
    return bool(messages) and PAUSED in messages[-1].additional_properties


def to_blocks(content: Any) -> list[Block]:
    """Return the content of a message or a result as blocks; an empty text is none."""
    return [{"type": "text", "text": content}] if content and isinstance(content, str) else list(content)


def _is_rejected(block: Mapping[str, Any]) -> bool:
    kind = block.get("type")
    if kind == "text":
        return not str(block.get("text") or "").strip()
    return kind == "thinking" and not block.get("signature")


def _is_result(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "tool_result"


def _is_user_request(message: Block) -> bool:
    """Return whether a message is from a person, and not only tool results."""
    return message["role"] == "user" and not all(map(_is_result, message["content"]))


def _hosted_call_ids(messages: Iterable[Block]) -> tuple[set[Any], set[Any]]:
    """Return the ids of the calls of the service's own tools: those with a result, and all of them."""
    blocks = [block for message in messages for block in message["content"]]
    completed_call_ids = {block.get("tool_use_id") for block in blocks if is_hosted_result(block)}
    return completed_call_ids, {block.get("id") for block in blocks if block.get("type") in _HOSTED_CALLS}


def _remove_unpaired(blocks: list[Block], call_ids: set[Any], completed_call_ids: set[Any] | None) -> list[Block]:
    """Remove results without a call, and calls without a result unless ``completed_call_ids`` is None."""
    return [
        block
        for block in blocks
        if not (is_hosted_result(block) and block.get("tool_use_id") not in call_ids)
        and not (
            completed_call_ids is not None
            and block.get("type") in _HOSTED_CALLS
            and block.get("id") not in completed_call_ids
        )
    ]
