"""Contents that more than one provider has, in the framework's form. Pure."""

from collections.abc import Mapping
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.model.ending import REFUSAL_DETAILS


def as_objects(values: Any) -> list[dict[str, Any]]:
    """Return the objects of a list; none in place of anything else."""
    elements = cast("list[Any]", values) if isinstance(values, list) else []
    return [element for element in elements if isinstance(element, dict)]


def sdk_json(sdk_object: Any) -> Any:
    """Return an object of an SDK as received: with the service's names, without unset fields, of any kind."""
    return sdk_object.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)


def filtered_categories(results: Any) -> str:
    """List the categories whose filter has stopped something, in Azure's results, wherever they are in a value."""
    names: list[str] = []
    pending: list[tuple[str, Any]] = [("", results)]
    while pending:
        name, value = pending.pop(0)
        if isinstance(value, list):
            pending += [(name, element) for element in cast("list[Any]", value)]
        elif isinstance(value, Mapping):
            fields = cast("Mapping[str, Any]", value)
            if fields.get("filtered") is True and name not in names:
                names.append(name)
            pending += fields.items()
    return ", ".join(names)


def refusal_properties(*, message: Any = None, category: Any) -> dict[str, Any]:
    """Return the properties of an update or response with what a service says of a refusal; none when it says nothing.

    See `durable_agent_host.model.ending.REFUSAL_DETAILS`.
    """
    details = {"message": message, "category": category}
    texts = {name: value for name, value in details.items() if isinstance(value, str) and value}
    return {REFUSAL_DETAILS: texts} if texts else {}


def text_span(start: Any, end: Any) -> dict[str, Any]:
    """Return the range of a citation as a field of it; nothing where the service gives none."""
    if not isinstance(start, int) or not isinstance(end, int):
        return {}
    return {"annotated_regions": [{"type": "text_span", "start_index": start, "end_index": end}]}


WEB_SEARCHES: Final = "web_search_count"
"""Name of the count of web searches that a service has run, for which some charge, among token counts."""


def add_counts(target: Any, counts: Mapping[str, int]) -> None:
    """Add counts to the usage of an update or a response; the service may report none."""
    usages = [content.usage_details for content in getattr(target, "contents", ()) if content.type == "usage"]
    for usage in (*usages, getattr(target, "usage_details", None)):
        if usage is not None:
            usage.update({name: count for name, count in counts.items() if count})


def approval_request(call: Mapping[str, Any]) -> Content:
    """Return the approval request for a call of a hosted MCP server's tool."""
    server = call.get("server_label")
    content = Content("function_call", hosted=True, server_name=server, additional_properties={"server_label": server})
    content.call_id = call.get("id")
    content.name = call.get("name")
    content.arguments = call.get("arguments")
    return Content.from_function_approval_request(id=str(call.get("id") or ""), function_call=content)
