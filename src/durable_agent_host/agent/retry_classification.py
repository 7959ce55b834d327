"""Decides from an error of a model call whether to retry, by what the providers' SDKs have in common.

No SDK is imported: a status is an attribute with one of a few names, a wait is a header or a detail in one of a few
forms, and a broken connection has a base class with a known name.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final, cast

from durable_agent_host.codec.strict_json import object_at, value_at
from durable_agent_host.errors import ProviderError
from durable_agent_host.model.budget import known_counts

_PASSING_STATUS: Final = frozenset({408, 409, 423, 424, 425, 429, 498, 499})
"""Besides 5xx. 424 of TGI and Bedrock: the model failed; 498 of Groq: no capacity; 499 of Google: cancelled there."""

_CONNECTION_ERRORS: Final = frozenset(
    {
        *("ConnectionError", "TimeoutError", "IncompleteRead"),  # Python, requests
        *("TransportError", "DecodingError"),  # httpx
        *("ClientConnectionError", "ClientPayloadError"),  # aiohttp
        *("ServiceRequestError", "ServiceResponseError", "IncompleteReadError"),  # azure.core
        *("HTTPClientError", "ConnectTimeoutError", "EndpointConnectionError"),  # botocore
        *("Timeout", "ChunkedEncodingError", "ProtocolError"),  # requests, urllib3
        "APIConnectionError",  # openai, anthropic
    }
)
"""Base classes of connection errors."""

_LOCKED: Final = "conversation_locked"
"""OpenAI's code, with 400, while another call works on the conversation."""
_RETRY_DELAY: Final = re.compile(r'"retryDelay": "(\d+(?:\.\d+)?)s"')
"""In the details of Google's errors, which have no header for it."""

_MISSING_STATUS: Final = frozenset({404, 405, 410, 501})
"""The answer is not there, or the service does not return answers by id."""

_REJECTED_STATUS: Final = frozenset({400, 422})
_MISSING_RESPONSE: Final = re.compile(
    r"not found|not exist|no longer|expired|unknown|cannot be (?:streamed|retrieved)|not created", re.IGNORECASE
)
"""Messages of services that no longer have an answer; other refusals are about the request."""


@dataclass(frozen=True)
class RetryDecision:
    """What an error says about retrying the call.

    Attributes:
        retryable: whether a retry can succeed.
        retry_after_seconds: as requested by the service, or None.
        status: of the answer, or None without one.
        message: the service's message, or empty.
    """

    retryable: bool
    retry_after_seconds: float | None = None
    status: int | None = None
    message: str = ""

    @property
    def is_response_missing(self) -> bool:
        """Whether the service no longer has an answer that was requested by its id, or returns none by id."""
        return self.status in _MISSING_STATUS or (
            self.status in _REJECTED_STATUS and _MISSING_RESPONSE.search(self.message) is not None
        )


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """List an error and its causes, outermost first, each once."""
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def usage_of_failure(error: BaseException) -> Mapping[str, Any]:
    """Return the tokens that a service has counted for a request that failed; empty when it has counted none."""
    usages = (known_counts(cause.usage) for cause in causes_of(error) if isinstance(cause, ProviderError))
    return next(filter(None, usages), dict[str, Any]())


def classify_error(error: BaseException) -> RetryDecision | None:
    """Decide whether to retry a model call after an error.

    Returns:
        The advice of the first cause that has a status or is of the connection; None when there is none.
    """
    for cause in causes_of(error):
        status = _find_status(cause)
        if status is not None:
            code: Any = getattr(cause, "code", None)
            is_passing = is_passing_status(status) or code == _LOCKED
            wait_seconds = _find_wait(_extract_headers(cause)) or _find_delay(cause)
            retryable = is_passing and code != "insufficient_quota"
            return RetryDecision(retryable, wait_seconds, status, extract_message(cause))
        if _CONNECTION_ERRORS & {kind.__name__ for kind in type(cause).__mro__}:
            return RetryDecision(retryable=True, message=str(cause))
    return None


def is_passing_status(status: int) -> bool:
    """Return whether the same call may succeed later."""
    return status in _PASSING_STATUS or status >= HTTPStatus.INTERNAL_SERVER_ERROR


def _find_wait(headers: Mapping[str, Any]) -> float | None:
    """Return the seconds that ``Retry-After`` has, as a number or a date."""
    text = headers.get("retry-after")
    try:
        seconds = float(text or "none")
    except ValueError:
        try:
            seconds = parsedate_to_datetime(str(text)).timestamp() - time.time()
        except ValueError:
            return None
    return max(seconds, 0.0)


