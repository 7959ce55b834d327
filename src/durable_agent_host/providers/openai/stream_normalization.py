"""Events of the Responses API as compatible services send them, in the form of the API. Does not use the SDK.

Some services send an item, or the rest of its text, only in ``response.completed``; some leave out the events that
start or finish an item, their positions, or fields that are lists. The final response is compared with the items that
were streamed, and the events of what is missing are added before it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from durable_agent_host.providers.event_normalization import (
    Json,
    joined_text,
    json_text,
    listed_objects,
    unix_seconds,
)
from durable_agent_host.providers.neutral_contents import as_object, as_objects

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
class _StreamedItem:
    position: int
    type: str
    ids: set[Any]
    is_done: bool = False
    fragments: dict[Any, list[str]] = field(default_factory=dict[Any, list[str]])
    """By the index of the part."""

    def is_same(self, item: Json) -> bool:
        return self.type == item["type"] and bool(self.ids & _ids(item))

    def text(self, part_index: Any) -> str:
        return "".join(self.fragments.get(part_index, ()))


class ResponseEventNormalizer:
    """Normalizes the events of one stream."""

    def __init__(self) -> None:
        self._items: list[_StreamedItem] = []
        self._response: Json = {}
        self._is_whole: bool | None = None
        self._is_finished = False

    def read(self, name: str | None, data: Any, /) -> Iterator[Json]:
        """Return an event, with the events that are missing before it."""
        event = as_object(data)
        event_type = event.get("type")
        if not isinstance(event_type, str):
            event = {**event, "type": (event_type := name or "")}
        if self._is_whole is None:
            number = event.get("sequence_number")
            self._is_whole = event_type == "response.created" or not isinstance(number, int) or number <= 1
        if event_type == "response.done":
            event_type = f"response.{as_object(event.get('response')).get('status') or 'completed'}"
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
            yield event

    def end(self, *, is_done: bool) -> Iterator[Json]:
        """Return the final event if the service has sent ``[DONE]`` without it, and all items are finished."""
        if is_done and not self._is_finished and self._items and all(item.is_done for item in self._items):
            yield {"type": "response.completed", "response": normalize_response({}, self._response)}

    def _read_item(self, event: Json) -> Iterator[Json]:
        item = _normalize_item(event.get("item"))
        if item is None:
            return
        is_done = event["type"].endswith("done")
        streamed = self._find(event, item["type"], _ids(item), is_start=not is_done)
        if streamed is None:
            streamed = self._add(event.get("output_index"), item)
            if is_done:
                yield _item_event("added", streamed, _open(item))
        streamed.ids |= _ids(item)
        if is_done:
            yield from _missing_deltas(streamed, item)
            streamed.is_done = True
        yield {**event, "output_index": streamed.position, "item": item}

    def _read_part(self, event: Json, item_type: str) -> Iterator[Json]:
        streamed = self._find(event, item_type, {event.get("item_id")} - {None, ""})
        if streamed is None:
            item = {"type": item_type, "id": event.get("item_id") or ""}
            streamed = self._add(event.get("output_index"), item)
            if item_type == "message":
                yield _item_event("added", streamed, item | {"role": "assistant", "content": []})
        part_index = event.get("summary_index", event.get("content_index"))
        is_delta = event["type"].endswith(".delta")
        name = next((name for name in ("delta", "text", "refusal", "arguments") if name in event), None)
        if name is not None and not isinstance(event[name], str):
            event = {**event, name: (json_text if name == "arguments" else joined_text)(event[name])}
        if is_delta:
            streamed.fragments.setdefault(part_index, []).append(event.get("delta", ""))
        elif name is not None:
            streamed.fragments[part_index] = [event[name]]
        if "part" in event:
            event = {**event, "part": _normalize_part(event["part"])}
        if item_type == "message" and not isinstance(part_index, int):
            event = {**event, "content_index": 0}
        yield event if event.get("output_index") == streamed.position else {**event, "output_index": streamed.position}

    def _find(self, event: Json, item_type: str, ids: set[Any], *, is_start: bool = False) -> _StreamedItem | None:
        """Return the streamed item of an event: by its position, or without one by its id, or the last of its type."""
        position = event.get("output_index")
        for item in reversed(self._items):
            if item.type == item_type and (
                item.position == position if isinstance(position, int) else not ids or bool(item.ids & ids)
            ):
                return None if is_start and item.is_done else item
        return None

    def _add(self, position: Any, item: Json) -> _StreamedItem:
        if not isinstance(position, int):
            position = max((streamed.position + 1 for streamed in self._items), default=0)
        self._items.append(_StreamedItem(position, item["type"], _ids(item)))
        return self._items[-1]

    def _finish(self, event: Json) -> Iterator[Json]:
        self._is_finished = True
        response = normalize_response(event.get("response"), self._response, _STATUS_BY_EVENT[event["type"]])
        if self._is_whole and event["type"] != "response.failed":
            yield from self._missing_events(response["output"])
        yield {**event, "response": response}

    def _missing_events(self, output: list[Json]) -> Iterator[Json]:
        remaining = list(self._items)
        matches = [_pop(remaining, lambda streamed, item=item: streamed.is_same(item)) for item in output]
        for index, item in enumerate(output):
            streamed = matches[index] or _pop(remaining, lambda streamed, item=item: streamed.type == item["type"])
            if streamed is None:
                is_free = all(streamed.position != index for streamed in self._items)
                streamed = self._add(index if is_free else None, item)
                yield _item_event("added", streamed, _open(item))
            deltas = list(_missing_deltas(streamed, item))
            yield from deltas
            if deltas or not streamed.is_done:
                streamed.is_done = True
                yield _item_event("done", streamed, item)


def normalize_response(data: Any, known_fields: Json = _NOTHING, status: str = "completed") -> Json:
    """Return a response with the fields that the framework needs.

    Args:
        data: as sent by the service.
        known_fields: in place of those that are missing.
        status: of a response without it.
    """
    fields = {
        **known_fields,
        **{name: value for name, value in as_object(data).items() if not (value is None and name in known_fields)},
    }
    items = (_normalize_item(item) for item in listed_objects(fields.get("output")))
    usage = fields.get("usage")
    return {
        **fields,
        "status": fields.get("status") or status,
        "created_at": unix_seconds(fields.get("created_at")),
        "output": [item for item in items if item is not None],
        "usage": usage if isinstance(usage, dict) else None,
    }


def _pop(items: list[_StreamedItem], is_match: Callable[[_StreamedItem], bool]) -> _StreamedItem | None:
    index = next((index for index, item in enumerate(items) if is_match(item)), None)
    return None if index is None else items.pop(index)


def _ids(item: Json) -> set[Any]:
    return {value for name in ("id", "call_id") if isinstance(value := item.get(name), str | int) and value}


def _item_event(kind: str, streamed: _StreamedItem, item: Json) -> Json:
    return {"type": f"response.output_item.{kind}", "output_index": streamed.position, "item": item}


def _open(item: Json) -> Json:
    """Return an item as it starts."""
    match item["type"]:
        case "message":
            return {**item, "content": [], "status": "in_progress"}
        case "function_call":
            return {**item, "arguments": "", "status": "in_progress"}
        case _:
            return item


def _missing_deltas(streamed: _StreamedItem, item: Json) -> Iterator[Json]:
    """Yield the text or the arguments of a finished item as far as they were not streamed."""
    location = {"output_index": streamed.position, "item_id": item.get("id") or ""}
    if streamed.type == "function_call" and (rest := _rest(item["arguments"], streamed.text(None))):
        yield {"type": "response.function_call_arguments.delta", **location, "delta": rest}
    for index, part in enumerate(item["content"] if streamed.type == "message" else ()):
        kind = part.get("type")
        text = joined_text(part) if kind in {"output_text", "refusal"} else ""
        if not (rest := _rest(text, streamed.text(index))):
            continue
        if index not in streamed.fragments:
            empty_part: Json = {**part, "refusal" if kind == "refusal" else "text": ""}
            yield {"type": "response.content_part.added", **location, "content_index": index, "part": empty_part}
        yield {"type": f"response.{kind}.delta", **location, "content_index": index, "delta": rest, "logprobs": []}
        streamed.fragments[index] = [text]


def _rest(text: str, streamed_text: str) -> str:
    return text[len(streamed_text) :] if text.startswith(streamed_text) else ""


def _normalize_item(raw_item: Any) -> Json | None:
    """Return an item with the lists that the API has; None in place of anything else."""
    item = as_object(raw_item)
    if not item:
        return None
    if not isinstance(item.get("type"), str):
        item = {**item, "type": "function_call" if "arguments" in item else "message"}
    match item["type"]:
        case "message":
            content = item.get("content")
            parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else listed_objects(content)
            return {"role": "assistant", **item, "content": [_normalize_part(part) for part in parts]}
        case "function_call":
            arguments = json_text(item.get("arguments"))
            return {**item, "arguments": arguments, "call_id": item.get("call_id") or item.get("id") or ""}
        case "reasoning" if not isinstance(item.get("summary"), list):
            summary = joined_text(item.get("summary"))
            return {**item, "summary": [{"type": "summary_text", "text": summary}] if summary else []}
        case _:
            return item


def _normalize_part(raw_part: Any) -> Json:
    part = as_object(raw_part)
    if part.get("type", "output_text") != "output_text" or (
        isinstance(part.get("text"), str) and isinstance(part.get("annotations"), list)
    ):
        return part
    annotations: Iterable[Json] = as_objects(part.get("annotations"))
    return {"type": "output_text", **part, "text": joined_text(part.get("text")), "annotations": [*annotations]}
