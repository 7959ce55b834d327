"""What the Gemini API requires of a request, with its own words. Pure.

Source: recorded requests that were accepted, and errors quoted by public projects (google-gemini/gemini-cli#17208,
langgenius/dify-official-plugins#2088; kaitranntt/ccs#25, about the names of declared functions).
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from practice_model.dialects.gemini.contents import field, is_reasoning, objects
from practice_model.dialects.gemini.signatures import BYPASS
from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import Json

MISSING_KEY: Final = (
    "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or other "
    "form of API consumer identity to call this API."
)
_DATA: Final = (
    *("text", "inlineData", "fileData", "functionCall", "functionResponse", "executableCode", "codeExecutionResult"),
    *("toolCall", "toolResponse"),
)
_BESIDE: Final = ("thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata")
_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
_EMPTY_NAME: Final = "Name cannot be empty.\n"
_BAD_NAME: Final = (
    "[FIELD_INVALID] Invalid function name. Must start with a letter or an underscore. Must be a-z, A-Z, 0-9, or "
    "contain underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 64.\n"
)
_ROLES: Final = frozenset({"user", "model", None})

IsSignature = Callable[[str], bool]


def check_request(model: str, body: Any, is_signature: IsSignature, issued: Sequence[Json]) -> HttpError | None:
    """Return the API's error for a request; None if it is accepted.

    Guarantee: pure.

    Args:
        model: of the URL.
        body: parsed; None if it is not JSON.
        is_signature: whether a thought signature is genuine.
        issued: parts that the service has given out; they are taken back whatever is in them.
    """
    if not isinstance(body, dict):
        return _invalid("Invalid JSON payload received. Unexpected token.")
    contents = objects(cast("Json", body).get("contents"))
    if not contents:
        return _invalid("* GenerateContentRequest.contents: contents is not specified\n")
    found = (*_shapes(contents, issued), *_turns(contents), *_signatures(model, contents, is_signature))
    return next(iter(found), None)


def _invalid(message: str) -> HttpError:
    return HttpError(400, message)


def _shapes(contents: Sequence[Json], issued: Sequence[Json]) -> Iterator[HttpError]:
    for number, content in enumerate(contents):
        where = f"GenerateContentRequest.contents[{number}]"
        if content.get("role") not in _ROLES:
            yield _invalid("Please use a valid role: user, model.")
        parts = objects(content.get("parts"))
        if not parts:
            yield _invalid(f"* {where}.parts: contents.parts must not be empty.\n")
        for place, part in enumerate(parts):
            if part not in issued:
                yield from _part(part, f"contents[{number}].parts[{place}]", where=f"{where}.parts[{place}]")


def _part(part: Json, path: str, *, where: str) -> Iterator[HttpError]:
    known = {name for name in (*_DATA, *_BESIDE) if field(part, name) is not None}
    for name in part:
        if not any(field({name: 1}, one) for one in (*_DATA, *_BESIDE)):
            yield _invalid(f"Invalid JSON payload received. Unknown name \"{name}\" at '{path}': Cannot find field.")
    data = [name for name in _DATA if name in known]
    if not data:
        yield _invalid(f"* {where}.data: required oneof field 'data' must have one initialized field\n")
    if len(data) > 1:
        yield _invalid(f"Invalid value at '{path}' (oneof), oneof field 'data' is already set. Cannot set '{data[1]}'")
    for name in ("functionCall", "functionResponse"):
        if name not in known:
            continue
        called: Any = field(part, name).get("name")
        if not called or not _NAME.fullmatch(str(called)):
            snake = "function_call" if name == "functionCall" else "function_response"
            yield _invalid(f"* {where}.{snake}.name: {_BAD_NAME if called else _EMPTY_NAME}")
    for value in (field(part, "thoughtSignature"), field(field(part, "inlineData"), "data")):
        if value is not None and not _is_base64(value):
            yield _invalid(f"Invalid value at '{path}' (TYPE_BYTES), Base64 decoding failed for \"{value}\"")


def _is_base64(value: Any) -> bool:
    if value in BYPASS:
        return True
    try:
        plain = str(value).replace("-", "+").replace("_", "/").rstrip("=")
        base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _turns(contents: Sequence[Json]) -> Iterator[HttpError]:
    """Calls follow a user's turn or answers; answers follow their calls, as many."""
    for number, content in enumerate(contents):
        before = contents[number - 1] if number else {}
        calls, answers = _count(content, "functionCall"), _count(content, "functionResponse")
        asked = _count(before, "functionCall")
        if calls and (number == 0 or before.get("role") == "model"):
            yield _invalid(
                "Please ensure that function call turn comes immediately after a user turn or after a function "
                "response turn."
            )
        if answers and not asked:
            yield _invalid("Please ensure that function response turn comes immediately after a function call turn.")
        if answers != asked:
            yield _invalid(
                "Please ensure that the number of function response parts is equal to the number of function call "
                "parts of the function call turn."
            )
    if contents and _count(contents[-1], "functionCall"):
        yield _invalid(
            "Please ensure that the number of function response parts is equal to the number of function call parts "
            "of the function call turn."
        )


def _count(content: Mapping[str, Any], name: str) -> int:
    return sum(field(part, name) is not None for part in objects(content.get("parts")))


def _signatures(model: str, contents: Sequence[Json], is_signature: IsSignature) -> Iterator[HttpError]:
    asked = [n for n, one in enumerate(contents) if one.get("role") != "model" and not _count(one, "functionResponse")]
    begins = asked[-1] if asked else 0
    for number, content in enumerate(contents):
        parts = objects(content.get("parts"))
        for part in parts:
            signature = field(part, "thoughtSignature")
            if signature is not None and not is_signature(str(signature)):
                yield _invalid("Corrupted thought signature.")
        first = next(((n, part) for n, part in enumerate(parts) if field(part, "functionCall") is not None), None)
        if first is None or number < begins or not is_reasoning(model):
            continue
        if field(first[1], "thoughtSignature") is None:
            name = field(first[1], "functionCall").get("name")
            yield _invalid(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                "work correctly, and missing thought_signature may lead to degraded model performance. Additional "
                f"data, function call `default_api:{name}` , position {number + 1}. Please refer to "
                "https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
            )
