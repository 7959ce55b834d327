"""Rules for requests of the Messages API, with the live API's own error messages.

Source: recorded rejections and accepted requests, and messages quoted by public projects. A block of an unknown type is
accepted if the service has issued it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import Json
from tests.stand_ins.anthropic.issued_blocks import IssuedBlocks
from tests.stand_ins.anthropic.reading import merge_messages, to_blocks

_CACHE_FIELDS = frozenset({"cache_control"})
_RESULT_FIELDS = frozenset({"tool_use_id", "content", "caller"}) | _CACHE_FIELDS

FIELDS: dict[str, frozenset[str]] = {
    "text": frozenset({"text", "citations"}) | _CACHE_FIELDS,
    "image": frozenset({"source"}) | _CACHE_FIELDS,
    "document": frozenset({"source", "title", "context", "citations"}) | _CACHE_FIELDS,
    "search_result": frozenset({"source", "title", "content", "citations"}) | _CACHE_FIELDS,
    "thinking": frozenset({"thinking", "signature"}),
    "redacted_thinking": frozenset({"data"}),
    "tool_use": frozenset({"id", "name", "input", "caller"}) | _CACHE_FIELDS,
    "tool_result": frozenset({"tool_use_id", "content", "is_error"}) | _CACHE_FIELDS,
    "server_tool_use": frozenset({"id", "name", "input", "caller"}) | _CACHE_FIELDS,
    "mcp_tool_use": frozenset({"id", "name", "server_name", "input"}) | _CACHE_FIELDS,
    "mcp_tool_result": frozenset({"tool_use_id", "content", "is_error"}) | _CACHE_FIELDS,
    "web_search_tool_result": _RESULT_FIELDS,
    "web_fetch_tool_result": _RESULT_FIELDS,
    "advisor_tool_result": _RESULT_FIELDS,
    "tool_search_tool_result": _RESULT_FIELDS,
    "code_execution_tool_result": _RESULT_FIELDS,
    "bash_code_execution_tool_result": _RESULT_FIELDS,
    "text_editor_code_execution_tool_result": _RESULT_FIELDS,
    "container_upload": frozenset({"file_id"}) | _CACHE_FIELDS,
    "compaction": frozenset({"content", "encrypted_content"}) | _CACHE_FIELDS,
}
"""Type of block → its allowed fields in addition to the type (anthropic 1.17, the ``Param`` types)."""

_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
_THOUGHTS = frozenset({"thinking", "redacted_thinking"})
_USER_ONLY = frozenset({"tool_result", "image", "document", "container_upload", "search_result"})
_PATTERNS = {
    "tool_use": {"id": r"^[a-zA-Z0-9_-]+$", "name": r"^[a-zA-Z0-9_-]{1,128}$"},
    "server_tool_use": {"id": r"^srvtoolu_[a-zA-Z0-9_]+$"},
    "mcp_tool_use": {"id": r"^[a-zA-Z0-9_-]+$"},
}
"""Type of block → the patterns of its fields."""


def check_request(body: Any, service_state: IssuedBlocks) -> HttpError | None:
    """Return the live API's error for this request; None if it is accepted."""
    if not isinstance(body, dict):
        return HttpError(400, "The request body is not valid JSON.")
    request = cast("Json", body)
    if str(request.get("model")).startswith("unknown"):
        return HttpError(404, f"model: {request['model']}")
    for violation in _find_violations(request, service_state):
        return HttpError(400, violation)
    return None


def _find_violations(body: Json, service_state: IssuedBlocks) -> Iterator[str]:
    for name in ("model", "max_tokens", "messages"):
        if body.get(name) is None:
            yield f"{name}: Field required"
    yield from _find_schema_violations(cast("list[Json]", body["messages"]), service_state)
    messages = merge_messages(body)
    if messages[0]["role"] != "user":
        yield 'messages: first message must use the "user" role'
    for index, message in enumerate(messages):
        if not message["content"] and not (index + 1 == len(messages) and message["role"] == "assistant"):
            yield (
                f"messages.{index}: all messages must have non-empty content except for the optional final assistant "
                "message"
            )
    yield from _find_client_tool_violations(messages)
    yield from _find_hosted_tool_violations(messages)
    yield from _find_thinking_violations(body, messages, service_state)
    yield from _find_container_violations(body.get("container"), service_state)


