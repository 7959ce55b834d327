"""A message of Chat Completions as neutral contents, and the standard fields of a message from its contents."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from mimetypes import guess_type
from typing import Any, Final, cast

from agent_framework import Annotation, Content, Message, TextSpanRegion

from durable_agent_host.agent.provider import ClientCall
from durable_agent_host.codec.strict_json import object_at, read_json, value_at
from durable_agent_host.codec.tool_result_text import result_text
from durable_agent_host.model.ending import is_refusal, refusal
from durable_agent_host.providers.event_normalization import joined_text, json_text
from durable_agent_host.providers.neutral_contents import as_objects, text_span

TRANSCRIPT: Final = "audio_transcript"
"""Key in a text's ``additional_properties``: the text is the transcript of the message's audio."""

OF_MESSAGES: Final = frozenset({"text", "text_reasoning", "function_call", "data", "uri"})
"""The types of contents into which a message is read."""

_SOURCE_LISTS: Final = (("search_results",), ("search_info", "search_results"), ("web_search",), ("references",))
"""Where a response has its sources: of Perplexity, of Qwen and Hunyuan, of Zhipu, of Ark."""

SOURCE_FIELDS: Final = frozenset({"citations", *(path[0] for path in _SOURCE_LISTS)})

_DETAIL_TEXTS: Final = ("text", "summary")
_DETAIL_PAYLOADS: Final = ("signature", "data")


def to_contents(item: Mapping[str, Any]) -> list[Content]:
    """Read the message of an item; the service's fields beside it, and its references, may have its sources.

    Returns:
        Reasoning, texts with their citations, refusal, audio, images, calls; other fields have no content.
    """
    message = item["message"]
    return [
        *_reasoning(message),
        *_texts(message, item.get("beside") or {}, item.get("references") or {}),
        *_refusal(message),
        *_audio(object_at(message, "audio"), item.get("audio_format", "")),
        *_images(message.get("images")),
        *_calls(message),
    ]


def reasoning_text(message: Mapping[str, Any]) -> str:
    """Return the reasoning of a message or a delta, from the first of the fields that has any."""
    details = "".join(_first_text(detail, _DETAIL_TEXTS) for detail in as_objects(message.get("reasoning_details")))
    parts = "".join(map(_thought, as_objects(message.get("content"))))
    return details or _first_text(message, ("reasoning_content", "reasoning")) or parts


def spoken_text(message: Mapping[str, Any]) -> str:
    """Return the text of a message or delta that the framework's client does not read: parts of a list, and audio."""
    parts = as_objects(message.get("content"))
    return "".join(map(_part_text, parts)) or str(value_at(message, "audio", "transcript") or "")


def _part_text(part: Mapping[str, Any]) -> str:
    return str(part.get("text") or "") if part.get("type") in {"text", "reference"} else ""


def standard_message(contents: Iterable[Content]) -> dict[str, Any]:
    """Write contents as a message with the fields that every service accepts.

    Returns:
        Role and content, null without a text; refusal and calls where there are any.
    """
    message_contents = list(contents)
    texts = [
        content.text or ""
        for content in message_contents
        if content.type == "text" and not is_refusal(content) and not _is_transcript(content)
    ]
    refusals = [content.text or "" for content in message_contents if is_refusal(content)]
    calls = [
        to_tool_call(content) for content in message_contents if content.type == "function_call" and not content.hosted
    ]
    message: dict[str, Any] = {"role": "assistant", "content": "\n".join(texts) if any(texts) else None}
    message |= {"refusal": "".join(refusals)} if refusals else {}
    return message | ({"tool_calls": calls} if calls else {})


def to_tool_call(content: Content) -> dict[str, Any]:
    """Write a call of a function."""
    function = {"name": content.name, "arguments": json_text(content.arguments)}
    return {"id": content.call_id, "type": "function", "function": function}


