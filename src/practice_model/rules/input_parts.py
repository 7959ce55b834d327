"""Rules for the parts of a caller's message and of a rich tool result: text, image, file, audio.

Source: openai-python 3.52 `types/responses/response_input_*_param.py`. The error messages for images and files
are those reported by users of the live API; it accepts all file types since its changelog of February 2026.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from practice_model.dialects.responses.errors import HttpError, invalid_value_error, missing_parameter_error

PARTS = ("input_text", "input_image", "output_text", "refusal", "input_file", "input_audio")
MAX_FILE_BYTES = 50 * 1024 * 1024
"""Limit for all files of a request, and for all its images."""

_IMAGE_TYPES = ("png", "jpeg", "gif", "webp")
_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),(.*)", re.DOTALL)
_URL = re.compile(r"https?://\S+")
_FIELDS = {
    "input_text": {"type", "text", "prompt_cache_breakpoint"},
    "input_image": {"type", "detail", "file_id", "image_url", "prompt_cache_breakpoint"},
    "input_file": {"type", "detail", "file_id", "file_data", "file_url", "filename", "prompt_cache_breakpoint"},
    "input_audio": {"type", "input_audio"},
}


def check_parts(parts: list[Any], path: str) -> Iterator[HttpError]:
    """Yield the violations in the parts of a message or tool result."""
    for index, part in enumerate(parts):
        part_path = f"{path}[{index}]"
        if not isinstance(part, dict):
            yield HttpError(400, f"Invalid type for '{part_path}': expected an object.", "invalid_type", part_path)
            return
        part_fields = cast("dict[str, Any]", part)
        part_type = part_fields.get("type")
        if part_type not in PARTS:
            yield invalid_value_error(str(part_type), PARTS, part_path)
            return
        for name in part_fields.keys() - _FIELDS.get(part_type, part_fields.keys()):
            yield HttpError(
                400, f"Unknown parameter: '{part_path}.{name}'.", "unknown_parameter", f"{part_path}.{name}"
            )
        if part_type in _CHECKS:
            yield from _CHECKS[part_type](part_fields, part_path)


def _check_text(part: Mapping[str, Any], path: str) -> Iterator[HttpError]:
    if not isinstance(part.get("text"), str):
        yield missing_parameter_error(f"{path}.text")


def _check_image(part: Mapping[str, Any], path: str) -> Iterator[HttpError]:
    url = part.get("image_url")
    url_path = f"{path}.image_url"
    if part.get("detail", "auto") not in {"auto", "low", "high", "original"}:
        yield HttpError(400, f"Invalid value: '{part['detail']}'.", "invalid_value", f"{path}.detail")
    if url is None:
        if not part.get("file_id"):
            yield missing_parameter_error(url_path)
        return
    match = _DATA_URL.fullmatch(str(url))
    if match is None:
        if not _URL.fullmatch(str(url)):
            reason = f"Invalid '{url_path}'. Expected a valid URL, but got a value with an invalid format."
            yield HttpError(400, reason, "invalid_value", url_path)
        return
    message_start = (
        f"Invalid '{url_path}'. Expected a base64-encoded data URL with an image MIME type "
        "(e.g. 'data:image/png;base64,aW1nIGJ5dGVzIGhlcmU='), but got"
    )
    if match[1] not in {f"image/{image_type}" for image_type in _IMAGE_TYPES}:
        yield HttpError(400, f"{message_start} unsupported MIME type '{match[1]}'.", "invalid_value", url_path)
    elif match[2] != ";base64" or not _is_base64(match[3]):
        yield HttpError(400, f"{message_start} an invalid base64-encoded value.", "invalid_value", url_path)
    else:
        yield from _check_size(match[3], url_path)


def _check_file(part: Mapping[str, Any], path: str) -> Iterator[HttpError]:
    source_fields = [name for name in ("file_id", "file_data", "file_url") if part.get(name)]
    if not source_fields:
        yield missing_parameter_error(f"{path}.file_id")
        return
    if len(source_fields) > 1:
        source_paths = ", ".join(f"'{path}.{name}'" for name in source_fields)
        reason = f"Mutually exclusive parameters: {source_paths}. Ensure you are only providing one of: {source_paths}."
        yield HttpError(400, reason, "mutually_exclusive_parameters", path)
    if source_fields == ["file_url"] and not _URL.fullmatch(str(part["file_url"])):
        field_path = f"{path}.file_url"
        reason = f"Invalid '{field_path}'. Expected a valid URL, but got a value with an invalid format."
        yield HttpError(400, reason, "invalid_value", field_path)
    if source_fields == ["file_data"]:
        match = _DATA_URL.fullmatch(str(part["file_data"]))
        field_path = f"{path}.file_data"
        if not part.get("filename"):
            yield missing_parameter_error(f"{path}.filename")
        if match is None or match[2] != ";base64" or not _is_base64(match[3]):
            yield HttpError(400, f"Invalid '{field_path}'.", "invalid_value", field_path)
        else:
            yield from _check_size(match[3], field_path)


def _check_audio(part: Mapping[str, Any], path: str) -> Iterator[HttpError]:
    input_audio: Any = part.get("input_audio")
    audio = cast("dict[str, Any]", input_audio) if isinstance(input_audio, dict) else {}
    for name in ("data", "format"):
        if not audio.get(name):
            yield missing_parameter_error(f"{path}.input_audio.{name}")
            return
    if audio["format"] not in {"wav", "mp3"}:
        reason = f"Invalid value: '{audio['format']}'. Supported values are: 'wav' and 'mp3'."
        yield HttpError(400, reason, "invalid_value", f"{path}.input_audio.format")
    if not _is_base64(str(audio["data"])):
        data_path = f"{path}.input_audio.data"
        yield HttpError(400, f"Invalid '{data_path}': expected base64-encoded audio.", "invalid_value", data_path)


_CHECKS = {
    "input_text": _check_text,
    "input_image": _check_image,
    "input_file": _check_file,
    "input_audio": _check_audio,
}


def _check_size(data: str, path: str) -> Iterator[HttpError]:
    if len(data) * 3 // 4 > MAX_FILE_BYTES:
        yield HttpError(400, f"Invalid '{path}': the file is larger than 50 MB.", "string_above_max_length", path)


def _is_base64(value: str) -> bool:
    try:
        return bool(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError):
        return False
