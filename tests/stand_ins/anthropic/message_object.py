"""The response as a message of the API: items of the Responses API as blocks.

An item whose type is one of this API's block types is sent unchanged, so a plan can contain any block.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from practice_model.dialects.responses import sealed
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import extract_text

CONTAINER_SECONDS = 300
"""Lifetime of a container after its last use; recorded responses have four to five minutes."""

_STOP_REASONS = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}
_WITH_ID = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})


def blocks_from_items(items: Sequence[Json]) -> list[Json]:
    """Convert output items to blocks, in order."""
    blocks: list[Json] = []
    for item in items:
        write = _WRITERS.get(str(item.get("type")))
        if item.get("type") == "message":
            _add_files(blocks, item)
        blocks += write(item) if write else [_native_block(item)]
    return blocks


def get_exact_inputs(items: Sequence[Json]) -> dict[str, str]:
    """Return the exact text of each call's arguments by block id; it may be invalid JSON."""
    has_calls = (item for item in items if item.get("type") == "function_call")
    return {_build_tool_id(item): str(item.get("arguments") or "") for item in has_calls}


def to_container_id(name: str) -> str:
    """Return a container's id in this API's format."""
    return "container_" + name.removeprefix("cntr_") if name.startswith("cntr_") else name


def build_message(
    message_id: str, model: Any, blocks: Sequence[Json], *, incomplete: str | None, usage: Json, container: Json | None
) -> Json:
    """Return the message object."""
    has_calls = any(block.get("type") == "tool_use" for block in blocks)
    stop_reason = _STOP_REASONS.get(incomplete, incomplete) if incomplete else "tool_use" if has_calls else "end_turn"
    message_object: Json = {
        "model": model,
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "content": list(blocks),
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": usage,
    }
    return message_object | ({"container": container} if container else {})


def build_container(name: str, now: float) -> Json:
    """Return the container object of a message."""
    expires = datetime.fromtimestamp(now + CONTAINER_SECONDS, UTC)
    return {"id": name, "expires_at": expires.isoformat().replace("+00:00", "Z")}


def _text_blocks(item: Json) -> list[Json]:
    return [{"type": "text", "text": extract_text(item.get("content"))}]


def _thinking_blocks(item: Json) -> list[Json]:
    thinking = extract_text(item.get("summary"))
    signature = item.get("encrypted_content") or sealed.sign_reasoning(str(item.get("id")), thinking)
    if not thinking:
        return [{"type": "redacted_thinking", "data": signature}]
    return [{"type": "thinking", "thinking": thinking, "signature": signature}]


def _build_tool_id(item: Json) -> str:
    return "toolu_" + str(item["call_id"]).removeprefix("call_").removeprefix("toolu_")


def _tool_use_blocks(item: Json) -> list[Json]:
    try:
        tool_input: Any = json.loads(str(item.get("arguments") or "{}"))
    except ValueError:
        tool_input = {}
    return [{"type": "tool_use", "id": _build_tool_id(item), "name": item.get("name"), "input": tool_input}]


def _code_run_blocks(item: Json) -> list[Json]:
    call_id = "srvtoolu_" + str(item["id"]).removeprefix("ci_")
    outputs = cast("list[Json]", item.get("outputs") or [])
    logs = "".join(str(output.get("logs") or "") for output in outputs)
    images = sum(output.get("type") == "image" for output in outputs)
    files = [{"type": "code_execution_output", "file_id": f"file_{call_id[9:33]}{n}"} for n in range(images)]
    result = {"type": "code_execution_result", "stdout": logs, "stderr": "", "return_code": 0, "content": files}
    return [
        {"type": "server_tool_use", "id": call_id, "name": "code_execution", "input": {"code": item.get("code")}},
        {"type": "code_execution_tool_result", "tool_use_id": call_id, "content": result},
    ]


def _compaction_blocks(item: Json) -> list[Json]:
    return [{"type": "compaction", "content": None, "encrypted_content": item.get("encrypted_content")}]


_WRITERS: dict[str, Callable[[Json], list[Json]]] = {
    "message": _text_blocks,
    "reasoning": _thinking_blocks,
    "function_call": _tool_use_blocks,
    "code_interpreter_call": _code_run_blocks,
    "compaction": _compaction_blocks,
}


def _native_block(item: Json) -> Json:
    """Return a plan's literal block, without the generated id that this API does not have."""
    has_generated_id = str(item.get("id") or "").startswith("item_") and item.get("type") not in _WITH_ID
    return {name: value for name, value in item.items() if not (has_generated_id and name == "id")}


def list_cited_files(items: Iterable[Json]) -> dict[str, str]:
    """Return the files that items cite: id → name."""
    return {
        to_file_id(citation): str(citation["filename"])
        for item in items
        if item.get("type") == "message"
        for citation in _get_file_citations(item)
    }


def _get_file_citations(item: Json) -> list[Mapping[str, Any]]:
    parts = cast("list[Json]", item.get("content") or [])
    annotations = [
        citation for part in parts for citation in cast("list[Mapping[str, Any]]", part.get("annotations") or [])
    ]
    return [citation for citation in annotations if citation.get("type") == "container_file_citation"]


def _add_files(blocks: Sequence[Json], item: Json) -> None:
    citations = _get_file_citations(item)
    code_result = next((block for block in reversed(blocks) if block.get("type") == "code_execution_tool_result"), None)
    if code_result is not None:
        file_outputs = [{"type": "code_execution_output", "file_id": to_file_id(citation)} for citation in citations]
        code_result["content"] = {
            **code_result["content"],
            "content": [*code_result["content"]["content"], *file_outputs],
        }


def to_file_id(citation: Mapping[str, Any]) -> str:
    """Return the id of a cited file in this API's format."""
    return "file_" + str(citation["file_id"]).removeprefix("cfile_")
