"""Rebuilds the fields of the provider's items from neutral contents.

Each function takes an item's contents, in order and by type, and may raise AttributeError, KeyError or TypeError for
malformed contents. `item_types` maps types of items to these functions.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from agent_framework import Annotation, Content

from durable_agent_host.model.ending import is_refusal

Item = dict[str, Any]


def message_fields(group: Sequence[Content], _by_type: Mapping[str, Content]) -> Item:
    """Read a message."""
    return {"role": "assistant", "status": "completed", "content": [_text_part(content) for content in group]}


def _text_part(content: Content) -> Item:
    if is_refusal(content):
        return {"type": "refusal", "refusal": content.text}
    annotations = [_prepare_annotation_for_openai(annotation) for annotation in content.annotations or ()]
    return {"type": "output_text", "text": content.text, "annotations": annotations}


def _prepare_annotation_for_openai(annotation: Annotation) -> Item:
    """Write a citation as the API does; differences are stored in the item metadata."""
    fields: Any = annotation
    region: Item = fields["annotated_regions"][0] if fields.get("annotated_regions") else {}
    properties: Item = fields.get("additional_properties") or {}
    span = {name: region[name] for name in ("start_index", "end_index") if name in region}
    if properties.get("container_id"):
        identity = {"container_id": properties["container_id"], "file_id": fields.get("file_id")}
        return {"type": "container_file_citation", **identity, "filename": fields.get("url"), **span}
    if fields.get("file_id"):
        identity = {"file_id": fields["file_id"], "filename": fields.get("url"), "index": properties.get("index")}
        return {"type": "file_citation", **identity}
    return {"type": "url_citation", "url": fields.get("url"), "title": fields.get("title"), **span}


def reasoning_fields(group: Sequence[Content], _by_type: Mapping[str, Content]) -> Item:
    """Read reasoning."""
    texts = [content for content in group if content.text]
    fields: Item = {
        "summary": [
            {"type": "summary_text", "text": content.text} for content in texts if not _is_reasoning_text(content)
        ]
    }
    if plain := [{"type": "reasoning_text", "text": content.text} for content in texts if _is_reasoning_text(content)]:
        fields["content"] = plain
    if encrypted_content := next((content.protected_data for content in group if content.protected_data), None):
        fields["encrypted_content"] = encrypted_content
    return fields


def _is_reasoning_text(content: Content) -> bool:
    return content.additional_properties.get("reasoning_text") is True


def function_call_fields(group: Sequence[Content], _by_type: Mapping[str, Content]) -> Item:
    """Read a function call."""
    call = group[0]
    return {"call_id": call.call_id, "name": call.name, "arguments": call.arguments, "status": "completed"}


def code_fields(_group: Sequence[Content], by_type: Mapping[str, Content]) -> Item:
    """Read a code run from its call and its result."""
    call = by_type["code_interpreter_tool_call"]
    result = by_type["code_interpreter_tool_result"]
    return {
        "code": "".join(str(part.text) for part in call.inputs or ()),
        "container_id": call.additional_properties.get("container_id"),
        "outputs": [_prepare_output_for_openai(output) for output in cast("list[Content]", result.outputs or [])],
        "status": call.status,
    }


def _prepare_output_for_openai(output: Content) -> Item:
    if raw_output := output.additional_properties.get("openai_output"):
        return dict(raw_output)
    if output.type == "text":
        return {"type": "logs", "logs": output.text}
    return {"type": "image", "url": output.uri}


def web_search_fields(_group: Sequence[Content], by_type: Mapping[str, Content]) -> Item:
    """Read a web search from its result."""
    result = by_type["search_tool_result"]
    return {"action": cast("Item", result.result)["action"], "status": result.status}


def file_search_fields(_group: Sequence[Content], by_type: Mapping[str, Content]) -> Item:
    """Read a file search from its call and its result."""
    call = by_type["search_tool_call"]
    result = by_type["search_tool_result"]
    results = cast("dict[str, Any]", result.result or {}).get("results")
    return {"queries": _object(call.arguments)["queries"], "status": call.status} | (
        {} if results is None else {"results": results}
    )


def patch_fields(_group: Sequence[Content], by_type: Mapping[str, Content]) -> Item:
    """Read a patch."""
    call = by_type["function_call"]
    return {"call_id": call.call_id, "operation": _object(call.arguments)}


def mcp_fields(_group: Sequence[Content], by_type: Mapping[str, Content]) -> Item:
    """Read a call of an MCP server, and its result."""
    call = by_type["mcp_server_tool_call"]
    result = by_type.get("mcp_server_tool_result")
    fields: Item = {"name": call.tool_name, "server_label": call.server_name, "arguments": call.arguments}
    if call.status:
        fields["status"] = call.status
    output: Any = result.output if result is not None else None
    if isinstance(output, list):
        fields["output"] = "".join(str(part.text) for part in cast("list[Content]", output))
    if result is not None and "error" in result.additional_properties:
        fields["error"] = result.additional_properties["error"]
    return fields


def image_fields(_group: Sequence[Content], by_type: Mapping[str, Content]) -> Item:
    """Read a generated image."""
    image = cast("Content", by_type["image_generation_tool_result"].outputs)
    return {"result": (image.uri or "").partition("base64,")[2], "status": "completed"}


def shell_output_fields(group: Sequence[Content], _by_type: Mapping[str, Content]) -> Item:
    """Read the outputs of a shell call."""
    result = group[0]
    outputs = [
        {
            "outcome": {"type": "timeout"} if output.timed_out else {"type": "exit", "exit_code": output.exit_code},
            "stdout": output.stdout,
            "stderr": output.stderr,
        }
        for output in cast("list[Content]", result.outputs or [])
    ]
    return {"call_id": result.call_id, "output": outputs}


def approval_fields(group: Sequence[Content], _by_type: Mapping[str, Content]) -> Item:
    """Read a request for approval."""
    call = cast("Content", group[0].function_call)
    return {"name": call.name, "server_label": call.server_name, "arguments": call.arguments}


def _object(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value
