"""Events of the Responses API as compatible services send them, in the form of the API. Does not use the SDK.

Some services send an item, or the rest of its text, only in ``response.completed``; some leave out the events that
start or finish an item, their positions, or fields that are lists. The final response is compared with the items that
were progress, and the events of what is missing are added before it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.providers.event_normalization import (
    Json,
    joined_text,
    json_text,
    to_object_list,
    unix_seconds,
)
from durable_agent_host.providers.neutral_contents import as_objects

_STATUS_BY_EVENT: Final = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}
_NOTHING: Final[Json] = {}
_ITEM_EVENTS: Final = frozenset({"response.output_item.added", "response.output_item.done"})
_TYPE_BY_STEM: Final = {
    "output_text": "message",
    "refusal": "message",
    "content_part": "message",
    "reasoning_text": "reasoning",
    "reasoning_summary_text": "reasoning",
    "reasoning_summary_part": "reasoning",
    "function_call_arguments": "function_call",
}
"""First word of an event about a part of an item → the type of the item."""


@dataclass
class _ItemProgress:
    position: int
    type: str
    ids: set[Any]
    item: Json | None = None
    fragments: dict[Any, list[str]] = field(default_factory=dict[Any, list[str]])
    """By the index of the part."""

    def is_same(self, item: Json) -> bool:
        return self.type == item["type"] and bool(self.ids & _ids(item))

    def text(self, part_index: Any) -> str:
        return "".join(self.fragments.get(part_index, ()))


class ResponseEventNormalizer:
    """Normalizes the events of one stream."""

    def __init__(self) -> None:
        self._items: list[_ItemProgress] = []
        self._response: Json = {}
        self._has_all_events: bool | None = None
        self._is_finished = False

    def read(self, name: str | None, data: Any, /) -> Iterator[Json]:
        """Return an event, with the events that are missing before it."""
        event = object_at(data)
        event_type = event.get("type")
        if event.get("object") == "response":  # not streamed
            event = {"type": (event_type := "response.done"), "response": event}
        elif not isinstance(event_type, str):
            event = {**event, "type": (event_type := name or "")}
        if self._has_all_events is None:
            number = event.get("sequence_number")
            self._has_all_events = event_type == "response.created" or not isinstance(number, int) or number <= 1
        if event_type == "response.done":
            event_type = f"response.{object_at(event.get('response')).get('status') or 'completed'}"
            event = {**event, "type": event_type}
        if event_type in _STATUS_BY_EVENT:
            yield from self._finish(event)
        elif event_type in {"response.created", "response.in_progress", "response.queued"}:
            response = normalize_response(event.get("response"), status=event_type.removeprefix("response."))
            self._response |= {name: response.get(name) for name in ("id", "object", "created_at", "model")}
            yield {**event, "response": response}
        elif event_type in _ITEM_EVENTS:
            yield from self._read_item(event)
        elif (item_type := _TYPE_BY_STEM.get(event_type.split(".")[1] if "." in event_type else "")) is not None:
            yield from self._read_part(event, item_type)
        else:
            positions = (item.position for item in self._items if event.get("item_id") in item.ids)
            yield {"output_index": next(positions, None), **event}

    def end(self, *, is_done: bool) -> Iterator[Json]:
        """Return the final event if the service has sent ``[DONE]`` without it, and all items are finished."""
        if is_done and not self._is_finished and self._items and all(progress.item for progress in self._items):
            yield {"type": "response.completed", "response": normalize_response({}, self._response)}

    def _read_item(self, event: Json) -> Iterator[Json]:
        item = _normalize_item(event.get("item"))
        if item is None:
            return
        is_done = event["type"].endswith("done")
        progress = self._find(event, item["type"], _ids(item), is_start=not is_done)
        if progress is None:
            progress = self._add(event.get("output_index"), item)
            if is_done and self._has_all_events:
                yield _item_event("added", progress, _open(item))
        progress.ids |= _ids(item)
        if is_done and progress.fragments and not (item.get("content") or item.get("summary") or item.get("arguments")):
            item = _with_streamed_text(item, [progress.text(index) for index in progress.fragments])
        if is_done:
            yield from _missing_deltas(progress, item) if self._has_all_events else ()
            progress.item = item
        yield {**event, "output_index": progress.position, "item": item}

    def _read_part(self, event: Json, item_type: str) -> Iterator[Json]:
        progress = self._find(event, item_type, _ids({"id": event.get("item_id")}))
        if progress is None:
            item = {"type": item_type, "id": event.get("item_id") or ""}
            progress = self._add(event.get("output_index"), item)
            if item_type == "message" and self._has_all_events:
                yield _item_event("added", progress, item | {"role": "assistant", "content": []})
        part_index = event.get("summary_index", event.get("content_index"))
        if not isinstance(part_index, int):
            part_index = 0 if item_type == "message" else None
        is_delta = event["type"].endswith(".delta")
        name = next((name for name in ("delta", "text", "refusal", "arguments") if name in event), None)
        if name is not None and not isinstance(event[name], str):
            event = {**event, name: (json_text if name == "arguments" else joined_text)(event[name])}
        if is_delta:
            progress.fragments.setdefault(part_index, []).append(event.get("delta", ""))
        elif name is not None:
            progress.fragments[part_index] = [event[name]]
        if "part" in event or "content_part" in event["type"]:
            event = {**event, "part": _normalize_part(event.get("part"))}
        if item_type == "message" and event.get("content_index") != part_index:
            event = {**event, "content_index": part_index}
        yield event if event.get("output_index") == progress.position else {**event, "output_index": progress.position}

    def _find(self, event: Json, item_type: str, ids: set[Any], *, is_start: bool = False) -> _ItemProgress | None:
        """Return the streamed item of an event: by its position, or without one by its id, or the last of its type."""
        position = event.get("output_index")
        for item in reversed(self._items):
            if item.type == item_type and (
                item.position == position if isinstance(position, int) else not ids or bool(item.ids & ids)
            ):
                return None if is_start and item.item else item
        return None

    def _add(self, position: Any, item: Json) -> _ItemProgress:
        if not isinstance(position, int):
            position = max((progress.position + 1 for progress in self._items), default=0)
        self._items.append(_ItemProgress(position, item["type"], _ids(item)))
        return self._items[-1]

    def _finish(self, event: Json) -> Iterator[Json]:
        self._is_finished = True
        response = normalize_response(event.get("response"), self._response, _STATUS_BY_EVENT[event["type"]])
        if self._has_all_events and event["type"] != "response.failed":
            yield from self._missing_events(response["output"])
        yield {**event, "response": response}

    def _missing_events(self, output: list[Json]) -> Iterator[Json]:
        remaining = list(self._items)
        matches = [_pop(remaining, lambda progress, item=item: progress.is_same(item)) for item in output]
        for index, item in enumerate(output):
            progress = matches[index] or _pop(remaining, lambda progress, item=item: progress.type == item["type"])
            if progress is None:
                is_free = all(progress.position != index for progress in self._items)
                progress = self._add(index if is_free else None, item)
                yield _item_event("added", progress, _open(item))
            deltas = list(_missing_deltas(progress, item))
            yield from deltas
            if deltas or not progress.item:
                progress.item = item
                yield _item_event("done", progress, item)
        output += [progress.item for progress in remaining if progress.item]


def normalize_response(data: Any, known_fields: Json = _NOTHING, status: str = "completed") -> Json:
    """Return a response with the fields that the framework needs.

    Args:
        data: as sent by the service.
        known_fields: in place of those that are missing.
        status: of a response without it.
    """
    fields = {
        **known_fields,
        **{name: value for name, value in object_at(data).items() if not (value is None and name in known_fields)},
    }
    items = (_normalize_item(item) for item in to_object_list(fields.get("output")))
    usage = fields.get("usage")
    return {
        **fields,
        "status": fields.get("status") or status,
        "created_at": unix_seconds(fields.get("created_at")),
        "output": [item for item in items if item is not None],
        "usage": usage if isinstance(usage, dict) else None,
    }


def _pop(items: list[_ItemProgress], is_match: Callable[[_ItemProgress], bool]) -> _ItemProgress | None:
    index = next((index for index, item in enumerate(items) if is_match(item)), None)
    return None if index is None else items.pop(index)


def _ids(item: Json) -> set[Any]:
    return {value for name in ("id", "call_id") if isinstance(value := item.get(name), str | int) and value}


def _item_event(kind: str, progress: _ItemProgress, item: Json) -> Json:
    return {"type": f"response.output_item.{kind}", "output_index": progress.position, "item": item}


def _open(item: Json) -> Json:
    """Return an item as it starts."""
    match item["type"]:
        case "message":
            return {**item, "content": [], "status": "in_progress"}
        case "function_call":
            return {**item, "arguments": "", "status": "in_progress"}
        case _:
            return item


def _missing_deltas(progress: _ItemProgress, item: Json) -> Iterator[Json]:
    """Yield the text or the arguments of a finished item as far as they were not streamed."""
    location = {"output_index": progress.position, "item_id": item.get("id") or ""}
    if progress.type == "function_call" and (remaining_text := _remaining_text(item["arguments"], progress.text(None))):
        yield {"type": "response.function_call_arguments.delta", **location, "delta": remaining_text}
    if progress.type == "reasoning" and not progress.fragments:
        for index, part in enumerate(item["summary"]):
            delta = joined_text(part)
            yield {"type": "response.reasoning_summary_text.delta", **location, "summary_index": index, "delta": delta}
    parts: list[Json] = item["content"] if progress.type == "message" else []
    if "".join(map(progress.text, progress.fragments)) == "".join(map(joined_text, parts)):
        return  # some services give all parts one number
    for index, part in enumerate(parts):
        kind = part.get("type")
        text = joined_text(part) if kind in {"output_text", "refusal"} else ""
        if not (remaining_text := _remaining_text(text, progress.text(index))):
            continue
        if index not in progress.fragments:
            empty_part: Json = {**part, "refusal" if kind == "refusal" else "text": ""}
            yield {"type": "response.content_part.added", **location, "content_index": index, "part": empty_part}
        yield {
            "type": f"response.{kind}.delta",
            **location,
            "content_index": index,
            "delta": remaining_text,
            "logprobs": [],
        }
        progress.fragments[index] = [text]


def _remaining_text(text: str, streamed_text: str) -> str:
    return text[len(streamed_text) :] if text.startswith(streamed_text) else ""


def _normalize_item(raw_item: Any) -> Json | None:
    """Return an item with the lists that the API has; None in place of anything else."""
    item = object_at(raw_item)
    if not item:
        return None
    if not isinstance(item.get("type"), str):
        item = {**item, "type": "function_call" if "arguments" in item else "message"}
    match item["type"]:
        case "message":
            content = item.get("content")
            parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else to_object_list(content)
            return {"role": "assistant", **item, "content": [_normalize_part(part) for part in parts]}
        case "function_call":
            arguments = json_text(item.get("arguments"))
            return {**item, "arguments": arguments, "call_id": item.get("call_id") or item.get("id") or ""}
        case "reasoning" if not isinstance(item.get("summary"), list):
            summary = joined_text(item.get("summary"))
            return {**item, "summary": [{"type": "summary_text", "text": summary}] if summary else []}
        case "web_search_call":
            return {"action": None, **item}
        case _:
            return item


def _with_streamed_text(item: Json, texts: list[str]) -> Json:
    """Return a finished item that lacks its text with what was streamed of it."""
    match item["type"]:
        case "message":
            return {**item, "content": [_normalize_part({"text": text}) for text in texts]}
        case "reasoning":
            return {**item, "summary": [{"type": "summary_text", "text": text} for text in texts]}
        case _:
            return {**item, "arguments": "".join(texts)}


def _normalize_part(raw_part: Any) -> Json:
    part = object_at(raw_part)
    annotations = as_objects(part.get("annotations"))
    if part.get("type", "output_text") != "output_text" or (
        isinstance(part.get("text"), str) and part.get("annotations") == annotations
    ):
        return part
    return {"type": "output_text", **part, "text": joined_text(part.get("text")), "annotations": annotations}