def _find_status(error: BaseException) -> int | None:
    """Return the HTTP status: of openai, anthropic, azure.core; google.genai and google.api_core; aiohttp; botocore."""
    for name in ("status_code", "code", "status", "http_status"):
        value: Any = getattr(error, name, None)
        if isinstance(value, int) and not isinstance(value, bool) and 300 <= value < 600:  # noqa: PLR2004
            return int(value)
    response: Any = getattr(error, "response", None)
    if isinstance(response, Mapping):
        answer = cast("Mapping[str, Any]", response)
        value = value_at(answer, "ResponseMetadata", "HTTPStatusCode")
    else:
        value = getattr(response, "status_code", None)
    return value if isinstance(value, int) and 300 <= value < 600 else None  # noqa: PLR2004


def _extract_headers(error: BaseException) -> Mapping[str, Any]:
    response: Any = getattr(error, "response", None)
    headers: Any = getattr(response, "headers", None) or getattr(error, "headers", None)
    if headers is None and isinstance(response, Mapping):
        headers = value_at(cast("Mapping[str, Any]", response), "ResponseMetadata", "HTTPHeaders")
    items: Any = getattr(headers, "items", None)
    pairs = cast("Iterable[tuple[Any, Any]]", items()) if callable(items) else ()
    return {str(name).lower(): value for name, value in pairs}


def _find_delay(error: BaseException) -> float | None:
    details = [getattr(error, name, None) for name in ("details", "body")]
    match = _RETRY_DELAY.search(json.dumps(details, default=str))
    return float(match[1]) if match is not None else None


def extract_message(error: BaseException) -> str:
    """Return what the service says in the body of an SDK's error; otherwise the message of the error."""
    body: Any = getattr(error, "body", None)
    message = read_failure(body)[1] or (json.dumps(body, default=str) if body and not isinstance(body, str) else "")
    azure_error: Any = getattr(error, "error", None)
    return str(message or getattr(azure_error, "message", None) or getattr(error, "message", None) or error)


_MESSAGES: Final = ("error", "message", "detail", "error_msg", "status_msg")


def read_failure(body: Any) -> tuple[Any, str]:
    """Return code and message of a failure in the forms of services; the message is empty without one.

    The forms: an object or a text as ``error``, ``message`` of vLLM and DashScope, ``detail`` of FastAPI, ``errors`` of
    Cloudflare and watsonx, ``error_msg`` of Baidu, ``base_resp`` of MiniMax, which successes have as well, a list of
    Gemini's. OpenRouter adds as ``metadata.raw`` what the service behind it says.
    """
    if isinstance(body, list):
        return read_failure(next(iter(cast("list[Any]", body)), None))
    if isinstance(body, str):
        return None, "" if body.startswith("<") else body
    fields = object_at(body)
    if isinstance(errors := fields.get("errors"), list):
        return read_failure(errors)
    base = object_at(fields, "base_resp")
    for holder in (object_at(fields, "error"), fields, base if base.get("status_code") else {}):
        for name in _MESSAGES:
            if isinstance(message := holder.get(name), str) and message:
                codes = (holder.get(code) for code in ("code", "error_code", "status_code", "type"))
                raw = value_at(holder, "metadata", "raw")
                return next((code for code in codes if code is not None), None), f"{message}: {raw}" if raw else message
    return None, ""


@dataclass(frozen=True)
class RetryPolicy:
    """How often a model call is retried, and how long to wait.

    Attributes:
        retries: calls after the first.
        first_seconds: the backoff before the first retry, with jitter from half to all of it; doubled each time.
        most_seconds: the maximum; when a service asks for a longer wait, the turn waits for it without a process.
    """

    retries: int = 4
    first_seconds: float = 0.5
    most_seconds: float = 30.0

    def wait_before(
        self, retry: int, error: BaseException, explain: Callable[[BaseException], ProviderError | None], chance: float
    ) -> float | None:
        """Decide whether a failed model call is retried.

        Returns:
            Seconds to wait, or None for no retry: 400, 401, 403, 404 and errors of the program are never retried.
        """
        decision = (error if isinstance(error, ProviderError) else explain(error)) or classify_error(error)
        if decision is None or not decision.retryable or retry >= self.retries:
            return None
        after = decision.retry_after_seconds or 0.0
        if after > self.most_seconds:
            return None
        backoff = min(self.first_seconds * 2**retry, self.most_seconds) * (0.5 + chance / 2)
        return max(backoff, after)

    def long_wait(self, error: BaseException, explain: Callable[[BaseException], ProviderError | None]) -> float | None:
        """Return how long a service asks to wait, when that is longer than `most_seconds`; otherwise None."""
        decision = (error if isinstance(error, ProviderError) else explain(error)) or classify_error(error)
        after = decision.retry_after_seconds if decision is not None and decision.retryable else None
        return after if after is not None and after > self.most_seconds else None
