"""Strict parsing of what clients send to the host's own routes.

Malformed input raises ``BadRequestError``, a 400, before anything is changed.

Guarantee: pure.
"""

import json
from math import isfinite
from typing import Final

from functions_host.engine.sdk_wire import parse_time
from functions_host.engine.task_hub import BadRequestError

MAX_DEPTH: Final = 500
"""Maximum nesting of lists and objects, far below the limit of Python's JSON parser in the app's functions."""

_MAX_NUMBER: Final = 2**63 - 1
_OPENING = frozenset(b"[{")
_CLOSING = frozenset(b"]}")
_QUOTE = ord('"')
_BACKSLASH = ord("\\")


def read_json(body: bytes) -> str | None:
    """Read a body as the text of one JSON value, without a byte order mark; None when it is empty.

    Raises:
        BadRequestError: the body is not UTF-8 or not JSON, nested too deeply, or has NaN, Infinity or a number that is
            too large to be read.
    """
    if not body.strip():
        return None
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRequestError(f"The body is not UTF-8: {error}. Send JSON as UTF-8.") from None
    if _is_deep(body):
        raise BadRequestError(f"The body is nested deeper than {MAX_DEPTH} lists and objects; send it as a text.")
    try:
        json.loads(text, parse_constant=_reject_constant, parse_float=_check_finite)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"The body is not valid JSON: {error}") from None
    return text


def _reject_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON number")


def _check_finite(text: str) -> None:
    if not isfinite(float(text)):
        raise ValueError(f"the number {text[:40]} is too large")


def _is_deep(body: bytes) -> bool:
    if sum(map(body.count, (b"[", b"{"))) <= MAX_DEPTH:
        return False
    depth = 0
    in_text = False
    is_escaped = False
    for byte in body:
        if in_text:
            in_text = is_escaped or byte != _QUOTE
            is_escaped = byte == _BACKSLASH and not is_escaped
        elif byte == _QUOTE:
            in_text = True
        elif byte in _OPENING:
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif byte in _CLOSING:
            depth -= 1
    return False


def read_number(name: str, text: str | None, default: int) -> int:
    """Read a whole number within the store's range; the default when absent.

    Raises:
        BadRequestError: it is none.
    """
    if not text:
        return default
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(_MAX_NUMBER)) or int(text) > _MAX_NUMBER:
        raise BadRequestError(f"{name} is {text[:50]!r}: it has to be a whole number from 0 to {_MAX_NUMBER}.")
    return int(text)


def read_seconds(name: str, text: str | None, default: float) -> float:
    """Read a number of seconds, 0 or more; the default when absent.

    Raises:
        BadRequestError: the text is not such a number.
    """
    if not text:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _MAX_NUMBER:
        raise BadRequestError(f"{name} is {text[:50]!r}: it has to be a number of seconds, 0 or more.")
    return seconds


def read_time(name: str, text: str | None) -> float | None:
    """Read an ISO 8601 time as POSIX seconds; None when absent.

    Raises:
        BadRequestError: it is none.
    """
    if not text:
        return None
    try:
        return parse_time(text)
    except (ValueError, OverflowError):
        raise BadRequestError(f"{name} is {text[:50]!r}: it has to be a time in ISO 8601.") from None
