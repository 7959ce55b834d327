"""Streams in the words of each service that never end, or ask for too much."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from tests.durable_agent_host.hostile_model import chat_chunk, events, http_response, messages_events, response_events

Calls = list[tuple[str, str]]
"""Call ids, and arguments as the model writes them."""

AGENTS_ROUTES = {
    "/assistants/asst_1": http_response(json.dumps({"id": "asst_1", "object": "assistant", "tools": []}).encode()),
    "/threads": http_response(json.dumps({"id": "thread_1", "object": "thread"}).encode()),
    "/thread_1/messages": http_response(
        json.dumps({"id": "msg_1", "object": "thread.message", "content": []}).encode()
    ),
}
"""Responses of the Agents service to requests other than runs."""


def named_event(name: str, data: Any) -> bytes:
    """Write an event of the Azure AI Agents service."""
    return f"event: {name}\ndata: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def tool_call_stream(client: str, calls: Calls) -> bytes:
    """Write an answer that calls the tool ``say``."""
    return _TOOL_CALL_STREAMS[client](calls)


def _responses(calls: Calls) -> bytes:
    created_event, *_, completed_event = response_events("x")
    items = [
        {"type": "function_call", "id": f"fc_{name}", "call_id": name, "name": "say", "arguments": arguments}
        for name, arguments in calls
    ]
    item_events: list[dict[str, Any]] = []
    for index, item in enumerate(items):
        item_events.append(
            {"type": "response.output_item.added", "output_index": index, "item": item | {"arguments": ""}}
        )
        location = {"output_index": index, "item_id": item["id"]}
        item_events.append({"type": "response.function_call_arguments.delta", **location, "delta": item["arguments"]})
        item_events.append(
            {"type": "response.output_item.done", "output_index": index, "item": item | {"status": "completed"}}
        )
    response = completed_event["response"] | {"output": [item | {"status": "completed"} for item in items]}
    stream_events = [created_event, *item_events, completed_event | {"response": response}]
    return events(*(event | {"sequence_number": number} for number, event in enumerate(stream_events)))


def _completions(calls: Calls) -> bytes:
    chunks: list[Any] = []
    for index, (name, arguments) in enumerate(calls):
        call = {"index": index, "id": name, "type": "function", "function": {"name": "say", "arguments": arguments}}
        chunk = chat_chunk()
        chunk["choices"][0]["delta"] = {"tool_calls": [call]}
        chunks.append(chunk)
    return events(*chunks, chat_chunk(finish="tool_calls"), "[DONE]")


def _claude(calls: Calls) -> bytes:
    start, *_, message_delta, stop = messages_events("x")
    block_events: list[dict[str, Any]] = []
    for index, (name, arguments) in enumerate(calls):
        block = {"type": "tool_use", "id": name, "name": "say", "input": {}}
        delta = {"type": "input_json_delta", "partial_json": arguments}
        block_events.append({"type": "content_block_start", "index": index, "content_block": block})
        block_events.append({"type": "content_block_delta", "index": index, "delta": delta})
        block_events.append({"type": "content_block_stop", "index": index})
    return events(start, *block_events, message_delta | {"delta": {"stop_reason": "tool_use"}}, stop)


def _gemini(calls: Calls) -> bytes:
    parts = [{"functionCall": {"id": name, "name": "say", "args": json.loads(text)}} for name, text in calls]
    return events({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]})


def _agents(calls: Calls) -> bytes:
    tool_calls = [
        {"id": name, "type": "function", "function": {"name": "say", "arguments": arguments}}
        for name, arguments in calls
    ]
    run = {"id": "run_1", "object": "thread.run", "thread_id": "thread_1", "assistant_id": "asst_1"}
    action = {"type": "submit_tool_outputs", "submit_tool_outputs": {"tool_calls": tool_calls}}
    pending_run = run | {"status": "requires_action", "required_action": action}
    return named_event("thread.run.created", run | {"status": "queued"}) + named_event(
        "thread.run.requires_action", pending_run
    )


_TOOL_CALL_STREAMS: dict[str, Callable[[Calls], bytes]] = {
    "Responses": _responses,
    "Completions": _completions,
    "Claude": _claude,
    "Gemini": _gemini,
    "Agents": _agents,
}


def for_ever(part: bytes, pause_seconds: float = 0.0) -> Iterator[bytes]:
    """Repeat a fragment at a pace."""
    while True:
        yield part
        time.sleep(pause_seconds)
