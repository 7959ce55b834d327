"""Converts a response to parts of the Gemini API, and to the chunks of its stream.

A signature is on the first function call of a response, on code, and on the empty text that ends a stream, as in
recorded streams of Gemini 3. Models of Gemini 2 have neither ids nor signatures.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import get_item_type, split_text
from tests.stand_ins.gemini.signatures import sign

_FINISH_REASONS: Final = {"max_output_tokens": "MAX_TOKENS", "content_filter": "SAFETY"}
BLOCKED: Final = "blocked"
"""Incomplete reason of a plan for a prompt that the service has blocked."""


@dataclass(frozen=True)
class ChunkFormat:
    """The format of one response.

    Attributes:
        model: name of the model.
        response_id: id of the response.
        is_reasoning: whether parts have signatures, and calls have ids.
        includes_thoughts: whether the response contains thoughts.
        chunk_characters: length of the text chunks.
    """

    model: str
    response_id: str
    is_reasoning: bool
    includes_thoughts: bool
    chunk_characters: int


def build_parts(items: Sequence[Json], chunk_format: ChunkFormat) -> list[Json]:
    """Convert the items of a response to parts."""
    parts: list[Json] = []
    previous_type = ""
    for item in items:
        item_type = get_item_type(item)
        item_parts = list(_build_item_parts(item, chunk_format))
        is_signed = (
            chunk_format.is_reasoning
            and item_type not in {"reasoning", "part"}
            and {item_type, previous_type} != {"function_call"}
        )
        if is_signed and item_parts:
            item_parts[0]["thoughtSignature"] = sign(str(item["id"]), chunk_format.model)
        previous_type = previous_type if item_type == "reasoning" else item_type
        parts += item_parts
    return parts


def _build_item_parts(item: Json, chunk_format: ChunkFormat) -> Iterator[Json]:
    match get_item_type(item):
        case "reasoning":
            text = "".join(str(part.get("text") or "") for part in cast("list[Json]", item.get("summary") or []))
            if chunk_format.includes_thoughts and text:
                yield {"text": text, "thought": True}
        case "message":
            yield {"text": "".join(str(part.get("text") or "") for part in cast("list[Json]", item["content"]))}
        case "function_call":
            call = {"name": item["name"], "args": json.loads(item["arguments"])}
            yield {"functionCall": {**call, **({"id": item["call_id"]} if chunk_format.is_reasoning else {})}}
        case "code_interpreter_call":
            id_fields = {"id": item["id"]} if chunk_format.is_reasoning else {}
            yield {"executableCode": {"language": "PYTHON", "code": item["code"], **id_fields}}
            outputs = cast("list[Json]", item.get("outputs") or [])
            logs = "".join(str(output.get("logs") or "") for output in outputs)
            yield {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": logs, **id_fields}}
            for image in (output for output in outputs if output.get("type") == "image"):
                media, _, data = str(image["url"]).removeprefix("data:").partition(";base64,")
                yield {"inlineData": {"mimeType": media, "data": data}}
        case "part":
            yield dict(item["part"])
        case _:
            return


def has_readable_calls(items: Sequence[Json]) -> bool:
    """Return whether the arguments of all calls are JSON objects."""
    for item in items:
        if get_item_type(item) == "function_call":
            try:
                if not isinstance(json.loads(item["arguments"]), dict):
                    return False
            except ValueError:
                return False
    return True


def build_response(
    parts: Sequence[Json], chunk_format: ChunkFormat, usage: Mapping[str, Any], finish_reason: str | None
) -> Json:
    """Return a response, or one chunk of it."""
    candidate: Json = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    metadata: Json = {
        "usageMetadata": dict(usage),
        "modelVersion": chunk_format.model,
        "responseId": chunk_format.response_id,
    }
    if finish_reason == BLOCKED:
        return {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, **metadata}
    if finish_reason is not None:
        candidate["finishReason"] = _FINISH_REASONS.get(finish_reason, finish_reason.upper())
    return {"candidates": [candidate], **metadata}


def build_chunks(
    parts: Sequence[Json], chunk_format: ChunkFormat, usage: Mapping[str, Any], finish_reason: str
) -> list[Json]:
    """Return the stream of a response."""
    if finish_reason == BLOCKED:
        return [build_response([], chunk_format, usage, finish_reason)]
    chunk_parts = [chunk_part for part in parts for chunk_part in _split_part(part, chunk_format)]
    prompt_usage = {"promptTokenCount": usage["promptTokenCount"], "totalTokenCount": usage["promptTokenCount"]}
    last_parts = [chunk_parts.pop()] if chunk_parts and chunk_parts[-1].get("text") == "" else [{"text": ""}]
    return [
        *(build_response([part], chunk_format, prompt_usage, None) for part in chunk_parts),
        build_response(last_parts, chunk_format, usage, finish_reason),
    ]


def _split_part(part: Json, chunk_format: ChunkFormat) -> Iterator[Json]:
    text = part.get("text")
    if not isinstance(text, str) or not part.keys() <= {"text", "thought", "thoughtSignature"}:
        yield part
        return
    other_fields = {name: value for name, value in part.items() if name not in {"text", "thoughtSignature"}}
    yield from ({"text": chunk, **other_fields} for chunk in split_text(text, chunk_format.chunk_characters))
    if "thoughtSignature" in part:
        yield {"text": "", "thoughtSignature": part["thoughtSignature"]}