def transcripts(contents: Iterable[Content]) -> str:
    """Return the transcript of the audio among contents."""
    return "".join(content.text or "" for content in contents if _is_transcript(content))


def _is_transcript(content: Content) -> bool:
    return content.type == "text" and bool(content.additional_properties.get(TRANSCRIPT))


def _reasoning(message: Mapping[str, Any]) -> list[Content]:
    details = as_objects(message.get("reasoning_details"))
    contents: list[Content] = []
    for detail in details:
        text = _first_text(detail, _DETAIL_TEXTS)
        payload = _first_text(detail, _DETAIL_PAYLOADS)
        if text or payload:
            contents.append(Content("text_reasoning", text=text or None, protected_data=payload or None))
    if not any(content.text for content in contents) and (text := reasoning_text(message)):
        contents.insert(0, Content("text_reasoning", text=text))
    return contents


def _first_text(detail: Mapping[str, Any], names: Sequence[str]) -> str:
    return next((value for name in names if isinstance(value := detail.get(name), str) and value), "")


def _thought(part: Mapping[str, Any]) -> str:
    """Read a part of a content: ``thinking`` of Mistral and ``summary`` of Databricks have lists of texts."""
    is_thought = part.get("type") in {"thinking", "reasoning"}
    return joined_text(part.get("thinking") or part.get("summary")) if is_thought else ""


def _texts(message: Mapping[str, Any], extra_fields: Mapping[str, Any], references: Mapping[str, Any]) -> list[Content]:
    content: Any = message.get("content")
    text = content if isinstance(content, str) else spoken_text({"content": content})
    annotations = [_citation(annotation) for annotation in as_objects(message.get("annotations"))]
    annotations += _references(as_objects(content), references)
    annotations += [_source(*source, text) for source in _numbered_sources(message, extra_fields)]
    annotations += [_citation(result) for tool in executed_tools(message) for result in _search_results(tool)]
    texts = [Content("text", text=text, annotations=annotations or None)] if text or annotations else []
    return [*texts, *_images(content)]


