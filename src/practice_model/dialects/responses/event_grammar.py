"""Turns a finished response into the event stream that the live API sends for it.

Theory: every item type has one writer, a generator of the events between `output_item.added` and
`output_item.done`; the table `WRITERS` selects it. `stream_events` adds the envelope and numbers the events from 0.
Texts are split into chunks of `chunk_characters`.

Source: 311 recorded Responses streams; the event order per item type is fixed on the wire.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from practice_model.dialects.responses import response_object, sealed
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import split_text

DEFAULT_CHUNK_CHARACTERS = 6
"""About one token of text or code, so that a script of 2,500 characters takes several hundred events."""

Writer = Callable[[Json, int], Iterator[Json]]


def stream_events(response: Json, chunk_characters: int = DEFAULT_CHUNK_CHARACTERS) -> list[Json]:
    """Return the stream of a completed, incomplete or failed response."""
    events = [_envelope("response.created", response_object.build_started(response))]
    if response.get("background"):
        events[0] = _envelope("response.created", response_object.build_started(response, "queued"))
        events.append(_envelope("response.queued", response_object.build_started(response, "queued")))
    events.append(_envelope("response.in_progress", response_object.build_started(response)))
    for output_index, item in enumerate(response["output"]):
        events += _item_events(item, output_index, max(1, chunk_characters))
    if response["status"] == "failed":
        error: Json = {"type": response["error"]["code"], "param": None} | response["error"]
        events.append({"type": "error", "error": error})
    events.append(_envelope(f"response.{response['status']}", response))
    return [event | {"sequence_number": sequence_number} for sequence_number, event in enumerate(events)]


def _envelope(kind: str, response: Mapping[str, Any]) -> Json:
    return {"type": kind, "response": dict(response)}


def _item_events(item: Json, output_index: int, chunk_characters: int) -> Iterator[Json]:
    indices = {"output_index": output_index}
    yield {"type": "response.output_item.added", **indices, "item": _build_opening_item(item)}
    writer = WRITERS.get(item["type"])
    for event in writer(item, chunk_characters) if writer else ():
        yield {"type": event.pop("type"), "item_id": item["id"], **indices, **event}
    yield {"type": "response.output_item.done", **indices, "item": item}


def _build_opening_item(item: Json) -> Json:
    """Return the item of `output_item.added`: in progress, with empty content."""
    initial_values: dict[str, Any] = {"status": "in_progress", **_INITIAL_VALUES.get(item["type"], {})}
    opening_item = {name: initial_values.get(name, value) for name, value in item.items()}
    if "encrypted_content" in opening_item:
        opening_item["encrypted_content"] = sealed.unsigned_value(item["id"])
    return opening_item


_INITIAL_VALUES: dict[str, dict[str, Any]] = {
    "message": {"content": []},
    "reasoning": {"summary": []},
    "function_call": {"arguments": ""},
    "code_interpreter_call": {"code": "", "outputs": None},
    "custom_tool_call": {"input": ""},
}


def _write_message(item: Json, chunk_characters: int) -> Iterator[Json]:
    for content_index, part in enumerate(item["content"]):
        indices = {"content_index": content_index}
        empty_part = part | ({"refusal": ""} if part["type"] == "refusal" else {"text": "", "annotations": []})
        yield {"type": "response.content_part.added", **indices, "part": empty_part}
        if part["type"] == "refusal":
            for delta in split_text(part["refusal"], chunk_characters) or [""]:
                yield {"type": "response.refusal.delta", **indices, "delta": delta}
            yield {"type": "response.refusal.done", **indices, "refusal": part["refusal"]}
        else:
            yield from _write_text(part, indices, chunk_characters)
        yield {"type": "response.content_part.done", **indices, "part": part}


def _write_text(part: Json, indices: Json, chunk_characters: int) -> Iterator[Json]:
    for delta in split_text(part["text"], chunk_characters) or [""]:
        yield {"type": "response.output_text.delta", **indices, "delta": delta, "logprobs": []}
    for index, annotation in enumerate(part["annotations"]):
        annotation_fields = {"annotation_index": index, "annotation": annotation}
        yield {"type": "response.output_text.annotation.added", **indices, **annotation_fields}
    yield {"type": "response.output_text.done", **indices, "text": part["text"], "logprobs": []}


def _write_reasoning(item: Json, chunk_characters: int) -> Iterator[Json]:
    for summary_index, part in enumerate(item["summary"]):
        indices = {"summary_index": summary_index}
        yield {"type": "response.reasoning_summary_part.added", **indices, "part": part | {"text": ""}}
        for delta in split_text(part["text"], chunk_characters) or [""]:
            yield {"type": "response.reasoning_summary_text.delta", **indices, "delta": delta}
        yield {"type": "response.reasoning_summary_text.done", **indices, "text": part["text"]}
        yield {"type": "response.reasoning_summary_part.done", **indices, "part": part}


def _write_function_call(item: Json, chunk_characters: int) -> Iterator[Json]:
    for delta in split_text(item["arguments"], chunk_characters) or [""]:
        yield {"type": "response.function_call_arguments.delta", "delta": delta}
    done_fields = {"arguments": item["arguments"], "name": item["name"]}
    yield {"type": "response.function_call_arguments.done", **done_fields}


def _write_code(item: Json, chunk_characters: int) -> Iterator[Json]:
    yield {"type": "response.code_interpreter_call.in_progress"}
    code = item["code"] or ""
    for delta in split_text(code, chunk_characters) or [""]:
        yield {"type": "response.code_interpreter_call_code.delta", "delta": delta}
    yield {"type": "response.code_interpreter_call_code.done", "code": code}
    yield {"type": "response.code_interpreter_call.interpreting"}
    yield {"type": "response.code_interpreter_call.completed"}


def _write_custom_call(item: Json, chunk_characters: int) -> Iterator[Json]:
    for delta in split_text(item["input"], chunk_characters) or [""]:
        yield {"type": "response.custom_tool_call_input.delta", "delta": delta}
    yield {"type": "response.custom_tool_call_input.done", "input": item["input"]}


WRITERS: dict[str, Writer] = {
    "message": _write_message,
    "reasoning": _write_reasoning,
    "function_call": _write_function_call,
    "code_interpreter_call": _write_code,
    "custom_tool_call": _write_custom_call,
}
"""Item type → the events between `added` and `done`; a type without a row has none."""
