"""Errors in the JSON format of Google's APIs."""

from typing import Any, Final

from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import Json

_STATUS_NAMES: Final = {
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
    """Return the body of an error.

    Args:
        error: its ``code`` replaces the status name; its ``retry_after`` becomes ``RetryInfo``.
    """
    error_fields: dict[str, Any] = {
        "code": error.status,
        "message": error.message,
        "status": error.code or _STATUS_NAMES.get(error.status, "UNKNOWN"),
    }
    if error.retry_after is not None:
        error_fields["details"] = [
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{error.retry_after:g}s"}
        ]
    return {"error": error_fields}


def error_chunk(failure: Any) -> Json:
    """Return the chunk for a failure within a stream.

    Args:
        failure: object with ``code`` (HTTP status or status name) and ``message``.
    """
    code = failure.get("code")
    status = next(
        (status_code for status_code, status_name in _STATUS_NAMES.items() if code in {status_code, status_name}), 503
    )
    message = failure.get("message") or "The model is overloaded. Please try again later."
    return error_body(HttpError(status, str(message)))
