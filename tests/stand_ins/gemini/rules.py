"""Rules for requests of the Gemini API, with its own error messages.

Source: recorded requests that were accepted, and errors quoted by public projects (google-gemini/gemini-cli#17208,
langgenius/dify-official-plugins#2088; kaitranntt/ccs#25, about the names of declared functions).
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import Json
from tests.stand_ins.gemini.contents import get_field, is_reasoning, list_objects
from tests.stand_ins.gemini.signatures import BYPASS, normalize_base64

MISSING_KEY: Final = (
    "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or other "
    "form of API consumer identity to call this API."
)
_DATA_FIELDS: Final = (
    *("text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult"),
    *("toolCall", "toolResponse"),
)
_METADATA: Final = ("thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata")
_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_EMPTY_NAME: Final = "Name cannot be empty.\n"
_BAD_NAME: Final = (
    "[FIELD_INVALID] Invalid function name. Must start with a letter or an underscore. Must be a-z, A-Z, 0-9, or "
    "contain underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 64.\n"
)
_ROLES: Final = frozenset({"user", "model", None})

IsSignature = Callable[[str], bool]


def check_request(model: str, body: Any, is_signature: IsSignature, issued_parts: Sequence[Json]) -> HttpError | None:
    """Return the API's error for a request; None if it is accepted."""
    if not isinstance(body, dict):
        return _invalid("Invalid JSON payload received. Unexpected token.")
    contents = list_objects(cast("Json", body).get("contents"))
    if not contents:
        return _invalid("* GenerateContentRequest.contents: contents is not specified\n")
    violations = (
        *_find_content_violations(contents, issued_parts),
        *_find_turn_violations(contents),
        *_find_signature_violations(model, contents, is_signature),
    )
    return next(iter(violations), None)


def _invalid(message: str) -> HttpError:
    return HttpError(400, message)


def _find_content_violations(contents: Sequence[Json], issued_parts: Sequence[Json]) -> Iterator[HttpError]:
    for index, content in enumerate(contents):
        full_path = f"GenerateContentRequest.contents[{index}]"
        if content.get("role") not in _ROLES:
            yield _invalid("Please use a valid role: user, model.")
        parts = list_objects(content.get("parts"))
        if not parts:
            yield _invalid(f"* {full_path}.parts: contents.parts must not be empty.\n")
        for part_index, part in enumerate(parts):
            if part not in issued_parts:
                yield from _find_part_violations(
                    part, f"contents[{index}].parts[{part_index}]", full_path=f"{full_path}.parts[{part_index}]"
                )


def _find_part_violations(part: Json, path: str, *, full_path: str) -> Iterator[HttpError]:
    part_fields = {name for name in (*_DATA_FIELDS, *_METADATA) if get_field(part, name) is not None}
    for name in part:
        if not any(get_field({name: 1}, known_name) for known_name in (*_DATA_FIELDS, *_METADATA)):
            yield _invalid(f"Invalid JSON payload received. Unknown name \"{name}\" at '{path}': Cannot find field.")
    data_fields = [name for name in _DATA_FIELDS if name in part_fields]
    if not data_fields:
        yield _invalid(f"* {full_path}.data: required oneof field 'data' must have one initialized field\n")
    if len(data_fields) > 1:
        yield _invalid(
            f"Invalid value at '{path}' (oneof), oneof field 'data' is already set. Cannot set '{data_fields[1]}'"
        )
    for name in ("functionCall", "functionResponse"):
        if name not in part_fields:
            continue
        function_name: Any = get_field(part, name).get("name")
        if not function_name or not _NAME.fullmatch(str(function_name)):
            snake_name = "function_call" if name == "functionCall" else "function_response"
            yield _invalid(f"* {full_path}.{snake_name}.name: {_BAD_NAME if function_name else _EMPTY_NAME}")
    for value in (get_field(part, "thoughtSignature"), get_field(get_field(part, "inlineData"), "data")):
        if value is not None and not _is_base64(value):
            yield _invalid(f"Invalid value at '{path}' (TYPE_BYTES), Base64 decoding failed for \"{value}\"")


def _is_base64(value: Any) -> bool:
    if value in BYPASS:
        return True
    try:
        standard_base64 = normalize_base64(str(value))
        base64.b64decode(standard_base64 + "=" * (-len(standard_base64) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _find_turn_violations(contents: Sequence[Json]) -> Iterator[HttpError]:
    """Calls follow a user turn or results; results follow their calls in equal number."""
    for index, content in enumerate([*contents, Json()]):
        previous_content = contents[index - 1] if index else {}
        call_count = _count_parts(content, "functionCall")
        result_count = _count_parts(content, "functionResponse")
        previous_call_count = _count_parts(previous_content, "functionCall")
        if call_count and (index == 0 or previous_content.get("role") == "model"):
            yield _invalid(
                "Please ensure that function call turn comes immediately after a user turn or after a function "
                "response turn."
            )
        if result_count and not previous_call_count:
            yield _invalid("Please ensure that function response turn comes immediately after a function call turn.")
        if result_count != previous_call_count:
            yield _invalid(
                "Please ensure that the number of function response parts is equal to the number of function call "
                "parts of the function call turn."
            )


def _count_parts(content: Mapping[str, Any], field_name: str) -> int:
    return sum(get_field(part, field_name) is not None for part in list_objects(content.get("parts")))


def _find_signature_violations(model: str, contents: Sequence[Json], is_signature: IsSignature) -> Iterator[HttpError]:
    question_indices = [
        index
        for index, content in enumerate(contents)
        if content.get("role") != "model" and not _count_parts(content, "functionResponse")
    ]
    turn_start_index = question_indices[-1] if question_indices else 0
    for index, content in enumerate(contents):
        parts = list_objects(content.get("parts"))
        for part in parts:
            signature = get_field(part, "thoughtSignature")
            if signature is not None and not is_signature(str(signature)):
                yield _invalid("Corrupted thought signature.")
        first_call = next((part for part in parts if get_field(part, "functionCall") is not None), None)
        if first_call is None or index < turn_start_index or not is_reasoning(model):
            continue
        if get_field(first_call, "thoughtSignature") is None:
            name = get_field(first_call, "functionCall").get("name")
            yield _invalid(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                "work correctly, and missing thought_signature may lead to degraded model performance. Additional "
                f"data, function call `default_api:{name}` , position {index + 1}. Please refer to "
                "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
            )
