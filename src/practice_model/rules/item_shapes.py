"""Rules on the shape of input items: allowed and required fields of each type, and its ids. Pure.

Source: openai-python 3.52 `types/responses`, narrowed by recorded accepted requests.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import kind_of, role_of
from practice_model.rules.input_parts import check_parts

MAX_ID_CHARACTERS = 64
_FUNCTION = re.compile(r"[a-zA-Z0-9_-]{1,128}")
ROLES = ("assistant", "system", "developer", "user")


def _fields(required: str, optional: str = "") -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(required.split()), frozenset(f"{required} {optional} type".split())


FIELDS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "message": _fields("content role", "id status phase"),
    "reasoning": _fields("summary", "id encrypted_content content status"),
    "function_call": _fields("arguments call_id name", "id status namespace caller async"),
    "function_call_output": _fields("call_id output", "id status name namespace caller"),
    "code_interpreter_call": _fields("id code container_id outputs status"),
    "web_search_call": _fields("id action status"),
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
    "local_shell_call_output": _fields("id output", "status"),
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
"""What the id of an item of this type begins with; call ids are free, they may come from another provider."""


def check_shape(items: Sequence[Json], *, annotations_required: bool) -> HttpError | None:
    """Return the first objection to the shape of these input items.

    Guarantee: pure.

    Args:
        items: the input, as sent.
        annotations_required: whether an `output_text` part without `annotations` is refused, as strict servers do.
    """
    for number, item in enumerate(items):
        where = f"input[{number}]"
        for objection in _objections(item, where, annotations_required=annotations_required):
            return objection
    return None


def _objections(item: Json, where: str, *, annotations_required: bool) -> Iterator[HttpError]:
    kind = kind_of(item)
    if kind not in FIELDS:
        yield invalid_value(kind, sorted(FIELDS), where)
        return
    required, allowed = FIELDS[kind]
    for name in item:
        if name not in allowed or (kind == "reasoning" and name == "status" and item[name] is None):
            yield HttpError(400, f"Unknown parameter: '{where}.{name}'.", "unknown_parameter", f"{where}.{name}")
    for name in sorted(required - set(item)):
        yield missing(f"{where}.{name}")
    if kind == "reasoning" and not item.get("encrypted_content") and item.get("id") is None:
        yield missing(f"{where}.id")
    if kind == "function_call" and not (isinstance(item.get("name"), str) and _FUNCTION.fullmatch(item["name"])):
        said = "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
        yield HttpError(400, f"Invalid '{where}.name': {said}", "invalid_value", f"{where}.name")
    yield from _id_objections(item, kind, where)
    if kind == "function_call_output" and isinstance(item.get("output"), list):
        yield from check_parts(item["output"], f"{where}.output")
    if kind == "message":
        yield from _message_objections(item, where, annotations_required=annotations_required)


def _id_objections(item: Json, kind: str, where: str) -> Iterator[HttpError]:
    item_id = item.get("id")
    if item_id is not None:
        yield from _name_objections(item_id, f"{where}.id")
        prefix = ID_PREFIXES.get(kind)
        if prefix and not str(item_id).startswith(prefix):
            shown = f"Invalid '{where}.id': '{item_id}'. Expected an ID that begins with '{prefix}'."
            yield HttpError(400, shown, "invalid_id_prefix", f"{where}.id")
        yield from _length_objections(str(item_id), f"{where}.id")
    if item.get("call_id") is not None:
        yield from _length_objections(str(item["call_id"]), f"{where}.call_id")


def _name_objections(value: Any, where: str) -> Iterator[HttpError]:
    if not (isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]+", value)):
        shown = (
            f"Invalid '{where}': '{value}'. Expected an ID that contains letters, numbers, underscores, or dashes, "
            "but this value contained additional characters."
        )
        yield HttpError(400, shown, "invalid_value", where)


def _length_objections(value: str, where: str) -> Iterator[HttpError]:
    if len(value) > MAX_ID_CHARACTERS:
        shown = (
            f"Invalid '{where}': string too long. Expected a string with maximum length {MAX_ID_CHARACTERS}, "
            f"but got a string with length {len(value)} instead."
        )
        yield HttpError(400, shown, "string_above_max_length", where)


def _message_objections(item: Json, where: str, *, annotations_required: bool) -> Iterator[HttpError]:
    role = role_of(item)
    if role not in ROLES:
        shown = f"Invalid value: '{role}'. Supported values are: 'assistant', 'system', 'developer', and 'user'."
        yield HttpError(400, shown, "invalid_value", where)
    content: Any = item["content"]
    if not isinstance(content, str | list):
        yield wrong_type(f"{where}.content", (str, list), content)
    if not isinstance(content, list):
        return
    if role != "assistant":
        yield from check_parts(cast("list[Any]", content), f"{where}.content")
        return
    for number, part in enumerate(cast("list[Mapping[str, Any]]", content)):
        place = f"{where}.content[{number}]"
        if not isinstance(part, dict):
            yield wrong_type(place, (dict,), part)
            return
        kind = part.get("type")
        if kind not in {"output_text", "refusal"}:
            shown = f"Invalid value: '{kind}'. Supported values are: 'output_text' and 'refusal'."
            yield HttpError(400, shown, "invalid_value", place)
        if annotations_required and kind == "output_text" and "annotations" not in part:
            yield missing(f"{place}.annotations")


def missing(where: str) -> HttpError:
    """Return the objection to a missing required parameter."""
    return HttpError(400, f"Missing required parameter: '{where}'.", "missing_required_parameter", where)


_JSON_TYPES: dict[type, str] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a decimal",
}


def wrong_type(where: str, expected: Sequence[type], value: Any) -> HttpError:
    """Return the objection to a value of another JSON type."""
    wanted = " or ".join(_JSON_TYPES[one].split()[-1] if len(expected) > 1 else _JSON_TYPES[one] for one in expected)
    wanted = f"one of {wanted}" if len(expected) > 1 else wanted
    got = next((name for kind, name in _JSON_TYPES.items() if type(value) is kind), "null")
    return HttpError(
        400, f"Invalid type for '{where}': expected {wanted}, but got {got} instead.", "invalid_type", where
    )


def invalid_value(value: str, supported: Sequence[str], where: str) -> HttpError:
    """Return the objection to a value outside a closed set."""
    listed = ", ".join(f"'{one}'" for one in supported[:-1]) + f", and '{supported[-1]}'"
    return HttpError(400, f"Invalid value: '{value}'. Supported values are: {listed}.", "invalid_value", where)
