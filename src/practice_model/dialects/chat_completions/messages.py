"""Messages of Chat Completions ↔ items of the Responses API, in which the practice model thinks. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import kind_of, text_of

MESSAGE: Final = "chat.completion.message"
"""Type of a plan's item whose other fields are fields of the answer's message, for example ``reasoning_details``."""

CHUNK: Final = "chat.completion.chunk"
"""Type of a plan's item that is one event of the stream, sent unchanged but for missing fields."""

CHOICE: Final = "chat.completion.choice"
"""Type of a plan's item that is another choice: ``message`` and ``finish_reason``."""


def transcript_of(messages: Iterable[Json]) -> list[Json]:
    """Read messages as items.

    Args:
        messages: of a request that has passed the rules.

    Returns:
        Items in order; reasoning of an assistant's message comes first, its calls last.
    """
    return [item for message in messages for item in _items_of(message)]


def _items_of(message: Json) -> list[Json]:
    role = message["role"]
    if role == "tool":
        output = {"type": "function_call_output", "call_id": message.get("tool_call_id")}
        return [output | {"output": text_of(message.get("content"))}]
    items: list[Json] = []
    if thought := message.get("reasoning_content") or message.get("reasoning"):
        items.append({"type": "reasoning", "summary": [{"type": "summary_text", "text": thought}]})
    content = message.get("content") or message.get("refusal")
    if content is not None and (content or role != "assistant"):
        items.append({"type": "message", "role": role, "content": content})
    for call in cast("list[Json]", message.get("tool_calls") or []):
        function = cast("Json", call.get("function") or call.get("custom") or {})
        named = {"name": function.get("name"), "arguments": function.get("arguments", function.get("input"))}
        items.append({"type": "function_call", "call_id": call.get("id"), **named})
    return items


def tools_of(body: Mapping[str, Any]) -> list[Json]:
    """Read the offered tools as those of the Responses API."""
    offered = cast("list[Json]", body.get("tools") or [])
    return [{"type": "function", **tool["function"]} if "function" in tool else tool for tool in offered]


def message_of(items: Sequence[Json]) -> Json:
    """Write the items of an answer as one message.

    Args:
        items: of any types; chunks and choices are left out, hosted code is told in words.
    """
    said: Json = {"role": "assistant", "content": None}
    texts: list[str] = []
    annotations: list[Json] = []
    calls: list[Json] = []
    for item in items:
        kind = kind_of(item)
        if kind == "reasoning":
            said["reasoning_content"] = text_of(item.get("summary") or item.get("content"))
        elif kind == "message":
            texts.append(text_of(item.get("content")))
            parts = cast("list[Json]", item.get("content") or [])
            annotations += [note for part in parts for note in cast("list[Json]", part.get("annotations") or [])]
        elif kind == "function_call":
            function = {"name": item["name"], "arguments": item["arguments"]}
            calls.append({"id": item["call_id"], "type": "function", "function": function})
        elif kind == "code_interpreter_call":
            texts.append(f"```python\n{item.get('code')}\n```")
        elif kind == MESSAGE:
            said |= {name: value for name, value in item.items() if name not in {"type", "id"}}
    said |= {"content": "\n".join(texts)} if texts else {}
    said |= {"annotations": annotations} if annotations else {}
    return said | ({"tool_calls": calls} if calls else {})
