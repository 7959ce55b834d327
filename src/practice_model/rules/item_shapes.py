"""The schema of input items: allowed and required fields of each type, and its ids.

Source: openai-python 3.52 `types/responses`, narrowed by recorded accepted requests. A `local_shell_call_output` names
its call by `call_id`, as the service's guide does; the types call the field `id`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from practice_model.dialects.responses.errors import (
    HttpError,
    invalid_value_error,
    length_error,
    missing_parameter_error,
    pattern_error,
    wrong_type_error,
)
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import get_item_type, get_role
from practice_model.rules.input_parts import check_parts

MAX_ID_CHARACTERS = 64
_FUNCTION = re.compile(r"[a-zA-Z0-9_-]{1,128}")
ROLES = ("assistant", "system", "developer", "user")


def _fields(required_names: str, optional_names: str = "") -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(required_names.split()), frozenset(f"{required_names} {optional_names} type".split())


FIELDS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "message": _fields("content role", "id status phase"),
    "reasoning": _fields("summary", "id encrypted_content content status"),
    "function_call": _fields("arguments call_id name", "id status namespace caller async"),
    "function_call_output": _fields("call_id output", "id status name namespace caller"),
    "code_interpreter_call": _fields("id code container_id outputs status"),
    "web_search_call": _fields("id action status", "name arguments call_id"),  # those of xAI
    "file_search_call": _fields("id queries status", "results"),
    "mcp_call": _fields("id name server_label arguments", "output error approval_request_id status"),
    "mcp_list_tools": _fields("id server_label tools", "error"),
    "mcp_approval_request": _fields("id name server_label arguments"),
    "mcp_approval_response": _fields("approval_request_id approve", "id reason"),
    "image_generation_call": _fields(
        "id result status", "action background error output_format quality revised_prompt size svg_usage"
    ),
    "computer_call": _fields("id call_id status pending_safety_checks", "action actions"),
    "computer_call_output": _fields("call_id output", "id status acknowledged_safety_checks"),
    "shell_call": _fields("call_id action", "id status environment caller"),
    "shell_call_output": _fields("call_id output", "id status max_output_length caller"),
    "local_shell_call": _fields("id call_id action status"),
    "local_shell_call_output": _fields("call_id output", "status"),
    "apply_patch_call": _fields("call_id operation status", "id caller"),
    "apply_patch_call_output": _fields("call_id status", "id output caller"),
    "custom_tool_call": _fields("call_id input name", "id namespace caller async"),
    "custom_tool_call_output": _fields("call_id output", "id caller"),
    "tool_search_call": _fields("arguments", "id call_id execution status"),
    "tool_search_output": _fields("tools", "id call_id execution status"),
    "program": _fields("id call_id code fingerprint"),
    "program_output": _fields("id call_id result status"),
    "compaction": _fields("encrypted_content", "id"),
    "compaction_trigger": _fields("", "id"),
    "configuration_update": _fields("", "id reasoning text"),
    "additional_tools": _fields("role tools", "id"),
    "item_reference": _fields("id"),
}
"""Item type → (required fields, allowed fields)."""

ID_PREFIXES: dict[str, str] = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "code_interpreter_call": "ci",
    "web_search_call": "ws",
    "file_search_call": "fs",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
    "mcp_approval_request": "mcpr",
    "image_generation_call": "ig",
    "custom_tool_call": "ctc",
    "tool_search_call": "tsc",
    "tool_search_output": "tso",
    "shell_call": "sh",
    "shell_call_output": "sho",
    "local_shell_call": "lsh",
    "apply_patch_call": "apc",
    "program": "cm",
    "program_output": "cmo",
    "compaction": "cmp",
}
"""Item type → prefix of its ids; call ids are not restricted: they may come from another provider."""


def check_item_schema(items: Sequence[Json], *, is_strict: bool) -> HttpError | None:
    """Return the first schema violation of these input items."""
    for index, item in enumerate(items):
        path = f"input[{index}]"
        for violation in _find_violations(item, path, is_strict=is_strict):
            return violation
    return None


def _find_violations(item: Json, path: str, *, is_strict: bool) -> Iterator[HttpError]:
    item_type = get_item_type(item)
    if item_type not in FIELDS:
        yield invalid_value_error(item_type, sorted(FIELDS), path)
        return
    required_fields, allowed_fields = FIELDS[item_type]
    for name in item:
        if name not in allowed_fields or (item_type == "reasoning" and name == "status" and item[name] is None):
            yield HttpError(400, f"Unknown parameter: '{path}.{name}'.", "unknown_parameter", f"{path}.{name}")
    for name in sorted(required_fields - set(item)):
        yield missing_parameter_error(f"{path}.{name}")
    if item_type == "reasoning" and not item.get("encrypted_content") and item.get("id") is None:
        yield missing_parameter_error(f"{path}.id")
    if item_type == "function_call" and not (isinstance(item.get("name"), str) and _FUNCTION.fullmatch(item["name"])):
        yield pattern_error(f"{path}.name")
    yield from _find_id_violations(item, item_type, path)
    if item_type == "function_call_output" and isinstance(item.get("output"), list):
        yield from check_parts(item["output"], f"{path}.output")
    if item_type == "message":
        yield from _find_message_violations(item, path, is_strict=is_strict)


def _find_id_violations(item: Json, item_type: str, path: str) -> Iterator[HttpError]:
    item_id = item.get("id")
    if item_id is not None:
        yield from _find_character_violations(item_id, f"{path}.id")
        is_of_xai = item_type == "web_search_call" and "arguments" in item  # its ids begin with "fc"
        prefix = "" if is_of_xai else ID_PREFIXES.get(item_type)
        if prefix and not str(item_id).startswith(prefix):
            reason = f"Invalid '{path}.id': '{item_id}'. Expected an ID that begins with '{prefix}'."
            yield HttpError(400, reason, "invalid_id_prefix", f"{path}.id")
        yield from _find_length_violations(str(item_id), f"{path}.id")
    if item.get("call_id") is not None:
        yield from _find_length_violations(str(item["call_id"]), f"{path}.call_id")


def _find_character_violations(value: Any, path: str) -> Iterator[HttpError]:
    if not (isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]+", value)):
        reason = (
            f"Invalid '{path}': '{value}'. Expected an ID that contains letters, numbers, underscores, or dashes, "
            "but this value contained additional characters."
        )
        yield HttpError(400, reason, "invalid_value", path)


def _find_length_violations(value: str, path: str) -> Iterator[HttpError]:
    if len(value) > MAX_ID_CHARACTERS:
        yield length_error(path, value, MAX_ID_CHARACTERS)


def _find_message_violations(item: Json, path: str, *, is_strict: bool) -> Iterator[HttpError]:
    role = get_role(item)
    if role not in ROLES:
        yield invalid_value_error(role, ROLES, path)
    content: Any = item["content"]
    if not isinstance(content, str | list):
        yield wrong_type_error(f"{path}.content", (str, list), content)
    if not isinstance(content, list):
        return
    if role != "assistant":
        yield from check_parts(cast("list[Any]", content), f"{path}.content")
        return
    for index, part in enumerate(cast("list[Mapping[str, Any]]", content)):
        part_path = f"{path}.content[{index}]"
        if not isinstance(part, dict):
            yield wrong_type_error(part_path, (dict,), part)
            return
        kind = part.get("type")
        if kind not in {"output_text", "refusal"}:
            reason = f"Invalid value: '{kind}'. Supported values are: 'output_text' and 'refusal'."
            yield HttpError(400, reason, "invalid_value", part_path)
        if is_strict and kind == "output_text" and "annotations" not in part:
            yield missing_parameter_error(f"{part_path}.annotations")
