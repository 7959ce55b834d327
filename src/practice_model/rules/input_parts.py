"""Rules on the parts of a message that a caller sends, and of a rich tool result: text, image, file, audio. Pure.

Source: openai-python 3.52 `types/responses/response_input_*_param.py`. The messages for images and files are those
that users of the live API have reported; that every type of file is taken is its changelog of February 2026.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from practice_model.dialects.responses.errors import HttpError

PARTS = ("input_text", "input_image", "output_text", "refusal", "input_file", "input_audio")
MAX_FILE_BYTES = 50 * 1024 * 1024
"""Of all files of a request, and of all its images."""

_IMAGES = ("png", "jpeg", "gif", "webp")
_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),(.*)", re.DOTALL)
_URL = re.compile(r"https?://\S+")
_FIELDS = {
    "input_text": {"type", "text", "prompt_cache_breakpoint"},
    "input_image": {"type", "detail", "file_id", "image_url", "prompt_cache_breakpoint"},
    "input_file": {"type", "detail", "file_id", "file_data", "file_url", "filename", "prompt_cache_breakpoint"},
    "input_audio": {"type", "input_audio"},
}


def check_parts(parts: list[Any], where: str) -> Iterator[HttpError]:
    """Yield the objections to the parts of a message or tool result.

    Args:
        parts: its content.
        where: path of the content, such as ``input[0].content``.
    """
    for number, part in enumerate(parts):
        place = f"{where}[{number}]"
        if not isinstance(part, dict):
            yield HttpError(400, f"Invalid type for '{place}': expected an object.", "invalid_type", place)
            return
        given = cast("dict[str, Any]", part)
        kind = given.get("type")
        if kind not in PARTS:
            listed = ", ".join(f"'{one}'" for one in PARTS[:-1])
            shown = f"Invalid value: '{kind}'. Supported values are: {listed}, and '{PARTS[-1]}'."
            yield HttpError(400, shown, "invalid_value", place)
            return
        for name in given.keys() - _FIELDS.get(kind, given.keys()):
            yield HttpError(400, f"Unknown parameter: '{place}.{name}'.", "unknown_parameter", f"{place}.{name}")
        yield from _CHECKS.get(kind, _nothing)(given, place)


def _nothing(_part: Mapping[str, Any], _place: str) -> Iterator[HttpError]:
    yield from ()


def _check_text(part: Mapping[str, Any], place: str) -> Iterator[HttpError]:
    if not isinstance(part.get("text"), str):
        yield _missing(f"{place}.text")


def _check_image(part: Mapping[str, Any], place: str) -> Iterator[HttpError]:
    url, where = part.get("image_url"), f"{place}.image_url"
    if part.get("detail", "auto") not in {"auto", "low", "high", "original"}:
        yield HttpError(400, f"Invalid value: '{part['detail']}'.", "invalid_value", f"{place}.detail")
    if url is None:
        if not part.get("file_id"):
            yield _missing(where)
        return
    found = _DATA_URL.fullmatch(str(url))
    if found is None:
        if not _URL.fullmatch(str(url)):
            shown = f"Invalid '{where}'. Expected a valid URL, but got a value with an invalid format."
            yield HttpError(400, shown, "invalid_value", where)
        return
    expected = (
        f"Invalid '{where}'. Expected a base64-encoded data URL with an image MIME type "
        "(e.g. 'data:image/png;base64,aW1nIGJ5dGVzIGhlcmU='), but got"
    )
    if found[1] not in {f"image/{one}" for one in _IMAGES}:
        yield HttpError(400, f"{expected} unsupported MIME type '{found[1]}'.", "invalid_value", where)
    elif found[2] != ";base64" or not _is_base64(found[3]):
        yield HttpError(400, f"{expected} an invalid base64-encoded value.", "invalid_value", where)
    else:
        yield from _check_size(found[3], where)


def _check_file(part: Mapping[str, Any], place: str) -> Iterator[HttpError]:
    given = [name for name in ("file_id", "file_data", "file_url") if part.get(name)]
    if not given:
        yield _missing(f"{place}.file_id")
        return
    if len(given) > 1:
        listed = ", ".join(f"'{place}.{name}'" for name in given)
        shown = f"Mutually exclusive parameters: {listed}. Ensure you are only providing one of: {listed}."
        yield HttpError(400, shown, "mutually_exclusive_parameters", place)
    if given == ["file_url"] and not _URL.fullmatch(str(part["file_url"])):
        where = f"{place}.file_url"
        shown = f"Invalid '{where}'. Expected a valid URL, but got a value with an invalid format."
        yield HttpError(400, shown, "invalid_value", where)
    if given == ["file_data"]:
        found, where = _DATA_URL.fullmatch(str(part["file_data"])), f"{place}.file_data"
        if not part.get("filename"):
            yield _missing(f"{place}.filename")
        if found is None or found[2] != ";base64" or not _is_base64(found[3]):
            yield HttpError(400, f"Invalid '{where}'.", "invalid_value", where)
        else:
            yield from _check_size(found[3], where)


def _check_audio(part: Mapping[str, Any], place: str) -> Iterator[HttpError]:
    given: Any = part.get("input_audio")
    audio = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    for name in ("data", "format"):
        if not audio.get(name):
            yield _missing(f"{place}.input_audio.{name}")
            return
    if audio["format"] not in {"wav", "mp3"}:
        shown = f"Invalid value: '{audio['format']}'. Supported values are: 'wav' and 'mp3'."
        yield HttpError(400, shown, "invalid_value", f"{place}.input_audio.format")
    if not _is_base64(str(audio["data"])):
        where = f"{place}.input_audio.data"
        yield HttpError(400, f"Invalid '{where}': expected base64-encoded audio.", "invalid_value", where)


_CHECKS = {
    "input_text": _check_text,
    "input_image": _check_image,
    "input_file": _check_file,
    "input_audio": _check_audio,
}


def _check_size(encoded: str, where: str) -> Iterator[HttpError]:
    if len(encoded) * 3 // 4 > MAX_FILE_BYTES:
        yield HttpError(400, f"Invalid '{where}': the file is larger than 50 MB.", "string_above_max_length", where)


def _is_base64(value: str) -> bool:
    try:
        return bool(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError):
        return False


def _missing(where: str) -> HttpError:
    return HttpError(400, f"Missing required parameter: '{where}'.", "missing_required_parameter", where)
