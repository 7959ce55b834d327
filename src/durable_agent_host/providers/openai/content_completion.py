"""Completes contents from the provider's finished items where the framework's stream parser omits data.

Each function takes a finished item and the framework's contents of it, and returns the complete contents; it may change
them in place. `item_types` maps types of items to these functions.

Source: ``_parse_chunk_from_openai`` of agent-framework-openai 1.17, which has no branch for finished code runs, reads
    the arguments of an MCP call before they are there, and keeps only the last part of a reasoning summary.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from agent_framework import Annotation, Content

from durable_agent_host.codec.strict_json import object_at, value_at
from durable_agent_host.model.ending import is_refusal, refusal
from durable_agent_host.providers.neutral_contents import text_span

Item = Mapping[str, Any]


def complete_message(item: Item, contents: list[Content]) -> list[Content]:
    """Return one text per part, with its citations; with those of the stream where the finished item has none."""
    texts: list[Content] = []
    remaining = [content for content in contents if content.type == "text"]
    for part in _parts(item, "content"):
        text = str(part.get("text") or part.get("refusal") or "")
        is_refusal_part = part.get("type") == "refusal"
        matches = (content for content in remaining if content.text == text and is_refusal(content) == is_refusal_part)
        text_content = next(matches, None)
        if text_content is None:
            text_content = refusal(text) if is_refusal_part else Content("text", text=text)
        else:
            remaining = [content for content in remaining if content is not text_content]
        streamed_annotations = [_strip_annotation_index(annotation) for annotation in text_content.annotations or ()]
        text_content.annotations = parse_annotations_from_openai(part) or streamed_annotations or None
        text_content.additional_properties = _strip_event_counters(text_content.additional_properties)
        texts.append(text_content)
    return texts + [content for content in contents if content.type != "text"]


def complete_reasoning(item: Item, contents: list[Content]) -> list[Content]:
    """Return one content for each part of summary and reasoning; the first has the encrypted payload."""
    texts = [(str(part.get("text") or ""), False) for part in _parts(item, "summary")]
    texts += [(str(part.get("text") or ""), True) for part in _parts(item, "content")]
    marker = {"openai": {"reasoning_text": True}, "reasoning_text": True}
    reasoning_contents = [
        Content(
            "text_reasoning",
            id=item.get("id"),
            text=text,
            additional_properties=dict(marker) if is_reasoning_text else None,
        )
        for text, is_reasoning_text in texts or [("", False)]
    ]
    encrypted_content = item.get("encrypted_content")
    reasoning_contents[0].protected_data = encrypted_content or next(
        (content.protected_data for content in contents if content.protected_data), None
    )
    reasoning_contents[0].status = item.get("status")
    return reasoning_contents


def _parts(item: Item, name: str) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", item.get(name) or [])


def complete_function_call(item: Item, contents: list[Content]) -> list[Content]:
    """Set the call's final arguments, name and ids, regardless of what its events contained."""
    if not any(content.type == "function_call" for content in contents):
        contents = [Content("function_call"), *contents]
    for content in contents:
        if content.type == "function_call":
            content.call_id = item.get("call_id") or content.call_id
            content.name = item.get("name") or content.name
            content.status = item.get("status") or content.status
            content.arguments = item["arguments"] if item.get("arguments") is not None else content.arguments
            content.additional_properties = _strip_event_counters(content.additional_properties)
            if item.get("id"):
                openai = object_at(content.additional_properties, "openai")
                ids = {"fc_id": item["id"], "openai": openai | {"item_id": item["id"]}}
                content.additional_properties = content.additional_properties | ids
    return contents


def complete_code(item: Item, _contents: list[Content]) -> list[Content]:
    """Build the call and its result from the item alone: the framework has no branch for finished code runs."""
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


def _parse_output_from_openai(output: Item) -> Content:
    if output.get("type") == "logs":
        return Content.from_text(output.get("logs") or "")
    if output.get("type") == "image" and output.get("url"):
        url = str(output["url"])
        if url.startswith("data:"):
            return Content("data", uri=url, media_type=url[5:].partition(";")[0] or "image/png")
        return Content("uri", uri=url, media_type="image/png")
    return Content.from_text("", additional_properties={"openai_output": dict(output)})


def complete_custom_call(item: Item, contents: list[Content]) -> list[Content]:
    """Set the call's full input."""
    for content in contents:
        if content.type == "function_call":
            content.arguments = {"input": item.get("input")}
    return contents


def complete_patch(item: Item, _contents: list[Content]) -> list[Content]:
    """Build the call from the item alone: the framework does not read it."""
    operation = json.dumps(item.get("operation"), ensure_ascii=False)
    call = Content.from_function_call(
        str(item.get("call_id")), "apply_patch", arguments=operation, informational_only=True
    )
    return [call]


def complete_mcp(item: Item, _contents: list[Content]) -> list[Content]:
    """Build the call and its result from the item alone: the framework reads arguments before they are there."""
    call_id, output, error = item.get("id"), item.get("output"), item.get("error")
    call = Content(
        "mcp_server_tool_call",
        call_id=call_id,
        tool_name=item.get("name"),
        server_name=item.get("server_label"),
        arguments=item.get("arguments"),
        status=item.get("status"),
    )
    outputs = None if output is None else [Content.from_text(output)]
    properties = {"error": error} if error else {}
    result = Content("mcp_server_tool_result", call_id=call_id, output=outputs, additional_properties=properties)
    return [call, result] if outputs or error else [call]


