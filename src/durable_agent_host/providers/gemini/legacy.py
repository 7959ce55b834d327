"""Reads the parts that earlier versions stored alongside the contents of Gemini's hosted tools.

They stored the SDK's form of a part, without the fields of the content, under `PART`; the result of a hosted tool was a
function's result. Signatures of function calls were on the reasoning before them, which the framework's client reads.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from agent_framework import Content

PART: Final = "durable_agent_host.part"
"""Key in a content's ``additional_properties``."""

_KINDS: Final = {"tool_call": ("function_call", "toolCall"), "tool_response": ("function_result", "toolResponse")}
"""Kind of part in the SDK's form → the type of its content, and the kind in the API's."""


def legacy_part(content: Content) -> dict[str, Any] | None:
    """Return the part of a content that an earlier version stored.

    Guarantee: pure.

    Args:
        content: of any type.

    Returns:
        The part with the API's names; None when there is none, it is malformed, or it belongs to another content: the
        framework copies the properties of a call to its result.
    """
    properties: Any = content.additional_properties.get(PART)
    if not isinstance(properties, dict):
        return None
    part = cast("dict[str, Any]", properties)
    for kind, (content_type, name) in _KINDS.items():
        inner: Any = part.get(kind)
        if content.type == content_type and isinstance(inner, dict) and "tool_type" in inner:
            tool_fields = {
                **_to_camel_case(cast("dict[str, Any]", inner)),
                "id": content.call_id,
                **_call_payload(content),
            }
            return {name: tool_fields, **_to_camel_case({key: value for key, value in part.items() if key != kind})}
    return None


def _call_payload(content: Content) -> dict[str, Any]:
    if content.type == "function_call":
        return {"args": content.parse_arguments() or {}}
    try:
        result: Any = json.loads(content.result) if isinstance(content.result, str) else content.result
    except (ValueError, RecursionError):
        result = content.result
    return {} if result is None else {"response": result}


def _to_camel_case(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"".join([head, *map(str.capitalize, tail)]): v for n, v in fields.items() for head, *tail in [n.split("_")]}
