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
from typing import Any, Final, cast

from durable_agent_host.codec.strict_json import object_at, value_at
from durable_agent_host.errors import ProviderError
from durable_agent_host.model.budget import known_counts

_PASSING_STATUS: Final = frozenset({408, 409, 423, 424, 425, 429, 498})
"""Besides 5xx. 424 of TGI and Bedrock: the model failed; 498 of Groq: no capacity."""

_TRANSPORT_ERRORS: Final = frozenset(
    {
        *("TransportError", "StreamError", "DecodingError"),  # httpx
        *("ClientConnectionError", "ClientPayloadError", "ServerTimeoutError"),  # aiohttp
        *("ServiceRequestError", "ServiceResponseError", "IncompleteReadError"),  # azure.core
        *("HTTPClientError", "IncompleteReadError"),  # botocore
        *("ChunkedEncodingError", "ProtocolError", "ReadTimeoutError"),  # requests, urllib3
        *("APIConnectionError", "APITimeoutError"),  # openai, anthropic
        *("IncompleteRead", "RemoteDisconnected"),  # http.client
    }
)
"""Base classes of connection errors."""

_NEVER_PASSING: Final = frozenset({"UnsupportedProtocol", "TooManyRedirects", "InvalidURL", "LocalProtocolError"})

_PASSING_CODES: Final = frozenset(
    {
        *("overloaded_error", "api_error", "rate_limit_error", "timeout_error"),  # Anthropic
        *("server_error", "rate_limit_exceeded", "server_is_overloaded", "slow_down"),  # OpenAI
        *("unavailable", "resource_exhausted", "internal", "deadline_exceeded", "aborted"),  # Google
        "tool_use_failed",  # Groq: the model has written a call that cannot be read
    }
)
_LOCKED: Final = re.compile(
    r"conversation_locked|another (?:process|request|run) is (?:already|currently)"  # OpenAI
    r"|already has an active run|while a run \S+ is active"  # OpenAI's and Azure's threads
    r"|(?:conversation|thread|session) is (?:currently |already )?(?:busy|locked|running|in use)",  # Letta, LangGraph
    re.IGNORECASE,
)
"""How services say that another call works on the conversation, some of them with 400."""
_NAMED_WAIT: Final = re.compile(
    r"(?:retry|try again) (?:after|in) "
    r"((?:\d+(?:\.\d+)? ?(?:ms|h(?:ours?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)(?![a-z]) ?)+)",
    re.IGNORECASE,
)
"""Azure: "retry after 45 seconds"; OpenAI and Groq: "try again in 1m2.5s"."""
_UNITS: Final = {"ms": 0.001, "h": 3600.0, "m": 60.0, "s": 1.0}
_MOST_DEPTH: Final = 4

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
        The advice of the first cause that gives any; None when neither a service nor a connection failed.
    """
    for cause in causes_of(error):
        names = {kind.__name__ for kind in type(cause).__mro__}
        if names & _NEVER_PASSING:
            return RetryDecision(retryable=False)
        if _is_no_http(cause):
            return RetryDecision(retryable=True)
        status = _find_status(cause)
        code = _find_code(cause)
        if status is not None or code in _PASSING_CODES or _is_stream_error(cause):
            headers = _extract_headers(cause)
            is_passing = status in _PASSING_STATUS or (status or 0) >= 500  # noqa: PLR2004
            message = extract_message(cause)
            if code in _PASSING_CODES and not (status and code == "api_error"):  # Ollama has it with any status
                is_passing = True
            is_passing = is_passing or _LOCKED.search(f"{code} {message}") is not None
            retryable = is_passing and code != "insufficient_quota"
            if (should_retry := str(headers.get("x-should-retry", "")).lower()) in {"true", "false"}:
                retryable = should_retry == "true"
            wait_seconds = retry_after_of(headers) or _detailed_wait(cause) or named_wait(message)
            return RetryDecision(retryable, wait_seconds, status, message)
        if isinstance(cause, ConnectionError | TimeoutError) or names & _TRANSPORT_ERRORS or _is_of_requests(cause):
            return RetryDecision(retryable=True)
    return None


def retry_after_of(headers: Mapping[str, Any]) -> float | None:
    """Parse the wait that a service requests.

    Returns:
        Seconds, at least 0; None when the headers give none.
    """
    for name, divisor in (("retry-after-ms", 1000), ("x-ms-retry-after-ms", 1000), ("retry-after", 1)):
        seconds = _parse_seconds(headers.get(name))
        if seconds is not None:
            return seconds / divisor
    text = headers.get("retry-after")
    try:
        date = parsedate_to_datetime(str(text)) if text else None
    except (TypeError, ValueError):
        return None
    return max(date.timestamp() - time.time(), 0.0) if date is not None else None


def _parse_seconds(text: Any) -> float | None:
    try:
        seconds = float(text)
    except (TypeError, ValueError):
        return None
    return seconds if seconds >= 0 else None  # infinity is a valid wait: nobody waits so long


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


def _find_code(error: BaseException) -> str:
    """Return the service's error code, in lower case; a stream's error may have it in place of a status."""
    for holder in (getattr(error, "body", None), getattr(error, "details", None)):
        if isinstance(holder, Mapping):
            fields = cast("Mapping[str, Any]", holder)
            inner = value_at(fields, "error") or fields
            for name in ("code", "status", "type"):
                code = value_at(inner, name)
                if isinstance(code, str) and code.lower() in _PASSING_CODES:
                    return code.lower()
    code: Any = getattr(error, "code", None)
    return code.lower() if isinstance(code, str) else ""


def _is_stream_error(error: BaseException) -> bool:
    """Return whether the service reported it within an answer that had begun with 200, as Anthropic does."""
    body: Any = getattr(error, "body", None)
    return isinstance(getattr(error, "status_code", None), int) and isinstance(value_at(body, "error"), Mapping)


def _extract_headers(error: BaseException) -> Mapping[str, Any]:
    response: Any = getattr(error, "response", None)
    headers: Any = getattr(response, "headers", None) or getattr(error, "headers", None)
    if headers is None and isinstance(response, Mapping):
        headers = value_at(cast("Mapping[str, Any]", response), "ResponseMetadata", "HTTPHeaders")
    items: Any = getattr(headers, "items", None)
    pairs = cast("Iterable[tuple[Any, Any]]", items()) if callable(items) else ()
    return {str(name).lower(): value for name, value in pairs}


def _detailed_wait(error: BaseException) -> float | None:
    """Parse the ``retryDelay`` of Google's ``RetryInfo``, such as ``"12s"``."""
    pending: list[tuple[Any, int]] = [(getattr(error, name, None), 0) for name in ("details", "body")]
    while pending:
        value, depth = pending.pop(0)
        if isinstance(value, Mapping):
            fields = cast("Mapping[str, Any]", value)
            delay = fields.get("retryDelay")
            if isinstance(delay, str) and re.fullmatch(r"\d+(?:\.\d+)?s", delay):
                return float(delay[:-1])
            inner: list[Any] = list(fields.values())
        elif isinstance(value, list):
            inner = cast("list[Any]", value)
        else:
            continue
        if depth < _MOST_DEPTH:
            pending += [(child, depth + 1) for child in inner]
    return None