def _with_call(contents: list[Content], call: Content) -> list[Content]:
    """Add the call if the stream was joined after its first event, and keep each content once."""
    contents = _each_once(contents)
    return contents if any(content.type == call.type for content in contents) else [call, *contents]


def _each_once(contents: Sequence[Content]) -> list[Content]:
    """Keep the last content of each type, as an event may be repeated."""
    return list({content.type: content for content in contents}.values())


def complete_call(_item: Item, contents: list[Content]) -> list[Content]:
    """Keep each content once."""
    return _each_once(contents)


def complete_shell_output(item: Item, contents: list[Content]) -> list[Content]:
    """Make the result if there is none."""
    outputs = [
        Content.from_shell_command_output(
            stdout=output.get("stdout"),
            stderr=output.get("stderr"),
            exit_code=value_at(output, "outcome", "exit_code"),
            timed_out=value_at(output, "outcome", "type") == "timeout",
        )
        for output in _parts(item, "output")
    ]
    return _each_once(contents) or [Content.from_shell_tool_result(call_id=item.get("call_id"), outputs=outputs)]


def complete_search(item: Item, contents: list[Content]) -> list[Content]:
    """Set the queries, which the service sends when the search ends; the framework reads only its start."""
    name = "web_search" if item["type"] == "web_search_call" else "file_search"
    contents = _with_call(contents, Content("search_tool_call", call_id=item.get("id"), tool_name=name))
    for content in contents:
        content.status = item.get("status")
        if content.type == "search_tool_call" and item["type"] == "file_search_call":
            content.arguments = {"queries": item.get("queries")}
        elif content.type == "search_tool_call":
            arguments = {name: value for name, value in object_at(item, "action").items() if name != "sources"}
            content.arguments = arguments or item.get("arguments") or {}
        elif item["type"] == "web_search_call":
            content.result = {"action": item.get("action")}
    return contents


def complete_image(item: Item, contents: list[Content]) -> list[Content]:
    """Remove the partial images of a stream, which are drafts of the finished image; make the contents of an item."""
    if not item.get("result"):
        return _each_once(contents)
    if finished_contents := [content for content in contents if not _is_draft(content)][-2:]:
        return finished_contents
    image = Content.from_uri(f"data:image/{item.get('output_format') or 'png'};base64,{item['result']}")
    return [
        Content.from_image_generation_tool_call(image_id=item.get("id")),
        Content.from_image_generation_tool_result(image_id=item.get("id"), outputs=image),
    ]


def _is_draft(content: Content) -> bool:
    outputs = content.outputs
    return isinstance(outputs, Content) and bool(outputs.additional_properties.get("is_partial_image"))


def _strip_annotation_index(annotation: Annotation) -> Annotation:
    """Remove the position in the stream: the list of citations is in order."""
    fields: Any = dict(annotation)
    properties = dict(fields.pop("additional_properties", None) or {})
    properties.pop("annotation_index", None)
    return fields | ({"additional_properties": properties} if properties else {})


def _strip_event_counters(properties: Item) -> dict[str, Any]:
    """Remove event counters, and empty log probabilities."""
    counters = {"output_index", "sequence_number"}
    fields = {name: value for name, value in properties.items() if name not in counters}
    if isinstance(openai := fields.get("openai"), dict):
        fields["openai"] = _strip_event_counters(cast("Item", openai))
    return {name: value for name, value in fields.items() if value or name not in {"logprobs", "openai"}}


def tidy_open_item(contents: list[Content]) -> list[Content]:
    """Tidy the streamed contents of an unfinished item.

    Returns:
        The contents without blank reasoning, earlier drafts of images, and event counters.
    """
    drafts = [content for content in contents if content.type.startswith("image_generation")][:-2]
    has_reasoning_text = any(content.type == "text_reasoning" and content.text for content in contents)
    tidy_contents: list[Content] = []
    for content in contents:
        is_blank = content.type == "text_reasoning" and not (content.text or content.protected_data)
        if (is_blank and has_reasoning_text) or any(content is draft for draft in drafts):
            continue
        content.additional_properties = _strip_event_counters(content.additional_properties)
        content.annotations = [_strip_annotation_index(annotation) for annotation in content.annotations or ()] or None
        for part in content.inputs or ():
            part.additional_properties = {}
        tidy_contents.append(content)
    return tidy_contents


def parse_annotations_from_openai(part: Item) -> list[Annotation] | None:
    """Read the citations of a text part, like ``_parse_annotation_from_openai`` of the framework.

    Returns:
        Annotations in order, or None without any.
    """
    annotations: list[Annotation] = []
    for item in _parts(part, "annotations"):
        names = ("container_id", "index", "get_url")
        properties = {name: item[name] for name in names if item.get(name) is not None}
        fields = {
            "type": "citation",
            "url": item.get("url") or item.get("filename"),
            "title": item.get("title"),
            "file_id": item.get("file_id"),
            "additional_properties": properties or None,
        }
        index = item.get("index") if item.get("file_id") else None
        span = text_span(item.get("start_index", index), item.get("end_index", index))
        annotation: Any = {name: value for name, value in fields.items() if value is not None} | span
        if len(annotation) > 1:  # an unknown kind may have no neutral field; the item's metadata has it
            annotations.append(annotation)
    return annotations or None
