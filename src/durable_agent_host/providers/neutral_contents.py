"""Contents that more than one provider has, in the framework's form. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from agent_framework import Content

from durable_agent_host.providers.json_values import within

_KIND: Final = "model_output_kind"


def refusal(text: str) -> Content:
    """Return a text with the framework's marks of a refusal."""
    return Content("text", text=text, additional_properties={"core": {_KIND: "refusal"}, _KIND: "refusal"})


def is_refusal(content: Content) -> bool:
    """Return whether a content is the model's refusal, by either of the framework's marks."""
    properties = content.additional_properties
    return content.type == "text" and "refusal" in {properties.get(_KIND), within(properties, "core", _KIND)}


def approval_request(call: Mapping[str, Any]) -> Content:
    """Return the approval request for a call of a hosted MCP server's tool."""
    server = call.get("server_label")
    content = Content("function_call", hosted=True, server_name=server, additional_properties={"server_label": server})
    content.call_id = call.get("id")
    content.name = call.get("name")
    content.arguments = call.get("arguments")
    return Content.from_function_approval_request(id=str(call.get("id") or ""), function_call=content)
