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
"""Status → the type of its error."""

_KINDS = {"server_error": "api_error", "rate_limit_exceeded": "rate_limit_error", "server_is_overloaded": TYPES[529]}
"""OpenAI's names of failures → those of this API."""


def error_body(error: HttpError) -> Json:
    """Return the body of an error. Guarantee: pure.

    Args:
        error: its ``code`` names the type where it is one of this API's.
    """
    kind = error.code if error.code in TYPES.values() else TYPES.get(error.status)
    kind = kind or (TYPES[400] if error.status < 500 else TYPES[500])  # noqa: PLR2004
    return {"type": "error", "error": {"type": kind, "message": error.message}}


def error_event(code: str | None, message: str | None) -> Json:
    """Return the event that ends a stream with a failure. Guarantee: pure.

    Args:
        code: of this API, or of OpenAI's.
        message: for people.
    """
    kind = _KINDS.get(code or "", code or TYPES[500])
    return {"type": "error", "error": {"type": kind, "message": message or "Internal server error"}}
