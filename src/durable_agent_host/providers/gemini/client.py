"""The hosted copy of an agent's Gemini client, which keeps the provider's parts."""
# ruff: noqa: SLF001 - the overrides call what they override

import copy
import json
import logging
from collections.abc import Sequence
from typing import Any, cast

from agent_framework import Content

from durable_agent_host.agent.overriding import copy_with
from durable_agent_host.providers.gemini.parts import PART, carried_part, stored_part

_LOGGER = logging.getLogger(__name__)


def adapt_client(client: Any) -> Any:
    """Copy a client of Gemini so that it keeps the provider's parts.

    Guarantee: pure; the client given is not changed.

    Args:
        client: of the class `RawGeminiChatClient` or one derived from it.

    Returns:
        A copy that shares its connections; the client itself when it is adapted already.
    """
    if isinstance(client, _KeepsParts):
        return client
    return copy_with(client, _KeepsParts)


class _KeepsParts:
    """The overrides; stands before the client's own class in the method resolution order."""

    def _parse_parts(self, parts: Sequence[Any], **kwargs: Any) -> list[Content]:
        client: Any = super()
        contents: list[Content] = client._parse_parts(parts, **kwargs)
        for content in contents:
            if (part := content.raw_representation) is None:
                continue
            if carried := carried_part(content, part.model_dump(mode="json", exclude_none=True)):
                content.additional_properties = content.additional_properties | {PART: carried}
        return contents

    def _convert_message_contents(self, message_contents: Sequence[Content], *args: Any) -> list[Any]:
        client: Any = super()
        # Streams end with an empty text; the recorded requests that were accepted leave it out, as the fold does.
        said = [one for one in message_contents if one.type != "text" or one.text] or message_contents
        return client._convert_message_contents([_with_part(content) for content in said], *args)

    def _convert_function_result(self, content: Content, *args: Any) -> Any:
        client: Any = super()
        return client._convert_function_result(_with_part(content), *args)


def _with_part(content: Content) -> Content:
    """Give a content that has come from a store the part that it was read from, and an answer its own form.

    The framework keeps the answer of a hosted tool as JSON text, sends the text, and the API takes an object.
    """
    live = content.raw_representation or _live_part(content)
    if live is content.raw_representation and getattr(live, "tool_response", None) is None:
        return content
    whole = copy.copy(content)
    whole.raw_representation = live
    if getattr(live, "tool_response", None) is not None:
        whole.result = _answer_object(content.result)
    return whole


def _live_part(content: Content) -> Any:
    if (part := stored_part(content)) is None:
        return None
    from google.genai.types import Part  # noqa: PLC0415 - only where the client is installed

    try:
        return Part.model_validate_json(json.dumps(part))
    except ValueError as error:
        _LOGGER.warning("a stored part of call %s is no part of Gemini's, and is not sent: %s", content.call_id, error)
        return None


def _answer_object(answer: Any) -> Any:
    try:
        found = json.loads(answer) if isinstance(answer, str) else answer
    except (ValueError, RecursionError):
        return answer
    return cast("Any", found) if isinstance(found, dict) else answer
