"""Writes an answer as parts of the Gemini API, and as the chunks of its stream. Pure.

A signature is on the first function call of an answer, on code, and on the empty text that ends a stream, as recorded
streams of Gemini 3 have it. Models of Gemini 2 give no ids and sign nothing.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from practice_model.dialects.gemini.signatures import sign
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import kind_of

_FINISH: Final = {"max_output_tokens": "MAX_TOKENS", "content_filter": "SAFETY"}
BLOCKED: Final = "blocked"
"""Reason of an incomplete answer that stands for a prompt that the service has blocked."""


@dataclass(frozen=True)
class Form:
    """How one answer is written.

    Attributes:
        model: its name.
        response_id: of the answer.
        is_reasoning: whether parts have signatures, and calls have ids.
        tells_thoughts: whether thoughts are in the answer.
        streams_arguments: whether arguments of functions come in pieces.
        chunk_characters: length of a piece of text.
    """

    model: str
    response_id: str
    is_reasoning: bool
    tells_thoughts: bool
    streams_arguments: bool
    chunk_characters: int


def parts_of(items: Sequence[Json], form: Form) -> list[Json]:
    """Write the items of an answer as parts.

    Guarantee: pure.

    Args:
        items: of the answer; one of type ``part`` has a part that is written as it is.
        form: see there.
    """
    parts: list[Json] = []
    before = ""
    for item in items:
        kind = kind_of(item)
        written = list(_parts(item, form))
        is_signed = form.is_reasoning and kind not in {"reasoning", "part"} and {kind, before} != {"function_call"}
        if is_signed and written:
            written[0]["thoughtSignature"] = sign(str(item["id"]), form.model)
        before = before if kind == "reasoning" else kind
        parts += written
    return parts


def _parts(item: Json, form: Form) -> Iterator[Json]:
    match kind_of(item):
        case "reasoning":
            text = "".join(str(one.get("text") or "") for one in cast("list[Json]", item.get("summary") or []))
            if form.tells_thoughts and text:
                yield {"text": text, "thought": True}
        case "message":
            yield {"text": "".join(str(one.get("text") or "") for one in cast("list[Json]", item["content"]))}
        case "function_call":
            call = {"name": item["name"], "args": json.loads(item["arguments"])}
            yield {"functionCall": {**call, **({"id": item["call_id"]} if form.is_reasoning else {})}}
        case "code_interpreter_call":
            name = {"id": item["id"]} if form.is_reasoning else {}
            yield {"executableCode": {"language": "PYTHON", "code": item["code"], **name}}
            outputs = cast("list[Json]", item.get("outputs") or [])
            logs = "".join(str(one.get("logs") or "") for one in outputs)
            yield {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": logs, **name}}
            for image in (one for one in outputs if one.get("type") == "image"):
                media, _, data = str(image["url"]).removeprefix("data:").partition(";base64,")
                yield {"inlineData": {"mimeType": media, "data": data}}
        case "part":
            yield dict(item["part"])
        case _:
            return


def has_readable_calls(items: Sequence[Json]) -> bool:
    """Tell whether the arguments of all calls are JSON objects. Guarantee: pure."""
    for item in items:
        if kind_of(item) == "function_call":
            try:
                if not isinstance(json.loads(item["arguments"]), dict):
                    return False
            except ValueError:
                return False
    return True


def response(parts: Sequence[Json], form: Form, usage: Mapping[str, Any], finish: str | None) -> Json:
    """Write a response, or the chunk of one.

    Guarantee: pure.

    Args:
        parts: of its candidate.
        form: see there.
        usage: token counts.
        finish: reason of the end, in the practice model's words; None for a chunk that others follow.
    """
    candidate: Json = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    beside: Json = {"usageMetadata": dict(usage), "modelVersion": form.model, "responseId": form.response_id}
    if finish == BLOCKED:
        return {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, **beside}
    if finish is not None:
        candidate["finishReason"] = _FINISH.get(finish, finish.upper())
    return {"candidates": [candidate], **beside}


def chunks(parts: Sequence[Json], form: Form, usage: Mapping[str, Any], finish: str) -> list[Json]:
    """Write the stream of an answer.

    Guarantee: pure.

    Args:
        parts: of the answer, whole.
        form: see there.
        usage: token counts, told at the end.
        finish: as for `response`.
    """
    if finish == BLOCKED:
        return [response([], form, usage, finish)]
    pieces = [piece for part in parts for piece in _pieces(part, form)]
    counted = {"promptTokenCount": usage["promptTokenCount"], "totalTokenCount": usage["promptTokenCount"]}
    last = [pieces.pop()] if pieces and pieces[-1].get("text") == "" else [{"text": ""}]
    return [*(response([one], form, counted, None) for one in pieces), response(last, form, usage, finish)]


def _pieces(part: Json, form: Form) -> Iterator[Json]:
    if "functionCall" in part and form.streams_arguments and part.keys() <= {"functionCall", "thoughtSignature"}:
        yield from _argument_pieces(part, form.chunk_characters)
        return
    text = part.get("text")
    if not isinstance(text, str) or not part.keys() <= {"text", "thought", "thoughtSignature"}:
        yield part
        return
    rest = {name: value for name, value in part.items() if name not in {"text", "thoughtSignature"}}
    size = form.chunk_characters
    yield from ({"text": text[place : place + size], **rest} for place in range(0, len(text), size))
    if "thoughtSignature" in part:
        yield {"text": "", "thoughtSignature": part["thoughtSignature"]}


def _argument_pieces(part: Json, size: int) -> Iterator[Json]:
    call = dict(part["functionCall"])
    args = cast("Json", call.pop("args"))
    yield {**part, "functionCall": {**call, "willContinue": True}}
    for name, value in args.items():
        path = f"$.{name}"
        if isinstance(value, str):
            for place in range(0, len(value), size):
                piece = {"jsonPath": path, "stringValue": value[place : place + size], "willContinue": True}
                yield {"functionCall": {"partialArgs": [piece], "willContinue": True}}
            value = ""  # noqa: PLW2901 - what ends it
        kind = "stringValue" if isinstance(value, str) else "boolValue" if isinstance(value, bool) else "numberValue"
        yield {"functionCall": {"partialArgs": [{"jsonPath": path, kind: value}], "willContinue": True}}
    yield {"functionCall": {}}
