"""Prepares a conversation with another provider's messages for the provider that continues it.

Theory of operation. Output of a provider's service has item metadata with the provider's name
(`providers.item_metadata`); contents without metadata belong to the provider of the other contents of the turn. The
target's own items stay unchanged. Of others, texts, calls of the app's tools and their results stay; what the service
ran itself becomes a line of text, and reasoning is omitted: it is encrypted for its own service. The stored
conversation does not change, so the first provider finds its own items when the conversation returns to it.
"""

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.codec.shared_text import without_item
from durable_agent_host.codec.tool_result_text import result_text, value_text
from durable_agent_host.model.provider_item import ITEM, OWNER, PART_OF, STAMP

_FILES: Final = frozenset({"data", "uri", "hosted_file"})
_APPROVALS: Final = frozenset({"function_approval_request", "function_approval_response"})
_WITHOUT_TEXT: Final = frozenset({"text_reasoning", "usage"}) | _APPROVALS

SERVICE_CONTENTS: Final = _FILES | {
    "hosted_vector_store",
    *("code_interpreter_tool_call", "code_interpreter_tool_result"),
    *("image_generation_tool_call", "image_generation_tool_result"),
    *("mcp_server_tool_call", "mcp_server_tool_result"),
    *("search_tool_call", "search_tool_result"),
    *("shell_tool_call", "shell_tool_result"),
}
"""Contents of an assistant that clients can send only as items of their own service."""

IMAGES: Final = re.compile(r"image/(png|jpeg|gif|webp)")
"""Media that every service with vision accepts."""


@dataclass(frozen=True)
class ReplayTarget:
    """What the continuing provider can be sent.

    Attributes:
        provider: its name in item metadata; empty when it has none.
        unsent: types of an assistant's contents that its client omits or rejects when they are no items of its own.
        media: the kinds of images and other files that its service accepts from a user.
    """

    provider: str = ""
    unsent: frozenset[str] = SERVICE_CONTENTS
    media: re.Pattern[str] = IMAGES


def describe_content(content: Content) -> str:
    """Describe a content as text: a line for what a service ran or made.

    Returns:
        The text; empty for reasoning and approvals.
    """
    if content.type == "text":
        return content.text or ""
    if content.type in _WITHOUT_TEXT:
        return ""
    tool = content.tool_name or content.name or re.sub("(_tool)?_(call|result)$", "", content.type)
    is_call = content.type.endswith("_call")
    arguments = content.inputs or content.commands or content.arguments
    text = value_text(arguments) if is_call else result_text(content)
    return text if content.type in _FILES else f"[{tool}{'' if is_call else ' result'}: {text}]"


def as_neutral(content: Content) -> Content:
    """Return a content without its item, which it no longer is; as a text if the client would leave it out."""
    if content.type in SERVICE_CONTENTS:
        return Content.from_text(describe_content(content))
    neutral = without_item(content)
    if neutral is not content:
        neutral.protected_data = None  # it signs the text that there was
    return neutral


def rewrite_for(messages: Sequence[Message], target: ReplayTarget) -> list[Message]:
    """Prepare a conversation for a provider that may not have started it.

    Returns:
        The same messages if all contents are the target's own, otherwise copies.
    """
    rewritten_messages: list[Message] = []
    hosted_call_ids: set[str | None] = set()
    for message, turn_owner in zip(messages, _owners(messages), strict=True):
        owner = turn_owner
        contents: list[Content] = []
        for content in message.contents:
            if PART_OF not in content.additional_properties:
                owner = _owner(content) or turn_owner
            is_foreign = owner is not None and owner != target.provider
            if message.role == "user":
                contents.append(_user_content(content, target) if is_foreign else content)
            elif _is_app_content(content, hosted_call_ids, is_foreign=is_foreign) or not (
                is_foreign or (owner is None and content.type in target.unsent)
            ):
                contents.append(_without_properties(content) if is_foreign else content)
            else:
                hosted_call_ids |= {content.call_id} if content.type == "function_call" else set()
                text = describe_content(content)
                contents += [Content.from_text(text)] if text else []
        rewritten_messages += _with_contents(message, contents)
    return rewritten_messages


def _owners(messages: Sequence[Message]) -> list[str | None]:
    """Return for each message the provider of its turn, or None."""
    owners: list[str | None] = []
    for turn in _turns(messages):
        owner_names = (name for message in turn for content in message.contents if (name := _owner(content)))
        owner = next(owner_names, None)
        owners += [owner] * len(turn)
    return owners


def _turns(messages: Sequence[Message]) -> Iterator[list[Message]]:
    turn: list[Message] = []
    for message in messages:
        if message.role == "user" and turn:
            yield turn
            turn = []
        turn.append(message)
    if turn:
        yield turn


def _owner(content: Content) -> str | None:
    """Return the provider that a content names."""
    metadata = content.additional_properties.get(STAMP)
    # The framework copies the properties of a function's call to its result.
    if isinstance(metadata, dict) and ITEM in metadata and content.type != "function_result":
        return str(cast("dict[str, Any]", metadata).get("provider"))
    return content.additional_properties.get(OWNER)


def _user_content(content: Content, target: ReplayTarget) -> Content:
    """Return a file as its name if it is at another service, or of a kind that the target does not accept."""
    is_accepted = target.media.fullmatch((content.media_type or "").partition(";")[0]) and content.type != "hosted_file"
    return content if content.type not in _FILES or is_accepted else Content.from_text(result_text(content))


def _without_properties(content: Content) -> Content:
    clone = copy.copy(content)
    clone.additional_properties = {}
    return clone


def _is_app_content(content: Content, hosted_call_ids: set[str | None], *, is_foreign: bool) -> bool:
    """Return whether a content is a call of the app's tools, its result, or its approval."""
    if content.type == "function_call":
        return not (is_foreign and (content.informational_only or content.hosted))
    if content.type == "function_result":
        return content.call_id not in hosted_call_ids
    return content.type in _APPROVALS and not (content.function_call and content.function_call.hosted)


def _with_contents(message: Message, contents: list[Content]) -> list[Message]:
    """Return a message with other contents; texts among the results of tools are the assistant's."""
    if contents == list(message.contents):
        return [message]
    texts = [content for content in contents if message.role == "tool" and content.type == "text"]
    clone = copy.copy(message)
    clone.contents = [content for content in contents if content not in texts]
    return [clone] * bool(clone.contents) + [Message("assistant", texts)] * bool(texts)
