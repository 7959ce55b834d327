"""Closes unanswered calls in a transcript that is sent whole: the API rejects a call without its answer. Pure.

A turn can end with an unanswered call: of a tool that the app only declares, of a turn ended from outside, an approval
that nobody gave. The stored conversation stays as it is; the sent one is closed.
"""

import copy
from collections.abc import Sequence
from typing import Any, Final

from agent_framework import Content, Message

from durable_agent_host.loops.giving_way import resting
from durable_agent_host.model.provider_item import LOST_RESULT, STAMP
from durable_agent_host.providers.openai.approvals import answered_request, asked_request
from durable_agent_host.providers.openai.forgotten import GONE, with_contents
from durable_agent_host.providers.openai.item_types import item_type
from durable_agent_host.providers.openai.items import stamp_of

_ANSWERS: Final = frozenset({"function_result", "shell_tool_result", "computer_tool_result"})


def closed_messages(messages: Sequence[Message]) -> list[Message]:
    """Close unanswered calls, and leave out answers without their call.

    Guarantee: pure; the given messages are not changed.

    Args:
        messages: a whole conversation, of which the service keeps no part.

    Returns:
        The messages. A function call without a result gets one that reports it as unknown; other calls of the app's
        tools, and approvals that nobody gave, are marked, so that they are left out with everything that depends on
        them.
    """
    open_calls, orphans = _unpaired(messages)
    unapproved, unasked = _unpaired_approvals(messages)
    alone, unanswered = orphans | unasked, open_calls | unapproved
    if not alone and not unanswered:
        return list(messages)
    closed: list[Message] = []
    for message in resting(messages):
        paired = [content for content in message.contents if id(content) not in alone]
        lost = [content for content in paired if id(content) in open_calls and _is_function(content)]
        contents = [
            _marked(content) if id(content) in unanswered and not _is_function(content) else content
            for content in paired
        ]
        if contents or not message.contents:
            closed.append(message if contents == list(message.contents) else with_contents(message, contents))
        if lost:
            results = [Content("function_result", call_id=call.call_id, result=LOST_RESULT) for call in lost]
            closed.append(Message("tool", results))
    return closed


def _unpaired(messages: Sequence[Message]) -> tuple[set[int], set[int]]:
    """Find calls without an answer and function results without a call, by object identity.

    An answer belongs to the nearest open call of its id before it, since ids may recur in a later turn.
    """
    waiting: dict[str, list[Content]] = {}
    orphans: set[int] = set()
    for content in (content for message in resting(messages) for content in message.contents):
        mark = stamp_of(content) or {}
        if _is_function(content) or item_type(mark.get("type")).needs_answer:
            waiting.setdefault(str(mark.get("call_id", content.call_id)), []).append(content)
        elif content.type in _ANSWERS:
            if calls := waiting.get(str(content.call_id)):
                calls.pop()
            elif content.type == "function_result":
                orphans.add(id(content))
    return {id(content) for calls in waiting.values() for content in calls}, orphans


def _unpaired_approvals(messages: Sequence[Message]) -> tuple[set[int], set[int]]:
    """Find stamped requests for approval that nobody answered, and other approval contents without a counterpart."""
    found = [content for message in resting(messages) for content in message.contents]
    requests = [(content, request) for content in resting(found) if (request := asked_request(content))]
    asked = {request for _, request in requests}
    responses = [(content, request) for content in resting(found) if (request := answered_request(content))]
    answered = {request for _, request in responses}
    unapproved = [content for content, request in requests if request not in answered]
    unasked = [content for content, request in responses if request not in asked]
    stamped = {id(content) for content in unapproved if stamp_of(content)}
    return stamped, {id(content) for content in [*unapproved, *unasked]} - stamped


def _is_function(content: Content) -> bool:
    """Return whether a content is sent as a call of a function tool."""
    mark = stamp_of(content)
    return content.type == "function_call" and (mark is None or mark.get("type") == "function_call")


def _marked(content: Content) -> Content:
    mark: Any = stamp_of(content)
    changed = copy.copy(content)
    changed.additional_properties = content.additional_properties | {STAMP: {**mark, GONE: True}}
    return changed
