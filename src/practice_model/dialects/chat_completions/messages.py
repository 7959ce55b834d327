"""Messages of Chat Completions ↔ items of the Responses API, which the practice model uses internally."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import extract_text, get_item_type

MESSAGE: Final = "chat.completion.message"
"""Type of a plan's item whose other fields are fields of the response's message, for example ``reasoning_details``."""

CHUNK: Final = "chat.completion.chunk"
"""Type of a plan's item that is one event of the stream, sent unchanged except for missing fields."""


def items_from_messages(messages: Iterable[Json]) -> list[Json]:
    """Convert messages to items.

    Returns:
        Items in order; reasoning of an assistant's message comes first, its calls last.
    """
    return [item for message in messages for item in _items_from_message(message)]


def _items_from_message(message: Json) -> list[Json]:
    role = message["role"]
    if role == "tool":
        output = {"type": "function_call_output", "call_id": message.get("tool_call_id")}
        return [output | {"output": extract_text(message.get("content"))}]
    items: list[Json] = []
    if reasoning_text := message.get("reasoning_content") or message.get("reasoning"):
        items.append({"type": "reasoning", "summary": [{"type": "summary_text", "text": reasoning_text}]})
    content = message.get("content") or message.get("refusal")
    if content is not None and (content or role != "assistant"):
        items.append({"type": "message", "role": role, "content": content})
    for call in cast("list[Json]", message.get("tool_calls") or []):
        function = cast("Json", call.get("function") or call.get("custom") or {})
        call_fields = {"name": function.get("name"), "arguments": function.get("arguments", function.get("input"))}
        items.append({"type": "function_call", "call_id": call.get("id"), **call_fields})
    return items


def parse_tools(body: Mapping[str, Any]) -> list[Json]:
    """Convert the tools to those of the Responses API."""
    tools = cast("list[Json]", body.get("tools") or [])
    return [{"type": "function", **tool["function"]} if "function" in tool else tool for tool in tools]


def build_message(items: Sequence[Json]) -> Json:
    """Convert the items of a response to one message."""
    message: Json = {"role": "assistant", "content": None}
    texts: list[str] = []
    annotations: list[Json] = []
    calls: list[Json] = []
    for item in items:
        kind = get_item_type(item)
        if kind == "reasoning":
            message["reasoning_content"] = extract_text(item.get("summary") or item.get("content"))
        elif kind == "message":
            texts.append(extract_text(item.get("content")))
            parts = cast("list[Json]", item.get("content") or [])
            annotations += [
                annotation for part in parts for annotation in cast("list[Json]", part.get("annotations") or [])
            ]
        elif kind == "function_call":
            function = {"name": item["name"], "arguments": item["arguments"]}
            calls.append({"id": item["call_id"], "type": "function", "function": function})
        elif kind == "code_interpreter_call":
            texts.append(f"```python\n{item.get('code')}\n```")
        elif kind == MESSAGE:
            message |= {name: value for name, value in item.items() if name not in {"type", "id"}}
    message |= {"content": "\n".join(texts)} if texts else {}
    message |= {"annotations": annotations} if annotations else {}
    return message | ({"tool_calls": calls} if calls else {})
