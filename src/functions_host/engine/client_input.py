"""Strict parsing of what clients send to the host's own routes.

Malformed input raises ``BadRequestError``, a 400, before anything is changed.

Guarantee: pure.
"""

import json
from typing import Final

from functions_host.engine.sdk_wire import parse_time
from functions_host.engine.task_hub import BadRequestError

_MAX_NUMBER: Final = 2**63 - 1


def read_json(body: bytes) -> str | None:
    """Read a body as the text of one JSON value, without a byte order mark; None when it is empty.

    Raises:
        BadRequestError: the body is not UTF-8 or not JSON, or nested too deeply to be read.
    """
    if not body.strip():
        return None
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRequestError(f"The body is not UTF-8: {error}. Send JSON as UTF-8.") from None
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"The body is not valid JSON: {error}") from None
    return text


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
