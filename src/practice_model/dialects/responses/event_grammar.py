"""Turns a finished response into the event stream that the live API sends for it.

Theory: every item type has one writer, a generator of the events between `output_item.added` and
`output_item.done`; the table `WRITERS` selects it. `stream_events` adds the envelope and numbers the events from 0.
Texts are split into pieces of `chunk_characters`.

Source: 311 recorded Responses streams; the event order per item type is fixed on the wire.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from practice_model.dialects.responses import response_object, sealed
from practice_model.dialects.responses.items import Json

DEFAULT_CHUNK_CHARACTERS = 6
"""About one token of text or code, so that a script of 2,500 characters takes several hundred events."""

Writer = Callable[[Json, int], Iterator[Json]]


def stream_events(response: Json, chunk_characters: int = DEFAULT_CHUNK_CHARACTERS) -> list[Json]:
    """Return the stream of a completed, incomplete or failed response.

    Guarantee: pure.

    Args:
        response: the final response object, with its full output.
        chunk_characters: length of the deltas, at least 1.
    """
    events = [_envelope("response.created", response_object.started(response))]
    if response.get("background"):
        events[0] = _envelope("response.created", response_object.started(response, "queued"))
        events.append(_envelope("response.queued", response_object.started(response, "queued")))
    events.append(_envelope("response.in_progress", response_object.started(response)))
    for output_index, item in enumerate(response["output"]):
        events += _item_events(item, output_index, max(1, chunk_characters))
    if response["status"] == "failed":
        error: Json = {"type": response["error"]["code"], "param": None} | response["error"]
        events.append({"type": "error", "error": error})
    events.append(_envelope(f"response.{response['status']}", response))
    return [event | {"sequence_number": number} for number, event in enumerate(events)]


def _envelope(kind: str, response: Mapping[str, Any]) -> Json:
    return {"type": kind, "response": dict(response)}


def _item_events(item: Json, output_index: int, chunk: int) -> Iterator[Json]:
    place = {"output_index": output_index}
    yield {"type": "response.output_item.added", **place, "item": _opening(item)}
    for event in WRITERS.get(item["type"], _write_nothing)(item, chunk):
        yield {"type": event.pop("type"), "item_id": item["id"], **place, **event}
    yield {"type": "response.output_item.done", **place, "item": item}


def _opening(item: Json) -> Json:
    """Return the item of `output_item.added`: in progress, with empty content."""
    blanks: dict[str, Any] = {"status": "in_progress", **_BLANKS.get(item["type"], {})}
    opening = {name: blanks.get(name, value) for name, value in item.items()}
    if "encrypted_content" in opening:
        opening["encrypted_content"] = sealed.unfinished(item["id"])
    return opening


_BLANKS: dict[str, dict[str, Any]] = {
    "message": {"content": []},
    "reasoning": {"summary": []},
    "function_call": {"arguments": ""},
    "code_interpreter_call": {"code": "", "outputs": None},
    "custom_tool_call": {"input": ""},
}


def _write_nothing(_item: Json, _chunk: int) -> Iterator[Json]:
    yield from ()


def _write_message(item: Json, chunk: int) -> Iterator[Json]:
    for content_index, part in enumerate(item["content"]):
        place = {"content_index": content_index}
        blank = part | ({"refusal": ""} if part["type"] == "refusal" else {"text": "", "annotations": []})
        yield {"type": "response.content_part.added", **place, "part": blank}
        if part["type"] == "refusal":
            for delta in pieces(part["refusal"], chunk):
                yield {"type": "response.refusal.delta", **place, "delta": delta}
            yield {"type": "response.refusal.done", **place, "refusal": part["refusal"]}
        else:
            yield from _write_text(part, place, chunk)
        yield {"type": "response.content_part.done", **place, "part": part}


def _write_text(part: Json, place: Json, chunk: int) -> Iterator[Json]:
    for delta in pieces(part["text"], chunk):
        yield {"type": "response.output_text.delta", **place, "delta": delta, "logprobs": []}
    for index, annotation in enumerate(part["annotations"]):
        number = {"annotation_index": index}
        yield {"type": "response.output_text.annotation.added", **place, **number, "annotation": annotation}
    yield {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []}


def _write_reasoning(item: Json, chunk: int) -> Iterator[Json]:
    for summary_index, part in enumerate(item["summary"]):
        place = {"summary_index": summary_index}
        yield {"type": "response.reasoning_summary_part.added", **place, "part": part | {"text": ""}}
        for delta in pieces(part["text"], chunk):
            yield {"type": "response.reasoning_summary_text.delta", **place, "delta": delta}
        yield {"type": "response.reasoning_summary_text.done", **place, "text": part["text"]}
        yield {"type": "response.reasoning_summary_part.done", **place, "part": part}


def _write_function_call(item: Json, chunk: int) -> Iterator[Json]:
    for delta in pieces(item["arguments"], chunk):
        yield {"type": "response.function_call_arguments.delta", "delta": delta}
    done = {"arguments": item["arguments"], "name": item["name"]}
    yield {"type": "response.function_call_arguments.done", **done}


def _write_code(item: Json, chunk: int) -> Iterator[Json]:
    yield {"type": "response.code_interpreter_call.in_progress"}
    code = item["code"] or ""
    for delta in pieces(code, chunk):
        yield {"type": "response.code_interpreter_call_code.delta", "delta": delta}
    yield {"type": "response.code_interpreter_call_code.done", "code": code}
    yield {"type": "response.code_interpreter_call.interpreting"}
    yield {"type": "response.code_interpreter_call.completed"}


def _write_custom_call(item: Json, chunk: int) -> Iterator[Json]:
    for delta in pieces(item["input"], chunk):
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


def pieces(text: str, length: int) -> Sequence[str]:
    """Split a text into pieces of this length; an empty text is one empty piece."""
    return [text[start : start + length] for start in range(0, len(text), length)] or [""]
