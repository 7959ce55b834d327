"""Documents that somebody changed: seeded mutations of any JSON."""

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

REPLACEMENTS: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 3, 1.5, 10**30, "", "x", "\ud83d", "a" * 3000),
    *([], [1], [None], [[]], ["x"], [{}]),
    *({}, {"a": 1}, {"$type": "text"}, {"type": "text"}, {"$content": {}}, {"$plain": 5}, {"durableAgentHost": []}),
)
"""What a value is replaced with."""


def mutations(document: Any, count: int, seed: str) -> Iterator[tuple[str, Any]]:
    """Change copies of a document in one place each, every place about as often.

    Yields:
        What was changed, in words, and the changed copy.
    """
    chance = random.Random(seed)
    paths = list(_paths(document, ()))
    order: list[tuple[Any, ...]] = []
    while len(order) < count:
        order += chance.sample(paths, len(paths))
    for path in order[:count]:
        mutant = copy.deepcopy(document)
        yield f"{_change(mutant, path, chance)} {'.'.join(map(str, path))}", mutant


def _paths(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield (*path, name)
        yield from _paths(inner, (*path, name))


def _change(document: Any, path: tuple[Any, ...], chance: random.Random) -> str:
    container = document
    for name in path[:-1]:
        container = container[name]
    last = path[-1]
    change = chance.choices(["replaced", "left out", "twice", "wrapped", "renamed"], [12, 3, 1, 2, 1])[0]
    if change == "left out":
        del container[last]
    elif change == "wrapped":
        container[last] = chance.choice([lambda value: [value], lambda value: {"a": value}, str])(container[last])
    elif change == "twice" and isinstance(container, list):
        container.insert(last, copy.deepcopy(container[last]))
    elif change == "renamed" and isinstance(container, dict):
        container[f"{last}X"] = container.pop(last)
    else:
        change = "replaced"
        container[last] = copy.deepcopy(chance.choice(REPLACEMENTS))
    return change


# Streams that services write otherwise, and that are complete: the same answer.

Events = list[Any]
"""Objects of a stream's events, and texts as they are."""

StreamMutation = Callable[[Events], Events]


def _every(change: Callable[[dict[str, Any]], Any]) -> StreamMutation:
    """Change copies of all events; those that the change returns None for are left out."""

    def mutate(stream: Events) -> Events:
        changed = [event if isinstance(event, str) else change(copy.deepcopy(event)) for event in stream]
        return [event for event in changed if event is not None]

    return mutate


def _every_choice(change: Callable[[dict[str, Any]], None]) -> StreamMutation:
    def change_chunk(chunk: dict[str, Any]) -> dict[str, Any]:
        for choice in chunk.get("choices") or ():
            change(choice)
        return chunk

    return _every(change_chunk)


def _set(**fields: Any) -> StreamMutation:
    """Replace fields where they are, whatever they are in; ``...`` leaves them out."""

    def change(value: Any) -> Any:
        if isinstance(value, list):
            return [change(element) for element in value]
        if not isinstance(value, dict):
            return value
        changed = {name: change(inner) for name, inner in value.items() if fields.get(name) is not ...}
        return changed | {
            name: new(value[name]) if callable(new) else new
            for name, new in fields.items()
            if name in value and new is not ...
        }

    return _every(change)


def _text_as_parts(choice: dict[str, Any]) -> None:
    delta = choice.get("delta") or {}
    if isinstance(delta.get("content"), str):
        delta["content"] = [{"type": "text", "text": delta["content"]}]


def _legacy_call(choice: dict[str, Any]) -> None:
    delta = choice.get("delta") or {}
    if calls := delta.pop("tool_calls", None):
        delta["function_call"] = calls[0]["function"]


def _without_reason(choice: dict[str, Any]) -> None:
    if choice.get("finish_reason") != "length":  # which only this says, and on which depends whether calls run
        choice["finish_reason"] = None


def _null_delta(choice: dict[str, Any]) -> None:
    choice["delta"] = choice.get("delta") or None


def _with_answers_so_far(stream: Events) -> Events:
    """Add the message so far to each choice, as Perplexity does."""
    text = ""
    mutated = _every(lambda chunk: chunk)(stream)
    for chunk in mutated:
        for choice in () if isinstance(chunk, str) else chunk.get("choices") or ():
            content = (choice.get("delta") or {}).get("content")
            text += content if isinstance(content, str) else ""
            choice["message"] = {"role": "assistant", "content": text}
    return mutated


def _second_choice(stream: Events) -> Events:
    mutated: Events = []
    for event in stream:
        mutated.append(event)
        if not isinstance(event, str) and event.get("choices"):
            delta = {"content": "another", "tool_calls": [{"index": 0, "id": "x", "function": {"name": "other"}}]}
            mutated.append(event | {"choices": [{"index": 1, "delta": delta}], "usage": None})
    last = next((event for event in reversed(mutated) if not isinstance(event, str) and event.get("choices")), None)
    return [*mutated[:-1], (last or {}) | {"choices": [{"index": 1, "finish_reason": "length"}]}, mutated[-1]]


def _arguments_again(stream: Events) -> Events:
    arguments: dict[int, str] = {}
    first: dict[int, Any] = {}
    for event in stream:
        for choice in () if isinstance(event, str) else event.get("choices") or ():
            for call in (choice.get("delta") or {}).get("tool_calls") or ():
                index = call.get("index") or 0
                first.setdefault(index, call)
                arguments[index] = arguments.get(index, "") + (call["function"].get("arguments") or "")
    whole = [
        call | {"index": index, "function": call["function"] | {"arguments": arguments[index]}}
        for index, call in first.items()
    ]
    at = next(n for n, event in reversed([*enumerate(stream)]) if not isinstance(event, str) and event.get("choices"))
    chunk = stream[at] | {"choices": [{"index": 0, "delta": {"tool_calls": whole}}], "usage": None}
    return [*stream[:at], chunk, *stream[at:]] if whole else stream


def _milliseconds(value: Any) -> Any:
    return value * 1000 if value else value


def _without(*types: str) -> StreamMutation:
    return _every(lambda event: None if event["type"] in types else event)


def _without_names(*parts: str) -> StreamMutation:
    """Leave out the events of the Agents service whose names contain one of these."""
    return _every(lambda line: None if any(part in line["event"] for part in parts) else line)


def _where(has_the_same: Callable[[Events], bool], mutate: StreamMutation) -> StreamMutation:
    """Mutate streams that have elsewhere what the mutation leaves out."""
    return lambda stream: mutate(stream) if has_the_same(stream) else stream


def _has_final_items(stream: Events) -> bool:
    return any(event["type"] == "response.completed" and event["response"].get("output") for event in stream)


def _finishes_items(stream: Events) -> bool:
    types = [event["type"] for event in stream]
    return types.count("response.output_item.added") == types.count("response.output_item.done")


_FIRST_AND_FINAL = {"response.created", "response.queued", "response.completed"}

STREAM_MUTATIONS: dict[str, dict[str, StreamMutation]] = {
    "chat-completions": {
        "without finish reason": _every_choice(_without_reason),
        "without optional fields": _set(created=..., model=..., object=..., system_fingerprint=..., logprobs=...),
        "choices null": _set(choices=lambda choices: choices or None),
        "choices missing": _every(
            lambda chunk: chunk if chunk.get("choices") else {k: v for k, v in chunk.items() if k != "choices"}
        ),
        "delta null": _every_choice(_null_delta),
        "text as parts": _every_choice(_text_as_parts),
        "milliseconds": _set(created=_milliseconds),
        "ids of chunks change": _every(lambda chunk: chunk | {"id": f"c{id(chunk)}"}),
        "legacy call": _every_choice(_legacy_call),
        "answers so far": _with_answers_so_far,
        "empty events": lambda stream: [event for chunk in stream for event in ("", chunk)],
        "second choice": _second_choice,
        "arguments again": _arguments_again,
    },
    "openai-responses": {
        "only in the final response": _where(
            _has_final_items, _every(lambda event: event if event["type"] in _FIRST_AND_FINAL else None)
        ),
        "items not started": _without("response.output_item.added"),
        "items not finished": _where(_has_final_items, _without("response.output_item.done")),
        "final response without output": _every(
            lambda event: (
                event | {"response": event["response"] | {"output": None}}
                if event["type"] == "response.completed"
                else event
            )
        ),
        "done instead of the final response": _where(
            _finishes_items, lambda stream: [*_set(usage=None)(_without("response.completed")(stream)), "[DONE]"]
        ),
        "milliseconds": _set(created_at=_milliseconds),
        "without optional fields": _set(
            annotations=None, logprobs=..., summary=lambda parts: parts or None, created_at=..., model=..., object=...
        ),
    },
    "anthropic": {
        "without the last event": _without("message_stop"),
        "done instead of the last event": lambda stream: [*_without("message_stop")(stream), "[DONE]"],
        "without stop reason": _set(stop_reason=lambda reason: reason if reason == "pause_turn" else None),
        "stop reason of a turn's end": _set(stop_reason=lambda reason: "end_turn" if reason == "tool_use" else reason),
        "without optional fields": _set(model=..., role=..., stop_sequence=..., citations=...),
    },
    "gemini": {
        "without optional fields": _set(role=..., index=..., modelVersion=..., safetyRatings=..., responseId=...),
        "candidates null": lambda stream: [{"candidates": None}, *stream, {"candidates": None, "usageMetadata": None}],
        "content null": lambda stream: [*stream[:1], {"candidates": [{"content": None}]}, *stream[1:]],
        "parts null": lambda stream: [*stream[:1], {"candidates": [{"content": {"parts": None}}]}, *stream[1:]],
    },
    "azure-ai-agents": {
        "without done": _without_names("done"),
        "parts not streamed": _without_names(".delta"),
        "only finished blocks": _without_names(".delta", "in_progress", "queued", "message.created", "step.created"),
        "finished blocks twice": lambda stream: [
            line for event in stream for line in [event] * (2 if event["event"].endswith("e.completed") else 1)
        ],
        "milliseconds": _set(created_at=_milliseconds, completed_at=_milliseconds),
        "without optional fields": _set(
            **dict.fromkeys(("object", "created_at", "metadata", "attachments", "assistant_id", "expires_at"), ...),
            last_error=None,
        ),
    },
}
"""Folder of recordings → mutations after which a stream is as complete as before."""
