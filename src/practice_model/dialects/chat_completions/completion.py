"""The object and the stream of a chat completion.

Source: openai-python 3.54, `types/chat/chat_completion.py` and `chat_completion_chunk.py`; the fields beyond it as
OpenRouter, DeepSeek and vLLM document them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from practice_model.dialects.chat_completions.messages import CHUNK, build_message
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import get_item_type, split_text

_FINISH_REASONS: Final = {"max_output_tokens": "length", "content_filter": "content_filter"}


def build_completion(
    items: Sequence[Json],
    *,
    completion_id: str,
    created_at: int,
    model: str,
    usage: Mapping[str, Any],
    incomplete: str | None,
) -> Json:
    """Return the completion object."""
    message = build_message(items)
    finish_reason = "tool_calls" if message.get("tool_calls") else "stop"
    choices = [_build_choice(0, message, _FINISH_REASONS.get(incomplete, incomplete) if incomplete else finish_reason)]
    usage_counts = {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
    }
    completion_fields = {"id": completion_id, "object": "chat.completion", "created": created_at, "model": model}
    return completion_fields | {"choices": choices, "usage": usage_counts, "system_fingerprint": "fp_practice"}


def _build_choice(index: int, message: Json, finish_reason: str) -> Json:
    full_message = {"role": "assistant", "content": None, **message}
    return {"index": index, "message": full_message, "logprobs": None, "finish_reason": finish_reason}


def stream_events(
    completion_object: Json,
    items: Sequence[Json],
    chunk_characters: int,
    failure: Mapping[str, Any] | None,
    *,
    with_usage: bool,
) -> list[Json]:
    """Return the events of a completion's stream."""
    common_fields = {name: completion_object[name] for name in ("id", "created", "model", "system_fingerprint")}
    common_fields["object"] = CHUNK
    events = [
        common_fields | {name: value for name, value in item.items() if name != "type"}
        for item in items
        if get_item_type(item) == CHUNK
    ]
    if not events:
        choices = cast("list[Json]", completion_object["choices"])
        events = [
            common_fields | {"choices": [delta]}
            for choice in choices
            for delta in _choice_deltas(choice, chunk_characters)
        ]
    if failure is not None:
        error = {"message": failure.get("message"), "type": "server_error", "param": None, "code": failure.get("code")}
        return [event for event in events if not _has_finish_reason(event)] + [{"error": error}]
    return [*events, common_fields | {"choices": [], "usage": completion_object["usage"]}] if with_usage else events


def _has_finish_reason(event: Json) -> bool:
    return any(choice.get("finish_reason") for choice in cast("list[Json]", event.get("choices") or []))


def _choice_deltas(choice: Json, chunk_characters: int) -> Iterator[Json]:
    message = cast("Json", choice["message"])
    for delta in _message_deltas(message, chunk_characters):
        yield {"index": choice["index"], "delta": delta, "logprobs": None, "finish_reason": None}
    yield {"index": choice["index"], "delta": {}, "logprobs": None, "finish_reason": choice["finish_reason"]}


def _message_deltas(message: Json, chunk_characters: int) -> Iterator[Json]:
    yield {"role": "assistant", "content": "" if message.get("content") is not None else None}
    late_fields = ("content", "refusal", "tool_calls", "annotations")
    early_fields = [name for name in message if name not in {"role", *late_fields}]
    for name in (*early_fields, *late_fields):
        value: Any = message.get(name)
        if isinstance(value, str):
            yield from ({name: chunk} for chunk in split_text(value, chunk_characters) or [""])
        elif name == "tool_calls" and value:
            yield from _call_deltas(cast("list[Json]", value), chunk_characters)
        elif name == "reasoning_details" and value:
            yield from _detail_deltas(cast("list[Json]", value), chunk_characters)
        elif value is not None:
            yield {name: value}


def _call_deltas(calls: Sequence[Json], chunk_characters: int) -> Iterator[Json]:
    for index, call in enumerate(calls):
        function = cast("Json", call["function"])
        yield {"tool_calls": [{"index": index, **call, "function": {**function, "arguments": ""}}]}
        for chunk in split_text(str(function["arguments"]), chunk_characters):
            yield {"tool_calls": [{"index": index, "function": {"arguments": chunk}}]}


def _detail_deltas(details: Sequence[Json], chunk_characters: int) -> Iterator[Json]:
    """Texts in chunks, with the signature in the last one, as OpenRouter sends them."""
    for detail in details:
        text_field = next((name for name in ("text", "summary", "data") if isinstance(detail.get(name), str)), None)
        common_fields = {key: value for key, value in detail.items() if key not in {text_field, "signature"}}
        for chunk in split_text(str(detail.get(text_field)), chunk_characters) if text_field else ():
            yield {"reasoning_details": [common_fields | {text_field: chunk}]}
        if "signature" in detail or text_field is None:
            signature_fields = {"signature": detail["signature"]} if "signature" in detail else {}
            yield {"reasoning_details": [common_fields | signature_fields]}
