"""Errors as answers."""

import json

import pytest

from durable_agent_host.errors import DiskFullError, LogError
from durable_agent_host.http.problem_details import problem_of_error, problem_of_outcome


def body_of(answer):
    assert answer.media_type == "application/problem+json"
    body = json.loads(bytes(answer.body))
    assert body["status"] == answer.status_code
    assert body["error"] == body["detail"]
    assert body["title"]
    return body


@pytest.mark.parametrize("error", [ValueError("secret path"), OSError("secret path"), KeyError("secret path")])
def test_what_is_unexpected_shows_no_internals(error):
    """An error that is not ours is a 500 without its text, a ValueError too."""
    answer = problem_of_error(error)
    assert answer.status_code == 500
    assert "secret" not in bytes(answer.body).decode()
    body_of(answer)


def test_what_the_service_asks_for_is_passed_on():
    """The model service's wait is the client's Retry-After."""
    answer = problem_of_outcome({"type": "ProviderError", "message": "slow", "retry_after_seconds": 7.0}, headers=None)
    assert answer.headers["Retry-After"] == "7"


@pytest.mark.parametrize(
    ("error", "status", "retry_after"), [(LogError("a"), 503, "5"), (DiskFullError("a"), 507, None)]
)
def test_a_full_disk_does_not_ask_for_a_retry(error, status, retry_after):
    """A store that does not answer may do so in a moment; a disk needs somebody who makes room."""
    answer = problem_of_error(error)
    assert (answer.status_code, answer.headers.get("Retry-After")) == (status, retry_after)
