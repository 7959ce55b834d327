"""The provider's requests for approval and their answers, as part of the history. Pure.

The framework treats both as open in its session, and drops earlier ones (``_tools.py`` of agent-framework-core 1.23);
the provider requires the requests of a replayed history with their answers. So an answered request and its answer are
carried as the provider's own items.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.loops.giving_way import resting
from durable_agent_host.model.provider_item import STAMP
from durable_agent_host.providers.openai.forgotten import with_contents
from durable_agent_host.providers.openai.items import PROVIDER, item_of, stamp_of

REQUEST: Final = "mcp_approval_request"
ANSWER: Final = "mcp_approval_response"


def as_history(messages: Sequence[Message]) -> list[Message]:
    """Carry answered approvals as the provider's items, which the framework leaves alone.

    Guarantee: pure; the given messages are not changed; doing it again changes nothing.

    Args:
        messages: sent to the model or received from it before.

    Returns:
        The messages, with copies of those that contain an answer to the provider or an answered request.
    """
    contents = [content for message in resting(messages) for content in message.contents]
    answered = {content.id for content in contents if content.type == "function_approval_response"}
    if not answered:
        return list(messages)
    return [
        with_contents(message, [_carried(content, answered) for content in message.contents])
        for message in resting(messages)
    ]


def asked_request(content: Content) -> str | None:
    """Return the id of the request for approval that a content is. Guarantee: pure.

    Args:
        content: of any type.

    Returns:
        The request's id, or None when the content is not one.
    """
    if content.type == "function_approval_request":
        return content.id
    mark: Mapping[str, Any] = stamp_of(content) or {}
    return cast("str | None", mark.get("id")) if mark.get("type") == REQUEST else None


def answered_request(content: Content) -> str | None:
    """Return the id of the request for approval that a content answers. Guarantee: pure.

    Args:
        content: of any type.

    Returns:
        The request's id, or None when the content is not an answer.
    """
    if content.type == "function_approval_response":
        return content.id
    mark: Mapping[str, Any] = stamp_of(content) or {}
    return cast("str", mark["approval_request_id"]) if mark.get("type") == ANSWER else None


def _carried(content: Content, answered: set[str | None]) -> Content:
    call = content.function_call
    if call is None or not call.hosted or content.id not in answered:
        return content
    if content.type == "function_approval_response":
        item = {"type": ANSWER, "id": None, "approval_request_id": content.id, "approve": content.approved is True}
        return Content("text", text="", additional_properties={STAMP: {"provider": PROVIDER, **item}})
    if content.type == "function_approval_request" and stamp_of(content):
        item = item_of([content])
        return Content("text", text="", additional_properties={STAMP: {"provider": PROVIDER, **item}})
    return content