def _find_container_violations(container: Any, service_state: IssuedBlocks) -> Iterator[str]:
    container_id = cast("Json", container).get("id") if isinstance(container, dict) else container
    if isinstance(container_id, str) and (reason := service_state.container_error(container_id)):
        yield f"container: {reason}"


def _find_schema_violations(messages: Sequence[Json], service_state: IssuedBlocks) -> Iterator[str]:
    if not messages:
        yield "messages: at least one message is required"
    for index, message in enumerate(messages):
        if message.get("role") not in {"user", "assistant"}:
            yield f"messages.{index}.role: Input should be 'user' or 'assistant'"
        for block_index, block in enumerate(to_blocks(message.get("content"))):
            yield from _find_block_violations(
                f"messages.{index}.content.{block_index}", block, str(message.get("role")), service_state
            )


def _find_block_violations(path: str, block: Json, role: str, service_state: IssuedBlocks) -> Iterator[str]:
    block_type = str(block.get("type"))
    allowed_fields = FIELDS.get(block_type)
    if allowed_fields is None:
        if not service_state.has_issued_type(block_type):
            expected_tags = ", ".join(f"'{name}'" for name in FIELDS)
            yield (
                f"{path}: Input tag '{block_type}' found using 'type' does not match any of the expected tags: "
                f"{expected_tags}"
            )
        return
    for name in block:
        if name != "type" and name not in allowed_fields:
            yield f"{path}.{block_type}.{name}: Extra inputs are not permitted"
    for name in ("tool_use_id", "id", "signature", "data", "thinking", "text", "input"):
        if name in allowed_fields and block.get(name) is None:
            yield f"{path}.{block_type}.{name}: Field required"
    if block_type == "text":
        yield from _find_text_violations(str(block["text"]))
    if "input" in allowed_fields and not isinstance(block["input"], dict):
        yield f"{path}.{block_type}.input: Input should be a valid dictionary"
    yield from _find_pattern_violations(path, block_type, block)
    yield from _find_role_violations(path, block_type, role)


def _find_pattern_violations(path: str, block_type: str, block: Json) -> Iterator[str]:
    for name, pattern in _PATTERNS.get(block_type, {}).items():
        value: Any = block.get(name)
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            yield f"{path}.{block_type}.{name}: String should match pattern '{pattern}'"


def _find_text_violations(text: str) -> Iterator[str]:
    if not text:
        yield "messages: text content blocks must be non-empty"
    if not text.strip():
        yield "messages: text content blocks must contain non-whitespace text"


def _find_role_violations(path: str, block_type: str, role: str) -> Iterator[str]:
    if role == "user" and block_type in {"tool_use", *_CALLS, *_THOUGHTS}:
        yield f"{path}: `{block_type}` blocks can only be in `assistant` messages"
    if role == "assistant" and block_type in _USER_ONLY:
        yield f"{path}: `{block_type}` blocks can only be in `user` messages"


def _find_client_tool_violations(messages: Sequence[Json]) -> Iterator[str]:
    """The next message starts with one result for each call of the client's tools, and no other result."""
    earlier_call_ids: set[Any] = set()
    for index, message in enumerate(messages):
        call_ids = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        if earlier_call_ids & set(call_ids) or len(set(call_ids)) < len(call_ids):
            yield "messages: `tool_use` ids must be unique"
        earlier_call_ids |= set(call_ids)
        next_blocks = cast("list[Json]", messages[index + 1]["content"]) if index + 1 < len(messages) else []
        result_ids = _leading_results(next_blocks)
        if missing_ids := [call_id for call_id in call_ids if call_id not in result_ids]:
            yield (
                f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing_ids)}. Each `tool_use` block must have a corresponding `tool_result` block in the "
                "next message."
            )
        previous_blocks = cast("list[Json]", messages[index - 1]["content"]) if index else []
        previous_call_ids = {block["id"] for block in previous_blocks if block["type"] == "tool_use"}
        visited_ids: set[Any] = set()
        for block_index, block in enumerate(message["content"]):
            if block["type"] != "tool_result":
                continue
            call_id = block["tool_use_id"]
            if call_id not in previous_call_ids:
                yield (
                    f"messages.{index}.content.{block_index}: unexpected `tool_use_id` found in `tool_result` blocks: "
                    f"{call_id}. Each `tool_result` block must have a corresponding `tool_use` block in the previous "
                    "message."
                )
            if call_id in visited_ids:
                yield (
                    f"messages.{index}.content.{block_index}: each tool_use must have a single result. Found multiple "
                    f"`tool_result` blocks with id: {call_id}"
                )
            visited_ids.add(call_id)


