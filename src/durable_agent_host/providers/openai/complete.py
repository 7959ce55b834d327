"""Completes contents from the provider's finished items where the framework's stream parser leaves data out. Pure.

Each function takes a finished item and the framework's contents of it, and returns the complete contents; it may change
them in place. `item_types` maps types of items to these functions.

Source: ``_parse_chunk_from_openai`` of agent-framework-openai 1.17, which has no branch for finished code runs, reads
    the arguments of an MCP call before they are there, and keeps only the last part of a reasoning summary.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from agent_framework import Annotation, Content

from durable_agent_host.providers.openai.rebuild import says_refusal


def complete_message(item: Mapping[str, Any], mine: list[Content]) -> list[Content]:
    """One text per part; the stream's citations stay when it had all of them, as they may have more data."""
    texts: list[Content] = []
    left = [content for content in mine if content.type == "text"]
    for part in cast("list[dict[str, Any]]", item.get("content") or []):
        said = str(part.get("text") or part.get("refusal") or "")
        notes = parse_annotations_from_openai(part)
        is_refusal = part.get("type") == "refusal"
        alike = (content for content in left if content.text == said and says_refusal(content) == is_refusal)
        known = next(alike, None)
        if known is None:
            kind = {"core": {"model_output_kind": "refusal"}, "model_output_kind": "refusal"}
            known = Content("text", text=said, additional_properties=kind if is_refusal else None)
        else:
            left = [content for content in left if content is not known]
        heard = [_quiet(note) for note in known.annotations or ()]
        is_all = len(heard) == len(notes or ()) and all(map(_says_all_of, heard, notes or ()))
        known.annotations = (heard or None) if is_all else notes
        known.additional_properties = _without_noise(known.additional_properties)
        texts.append(known)
    return texts + [content for content in mine if content.type != "text"]


def _says_all_of(heard: Any, note: Any) -> bool:
    """Return whether a citation of the stream has everything in the finished item's."""
    return all(
        _says_all_of(heard.get(name) or {}, value) if name == "additional_properties" else heard.get(name) == value
        for name, value in note.items()
    )


def complete_reasoning(item: Mapping[str, Any], mine: list[Content]) -> list[Content]:
    """One content for each part of summary and reasoning; the encrypted payload is on the first."""
    texts = [(str(part.get("text") or ""), False) for part in _parts(item, "summary")]
    texts += [(str(part.get("text") or ""), True) for part in _parts(item, "content")]
    marker = {"openai": {"reasoning_text": True}, "reasoning_text": True}
    made = [
        Content("text_reasoning", id=item.get("id"), text=text, additional_properties=dict(marker) if plain else None)
        for text, plain in texts or [("", False)]
    ]
    sealed = item.get("encrypted_content")
    made[0].protected_data = sealed or next((one.protected_data for one in mine if one.protected_data), None)
    made[0].status = item.get("status")
    return made


