"""What the framework's stream parser leaves out of contents, taken from the provider's finished items. Pure.

Source: ``_parse_chunk_from_openai`` of agent-framework-openai 1.17, which has no branch for finished code runs, reads
the arguments of an MCP call before they are there, and keeps the last part of a reasoning summary alone.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from agent_framework import Annotation, Content


def _complete_reasoning(item: Mapping[str, Any], mine: list[Content]) -> list[Content]:
    """One content for each part of the summary: the framework keeps only the last part of a stream."""
    texts = [str(part.get("text") or "") for part in cast("list[dict[str, Any]]", item.get("summary") or [])]
    first = mine[0] if mine else Content("text_reasoning", id=item.get("id"), text="")
    first.protected_data = item.get("encrypted_content") or first.protected_data
    if len(texts) <= 1 or [content.text for content in mine] == texts:
        return [first, *mine[1:]]
    first.text = texts[0]
    return [first, *(Content("text_reasoning", id=item.get("id"), text=text) for text in texts[1:])]


def _complete_code(item: Mapping[str, Any], _mine: list[Content]) -> list[Content]:
    properties = {"container_id": item["container_id"]} if item.get("container_id") else {}
    call = Content(
        "code_interpreter_tool_call",
        call_id=item["id"],
        inputs=[Content.from_text(item.get("code") or "")],
        status=item.get("status"),
        additional_properties=properties,
    )
    outputs = [_parse_output_from_openai(output) for output in item.get("outputs") or ()]
    result = Content("code_interpreter_tool_result", call_id=item["id"], outputs=outputs, status=item.get("status"))
    return [call, result]


def _parse_output_from_openai(output: Mapping[str, Any]) -> Content:
    if output.get("type") == "logs":
        return Content.from_text(output.get("logs") or "")
    if output.get("type") == "image" and output.get("url"):
        url = str(output["url"])
        if url.startswith("data:"):
            return Content("data", uri=url, media_type=url[5:].partition(";")[0] or "image/png")
        return Content("uri", uri=url, media_type="image/png")
    return Content.from_text("", additional_properties={"openai_output": dict(output)})


def _complete_mcp(item: Mapping[str, Any], mine: list[Content]) -> list[Content]:
    """The stream's arguments come after the event that the framework reads them from."""
    for content in mine:
        if content.type == "mcp_server_tool_call":
            content.arguments = item.get("arguments")
            content.status = item.get("status")
        elif content.type == "mcp_server_tool_result" and item.get("error"):
            content.additional_properties = content.additional_properties | {"error": item["error"]}
    return mine


def _complete_search(item: Mapping[str, Any], mine: list[Content]) -> list[Content]:
    """A call is read when it begins, and what is searched for is known when it ends."""
    for content in mine:
        content.status = item.get("status")
        if content.type == "search_tool_call" and item["type"] == "file_search_call":
            content.arguments = {"queries": item.get("queries")}
        elif content.type == "search_tool_call":
            action = cast("dict[str, Any]", item.get("action") or {})
            content.arguments = {name: value for name, value in action.items() if name != "sources"}
        elif item["type"] == "web_search_call":
            content.result = {"action": item.get("action")}
    return mine


def _complete_image(item: Mapping[str, Any], mine: list[Content]) -> list[Content]:
    """The partial images of a stream are drafts of the one that the finished item has."""
    if not item.get("result"):
        return mine
    return [content for content in mine if not _is_draft(content)][-2:]


def _is_draft(content: Content) -> bool:
    outputs = content.outputs
    return isinstance(outputs, Content) and bool(outputs.additional_properties.get("is_partial_image"))


COMPLETE: Final[dict[str, Callable[[Mapping[str, Any], list[Content]], list[Content]]]] = {
    "reasoning": _complete_reasoning,
    "code_interpreter_call": _complete_code,
    "mcp_call": _complete_mcp,
    "web_search_call": _complete_search,
    "file_search_call": _complete_search,
    "image_generation_call": _complete_image,
}
"""Type of item → what makes its contents complete; other types are as they are."""


def parse_annotations_from_openai(part: Mapping[str, Any]) -> list[Annotation] | None:
    """Read the citations of a text part, as ``_parse_annotation_from_openai`` of the framework does.

    Guarantee: pure.

    Args:
        part: of a message item.

    Returns:
        Annotations in order, or None without any.
    """
    parsed: list[Annotation] = []
    for number, note in enumerate(cast("list[dict[str, Any]]", part.get("annotations") or [])):
        annotation: dict[str, Any] = {"type": "citation"}
        names = {"url": note.get("url") or note.get("filename"), "title": note.get("title")}
        annotation |= {name: value for name, value in names.items() if value is not None}
        if "file_id" in note:
            annotation["file_id"] = note["file_id"]
        properties = {name: note[name] for name in ("container_id", "index") if note.get(name) is not None}
        annotation["additional_properties"] = {"annotation_index": number} | properties
        if "start_index" in note:
            region = {"type": "text_span", "start_index": note["start_index"], "end_index": note["end_index"]}
            annotation["annotated_regions"] = [region]
        parsed.append(cast("Annotation", cast("object", annotation)))
    return parsed or None
