"""The answer as a message of the API: items of the Responses API in blocks. Pure.

An item whose type is one of this API's blocks goes out as it is, so a plan can say any block.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from practice_model.dialects.responses import sealed
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import text_of

CONTAINER_SECONDS = 300
"""How long a container lives after its last use; recorded answers name four to five minutes."""

_STOP_REASONS = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}
_WITH_ID = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})


def blocks_of_items(items: Sequence[Json]) -> list[Json]:
    """Write output items as blocks, in order.

    Guarantee: pure.

    Args:
        items: of an answer. The files that a text cites are put on the code run before it, which has made them.
    """
    blocks: list[Json] = []
    for item in items:
        write = _WRITERS.get(str(item.get("type")))
        if item.get("type") == "message":
            _add_files(blocks, item)
        blocks += write(item) if write else [_native(item)]
    return blocks


def exact_inputs(items: Sequence[Json]) -> dict[str, str]:
    """Give the exact text of each call's arguments, by the block's id: it may be no JSON. Guarantee: pure."""
    calls = (item for item in items if item.get("type") == "function_call")
    return {_tool_id(item): str(item.get("arguments") or "") for item in calls}


def container_id(named: str) -> str:
    """Return a container's id as this API writes it. Guarantee: pure."""
    return "container_" + named.removeprefix("cntr_") if named.startswith("cntr_") else named


def message(
    message_id: str, model: Any, blocks: Sequence[Json], *, incomplete: str | None, usage: Json, container: Json | None
) -> Json:
    """Return the message object.

    Guarantee: pure.

    Args:
        message_id: of the answer.
        model: that answers.
        blocks: its content.
        incomplete: why it is not whole, as a plan says it; a stop reason of this API is taken as it is.
        usage: token counts.
        container: in which code ran, or None.
    """
    calls = any(block.get("type") == "tool_use" for block in blocks)
    stop = _STOP_REASONS.get(incomplete, incomplete) if incomplete else "tool_use" if calls else "end_turn"
    made: Json = {
        "model": model,
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "content": list(blocks),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": usage,
    }
    return made | ({"container": container} if container else {})


def container_object(name: str, now: float) -> Json:
    """Return a container as an answer names it. Guarantee: pure."""
    expires = datetime.fromtimestamp(now + CONTAINER_SECONDS, UTC)
    return {"id": name, "expires_at": expires.isoformat().replace("+00:00", "Z")}


def _said(item: Json) -> list[Json]:
    return [{"type": "text", "text": text_of(item.get("content"))}]


def _thinking(item: Json) -> list[Json]:
    said = text_of(item.get("summary"))
    signature = item.get("encrypted_content") or sealed.seal(str(item.get("id")), said)
    if not said:
        return [{"type": "redacted_thinking", "data": signature}]
    return [{"type": "thinking", "thinking": said, "signature": signature}]


def _tool_id(item: Json) -> str:
    return "toolu_" + str(item["call_id"]).removeprefix("call_").removeprefix("toolu_")


def _tool_use(item: Json) -> list[Json]:
    try:
        given: Any = json.loads(str(item.get("arguments") or "{}"))
    except ValueError:
        given = {}
    return [{"type": "tool_use", "id": _tool_id(item), "name": item.get("name"), "input": given}]


def _code_run(item: Json) -> list[Json]:
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


def _compaction(item: Json) -> list[Json]:
    return [{"type": "compaction", "content": None, "encrypted_content": item.get("encrypted_content")}]


_WRITERS: dict[str, Callable[[Json], list[Json]]] = {
    "message": _said,
    "reasoning": _thinking,
    "function_call": _tool_use,
    "code_interpreter_call": _code_run,
    "compaction": _compaction,
}


def _native(item: Json) -> Json:
    """Return a block that a plan wrote; the id that plans give to every item is not of this API."""
    made_up = str(item.get("id") or "").startswith("item_") and item.get("type") not in _WITH_ID
    return {name: value for name, value in item.items() if not (made_up and name == "id")}


def named_files(items: Iterable[Json]) -> dict[str, str]:
    """List the files that items cite, id → name. Guarantee: pure."""
    return {
        file_id(note): str(note["filename"]) for item in items if item.get("type") == "message" for note in _cited(item)
    }


def _cited(item: Json) -> list[Mapping[str, Any]]:
    parts = cast("list[Json]", item.get("content") or [])
    notes = [note for part in parts for note in cast("list[Mapping[str, Any]]", part.get("annotations") or [])]
    return [note for note in notes if note.get("type") == "container_file_citation"]


def _add_files(blocks: Sequence[Json], item: Json) -> None:
    files = _cited(item)
    run = next((one for one in reversed(blocks) if one.get("type") == "code_execution_tool_result"), None)
    if run is not None:
        made = [{"type": "code_execution_output", "file_id": file_id(note)} for note in files]
        run["content"] = {**run["content"], "content": [*run["content"]["content"], *made]}


def file_id(note: Mapping[str, Any]) -> str:
    """Return the id of a file as this API writes it. Guarantee: pure."""
    return "file_" + str(note["file_id"]).removeprefix("cfile_")
