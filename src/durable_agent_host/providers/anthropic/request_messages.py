"""The messages of a request: blocks as the service wrote them, in the roles and order that it accepts. Pure.

Blocks with a stamp are sent back verbatim, in the assistant's message. Adjacent messages of one role are joined, as the
service reads them; so the result of a call is in the message of its call when a pause came between. Left out is what
the service always rejects: empty texts, reasoning without its signature, and calls of its own tools without a result,
unless they belong to an answer that the model has not finished: code may wait for a tool of the app. Calls of the app's
tools are paired with their results (`paired_calls`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.loops.giving_way import resting
from durable_agent_host.providers.anthropic.assembly import Block
from durable_agent_host.providers.anthropic.block_types import block_type
from durable_agent_host.providers.anthropic.blocks import groups_of, sent_blocks, stamp_of
from durable_agent_host.providers.anthropic.paired_calls import paired_calls

Prepare = Callable[[Message], list[Block]]
"""A message without stamps → the framework's messages of it."""

PAUSED: Final = "anthropic.paused"
"""Key in the properties of a message for one request: the model paused after it, and is to continue there."""

_HOSTED_CALLS: Final = frozenset({"server_tool_use", "mcp_tool_use"})
_RESULTS: Final = frozenset({"tool_result"})


def request_groups(message: Message, prepare: Prepare) -> list[Block]:
    """Write one message.

    Guarantee: pure.

    Args:
        message: of the conversation.
        prepare: writes messages without a stamp.

    Returns:
        Messages with ``role`` and ``content``, as many as the roles of its blocks need.
    """
    written: list[Block] = []
    plain: list[Content] = []

    def write_plain() -> None:
        if plain:
            written.extend(prepare(_with_contents(message, list(plain))))
            plain.clear()

    for group in groups_of(message.contents):
        if stamp_of(group[0]) is None:
            plain.extend(group)
        else:
            write_plain()
            written.append({"role": "assistant", "content": sent_blocks(group)})
    write_plain()
    return written


def accepted_messages(messages: Iterable[Block]) -> list[Block]:
    """Bring messages into the form that the service accepts.

    Guarantee: pure; the blocks are shared.

    Args:
        messages: in order, of any length; ``content`` is a text or a list of blocks.
    """
    joined: list[Block] = []
    for message in resting(messages):
        blocks = _blocks(message["content"])
        if joined and joined[-1]["role"] == message["role"]:
            joined[-1]["content"] += blocks
        elif blocks:
            joined.append({"role": message["role"], "content": blocks})
    joined = paired_calls(joined)
    begun = max((n for n, one in enumerate(joined) if _asks(one)), default=-1)
    answered, called = _calls(joined)
    kept: list[Block] = []
    for number, message in enumerate(resting(joined)):
        blocks = [one for one in message["content"] if not _is_refused(one)]
        blocks = _paired(blocks, called, answered if number < begun else None)
        if not blocks:
            continue
        if kept and kept[-1]["role"] == message["role"]:
            kept[-1] = {**message, "content": [*kept[-1]["content"], *blocks]}
        else:
            kept.append({**message, "content": blocks})
    return kept


def with_pause(messages: Sequence[Message]) -> list[Message]:
    """Mark messages after which the model paused. Guarantee: pure.

    Args:
        messages: of the paused answer.
    """
    marked = [_with_contents(message, list(message.contents)) for message in messages]
    for message in marked[-1:]:
        message.additional_properties = {**message.additional_properties, PAUSED: True}
    return marked


def is_paused(messages: Sequence[Message]) -> bool:
    """Return whether a request asks the model to continue its last message. Guarantee: pure."""
    return bool(messages) and PAUSED in messages[-1].additional_properties


def _blocks(content: Any) -> list[Block]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(cast("list[Block]", content))


def _is_refused(block: Mapping[str, Any]) -> bool:
    kind = block.get("type")
    if kind == "text":
        return not str(block.get("text") or "").strip()
    return kind == "thinking" and not block.get("signature")


def _is_result(block: Mapping[str, Any]) -> bool:
    return block.get("type") in _RESULTS


def _asks(message: Block) -> bool:
    """Return whether a message is from a person, and not only tool results."""
    return message["role"] == "user" and not all(map(_is_result, message["content"]))


def _calls(messages: Iterable[Block]) -> tuple[set[Any], set[Any]]:
    """Return the ids of the calls of the service's own tools: those with a result, and all of them."""
    blocks = [block for message in resting(messages) for block in message["content"]]
    answered = {block.get("tool_use_id") for block in blocks if _answers(block)}
    return answered, {block.get("id") for block in blocks if block.get("type") in _HOSTED_CALLS}


def _paired(blocks: list[Block], called: set[Any], answered: set[Any] | None) -> list[Block]:
    """Leave out results without a call, and calls without a result if ``answered`` is known to be complete."""
    return [
        block
        for block in blocks
        if not (_answers(block) and block.get("tool_use_id") not in called)
        and not (answered is not None and block.get("type") in _HOSTED_CALLS and block.get("id") not in answered)
    ]


def _answers(block: Mapping[str, Any]) -> bool:
    return block_type(block.get("type")).answers


def _with_contents(message: Message, contents: list[Content]) -> Message:
    return Message(
        message.role,
        contents,
        author_name=message.author_name,
        message_id=message.message_id,
        additional_properties=dict(message.additional_properties or {}),
    )
