"""Rules of Chat Completions for requests, in the words of the services. Pure.

The rules are OpenAI's. Models of some names play other services: one whose name begins with `REFUSES_REASONING` refuses
its own ``reasoning_content`` in input, as DeepSeek's R1 did; `WANTS_REASONING` wants it back with every call of a tool,
as DeepSeek does since V3.2; `THINKS_IN_PARTS` takes content with parts that are thoughts, as Mistral does.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast

from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import Json

REFUSES_REASONING: Final = "practice-reasoning-r1"
WANTS_REASONING: Final = "practice-reasoning-v4"
THINKS_IN_PARTS: Final = "practice-parts"

_ROLES: Final = ("system", "assistant", "user", "function", "tool", "developer")
_MAX_ID: Final = 40
_NAME: Final = re.compile(r"[^\s<|\\/>]{1,64}")
_FUNCTION: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PARTS: Final[dict[str, set[str]]] = {
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal"},
    "system": {"text"},
    "developer": {"text"},
    "tool": {"text"},
}
_FOLLOWED: Final = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
    "The following tool_call_ids did not have response messages: "
)
_PRECEDED: Final = (
    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
)


def check_request(body: Any) -> HttpError | None:
    """Return the first objection to a request, or None.

    Args:
        body: parsed JSON.
    """
    if not isinstance(body, dict):
        return HttpError(400, "We could not parse the JSON body of your request.")
    given = cast("Json", body)
    if not isinstance(given.get("model"), str) or not given["model"]:
        return HttpError(400, "you must provide a model parameter")
    if "messages" not in given:
        return HttpError(400, "Missing required parameter: 'messages'.", "missing_required_parameter", "messages")
    messages: Any = given["messages"]
    if not isinstance(messages, list):
        said = "Invalid type for 'messages': expected an array of objects, but got something else instead."
        return HttpError(400, said, "invalid_type", "messages")
    said_before = cast("list[Json]", messages)
    if not said_before:
        return _empty("messages")
    objections = (objection for check in _CHECKS for objection in check(given["model"], said_before))
    return next(objections, None)


def _shapes(model: str, messages: Sequence[Json]) -> Iterator[HttpError]:
    for place, message in enumerate(messages):
        where = f"messages[{place}]"
        role: Any = message.get("role")
        if role not in _ROLES:
            known = ", ".join(f"'{one}'" for one in _ROLES[:-1]) + f", and '{_ROLES[-1]}'"
            yield HttpError(
                400, f"Invalid value: '{role}'. Supported values are: {known}.", "invalid_value", f"{where}.role"
            )
            return
        name: Any = message.get("name")
        if name is not None and not _NAME.fullmatch(str(name)):
            pattern = r"'^[^\s<|\\/>]+$'"
            said = f"Invalid '{where}.name': string does not match pattern. Expected a string that matches the pattern "
            yield HttpError(400, f"{said}{pattern}.", "invalid_value", f"{where}.name")
        yield from _content(model, message, place)
        yield from _calls(message, place)


def _content(model: str, message: Json, place: int) -> Iterator[HttpError]:
    content: Any = message.get("content")
    role = message["role"]
    if content is None:
        stands_in = ("tool_calls", "function_call", "refusal", "audio")
        if role != "assistant" or not any(message.get(name) for name in stands_in):
            said = "Invalid value for 'content': expected a string, got null."
            yield HttpError(400, said, None, f"messages.[{place}].content")
    elif isinstance(content, list):
        for number, part in enumerate(cast("list[Json]", content)):
            kinds = _PARTS.get(role, {"text"}) | ({"thinking"} if model.startswith(THINKS_IN_PARTS) else set[str]())
            if part.get("type") not in kinds:
                known = ", ".join(f"'{one}'" for one in sorted(kinds))
                said = f"Invalid value: '{part.get('type')}'. Supported values are: {known}."
                yield HttpError(400, said, "invalid_value", f"messages[{place}].content[{number}].type")
    elif not isinstance(content, str):
        said = f"Invalid type for 'messages[{place}].content': expected one of a string or array of objects."
        yield HttpError(400, said, "invalid_type", f"messages[{place}].content")


def _calls(message: Json, place: int) -> Iterator[HttpError]:
    calls: Any = message.get("tool_calls")
    if calls == []:
        yield _empty(f"messages[{place}].tool_calls")
    for number, call in enumerate(cast("list[Json]", calls or [])):
        where = f"messages[{place}].tool_calls[{number}]"
        call_id: Any = call.get("id")
        if not call_id:
            yield HttpError(
                400, f"Missing required parameter: '{where}.id'.", "missing_required_parameter", f"{where}.id"
            )
        elif len(call_id) > _MAX_ID:
            said = (
                f"Expected a string with maximum length {_MAX_ID}, but got a string with length {len(call_id)} instead."
            )
            yield HttpError(
                400, f"Invalid '{where}.id': string too long. {said}", "string_above_max_length", f"{where}.id"
            )
        function: Any = call.get("function")
        called: Any = function or call.get("custom") or {}
        name: Any = called.get("name")
        if not isinstance(name, str) or not _FUNCTION.fullmatch(name):
            at = f"{where}.function.name"
            said = "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
            yield HttpError(400, f"Invalid '{at}': {said}", "invalid_value", at)
        if isinstance(function, dict) and not isinstance(cast("Json", function).get("arguments"), str):
            at = f"{where}.function.arguments"
            yield HttpError(400, f"Missing required parameter: '{at}'.", "missing_required_parameter", at)


def _pairs(_model: str, messages: Sequence[Json]) -> Iterator[HttpError]:
    open_ids: list[str] = []
    told: dict[str, int] = {}
    asked_at = 0
    for place, message in enumerate([*messages, {"role": "end"}]):
        if message["role"] == "tool":
            if "tool_call_id" not in message:
                said = "Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id'."
                yield HttpError(400, said, None, f"messages.[{place}].tool_call_id")
            elif (first := told.get(message["tool_call_id"])) is not None:
                said = f"Duplicate value for 'tool_call_id' of '{message['tool_call_id']}'"
                where = f"messages.[{place}].tool_call_id"
                yield HttpError(
                    400, f"Invalid parameter: {said}, in messages[{first}] and messages[{place}].", None, where
                )
            elif message["tool_call_id"] not in open_ids:
                yield HttpError(400, _PRECEDED, None, f"messages.[{place}].role")
            else:
                open_ids.remove(message["tool_call_id"])
                told[message["tool_call_id"]] = place
            continue
        told = {}
        if open_ids:
            yield HttpError(400, _FOLLOWED + ", ".join(open_ids), None, f"messages.[{asked_at}].role")
        open_ids, asked_at = (
            [str(call.get("id")) for call in cast("list[Json]", message.get("tool_calls") or [])],
            place,
        )


def _reasoning(model: str, messages: Sequence[Json]) -> Iterator[HttpError]:
    for message in messages:
        if model.startswith(REFUSES_REASONING) and "reasoning_content" in message:
            yield HttpError(
                400,
                "The reasoning_content is an intermediate result for display purposes only and will not be included in "
                "the context for inference. Please remove the reasoning_content from your message to reduce network "
                "traffic.",
                "invalid_request_error",
            )
        if model.startswith(WANTS_REASONING) and message.get("tool_calls") and "reasoning_content" not in message:
            said = "The `reasoning_content` in the thinking mode must be passed back to the API."
            yield HttpError(400, said, "invalid_request_error")


_CHECKS: Final[tuple[Callable[[str, Sequence[Json]], Iterator[HttpError]], ...]] = (_shapes, _pairs, _reasoning)


def _empty(where: str) -> HttpError:
    said = "Expected an array with minimum length 1, but got an empty array instead."
    return HttpError(400, f"Invalid '{where}': empty array. {said}", "empty_array", where)
