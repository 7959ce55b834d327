"""Which failed model calls are made again, and when."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx2 as httpx
import openai
import pytest
from agent_framework.exceptions import ChatClientException

from durable_agent_host.agent.retry_classification import RetryPolicy
from durable_agent_host.errors import ProviderError
from durable_agent_host.providers.openai.provider import RESPONSES

POLICY = RetryPolicy(retries=3, first_seconds=1, most_seconds=10)
REQUEST = httpx.Request("POST", "http://model")


def status_error(status: int, body: object = None, **headers: str) -> openai.APIStatusError:
    """An error of the SDK."""
    response = httpx.Response(status, request=REQUEST, headers={k.replace("_", "-"): v for k, v in headers.items()})
    return openai.APIStatusError("refused", response=response, body=body)


class OfAnotherSdkError(Exception):
    """What SDKs of other providers raise has a status and a response, too."""

    def __init__(self, status: int, **headers: str) -> None:
        super().__init__("refused")
        self.status_code = status
        self.response = httpx.Response(status, headers={k.replace("_", "-"): v for k, v in headers.items()})


class OfGoogleError(Exception):
    """The errors of google.genai and google.api_core have a ``code``, and waits in their details."""

    def __init__(self, code: int, wait: str = "") -> None:
        super().__init__("refused")
        self.code = code
        self.details = {"error": {"details": [{"@type": "RetryInfo", "retryDelay": wait}] if wait else []}}


class OfAwsError(Exception):
    """The errors of botocore have a dictionary as their response."""

    def __init__(self, status: int, **headers: str) -> None:
        super().__init__("refused")
        header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": header_fields}}


class ServiceRequestError(Exception):
    """What azure.core raises when a connection cannot be made."""


class OfAnthropicStreamError(Exception):
    """What Anthropic's SDK raises in the middle of a stream that began with 200."""

    status_code = 200

    def __init__(self, kind: str) -> None:
        super().__init__("refused")
        self.body = {"type": "error", "error": {"type": kind, "message": "no"}}


def in_seconds(seconds: float) -> str:
    """Write a date as HTTP does."""
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


def raise_from(by: BaseException) -> Exception:
    """The framework's own error around another."""
    error = RuntimeError("service failed")
    error.__cause__ = by
    return error


def service_failed(by: Exception) -> ChatClientException:
    """What the framework's client makes of whatever happens while it reads a stream."""
    error = ChatClientException("service failed", inner_exception=by)
    error.__cause__ = by
    return error


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (status_error(429), 1),
        (status_error(429, retry_after="7"), 7),
        (status_error(429, retry_after="11"), None),
        (status_error(429, [{"error": {"details": [{"retryDelay": "7s"}]}}]), 7),
        (status_error(400, {"code": "conversation_locked", "message": "Another process"}), 1),
        (status_error(423), 1),
        (status_error(500), 1),
        (status_error(503), 1),
        *((status_error(status), None) for status in (400, 401, 403, 404, 422)),
        (raise_from(status_error(502)), 1),
        (openai.APIConnectionError(request=REQUEST), 1),
        (raise_from(httpx.RemoteProtocolError("peer closed connection")), 1),
        (ConnectionResetError(), 1),
        (TimeoutError(), 1),
        (ProviderError("cut off", retryable=True), 1),
        (ProviderError("no", retryable=False), None),
        (OfAnotherSdkError(529), 1),
        (OfAnotherSdkError(429, retry_after="5"), 5),
        (OfAnotherSdkError(404), None),
        (status_error(429, retry_after=in_seconds(7 * 24 * 3600)), None),
        (status_error(429, retry_after=in_seconds(-5)), 1),
        (status_error(429, retry_after="soon"), 1),
        (status_error(307, location="https://elsewhere"), None),
        (OfGoogleError(429), 1),
        (OfGoogleError(503, "7.5s"), 7.5),
        (OfGoogleError(429, "41s"), None),
        (OfGoogleError(400), None),
        (raise_from(OfGoogleError(500)), 1),
        (OfAwsError(429), 1),
        (OfAwsError(503, retry_after="4"), 4),
        (OfAwsError(400), None),
        (ServiceRequestError("cannot connect"), 1),
        (service_failed(OfAnthropicStreamError("overloaded_error")), 1),
        (service_failed(OfAnthropicStreamError("invalid_request_error")), None),
        (TypeError("stream is no argument"), None),
        (ValueError("429"), None),
        (service_failed(ProviderError("cut off", retryable=True)), 1),
        (service_failed(json.JSONDecodeError("Expecting value", "{", 1)), 1),
        (json.JSONDecodeError("Expecting value", "{", 1), None),
    ],
)
def test_what_can_pass_is_retried(error, seconds):
    """Throttling, server errors and broken connections are retried, as late as the service asks; nothing else is."""
    assert POLICY.wait_before(0, error, RESPONSES.explain, 1.0) == seconds


def test_delays_grow_and_are_limited():
    """Each wait is twice the one before, up to the longest, and half of it is chance; then it is enough."""
    policy = RetryPolicy(retries=5, first_seconds=1, most_seconds=5)
    error = ConnectionResetError()
    assert [policy.wait_before(n, error, RESPONSES.explain, 1.0) for n in range(6)] == [1, 2, 4, 5, 5, None]
    assert [policy.wait_before(n, error, RESPONSES.explain, 0.0) for n in range(3)] == [0.5, 1, 2]
