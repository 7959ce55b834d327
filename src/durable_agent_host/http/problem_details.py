"""Errors as answers: the only place that knows the status codes of errors."""

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from azurefunctions.extensions.http.fastapi import Response

from durable_agent_host import errors
from durable_agent_host.codec.strict_json import encode_strict
from durable_agent_host.turn.error_texts import format_problem

_STATUS: Final[tuple[tuple[type[Exception], HTTPStatus], ...]] = (
    (errors.NotFoundError, HTTPStatus.NOT_FOUND),
    (errors.ForbiddenError, HTTPStatus.FORBIDDEN),
    (errors.TooManyRequestsError, HTTPStatus.TOO_MANY_REQUESTS),
    (errors.RequestTooLargeError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (errors.IdempotencyKeyReusedError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (errors.HistoryElsewhereError, HTTPStatus.NOT_IMPLEMENTED),
    (errors.RequestError, HTTPStatus.BAD_REQUEST),
    (errors.EncryptionKeyError, HTTPStatus.SERVICE_UNAVAILABLE),
    (errors.StateError, HTTPStatus.CONFLICT),
    (errors.DiskFullError, HTTPStatus.INSUFFICIENT_STORAGE),
    (errors.LogError, HTTPStatus.SERVICE_UNAVAILABLE),
    (errors.TurnTimedOutError, HTTPStatus.GATEWAY_TIMEOUT),
    (errors.TurnRejectedError, HTTPStatus.CONFLICT),
    (errors.TurnError, HTTPStatus.BAD_GATEWAY),
)

_STATUS_OF_OUTCOME: Final[Mapping[str, HTTPStatus]] = {
    "RequestError": HTTPStatus.BAD_REQUEST,
    "NotFoundError": HTTPStatus.NOT_FOUND,
    "DiskFullError": HTTPStatus.INSUFFICIENT_STORAGE,
    "LogUnavailableError": HTTPStatus.SERVICE_UNAVAILABLE,
    "LogError": HTTPStatus.SERVICE_UNAVAILABLE,
    "TurnRejectedError": HTTPStatus.CONFLICT,
    "TurnCancelledError": HTTPStatus.CONFLICT,
    "IdempotencyKeyReusedError": HTTPStatus.UNPROCESSABLE_ENTITY,
    "AnswerGoneError": HTTPStatus.GONE,
    "QueueFullError": HTTPStatus.TOO_MANY_REQUESTS,
    "BudgetExceededError": HTTPStatus.PAYMENT_REQUIRED,
    "RequestBlockedError": HTTPStatus.UNPROCESSABLE_ENTITY,
    "UnknownSchemaVersionError": HTTPStatus.CONFLICT,
    "CorruptStateError": HTTPStatus.CONFLICT,
    "EncryptionKeyError": HTTPStatus.SERVICE_UNAVAILABLE,
}

QUEUE_FULL_RETRY_SECONDS: Final = 5
LOG_RETRY_SECONDS: Final = 5


def problem(status: HTTPStatus, detail: str, *, headers: Mapping[str, str] | None = None, **members: Any) -> Response:
    """Make an answer of type ``application/problem+json``.

    Returns:
        The answer; its ``error`` repeats the detail, for clients written for upstream. Source: RFC 9457.
    """
    body = encode_strict(_body(status, detail, **members))
    return Response(body, int(status), headers, media_type="application/problem+json")


def problem_of_error(error: Exception, *, headers: Mapping[str, str] | None = None, **members: Any) -> Response:
    """Answer with the message of one of our errors; any other is a 500 without its text."""
    if isinstance(error, errors.LogUnavailableError):
        headers = {"Retry-After": str(LOG_RETRY_SECONDS), **(headers or {})}
    if isinstance(error, errors.TooManyRequestsError):
        headers = {"Retry-After": str(math.ceil(error.retry_after_seconds)), **(headers or {})}
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return problem(status, format_problem(error), headers=headers, **members)
    return problem(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        errors.HOST_FAILED,
        headers=headers,
        **members,
    )


def problem_of_outcome(
    failure: Mapping[str, Any], *, headers: Mapping[str, str] | None = None, **members: Any
) -> Response:
    """Explain why a turn has no answer.

    Returns:
        400, 402, 409, 410, 422, 429 with ``Retry-After``, 502, or 503, with ``Retry-After`` when the turn has not
        begun.
    """
    status = _status_of_outcome(failure)
    retry_after = failure.get("retry_after_seconds")
    if status is HTTPStatus.TOO_MANY_REQUESTS:
        retry_after = QUEUE_FULL_RETRY_SECONDS
    if failure.get("type") == "LogUnavailableError":
        retry_after = LOG_RETRY_SECONDS
    more = {"Retry-After": f"{retry_after:g}"} if retry_after else {}
    return problem(
        status, str(failure.get("message")), headers={**(headers or {}), **more}, **_policy_of(failure), **members
    )


def problem_body(failure: Mapping[str, Any], **members: Any) -> dict[str, Any]:
    """Return the problem of a turn that has no answer, for a stream.

    Returns:
        The body that `problem_of_outcome` answers with.
    """
    return _body(_status_of_outcome(failure), str(failure.get("message")), **_policy_of(failure), **members)


def _policy_of(failure: Mapping[str, Any]) -> dict[str, Any]:
    """Return which policy of the model's service has blocked the request."""
    return {"category": failure["category"]} if failure.get("category") else {}


def _status_of_outcome(failure: Mapping[str, Any]) -> HTTPStatus:
    return _STATUS_OF_OUTCOME.get(str(failure.get("type")), HTTPStatus.BAD_GATEWAY)


def _body(status: HTTPStatus, detail: str, **members: Any) -> dict[str, Any]:
    body = {"type": "about:blank", "title": status.phrase, "status": int(status), "detail": detail, "error": detail}
    return body | members
