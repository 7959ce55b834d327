"""Contents that more than one provider has, in the framework's form. Pure."""

from collections.abc import Mapping
from typing import Any, Final, cast

from agent_framework import Content


def as_object(value: Any) -> dict[str, Any]:
    """Return a JSON object; an empty one in place of anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_objects(values: Any) -> list[dict[str, Any]]:
    """Return the objects of a list; none in place of anything else."""
    elements = cast("list[Any]", values) if isinstance(values, list) else []
    return [element for element in elements if isinstance(element, dict)]


def sdk_json(sdk_object: Any) -> Any:
    """Return an object of an SDK as received: with the service's names, without unset fields, of any kind."""
    return sdk_object.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)


def within(value: Any, *names: str) -> Any:
    """Return a value inside objects; None where one of them is missing."""
    for name in names:
        value = cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None
    return value


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
