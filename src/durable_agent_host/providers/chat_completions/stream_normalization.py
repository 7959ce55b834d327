"""Chunks and completions of compatible services in the form of the API. Does not use the SDK."""

from collections.abc import Iterator
from typing import Any, Final, cast

from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.providers.event_normalization import (
    Json,
    joined_text,
    json_text,
    to_object_list,
    unix_seconds,
)

STREAM_END: Final = "durable_agent_host_stream_end"
"""Field of the chunk that stands for ``[DONE]``, which the SDK does not pass on."""

_TEXTS: Final = ("reasoning_content", "reasoning", "refusal")
_TOKEN_DETAILS: Final = ("prompt_tokens_details", "completion_tokens_details")


class ChunkNormalizer:
    """Normalizes the chunks of one stream.

    A service may send ``[DONE]`` without a finish reason before it (Snowflake, OpenAI's audio): then the answer is
    complete as well. ``[DONE]`` without any choice before it is no answer.
    """

    def __init__(self) -> None:
        self._last_chunk: Json = {}
        self._started_choices = set[int]()
        self._has_finish_reason = False

    def read(self, _name: str | None, data: Any, /) -> Iterator[Json]:
        """Return a chunk."""
        chunk = normalize_chunk(data)
        if self._has_finish_reason:
            chunk.pop("error", None)  # a report beside the usage, after the end (OpenRouter)
        for choice in chunk["choices"]:
            self._has_finish_reason = self._has_finish_reason or choice["finish_reason"] is not None
            message = object_at(choice.pop("message", None))  # the answer so far beside its delta (Perplexity)
            if choice["delta"] is None and choice["index"] not in self._started_choices and message:
                choice["delta"] = _normalize_message(message)  # a whole answer as one chunk
            self._started_choices |= {choice["index"]} if choice["delta"] else set()
        if chunk["choices"]:
            self._last_chunk = {name: chunk.get(name) for name in ("id", "object", "created", "model")}
        yield chunk

    def end(self, *, is_done: bool) -> Iterator[Json]:
        if is_done and self._last_chunk:
            yield {**self._last_chunk, "choices": [_END_CHOICE], "usage": None, STREAM_END: True}


_END_CHOICE: Final[Json] = {"index": 0, "delta": None, "finish_reason": None}


def normalize_chunk(data: Any) -> Json:
    """Return a chunk, as it was sent by the service, in the form of the API."""
    completion = object_at(data)
    raw_choices = to_object_list(completion.get("choices"))
    usage_holders = (completion, *raw_choices, object_at(completion.get("x_groq")))
    usage = next((holder["usage"] for holder in usage_holders if isinstance(holder.get("usage"), dict)), None)
    return {
        **completion,
        "created": unix_seconds(completion.get("created")),
        "choices": [_normalize_choice(choice) for choice in raw_choices],
        "usage": usage and {**usage, **{name: object_at(usage.get(name)) or None for name in _TOKEN_DETAILS}},
    }


def _normalize_choice(choice: Json) -> Json:
    index, delta = choice.get("index"), choice.get("delta")
    reason, _, category = joined_text(choice.get("finish_reason")).partition(": ")  # Gemini: "content_filter: SPII"
    return {
        **choice,
        **({"content_filter_results": {category: {"filtered": True}}} if category else {}),
        "index": index if isinstance(index, int) else 0,
        "finish_reason": "tool_calls" if reason == "function_call" else reason or None,
        "delta": None if delta is None else _normalize_message(object_at(delta)),
    }


def _normalize_message(message: Json) -> Json:
    """Return a message or a delta: texts as texts or lists of parts, calls as a list, a legacy call as its only one."""
    changed_fields: Json = {name: joined_text(message[name]) for name in _TEXTS if _is_odd_text(message.get(name))}
    content = message.get("content")
    if _is_odd_text(content):
        parts = cast("list[Any]", content if isinstance(content, list) else [content])
        is_typed = any(isinstance(part, dict) for part in parts)
        changed_fields["content"] = list(map(_text_part, parts)) if is_typed else joined_text(parts)
    legacy_call = object_at(message.get("function_call"))
    if message.get("tool_calls") or legacy_call:
        calls = to_object_list(message.get("tool_calls"))
        if not calls:
            calls = [{"index": 0, "type": "function", "function": legacy_call}]
        changed_fields["tool_calls"] = [_normalize_call(call) for call in calls] or None
    if not changed_fields:
        return message
    return {name: value for name, value in {**message, **changed_fields}.items() if name != "function_call"}


def _is_odd_text(value: Any) -> bool:
    return value is not None and not isinstance(value, str)


def _text_part(part: Any) -> Json:
    return object_at(part) or {"type": "text", "text": joined_text(part)}


def _normalize_call(call: Json) -> Json:
    function = call.get("function")
    if call.get("custom") is not None and function is None:
        return call
    function_fields = object_at(function)
    arguments = function_fields.get("arguments")
    return {**call, "function": function_fields | ({} if arguments is None else {"arguments": json_text(arguments)})}
