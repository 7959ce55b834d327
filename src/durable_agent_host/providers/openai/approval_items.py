"""The provider's requests for approval and their responses, as part of the history.

The framework treats both as open in its session, and drops earlier ones (``_tools.py`` of agent-framework-core 1.23);
the provider requires the requests of a replayed history with their responses. So a request and its response are
carried as the provider's own items.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.model.provider_item import ITEM
from durable_agent_host.providers.lost_state import with_contents
from durable_agent_host.providers.openai.item_mapping import METADATA, find_item_metadata, input_item
from durable_agent_host.providers.openai.item_types import Item

REQUEST: Final = "mcp_approval_request"
RESPONSE: Final = "mcp_approval_response"


def as_history(messages: Sequence[Message]) -> list[Message]:
    """Carry completed approvals as the provider's items, which the framework does not change.

    Returns:
        The messages, with copies of those that contain an approval response or its request.
    """
    contents = [content for message in messages for content in message.contents]
    responded_ids = {content.id for content in contents if content.type == "function_approval_response"}
    if not responded_ids:
        return list(messages)
    return [
        with_contents(message, [_as_item_carrier(content, responded_ids) for content in message.contents])
        for message in messages
    ]


def approval_request_id(content: Content) -> str | None:
    """Return the id of an approval request.

    Returns:
        The request's id, or None if the content is not a request.
    """
    if content.type == "function_approval_request":
        return content.id
    metadata: Mapping[str, Any] = find_item_metadata(content) or {}
    return cast("str | None", metadata.get("id")) if metadata.get("type") == REQUEST else None


def approval_response_id(content: Content) -> str | None:
    """Return the id of the request that an approval response belongs to.

    Returns:
        The request's id, or None if the content is not a response.
    """
    if content.type == "function_approval_response":
        return content.id
    metadata: Mapping[str, Any] = find_item_metadata(content) or {}
    return cast("str", metadata[ITEM]["approval_request_id"]) if metadata.get("type") == RESPONSE else None


def _as_item_carrier(content: Content, responded_ids: set[str | None]) -> Content:
    call = content.function_call
    if call is None or not call.hosted or content.id not in responded_ids:
        return content
    if content.type == "function_approval_response":
        return _carrier({"type": RESPONSE, "approval_request_id": content.id, "approve": content.approved is True})
    if content.type == "function_approval_request" and find_item_metadata(content):
        return _carrier(input_item([content]))
    return content


def _carrier(item: Item) -> Content:
    carrier = Content("text", text="")
    METADATA.attach([carrier], item)
    return carrier
