"""Reduces a Gemini part to what its neutral content cannot carry, and rebuilds it. Pure; needs no SDK.

The framework's client sends the calls of hosted tools and their answers back from the part that it has parsed, which a
store does not have: the signatures on them, and what kind of tool answered. Ids, arguments and answers are in the
neutral content, and so is the signature of a function's call, which the reasoning before it carries.

Source: ``_convert_message_contents`` and ``_parse_parts`` of agent-framework-gemini 1.0.0b261022.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from agent_framework import Content

PART: Final = "durable_agent_host.part"
"""Key in a content's ``additional_properties``: the part that it was read from, without what the content has."""

_KINDS: Final[dict[str, tuple[str, frozenset[str]]]] = {
    "tool_call": ("function_call", frozenset({"id", "args"})),
    "tool_response": ("function_result", frozenset({"id", "response"})),
}
"""Kind of part → the type of its content, and those of its fields that the content has."""
_FUNCTION_CALL: Final = "function_call"


def carried_part(content: Content, part: Mapping[str, Any]) -> dict[str, Any] | None:
    """Reduce a part to what its content lacks.

    Guarantee: pure.

    Args:
        content: what the framework made of the part.
        part: as JSON, without what is null.

    Returns:
        The fields, or None when the client sends nothing of the part back, or the content has it all.
    """
    for kind, (content_type, known) in _KINDS.items():
        if content.type == content_type and kind in part:
            inner = {name: value for name, value in part[kind].items() if name not in known}
            return {**part, kind: inner}
    if content.type == _FUNCTION_CALL and _FUNCTION_CALL in part:
        return {n: v for n, v in part.items() if n not in {_FUNCTION_CALL, "thought_signature"}} or None
    return None


def stored_part(content: Content) -> dict[str, Any] | None:
    """Give the part of a content that has come from a store.

    Guarantee: pure.

    Args:
        content: of any type.

    Returns:
        The part as JSON, with a place for what the client takes from the content; None when there is none, or it is of
        another content: the framework copies the properties of a call to its result.
    """
    found: Any = content.additional_properties.get(PART)
    if not isinstance(found, dict):
        return None
    part = cast("dict[str, Any]", found)
    kind = next((kind for kind in _KINDS if kind in part), None)
    if kind is not None:
        return part if content.type == _KINDS[kind][0] else None
    return {**part, _FUNCTION_CALL: {}} if content.type == _FUNCTION_CALL else None