def _parts(item: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", item.get(name) or [])


def complete_function_call(item: Mapping[str, Any], mine: list[Content]) -> list[Content]:
    """The call's final arguments, name and ids, whatever its events contained."""
    if not any(content.type == "function_call" for content in mine):
        mine = [Content("function_call", call_id=item.get("call_id"), name=item.get("name")), *mine]
    for content in mine:
        if content.type == "function_call":
            content.call_id = item.get("call_id") or content.call_id
            content.name = item.get("name") or content.name
            content.status = item.get("status") or content.status
            content.arguments = item["arguments"] if item.get("arguments") is not None else content.arguments
            content.additional_properties = _without_noise(content.additional_properties)
            if item.get("id"):
                openai = cast("dict[str, Any]", content.additional_properties.get("openai") or {})
                ids = {"fc_id": item["id"], "openai": openai | {"item_id": item["id"]}}
                content.additional_properties = content.additional_properties | ids
    return mine


def complete_code(item: Mapping[str, Any], _mine: list[Content]) -> list[Content]:
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


def _parse_output_from_openai(output: Mapping[str, Any]) -> Content:
    if output.get("type") == "logs":
        return Content.from_text(output.get("logs") or "")
    if output.get("type") == "image" and output.get("url"):
        url = str(output["url"])
        if url.startswith("data:"):
            return Content("data", uri=url, media_type=url[5:].partition(";")[0] or "image/png")
        return Content("uri", uri=url, media_type="image/png")
    return Content.from_text("", additional_properties={"openai_output": dict(output)})


def complete_custom_call(item: Mapping[str, Any], mine: list[Content]) -> list[Content]:
    """Give the call its whole input."""
    for content in mine:
        if content.type == "function_call":
            content.arguments = item.get("input")
    return mine


def complete_mcp(item: Mapping[str, Any], mine: list[Content]) -> list[Content]:
    """A stream's arguments come after the event that the framework reads them from; a failure is a result, too."""
    names = {"call_id": item.get("id"), "tool_name": item.get("name"), "server_name": item.get("server_label")}
    mine = _with_call(mine, "mcp_server_tool_call", names)
    for content in mine:
        if content.type == "mcp_server_tool_call":
            content.arguments = item.get("arguments")
            content.status = item.get("status")
    if not item.get("error"):
        return [one for one in mine if one.type != "mcp_server_tool_result" or one.output is not None]
    results = [content for content in mine if content.type == "mcp_server_tool_result"]
    if not results:
        results = [Content("mcp_server_tool_result", call_id=item.get("id"))]
        mine = [*mine, *results]
    for content in results:
        content.additional_properties = content.additional_properties | {"error": item["error"]}
    return mine


def _with_call(mine: list[Content], kind: Any, names: Mapping[str, Any]) -> list[Content]:
    """Add the call where the stream was joined after the event that begins it, and keep each content once."""
    mine = _each_once(mine)
    return mine if any(content.type == kind for content in mine) else [Content(kind, **names), *mine]


def _each_once(contents: Sequence[Content]) -> list[Content]:
    """Keep the last of each type, for items that have no more: an event may be repeated."""
    return list({content.type: content for content in contents}.values())


def complete_call(_item: Mapping[str, Any], mine: list[Content]) -> list[Content]:
    """Keep each content once."""
    return _each_once(mine)


def complete_search(item: Mapping[str, Any], mine: list[Content]) -> list[Content]:
    """The framework reads a call when it begins, but its queries are known when it ends."""
    name = "web_search" if item["type"] == "web_search_call" else "file_search"
    mine = _with_call(mine, "search_tool_call", {"call_id": item.get("id"), "tool_name": name})
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


def complete_approval(item: Mapping[str, Any], mine: list[Content]) -> list[Content]:
    """The request is emitted when the item begins; for a stream that was joined later, when it ends."""
    if mine:
        return mine
    server = item.get("server_label")
    call = Content("function_call", hosted=True, server_name=server, additional_properties={"server_label": server})
    call.call_id, call.name, call.arguments = item.get("id"), item.get("name"), item.get("arguments")
    return [Content.from_function_approval_request(id=str(item.get("id") or ""), function_call=call)]


def complete_image(item: Mapping[str, Any], mine: list[Content]) -> list[Content]:
    """The partial images of a stream are drafts of the finished item's."""
    if not item.get("result"):
        return _each_once(mine)
    return [content for content in mine if not _is_draft(content)][-2:]


def _is_draft(content: Content) -> bool:
    outputs = content.outputs
    return isinstance(outputs, Content) and bool(outputs.additional_properties.get("is_partial_image"))


def _quiet(annotation: Annotation) -> Annotation:
    """Leave out a citation's position in the stream's count: the list has them in order."""
    note = cast("dict[str, Any]", annotation)
    properties = cast("dict[str, Any]", note.get("additional_properties") or {})
    kept = {name: value for name, value in properties.items() if name != "annotation_index"}
    rest = {name: value for name, value in note.items() if name != "additional_properties"}
    return cast("Annotation", cast("object", rest | ({"additional_properties": kept} if kept else {})))


def _without_noise(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out event counters, and probabilities that were not requested."""
    kept: dict[str, Any] = {}
    for name, value in properties.items():
        if name in {"output_index", "sequence_number"} or (name == "logprobs" and not value):
            continue
        kept[name] = _without_noise(cast("dict[str, Any]", value)) if name == "openai" else value
        if name == "openai" and not kept[name]:
            del kept[name]
    return kept


def tidy_open_item(contents: list[Content]) -> list[Content]:
    """Tidy the streamed contents of an unfinished item.

    Guarantee: pure except for its argument.

    Args:
        contents: of the item, joined; changed in place.

    Returns:
        The contents without blank reasoning, earlier drafts of images, and event counters.
    """
    drafts = [content for content in contents if content.type.startswith("image_generation")][:-2]
    said = any(content.type == "text_reasoning" and content.text for content in contents)
    kept: list[Content] = []
    for content in contents:
        is_blank = content.type == "text_reasoning" and not (content.text or content.protected_data)
        if (is_blank and said) or any(content is draft for draft in drafts):
            continue
        content.additional_properties = _without_noise(content.additional_properties)
        content.annotations = [_quiet(note) for note in content.annotations or ()] or None
        for part in content.inputs or ():
            part.additional_properties = {}
        kept.append(content)
    return kept


def parse_annotations_from_openai(part: Mapping[str, Any]) -> list[Annotation] | None:
    """Read the citations of a text part, like ``_parse_annotation_from_openai`` of the framework.

    Guarantee: pure.

    Args:
        part: of a message item.

    Returns:
        Annotations in order, or None without any.
    """
    parsed: list[Annotation] = []
    for note in cast("list[dict[str, Any]]", part.get("annotations") or []):
        annotation: dict[str, Any] = {"type": "citation"}
        names = {"url": note.get("url") or note.get("filename"), "title": note.get("title")}
        annotation |= {name: value for name, value in names.items() if value is not None}
        if "file_id" in note:
            annotation["file_id"] = note["file_id"]
        properties = {name: note[name] for name in ("container_id", "index") if note.get(name) is not None}
        if properties:
            annotation["additional_properties"] = properties
        if "start_index" in note:
            region = {"type": "text_span", "start_index": note["start_index"], "end_index": note["end_index"]}
            annotation["annotated_regions"] = [region]
        if len(annotation) > 1:  # an unknown kind may leave nothing; the item's stamp has it
            parsed.append(cast("Annotation", cast("object", annotation)))
    return parsed or None
