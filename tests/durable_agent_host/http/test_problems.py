"""Errors as answers."""

import json

import pytest

from durable_agent_host import errors
from durable_agent_host.http.problem_details import problem_of_error, problem_of_outcome

IDENTITY = {"turn_id": "turn-1"}


def body_of(answer):
    assert answer.media_type == "application/problem+json"
    body = json.loads(bytes(answer.body))
    assert body["status"] == answer.status_code
    assert body["error"] == body["detail"]
    assert body["title"]
    return body


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.RequestError("mend it"), 400),
        (errors.NotFoundError("not here"), 404),
        (errors.RequestTooLargeError("less"), 413),
        (errors.IdempotencyKeyReusedError("another"), 422),
        (errors.UnknownSchemaVersionError("9"), 409),
        (errors.CorruptStateError("broken"), 409),
        (errors.TurnRejectedError("busy"), 409),
        (errors.TurnTimedOutError("wait"), 504),
        (errors.ProviderError("down", retryable=True), 502),
        (errors.InvalidAnswerError("no JSON"), 502),
        (errors.TurnError("failed"), 502),
    ],
)
def test_every_error_class_has_a_status(error, status):
    """An error of the tree is answered with its status and its own sentence."""
    answer = problem_of_error(error, headers={"x-ms-turn-id": "turn-1"}, **IDENTITY)
    assert answer.status_code == status
    body = body_of(answer)
    assert body["detail"] == str(error)
    assert body["turn_id"] == "turn-1"
    assert answer.headers["x-ms-turn-id"] == "turn-1"


@pytest.mark.parametrize("error", [ValueError("secret path"), OSError("secret path"), KeyError("secret path")])
def test_what_is_unexpected_shows_no_internals(error):
    """An error that is not ours is a 500 without its text, a ValueError too."""
    answer = problem_of_error(error)
    assert answer.status_code == 500
    assert "secret" not in bytes(answer.body).decode()
    body_of(answer)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("RequestError", 400),
        ("TurnRejectedError", 409),
        ("UnknownSchemaVersionError", 409),
        ("CorruptStateError", 409),
        ("QueueFullError", 429),
        ("ProviderError", 502),
        ("InvalidAnswerError", 502),
        ("ValueError", 502),
        (None, 502),
    ],
)
def test_why_a_turn_has_no_answer(kind, status):
    """The end of a turn is answered with its status; a full queue says when to come back."""
    answer = problem_of_outcome({"type": kind, "message": "because"}, **IDENTITY)
    assert answer.status_code == status
    assert body_of(answer)["detail"] == "because"
    assert ("Retry-After" in answer.headers) is (status == 429)


def test_what_the_service_asks_for_is_passed_on():
    """The model service's wait is the client's Retry-After."""
    answer = problem_of_outcome({"type": "ProviderError", "message": "slow", "retry_after_seconds": 7.0})
    assert answer.headers["Retry-After"] == "7"
