"""Streamed updates to the final response: however a stream was cut, the stored message is the same.

The framework's finalizer joins text, reasoning, arguments and code. What its parsers leave out (outputs, images and
containers of hosted code, phases, the order of items) is known from the provider's own items in the live updates. A
provider adapter reads them; it sees one model call at a time, as the provider gave it out.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from agent_framework import AgentResponse, AgentResponseUpdate, Content, Message

from durable_agent_host.model.provider_item import STAMP

CompleteCall = Callable[[list[Message], Sequence[AgentResponseUpdate]], list[Message]]
"""The messages of one model call, and its updates → the same messages, complete."""


def fold_updates(updates: Sequence[AgentResponseUpdate], complete_call: CompleteCall) -> AgentResponse[Any]:
    """Fold a turn's updates into its response.

    Guarantee: pure; cutting the stream into other chunks gives the same response.

    Args:
        updates: in arrival order, may be empty.
        complete_call: adds what the provider's own items say.

    Returns:
        The response: one content a call, the complete script with its outputs, calls before results; no live
        provider objects on it.
    """
    response: AgentResponse[Any] = AgentResponse.from_updates(updates)
    response.messages = [
        message
        for call in _calls(updates)
        for message in complete_call(AgentResponse[Any].from_updates(call).messages, call)
    ]
    for message in response.messages:
        message.contents = [_own(content) for content in message.contents if not _is_empty(content)]
    response.messages = [message for message in response.messages if message.contents]
    response.raw_representation = None
    return response


def _calls(updates: Sequence[AgentResponseUpdate]) -> Iterator[Sequence[AgentResponseUpdate]]:
    """Split a turn's updates: each model call, and the tool results between two."""
    start = 0
    role: Any = None
    response_id: str | None = None
    for place, update in enumerate(updates):
        is_other_role = update.role is not None and role is not None and update.role != role
        is_other_call = None not in (update.response_id, response_id) and update.response_id != response_id
        if is_other_role or is_other_call:
            yield updates[start:place]
            start, response_id = place, None
        role = update.role or role
        response_id = update.response_id or response_id
    if updates:
        yield updates[start:]


def _is_empty(content: Content) -> bool:
    return content.type == "text" and not content.text and not content.annotations and not content.additional_properties


def _own(content: Content) -> Content:
    """Take the call's identity off its result: the framework copies a call's properties there."""
    if content.type != "function_result" or STAMP not in content.additional_properties:
        return content
    own = copy.copy(content)
    own.additional_properties = {name: v for name, v in content.additional_properties.items() if name != STAMP}
    return own
