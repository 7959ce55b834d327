"""The object and the stream of a chat completion.

Source: openai-python 3.54, `types/chat/chat_completion.py` and `chat_completion_chunk.py`; the fields beyond it as
OpenRouter, DeepSeek and vLLM document them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from practice_model.dialects.chat_completions.messages import CHOICE, CHUNK, message_of
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import kind_of

_FINISHES: Final = {"max_output_tokens": "length", "content_filter": "content_filter"}


def completion(
    items: Sequence[Json],
    *,
    completion_id: str,
    created: int,
    model: str,
    usage: Mapping[str, Any],
    incomplete: str | None,
) -> Json:
    """Return the finished completion.

    Guarantee: pure.

    Args:
        items: of the answer.
        completion_id: its id.
        created: seconds since the epoch.
        model: that answers.
        usage: token counts of the Responses API.
        incomplete: why the answer is not whole, in words of the Responses API or of this one.
    """
    message = message_of(items)
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    choices = [_choice(0, message, _FINISHES.get(incomplete, incomplete) if incomplete else finish)]
    others = [item for item in items if kind_of(item) == CHOICE]
    choices += [
        _choice(place, one["message"], one.get("finish_reason") or "stop") for place, one in enumerate(others, 1)
    ]
    counts = {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
    }
    head = {"id": completion_id, "object": "chat.completion", "created": created, "model": model}
    return head | {"choices": choices, "usage": counts, "system_fingerprint": "fp_practice"}


def _choice(place: int, message: Json, finish: str) -> Json:
    whole = {"role": "assistant", "content": None, **message}
    return {"index": place, "message": whole, "logprobs": None, "finish_reason": finish}


def stream_events(
    whole: Json, items: Sequence[Json], characters: int, failure: Mapping[str, Any] | None, *, with_usage: bool
) -> list[Json]:
    """Return the events of a completion's stream.

    Guarantee: pure.

    Args:
        whole: the finished completion.
        items: of the answer; chunks among them are sent instead of what would be derived.
        characters: length of the deltas of texts and arguments.
        failure: the error that ends the stream instead of a finish reason.
        with_usage: whether the request asked for the usage, which has an event of its own.
    """
    head = {name: whole[name] for name in ("id", "created", "model", "system_fingerprint")} | {"object": CHUNK}
    events = [
        head | {name: v for name, v in item.items() if name != "type"} for item in items if kind_of(item) == CHUNK
    ]
    if not events:
        choices = cast("list[Json]", whole["choices"])
        events = [head | {"choices": [delta]} for choice in choices for delta in _deltas(choice, characters)]
    if failure is not None:
        error = {"message": failure.get("message"), "type": "server_error", "param": None, "code": failure.get("code")}
        return [event for event in events if not _ends(event)] + [{"error": error}]
    return [*events, head | {"choices": [], "usage": whole["usage"]}] if with_usage else events


def _ends(event: Json) -> bool:
    return any(choice.get("finish_reason") for choice in cast("list[Json]", event.get("choices") or []))


def _deltas(choice: Json, characters: int) -> Iterator[Json]:
    message = cast("Json", choice["message"])
    for delta in _deltas_of(message, characters):
        yield {"index": choice["index"], "delta": delta, "logprobs": None, "finish_reason": None}
    yield {"index": choice["index"], "delta": {}, "logprobs": None, "finish_reason": choice["finish_reason"]}


def _deltas_of(message: Json, characters: int) -> Iterator[Json]:
    yield {"role": "assistant", "content": "" if message.get("content") is not None else None}
    late = ("content", "refusal", "tool_calls", "annotations")
    early = [name for name in message if name not in {"role", *late}]
    for name in (*early, *late):
        value: Any = message.get(name)
        if isinstance(value, str):
            yield from ({name: piece} for piece in _pieces(value, characters) or [""])
        elif name == "tool_calls" and value:
            yield from _call_deltas(cast("list[Json]", value), characters)
        elif name == "reasoning_details" and value:
            yield from _detail_deltas(cast("list[Json]", value), characters)
        elif value is not None:
            yield {name: value}


def _call_deltas(calls: Sequence[Json], characters: int) -> Iterator[Json]:
    for index, call in enumerate(calls):
        function = cast("Json", call["function"])
        yield {"tool_calls": [{"index": index, **call, "function": {**function, "arguments": ""}}]}
        for piece in _pieces(str(function["arguments"]), characters):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _detail_deltas(details: Sequence[Json], characters: int) -> Iterator[Json]:
    """Texts in pieces, and what seals them in the last, as OpenRouter sends them."""
    for detail in details:
        name = next((name for name in ("text", "summary", "data") if isinstance(detail.get(name), str)), None)
        known = {key: value for key, value in detail.items() if key not in {name, "signature"}}
        for piece in _pieces(str(detail.get(name)), characters) if name else ():
            yield {"reasoning_details": [known | {name: piece}]}
        if "signature" in detail or name is None:
            sealed = {"signature": detail["signature"]} if "signature" in detail else {}
            yield {"reasoning_details": [known | sealed]}


def _pieces(text: str, characters: int) -> list[str]:
    return [text[start : start + characters] for start in range(0, len(text), characters)]
