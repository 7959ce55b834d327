"""The last step of the fold: drop empty contents, put every result after its call. Pure."""

import copy
from collections.abc import Sequence

from agent_framework import Content

from durable_agent_host.model.provider_item import STAMP


def tidy_contents(contents: Sequence[Content]) -> list[Content]:
    """Drop empty texts, and put results of hosted tools after their calls.

    Guarantee: pure; doing it again changes nothing.

    Args:
        contents: of one message, joined.

    Returns:
        The other contents in their order, except results that came before their calls.
    """
    return _calls_first([_own(content) for content in contents if not _is_empty(content)])


def _is_empty(content: Content) -> bool:
    return content.type == "text" and not content.text and not content.annotations and not content.additional_properties


def _own(content: Content) -> Content:
    """Remove the call's identity from its result, where the framework copies the call's properties."""
    if content.type != "function_result" or STAMP not in content.additional_properties:
        return content
    own = copy.copy(content)
    own.additional_properties = {name: v for name, v in content.additional_properties.items() if name != STAMP}
    return own


def _calls_first(contents: list[Content]) -> list[Content]:
    """Put the result of a hosted tool after its call, where a stream emits it before."""
    awaited = {_hosted_id(one) for one in contents if one.type.endswith("_tool_call")} - {None}
    if not awaited:
        return contents
    ordered: list[Content] = []
    held: dict[str | None, list[Content]] = {}
    for content in contents:
        name = _hosted_id(content)
        if content.type.endswith("_tool_result") and name in awaited:
            held.setdefault(name, []).append(content)
            continue
        ordered.append(content)
        if content.type.endswith("_tool_call") and name in awaited:
            awaited.discard(name)
            ordered += held.pop(name, [])
    return ordered


def _hosted_id(content: Content) -> str | None:
    return content.call_id or content.image_id
