"""Errors of the Messages API."""

from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import Json

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""Status code → error type."""

_TYPES_BY_OPENAI_CODE = {
    "server_error": "api_error",
    "rate_limit_exceeded": "rate_limit_error",
    "server_is_overloaded": TYPES[529],
}
"""OpenAI's error codes → error types of this API."""


def error_body(error: HttpError) -> Json:
    """Return the body of an error.

    Args:
        error: its ``code`` is the error type if it is one of this API's.
    """
    kind = error.code if error.code in TYPES.values() else TYPES.get(error.status)
    kind = kind or (TYPES[400] if error.status < 500 else TYPES[500])
    return {"type": "error", "error": {"type": kind, "message": error.message}}


def error_event(code: str | None, message: str | None) -> Json:
    """Return the event that ends a stream with a failure.

    Args:
        code: error type of this API, or OpenAI's error code.
        message: text for people.
    """
    kind = _TYPES_BY_OPENAI_CODE.get(code or "", code or TYPES[500])
    return {"type": "error", "error": {"type": kind, "message": message or "Internal server error"}}
