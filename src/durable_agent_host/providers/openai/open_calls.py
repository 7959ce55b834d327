"""Closes open calls in a transcript that is sent in full: the API rejects a call without its result.

A turn can end with an open call: of a tool that the app only declares, of a turn that was cancelled, or an approval
without a decision. The stored conversation does not change; the sent one is closed.
"""

import copy
from collections.abc import Sequence
from typing import Any, Final

from agent_framework import Content, Message

from durable_agent_host.loops.giving_way import resting
from durable_agent_host.model.provider_item import LOST_RESULT, STAMP
from durable_agent_host.providers.openai.approvals import approval_request_id, approval_response_id
from durable_agent_host.providers.openai.forgotten import LOST, with_contents
from durable_agent_host.providers.openai.item_types import item_type
from durable_agent_host.providers.openai.items import find_item_metadata

_RESULT_TYPES: Final = frozenset({"function_result", "shell_tool_result", "computer_tool_result"})


def with_closed_calls(messages: Sequence[Message]) -> list[Message]:
    """Close open calls, and remove results without their call.

    Guarantee: pure; the messages are not changed.

    Args:
        messages: a full conversation; the service stores no part of it.

    Returns:
        The messages. A function call without a result gets one that reports it as unknown; other calls of the app's
        tools, and open approvals, are marked, so that they are omitted with everything that depends on them.
    """
    open_calls, orphan_results = _find_unpaired_calls(messages)
    open_approvals, orphan_approvals = _find_unpaired_approvals(messages)
    orphan_ids = orphan_results | orphan_approvals
    open_ids = open_calls | open_approvals
    if not orphan_ids and not open_ids:
        return list(messages)
    messages_to_send: list[Message] = []
    for message in resting(messages):
        paired_contents = [content for content in message.contents if id(content) not in orphan_ids]
        open_functions = [content for content in paired_contents if id(content) in open_calls and _is_function(content)]
        contents = [
            _mark_lost(content) if id(content) in open_ids and not _is_function(content) else content
            for content in paired_contents
        ]
        if contents or not message.contents:
            messages_to_send.append(message if contents == list(message.contents) else with_contents(message, contents))
        if open_functions:
            results = [Content("function_result", call_id=call.call_id, result=LOST_RESULT) for call in open_functions]
            messages_to_send.append(Message("tool", results))
    return messages_to_send


def _find_unpaired_calls(messages: Sequence[Message]) -> tuple[set[int], set[int]]:
    """Find calls without a result and function results without a call, by object identity.

    A result belongs to the nearest open call of its id before it, since ids may recur in a later turn.
    """
    pending_calls: dict[str, list[Content]] = {}
    orphan_results: set[int] = set()
    for content in (content for message in resting(messages) for content in message.contents):
        metadata = find_item_metadata(content) or {}
        if _is_function(content) or item_type(metadata.get("type")).needs_result:
            pending_calls.setdefault(str(metadata.get("call_id", content.call_id)), []).append(content)
        elif content.type in _RESULT_TYPES:
            if calls := pending_calls.get(str(content.call_id)):
                calls.pop()
            elif content.type == "function_result":
                orphan_results.add(id(content))
    return {id(content) for calls in pending_calls.values() for content in calls}, orphan_results


def _find_unpaired_approvals(messages: Sequence[Message]) -> tuple[set[int], set[int]]:
    """Find approval items without a response, and other approval contents without a counterpart."""
    contents = [content for message in resting(messages) for content in message.contents]
    requests = [(content, request) for content in resting(contents) if (request := approval_request_id(content))]
    request_ids = {request for _, request in requests}
    responses = [(content, request) for content in resting(contents) if (request := approval_response_id(content))]
    response_ids = {request for _, request in responses}
    open_requests = [content for content, request in requests if request not in response_ids]
    orphan_responses = [content for content, request in responses if request not in request_ids]
    item_request_ids = {id(content) for content in open_requests if find_item_metadata(content)}
    return item_request_ids, {id(content) for content in [*open_requests, *orphan_responses]} - item_request_ids


def _is_function(content: Content) -> bool:
    """Return whether a content is sent as a call of a function tool."""
    metadata = find_item_metadata(content)
    return content.type == "function_call" and (metadata is None or metadata.get("type") == "function_call")


def _mark_lost(content: Content) -> Content:
    metadata: Any = find_item_metadata(content)
    clone = copy.copy(content)
    clone.additional_properties = content.additional_properties | {STAMP: {**metadata, LOST: True}}
    return clone
