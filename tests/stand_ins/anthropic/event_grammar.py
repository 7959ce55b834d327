"""Converts a message to the event stream that the live API sends for it, and back.

Source: recorded streams: a block comes as start, deltas and stop; results of hosted tools come complete with their
start; the container comes with ``message_delta``.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import split_text


def stream_events(message: Json, chunk_characters: int, exact_inputs: Mapping[str, str]) -> list[Json]:
    """Return the stream of a message."""
    start_message: Json = {**message, "content": [], "stop_reason": None}
    start_message.pop("container", None)
    events: list[Json] = [{"type": "message_start", "message": start_message}, {"type": "ping"}]
    for index, block in enumerate(cast("list[Json]", message["content"])):
        events += _block_events(block, index, max(1, chunk_characters), exact_inputs)
    delta: Json = {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]}
    delta |= {"container": message["container"]} if message.get("container") else {}
    return [*events, {"type": "message_delta", "delta": delta, "usage": message["usage"]}, {"type": "message_stop"}]


def _block_events(block: Json, index: int, chunk_characters: int, exact_inputs: Mapping[str, str]) -> Iterator[Json]:
    start_block, deltas = _split_block(block, exact_inputs)
    yield {"type": "content_block_start", "index": index, "content_block": start_block}
    for kind, field_name, value in deltas:
        chunks = (
            [value] if not isinstance(value, str) or kind == "signature_delta" else split_text(value, chunk_characters)
        )
        for chunk in chunks:
            yield {"type": "content_block_delta", "index": index, "delta": {"type": kind, field_name: chunk}}
    yield {"type": "content_block_stop", "index": index}


def _split_block(block: Json, exact_inputs: Mapping[str, str]) -> tuple[Json, list[tuple[str, str, Any]]]:
    """Split a block into its start and its deltas: type, field and value."""
    kind = block.get("type")
    if kind == "text":
        citation_deltas = [
            ("citations_delta", "citation", citation) for citation in cast("list[Any]", block.get("citations") or [])
        ]
        start_block: Json = {**block, "text": ""}
        start_block |= {"citations": []} if citation_deltas else {}
        return start_block, [*citation_deltas, ("text_delta", "text", block["text"])]
    if kind == "thinking":
        deltas = [
            ("thinking_delta", "thinking", block["thinking"]),
            ("signature_delta", "signature", block["signature"]),
        ]
        return {**block, "thinking": "", "signature": ""}, deltas
    if kind in {"tool_use", "server_tool_use", "mcp_tool_use"}:
        text = exact_inputs.get(str(block.get("id")), json.dumps(block.get("input"), ensure_ascii=False))
        return {**block, "input": {}}, [("input_json_delta", "partial_json", text)]
    return block, []


def message_from_events(events: Sequence[Json]) -> Json:
    """Assemble the message of a recorded stream; the events are not modified."""
    message: Json = {}
    blocks: list[Json] = []
    open_blocks: dict[Any, Json] = {}
    inputs: dict[int, list[str]] = {}
    for event in events:
        kind = event.get("type")
        if kind == "message_start":
            message = dict(event["message"])
            blocks = [dict(block) for block in message["content"]]
        elif kind == "content_block_start":
            block = dict(event["content_block"])
            open_blocks[event["index"]] = block
            blocks.append(block)
        elif kind == "content_block_delta":
            _apply_delta(open_blocks[event["index"]], event["delta"], inputs)
        elif kind == "message_delta":
            message |= {name: value for name, value in event["delta"].items() if value is not None}
            message["usage"] = message.get("usage", {}) | event.get("usage", {})
    for block in blocks:
        if text := "".join(inputs.get(id(block), [])):
            block["input"] = json.loads(text)
    return {**message, "content": blocks}


def _apply_delta(block: Json, delta: Json, inputs: dict[int, list[str]]) -> None:
    match delta["type"]:
        case "text_delta":
            block["text"] += delta["text"]
        case "thinking_delta":
            block["thinking"] += delta["thinking"]
        case "signature_delta":
            block["signature"] = delta["signature"]
        case "input_json_delta":
            inputs.setdefault(id(block), []).append(delta["partial_json"])
        case "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        case _:
            block |= {name: value for name, value in delta.items() if name != "type"}
