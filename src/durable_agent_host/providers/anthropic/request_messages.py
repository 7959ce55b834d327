"""The messages of a request: unmodified blocks of the service, in the roles and order that it accepts.

Blocks with metadata are sent back verbatim, in the assistant's message. Adjacent messages of one role are merged, as
the service reads them; so the result of a call is in the message of its call when a pause came between. Content that
the service always rejects is omitted: empty texts, reasoning without its signature, and calls of its own tools without
a result, unless they belong to an unfinished response: code may wait for a tool of the app. Calls of the app's tools
are paired with their results (`pair_calls`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.loops.giving_way import resting
from durable_agent_host.providers.anthropic.assembly import Block
from durable_agent_host.providers.anthropic.block_types import block_type
from durable_agent_host.providers.anthropic.blocks import find_item_metadata, group_by_item, rebuild_blocks
from durable_agent_host.providers.anthropic.paired_calls import pair_calls

Prepare = Callable[[Message], list[Block]]
"""A message without metadata → the framework's messages of it."""

PAUSED: Final = "anthropic.paused"
"""Key in the properties of a message for one request: the model paused after it, and is to continue there."""

_HOSTED_CALLS: Final = frozenset({"server_tool_use", "mcp_tool_use"})
_RESULTS: Final = frozenset({"tool_result"})


def request_groups(message: Message, prepare: Prepare) -> list[Block]:
    """Write one message.

    Guarantee: pure.

    Args:
        message: of the conversation.
        prepare: writes messages without metadata.

    Returns:
        Messages with ``role`` and ``content``, as many as the roles of its blocks need.
    """
    request_messages: list[Block] = []
    plain: list[Content] = []

    def write_plain() -> None:
        if plain:
            request_messages.extend(prepare(_with_contents(message, list(plain))))
            plain.clear()

    for group in group_by_item(message.contents):
        if find_item_metadata(group[0]) is None:
            plain.extend(group)
        else:
            write_plain()
            request_messages.append({"role": "assistant", "content": rebuild_blocks(group)})
    write_plain()
    return request_messages


def accepted_messages(messages: Iterable[Block]) -> list[Block]:
    """Bring messages into the form that the service accepts.

    Guarantee: pure; the blocks are shared.

    Args:
        messages: in order, of any length; ``content`` is a string or a list of blocks.
    """
    merged_messages: list[Block] = []
    for message in resting(messages):
        blocks = _blocks(message["content"])
        if merged_messages and merged_messages[-1]["role"] == message["role"]:
            merged_messages[-1]["content"] += blocks
        elif blocks:
            merged_messages.append({"role": message["role"], "content": blocks})
    merged_messages = pair_calls(merged_messages)
    last_request_index = max((n for n, message in enumerate(merged_messages) if _is_user_request(message)), default=-1)
    completed_call_ids, call_ids = _hosted_call_ids(merged_messages)
    sendable_messages: list[Block] = []
    for index, message in enumerate(resting(merged_messages)):
        blocks = [block for block in message["content"] if not _is_rejected(block)]
        blocks = _remove_unpaired(blocks, call_ids, completed_call_ids if index < last_request_index else None)
        if not blocks:
            continue
        if sendable_messages and sendable_messages[-1]["role"] == message["role"]:
            sendable_messages[-1] = {**message, "content": [*sendable_messages[-1]["content"], *blocks]}
        else:
            sendable_messages.append({**message, "content": blocks})
    return sendable_messages


def with_pause(messages: Sequence[Message]) -> list[Message]:
    """Mark messages after which the model paused. Guarantee: pure.

    Args:
        messages: of the paused response.
    """
    marked_messages = [_with_contents(message, list(message.contents)) for message in messages]
    for message in marked_messages[-1:]:
        message.additional_properties = {**message.additional_properties, PAUSED: True}
    return marked_messages


def is_paused(messages: Sequence[Message]) -> bool:
    """Return whether a request asks the model to continue its last message. Guarantee: pure."""
    return bool(messages) and PAUSED in messages[-1].additional_properties


def _blocks(content: Any) -> list[Block]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(cast("list[Block]", content))


def _is_rejected(block: Mapping[str, Any]) -> bool:
    kind = block.get("type")
    if kind == "text":
        return not str(block.get("text") or "").strip()
    return kind == "thinking" and not block.get("signature")


def _is_result(block: Mapping[str, Any]) -> bool:
    return block.get("type") in _RESULTS


def _is_user_request(message: Block) -> bool:
    """Return whether a message is from a person, and not only tool results."""
    return message["role"] == "user" and not all(map(_is_result, message["content"]))


def _hosted_call_ids(messages: Iterable[Block]) -> tuple[set[Any], set[Any]]:
    """Return the ids of the calls of the service's own tools: those with a result, and all of them."""
    blocks = [block for message in resting(messages) for block in message["content"]]
    completed_call_ids = {block.get("tool_use_id") for block in blocks if _is_hosted_result(block)}
    return completed_call_ids, {block.get("id") for block in blocks if block.get("type") in _HOSTED_CALLS}


def _remove_unpaired(blocks: list[Block], call_ids: set[Any], completed_call_ids: set[Any] | None) -> list[Block]:
    """Remove results without a call, and calls without a result unless ``completed_call_ids`` is None."""
    return [
        block
        for block in blocks
        if not (_is_hosted_result(block) and block.get("tool_use_id") not in call_ids)
        and not (
            completed_call_ids is not None
            and block.get("type") in _HOSTED_CALLS
            and block.get("id") not in completed_call_ids
        )
    ]


def _is_hosted_result(block: Mapping[str, Any]) -> bool:
    return block_type(block.get("type")).is_result


def _with_contents(message: Message, contents: list[Content]) -> Message:
    return Message(
        message.role,
        contents,
        author_name=message.author_name,
        message_id=message.message_id,
        additional_properties=dict(message.additional_properties or {}),
    )
