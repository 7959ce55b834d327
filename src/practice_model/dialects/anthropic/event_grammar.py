"""A message as the stream of events that the live API sends for it, and back. Pure.

Source: recorded streams: a block comes as start, deltas and stop; results of the service's tools come whole with their
start; the container comes with ``message_delta``.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from practice_model.dialects.responses.items import Json


def stream_events(message: Json, chunk_characters: int, exact: Mapping[str, str]) -> list[Json]:
    """Return the stream of a message.

    Guarantee: pure.

    Args:
        message: whole.
        chunk_characters: length of the deltas, at least 1.
        exact: the text of the input of calls, by their id, where it is not simply the input's JSON.
    """
    opening: Json = {**message, "content": [], "stop_reason": None}
    opening.pop("container", None)
    events: list[Json] = [{"type": "message_start", "message": opening}, {"type": "ping"}]
    for index, block in enumerate(cast("list[Json]", message["content"])):
        events += _block_events(block, index, max(1, chunk_characters), exact)
    delta: Json = {"stop_reason": message["stop_reason"], "stop_sequence": message["stop_sequence"]}
    delta |= {"container": message["container"]} if message.get("container") else {}
    return [*events, {"type": "message_delta", "delta": delta, "usage": message["usage"]}, {"type": "message_stop"}]


def _block_events(block: Json, index: int, chunk: int, exact: Mapping[str, str]) -> Iterator[Json]:
    opening, deltas = _opened(block, exact)
    yield {"type": "content_block_start", "index": index, "content_block": opening}
    for kind, name, value in deltas:
        pieces = [value] if not isinstance(value, str) or kind == "signature_delta" else _pieces(value, chunk)
        for piece in pieces:
            yield {"type": "content_block_delta", "index": index, "delta": {"type": kind, name: piece}}
    yield {"type": "content_block_stop", "index": index}


def _opened(block: Json, exact: Mapping[str, str]) -> tuple[Json, list[tuple[str, str, Any]]]:
    """Split a block into its start and its deltas: type, field and value."""
    kind = block.get("type")
    if kind == "text":
        notes = [("citations_delta", "citation", note) for note in cast("list[Any]", block.get("citations") or [])]
        opening: Json = {**block, "text": ""}
        opening |= {"citations": []} if notes else {}
        return opening, [*notes, ("text_delta", "text", block["text"])]
    if kind == "thinking":
        said = [("thinking_delta", "thinking", block["thinking"]), ("signature_delta", "signature", block["signature"])]
        return {**block, "thinking": "", "signature": ""}, said
    if kind in {"tool_use", "server_tool_use", "mcp_tool_use"}:
        text = exact.get(str(block.get("id")), json.dumps(block.get("input"), ensure_ascii=False))
        return {**block, "input": {}}, [("input_json_delta", "partial_json", text)]
    return block, []


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def message_of(events: Sequence[Json]) -> Json:
    """Put the message of a recorded stream together.

    Guarantee: pure; the events are not changed.

    Args:
        events: in order.
    """
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
            _add(open_blocks[event["index"]], event["delta"], inputs)
        elif kind == "message_delta":
            message |= {name: value for name, value in event["delta"].items() if value is not None}
            message["usage"] = message.get("usage", {}) | event.get("usage", {})
    for block in blocks:
        if text := "".join(inputs.get(id(block), [])):
            block["input"] = json.loads(text)
    return {**message, "content": blocks}


def _add(block: Json, delta: Json, inputs: dict[int, list[str]]) -> None:
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