def _leading_results(blocks: Sequence[Json]) -> list[Any]:
    call_ids: list[Any] = []
    for block in blocks:
        if block["type"] != "tool_result":
            break
        call_ids.append(block["tool_use_id"])
    return call_ids


def _find_hosted_tool_violations(messages: Sequence[Json]) -> Iterator[str]:
    """The result of a hosted tool follows its call; only an unfinished response has calls without a result."""
    last_question_index = max((index for index, message in enumerate(messages) if _has_question(message)), default=-1)
    open_calls: dict[Any, tuple[int, Json]] = {}
    for index, message in enumerate(messages):
        for block_index, block in enumerate(message["content"]):
            block_type = str(block["type"])
            if block_type in _CALLS:
                open_calls[block["id"]] = index, block
            elif block_type.endswith("_tool_result") and open_calls.pop(block["tool_use_id"], None) is None:
                yield (
                    f"messages.{index}.content.{block_index}: unexpected `tool_use_id` found in `{block_type}` blocks: "
                    f"{block['tool_use_id']}. Each `{block_type}` block must have a corresponding `server_tool_use` "
                    "block before it."
                )
    for call_id, (index, block) in open_calls.items():
        if index < last_question_index:
            yield (
                f"messages.{index}: `{block['name']}` tool use with id `{call_id}` was found without a corresponding "
                f"`{block['name']}_tool_result` block"
            )


def _has_question(message: Json) -> bool:
    return message["role"] == "user" and any(block["type"] != "tool_result" for block in message["content"])


def _find_thinking_violations(body: Json, messages: Sequence[Json], service_state: IssuedBlocks) -> Iterator[str]:
    """Thinking is genuine and unchanged, and complete while a tool loop of the client continues."""
    for index, message in enumerate(messages):
        for block_index, block in enumerate(message["content"]):
            path = f"messages.{index}.content.{block_index}"
            signature = block.get("signature") if block["type"] == "thinking" else block.get("data")
            if block["type"] in _THOUGHTS:
                field = "signature" if block["type"] == "thinking" else "data"
                if not service_state.is_genuine_signature(str(signature)):
                    yield f"{path}: Invalid `{field}` in `{block['type']}` block"
                issued_thinking = service_state.find_thought(str(signature))
                if block["type"] == "thinking" and issued_thinking is not None and issued_thinking != block["thinking"]:
                    yield _format_modified_thinking(path)
    last_index = max((index for index, message in enumerate(messages) if message["role"] == "assistant"), default=None)
    if last_index is None or cast("Json", body.get("thinking") or {}).get("type") == "disabled":
        return
    blocks = cast("list[Json]", messages[last_index]["content"])
    sent_signatures = {block.get("signature") or block.get("data") for block in blocks if block["type"] in _THOUGHTS}
    for call_id in (block["id"] for block in blocks if block["type"] == "tool_use"):
        if not sent_signatures.issuperset(service_state.find_thought_signatures(call_id)):
            yield _format_modified_thinking(f"messages.{last_index}.content.0")


def _format_modified_thinking(path: str) -> str:
    return (
        f"{path}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These "
        "blocks must remain as they were in the original response."
    )


def check_key(headers: Mapping[str, str]) -> HttpError | None:
    """Return the live API's error for a request without a key; None if it has one."""
    if headers.get("x-api-key") or headers.get("authorization"):
        return None
    return HttpError(401, "x-api-key header is required")
