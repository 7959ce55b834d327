"""Errors as answers: the only place that knows the status codes of errors."""

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, Unpack

from azurefunctions.extensions.http.fastapi import Response

from durable_agent_host import errors
from durable_agent_host.codec.strict_json import encode_strict
from durable_agent_host.turn.error_texts import format_problem
from durable_agent_host.turn.turn_events import ProblemTurnWire, ProblemWire

_STATUS: Final[tuple[tuple[type[Exception], HTTPStatus], ...]] = (
    (errors.NotFoundError, HTTPStatus.NOT_FOUND),
    (errors.ForbiddenError, HTTPStatus.FORBIDDEN),
    (errors.TooManyRequestsError, HTTPStatus.TOO_MANY_REQUESTS),
    (errors.RequestTooLargeError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (errors.BodyStalledError, HTTPStatus.REQUEST_TIMEOUT),
    (errors.UnsupportedTypeError, HTTPStatus.UNSUPPORTED_MEDIA_TYPE),
    (errors.IdempotencyKeyReusedError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (errors.HistoryElsewhereError, HTTPStatus.NOT_IMPLEMENTED),
    (errors.RequestError, HTTPStatus.BAD_REQUEST),
    (errors.EncryptionKeyError, HTTPStatus.SERVICE_UNAVAILABLE),
    (errors.StateError, HTTPStatus.CONFLICT),
    (errors.DiskFullError, HTTPStatus.INSUFFICIENT_STORAGE),
    (errors.LogError, HTTPStatus.SERVICE_UNAVAILABLE),
    (errors.AppFunctionTimeoutError, HTTPStatus.SERVICE_UNAVAILABLE),
    (errors.TurnTimedOutError, HTTPStatus.GATEWAY_TIMEOUT),
    (errors.TurnRejectedError, HTTPStatus.CONFLICT),
    (errors.TurnCancelledError, HTTPStatus.CONFLICT),
    (errors.AnswerGoneError, HTTPStatus.GONE),
    (errors.BudgetExceededError, HTTPStatus.PAYMENT_REQUIRED),
    (errors.RequestBlockedError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (errors.TurnError, HTTPStatus.BAD_GATEWAY),
)

PROBLEM: Final = "application/problem+json"
QUEUE_FULL_RETRY_SECONDS: Final = 5
LOG_RETRY_SECONDS: Final = 5


def problem(
    status: HTTPStatus,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    **members: Unpack[ProblemTurnWire],
) -> Response:
    """Make an answer of type ``application/problem+json``.

    Returns:
        The answer; its ``error`` repeats the detail, for clients written for upstream. Source: RFC 9457.
    """
    return problem_response(_body(status, detail, **members), headers)


def problem_response(body: ProblemWire, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with a problem."""
    return Response(encode_strict(body), body["status"], headers, media_type=PROBLEM)


def problem_of_error(
    error: Exception, *, headers: Mapping[str, str] | None = None, **members: Unpack[ProblemTurnWire]
) -> Response:
    """Answer with the message of one of our errors; any other is a 500 without its text."""
    if isinstance(error, errors.LogError | errors.AppFunctionTimeoutError) and not isinstance(
        error, errors.DiskFullError
    ):
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
    failure: Mapping[str, Any], *, headers: Mapping[str, str] | None, **members: Unpack[ProblemTurnWire]
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
    return problem_response(problem_body(failure, **members), {**(headers or {}), **more})


def problem_body(failure: Mapping[str, Any], **members: Unpack[ProblemTurnWire]) -> ProblemWire:
    """Return the problem of a turn that has no answer, for a stream.

    Returns:
        The body that `problem_of_outcome` answers with.
    """
    body = _body(_status_of_outcome(failure), str(failure.get("message")), **members)
    if failure.get("category"):
        body["category"] = failure["category"]
    return body


def _status_of_outcome(failure: Mapping[str, Any]) -> HTTPStatus:
    name = str(failure.get("type"))
    kind = errors.TooManyRequestsError if name == "QueueFullError" else getattr(errors, name, None)
    if not isinstance(kind, type):  # of the app's own, or of an imported session
        return HTTPStatus.BAD_GATEWAY
    return next((status for base, status in _STATUS if issubclass(kind, base)), HTTPStatus.BAD_GATEWAY)


def _body(status: HTTPStatus, detail: str, **members: Unpack[ProblemTurnWire]) -> ProblemWire:
    return {
        "type": "about:blank",
        "title": status.phrase,
        "status": int(status),
        "detail": detail,
        "error": detail,
        **members,
    }
