"""Rules for requests of Chat Completions, with the services' own error messages.

The rules are OpenAI's. Models with some names imitate other services: one whose name starts with `REJECTS_REASONING`
rejects its own ``reasoning_content`` in input, as DeepSeek's R1 did; `REQUIRES_REASONING` requires it with every tool
call, as DeepSeek does since V3.2; `THINKS_IN_PARTS` accepts content with ``thinking`` parts, as Mistral does.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast

from practice_model.dialects.responses.errors import (
    HttpError,
    invalid_value_error,
    length_error,
    missing_parameter_error,
    pattern_error,
)
from practice_model.dialects.responses.items import Json

REJECTS_REASONING: Final = "practice-reasoning-r1"
REQUIRES_REASONING: Final = "practice-reasoning-v4"
THINKS_IN_PARTS: Final = "practice-parts"

_ROLES: Final = ("system", "assistant", "user", "function", "tool", "developer")
_MAX_ID_CHARACTERS: Final = 40
_NAME: Final = re.compile(r"[^\s<|\\/>]{1,64}")
_FUNCTION: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PART_TYPES: Final[dict[str, set[str]]] = {
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal"},
    "system": {"text"},
    "developer": {"text"},
    "tool": {"text"},
}
_MISSING_RESULTS: Final = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
    "The following tool_call_ids did not have response messages: "
)
_MISSING_CALL: Final = (
    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
)


def check_request(body: Any) -> HttpError | None:
    """Return the first error of a request, or None."""
    if not isinstance(body, dict):
        return HttpError(400, "We could not parse the JSON body of your request.")
    request = cast("Json", body)
    if not isinstance(request.get("model"), str) or not request["model"]:
        return HttpError(400, "you must provide a model parameter")
    if "messages" not in request:
        return missing_parameter_error("messages")
    messages: Any = request["messages"]
    if not isinstance(messages, list):
        reason = "Invalid type for 'messages': expected an array of objects, but got something else instead."
        return HttpError(400, reason, "invalid_type", "messages")
    message_list = cast("list[Json]", messages)
    if not message_list:
        return _empty_array_error("messages")
    violations = (violation for check in _CHECKS for violation in check(request["model"], message_list))
    return next(violations, None)


def _find_message_violations(model: str, messages: Sequence[Json]) -> Iterator[HttpError]:
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        role: Any = message.get("role")
        if role not in _ROLES:
            yield invalid_value_error(str(role), _ROLES, f"{path}.role")
            return
        name: Any = message.get("name")
        if name is not None and not _NAME.fullmatch(str(name)):
            pattern = r"'^[^\s<|\\/>]+$'"
            reason = (
                f"Invalid '{path}.name': string does not match pattern. Expected a string that matches the pattern "
            )
            yield HttpError(400, f"{reason}{pattern}.", "invalid_value", f"{path}.name")
        yield from _find_content_violations(model, message, index)
        yield from _find_call_violations(message, index)


def _find_content_violations(model: str, message: Json, index: int) -> Iterator[HttpError]:
    content: Any = message.get("content")
    role = message["role"]
    if content is None:
        replacement_fields = ("tool_calls", "function_call", "refusal", "audio")
        if role != "assistant" or not any(message.get(name) for name in replacement_fields):
            reason = "Invalid value for 'content': expected a string, got null."
            yield HttpError(400, reason, None, f"messages.[{index}].content")
    elif isinstance(content, list):
        for part_index, part in enumerate(cast("list[Json]", content)):
            part_types = _PART_TYPES.get(role, {"text"}) | (
                {"thinking"} if model.startswith(THINKS_IN_PARTS) else set[str]()
            )
            if part.get("type") not in part_types:
                supported_types = ", ".join(f"'{part_type}'" for part_type in sorted(part_types))
                reason = f"Invalid value: '{part.get('type')}'. Supported values are: {supported_types}."
                yield HttpError(400, reason, "invalid_value", f"messages[{index}].content[{part_index}].type")
    elif not isinstance(content, str):
        reason = f"Invalid type for 'messages[{index}].content': expected one of a string or array of objects."
        yield HttpError(400, reason, "invalid_type", f"messages[{index}].content")


def _find_call_violations(message: Json, index: int) -> Iterator[HttpError]:
    calls: Any = message.get("tool_calls")
    if calls == []:
        yield _empty_array_error(f"messages[{index}].tool_calls")
    for call_index, call in enumerate(cast("list[Json]", calls or [])):
        path = f"messages[{index}].tool_calls[{call_index}]"
        call_id: Any = call.get("id")
        if not call_id:
            yield missing_parameter_error(f"{path}.id")
        elif len(call_id) > _MAX_ID_CHARACTERS:
            yield length_error(f"{path}.id", call_id, _MAX_ID_CHARACTERS)
        function: Any = call.get("function")
        function_or_custom: Any = function or call.get("custom") or {}
        name: Any = function_or_custom.get("name")
        if not isinstance(name, str) or not _FUNCTION.fullmatch(name):
            yield pattern_error(f"{path}.function.name")
        if isinstance(function, dict) and not isinstance(cast("Json", function).get("arguments"), str):
            yield missing_parameter_error(f"{path}.function.arguments")


def _find_pairing_violations(_model: str, messages: Sequence[Json]) -> Iterator[HttpError]:
    open_call_ids: list[str] = []
    result_indices: dict[str, int] = {}
    call_message_index = 0
    for index, message in enumerate([*messages, {"role": "end"}]):
        if message["role"] == "tool":
            if "tool_call_id" not in message:
                reason = "Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id'."
                yield HttpError(400, reason, None, f"messages.[{index}].tool_call_id")
            elif (first_index := result_indices.get(message["tool_call_id"])) is not None:
                reason = f"Duplicate value for 'tool_call_id' of '{message['tool_call_id']}'"
                path = f"messages.[{index}].tool_call_id"
                yield HttpError(
                    400, f"Invalid parameter: {reason}, in messages[{first_index}] and messages[{index}].", None, path
                )
            elif message["tool_call_id"] not in open_call_ids:
                yield HttpError(400, _MISSING_CALL, None, f"messages.[{index}].role")
            else:
                open_call_ids.remove(message["tool_call_id"])
                result_indices[message["tool_call_id"]] = index
            continue
        result_indices = {}
        if open_call_ids:
            yield HttpError(
                400, _MISSING_RESULTS + ", ".join(open_call_ids), None, f"messages.[{call_message_index}].role"
            )
        open_call_ids = [str(call.get("id")) for call in cast("list[Json]", message.get("tool_calls") or [])]
        call_message_index = index


def _find_reasoning_violations(model: str, messages: Sequence[Json]) -> Iterator[HttpError]:
    for message in messages:
        if model.startswith(REJECTS_REASONING) and "reasoning_content" in message:
            yield HttpError(
                400,
                "The reasoning_content is an intermediate result for display purposes only and will not be included in "
                "the context for inference. Please remove the reasoning_content from your message to reduce network "
                "traffic.",
                "invalid_request_error",
            )
        if model.startswith(REQUIRES_REASONING) and message.get("tool_calls") and "reasoning_content" not in message:
            reason = "The `reasoning_content` in the thinking mode must be passed back to the API."
            yield HttpError(400, reason, "invalid_request_error")


_CHECKS: Final[tuple[Callable[[str, Sequence[Json]], Iterator[HttpError]], ...]] = (
    _find_message_violations,
    _find_pairing_violations,
    _find_reasoning_violations,
)


def _empty_array_error(path: str) -> HttpError:
    reason = "Expected an array with minimum length 1, but got an empty array instead."
    return HttpError(400, f"Invalid '{path}': empty array. {reason}", "empty_array", path)
