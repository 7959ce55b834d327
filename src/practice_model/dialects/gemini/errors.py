"""Errors in the JSON form of Google's APIs. Pure."""

from typing import Any, Final

from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import Json

_STATUS: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def error_body(error: HttpError) -> Json:
    """Write an error as Google does.

    Guarantee: pure.

    Args:
        error: its ``code`` replaces the name of the status; its wait is told as ``RetryInfo``.
    """
    shown: dict[str, Any] = {
        "code": error.status,
        "message": error.message,
        "status": error.code or _STATUS.get(error.status, "UNKNOWN"),
    }
    if error.retry_after is not None:
        shown["details"] = [
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{error.retry_after:g}s"}
        ]
    return {"error": shown}


def error_chunk(failure: Any) -> Json:
    """Write a failure in the middle of a stream.

    Guarantee: pure.

    Args:
        failure: with ``code``, a status of HTTP or a name, and ``message``.
    """
    code = failure.get("code")
    status = next((number for number, name in _STATUS.items() if code in {number, name}), 503)
    message = failure.get("message") or "The model is overloaded. Please try again later."
    return error_body(HttpError(status, str(message)))