def named_wait(message: str) -> float | None:
    """Parse the wait that a service asks for in its message; None when it names none."""
    match = _NAMED_WAIT.search(message)
    if match is None:
        return None
    parts: list[tuple[str, str]] = re.findall(r"([\d.]+) ?(ms|h|m|s)", match[1].lower())
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


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
                codes = (holder.get(code) for code in ("code", "error_code", "status_code"))
                raw = value_at(holder, "metadata", "raw")
                return next((code for code in codes if code is not None), None), f"{message}: {raw}" if raw else message
    return None, ""


def _is_no_http(error: BaseException) -> bool:
    """Return whether aiohttp could not read what came, and gave the error the status 400 itself."""
    kinds = (*type(error).__mro__, *type(error.__cause__).__mro__)
    return any(kind.__name__ == "HttpProcessingError" for kind in kinds)


def _is_of_requests(error: BaseException) -> bool:
    """Return whether it is the ``ConnectionError`` or ``Timeout`` of requests, or botocore's, named as Python's own."""
    kind = type(error)
    return kind.__module__.partition(".")[0] in {"requests", "botocore", "urllib3"} and bool(
        {"ConnectionError", "Timeout", "ConnectTimeoutError", "EndpointConnectionError"}
        & {base.__name__ for base in kind.__mro__}
    )


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
