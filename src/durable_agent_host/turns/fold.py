"""Streamed updates to the final response: however a stream was cut, the stored message is the same.

The framework's finalizer joins text, reasoning, arguments and code. What it leaves out of hosted code execution
(outputs, images, the container; it also puts results before their calls) is known from the provider's own items, which
a provider adapter reads from the live updates as pairs of contents, a call and its result.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agent_framework import AgentResponse, AgentResponseUpdate, Content, Message

HostedCalls = Mapping[str, tuple[Content, ...]]
"""Call id → the contents that stand for the call and its result, complete, in order."""

_HOSTED_TYPES = frozenset({"code_interpreter_tool_call", "code_interpreter_tool_result"})


def fold_updates(updates: Sequence[AgentResponseUpdate], hosted_calls: HostedCalls) -> AgentResponse[Any]:
    """Fold a turn's updates into its response.

    Guarantee: pure; cutting the stream into other chunks gives the same response.

    Args:
        updates: in arrival order, may be empty.
        hosted_calls: hosted code executions of the same updates, by call id; they take the place of what the stream
            says about these calls.

    Returns:
        The response: one content a call, the complete script with its outputs, calls before results; no live
        provider objects on it.
    """
    response: AgentResponse[Any] = AgentResponse.from_updates(updates)
    for message in response.messages:
        message.contents = _complete_hosted_calls(message, hosted_calls)
    response.messages = [message for message in response.messages if message.contents]
    response.raw_representation = None
    return response


def _complete_hosted_calls(message: Message, hosted_calls: HostedCalls) -> list[Content]:
    contents: list[Content] = []
    placed: set[str] = set()
    for content in message.contents:
        call_id = content.call_id if content.type in _HOSTED_TYPES else None
        if call_id is None or call_id not in hosted_calls:
            if not _is_empty(content):
                contents.append(content)
        elif call_id not in placed:
            placed.add(call_id)
            contents.extend(hosted_calls[call_id])
    return contents


def _is_empty(content: Content) -> bool:
    return content.type == "text" and not content.text and not content.annotations and not content.additional_properties