def executed_tools(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the calls that the service has run for a message."""
    return as_objects(message.get("executed_tools"))


def _search_results(tool: Mapping[str, Any]) -> list[dict[str, Any]]:
    return as_objects(value_at(tool, "search_results", "results"))


def _numbered_sources(
    message: Mapping[str, Any], extra_fields: Mapping[str, Any]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the sources of a response with their numbers, by which its text refers to them."""
    lists = [as_objects(value_at(extra_fields, *path)) for path in _SOURCE_LISTS]
    lists.append(as_objects(value_at(message, "context", "citations")))  # Azure, with the app's own data
    results = next((results for results in lists if results), list[dict[str, Any]]())
    urls: Any = extra_fields.get("citations")
    known_results = {result.get("url"): result for result in results}
    if isinstance(urls, list):
        sources: list[Any] = cast("list[Any]", urls)
        results = [object_at(source) or {"url": source} for source in sources]
    for number, result in enumerate(results, 1):
        yield number, known_results.get(result.get("url"), {}) | result


def _references(parts: Iterable[Mapping[str, Any]], references: Mapping[str, Any]) -> Iterator[Annotation]:
    """Yield the citations among Mistral's chunks: each has the text that it is for, or stands behind it."""
    start = end = 0
    for part in parts:
        if text := _part_text(part):
            start, end = end, end + len(text)
        if part.get("type") in {"reference", "tool_reference"}:
            ids = map(str, cast("list[Any]", part.get("reference_ids") or ()))
            sources = [{"title": f"reference {name}"} | references.get(name, {}) for name in ids] or [part]
            yield from (_citation({**source, "type": "", "start_index": start, "end_index": end}) for source in sources)


def find_references(message: Mapping[str, Any], history: Iterable[Message]) -> dict[str, Any]:
    """Find the sources that Mistral's chunks refer to: elements of the JSON that a tool has returned.

    Source: https://docs.mistral.ai/capabilities/citations
    """
    parts = as_objects(message.get("content"))
    ids = {str(name) for part in parts for name in cast("list[Any]", part.get("reference_ids") or ())}
    references: dict[str, Any] = {}
    for content in (content for earlier in history for content in earlier.contents if ids):
        value = read_json(result_text(content)) if content.type == "function_result" else None
        elements = object_at(value) or {str(n): element for n, element in enumerate(as_objects(value))}
        references |= {name: object_at(elements[name]) for name in ids & elements.keys()}
    return references


def _source(number: int, source: Mapping[str, Any], text: str) -> Annotation:
    """Return the citation of a source, at each of its numbers in the text."""
    citation = _citation(source)
    marks = re.finditer(rf"\[(?:doc|ref_)?{number}\]", text)
    if regions := [TextSpanRegion(type="text_span", start_index=m.start(), end_index=m.end()) for m in marks]:
        citation["annotated_regions"] = regions
    return citation


def _citation(annotation: Mapping[str, Any]) -> Annotation:
    kind = str(annotation.get("type") or "")
    fields = object_at(annotation, kind) or annotation
    names = {"title": "title", "link": "url", "url": "url", "file_id": "file_id"}
    names |= dict.fromkeys(("summary", "description", "content", "snippet"), "snippet")
    neutral_fields = {
        neutral_name: fields[service_name]
        for service_name, neutral_name in names.items()
        if isinstance(fields.get(service_name), str)
    }
    span = text_span(fields.get("start_index"), fields.get("end_index"))
    return cast("Annotation", {"type": "citation"} | neutral_fields | span)


def _refusal(message: Mapping[str, Any]) -> list[Content]:
    text = _first_text(message, ("refusal",))
    return [refusal(text)] if text else []


def _audio(audio: Mapping[str, Any], audio_format: str) -> list[Content]:
    contents: list[Content] = []
    if transcript := audio.get("transcript"):
        contents.append(Content("text", text=str(transcript), additional_properties={TRANSCRIPT: True}))
    if data := _first_text(audio, ("data",)):
        media_type = f"audio/{audio_format.removesuffix('16') or 'wav'}"
        contents.append(Content("data", uri=f"data:{media_type};base64,{data}", media_type=media_type))
    return contents


def _images(parts: Any) -> list[Content]:
    contents: list[Content] = []
    for part in as_objects(parts):
        url: Any = value_at(part, "image_url", "url") or part.get("image_url")
        if not isinstance(url, str) or not url:
            continue
        is_data = url.startswith("data:")
        media_type = url[5:].partition(";")[0].partition(",")[0] if is_data else guess_type(url)[0] or "image/*"
        contents.append(Content("data" if is_data else "uri", uri=url, media_type=media_type))
    return contents


def _calls(message: Mapping[str, Any]) -> list[Content]:
    contents: list[Content] = []
    for call in as_objects(message.get("tool_calls")):
        custom = object_at(call.get("custom"))
        function = custom or object_at(call.get("function"))
        content = Content("function_call", call_id=str(call["id"]), name=str(function.get("name") or ""))
        content.arguments = {"input": custom.get("input")} if custom else function.get("arguments") or ""
        content.informational_only = bool(custom)  # the client runs a custom tool
        contents.append(content)
    return contents


def client_calls(messages: Iterable[Message]) -> list[ClientCall]:
    """List the calls of custom tools without a result."""
    contents = [content for message in messages for content in message.contents]
    completed_ids = {content.call_id for content in contents if content.type == "function_result"}
    return [
        ClientCall(call_id, content.name or "", content.parse_arguments() or {}, partial(_build_result, call_id))
        for content in contents
        if content.informational_only and (call_id := content.call_id) and call_id not in completed_ids
    ]


def _build_result(call_id: str, contents: Sequence[Content], error: str | None) -> list[Content]:
    return [Content.from_function_result(call_id, result=list(contents), exception=error)]
