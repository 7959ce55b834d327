"""Errors of Anthropic's SDK: how to fix them, and which of them a turn recovers from."""

import re
import sys
from collections.abc import Mapping
from typing import Any, Final, cast

from durable_agent_host.agent.retry_classification import causes_of, classify_error
from durable_agent_host.errors import ProviderError
from durable_agent_host.model.provider_item import LostState
from durable_agent_host.providers.client_errors import explain_client_error, is_explained

_HINTS: Final[dict[str, str]] = {
    "authentication_error": "check ANTHROPIC_API_KEY",
    "permission_error": "check that the key may use this model",
    "not_found_error": "check the model's name and the endpoint",
    "request_too_large": "send less, or start a new session",
    "rate_limit_error": "wait and try again, or raise the quota",
    "overloaded_error": "try again",
    "api_error": "try again",
    "timeout_error": "try again, or ask for a shorter response",
    "billing_error": "check the plan and the credit of the account",
    "invalid_request_error": "check the request and the model's name",
}
"""Type of error → what to do. Source: the API's page on errors."""

_CONTAINER_EXPIRED: Final = re.compile(
    r"container\b.*?(?:not found|expired|does not exist|no longer|invalid|unknown)"
    r"|(?:not find|expired|unknown) container",
    re.IGNORECASE | re.DOTALL,
)
_CONTAINER_ID: Final = re.compile(r"container_\w+")
_SIGNATURE_REJECTED: Final = re.compile(
    r"Invalid `?(?:signature|data)`?\s+in\s+`?(?:redacted_)?thinking`?\s+block", re.IGNORECASE
)
"""With marks in Anthropic's wording, without in Bedrock's (chenhg5/cc-connect#897, can1357/oh-my-pi#333)."""


def explain_error(error: BaseException) -> ProviderError | None:
    """Explain in one sentence why a model call failed, and what to do.

    Dates are compared with the clock.

    Args:
        error: raised by the agent; its causes are searched for the SDK's error.

    Returns:
        The explanation; None when no chat client failed, or the cause is unknown.
    """
    cause = _find_sdk_error(error)
    if cause is None:
        return _explain_truncated_call(error) or explain_client_error(error)
    if is_explained(error):
        return explain_client_error(error)
    kind, message = _parse_error(cause)
    retry_decision = classify_error(cause)
    if not kind:
        return explain_client_error(error)
    status: Any = getattr(cause, "status_code", None)
    in_stream = not isinstance(status, int) or status < 400  # noqa: PLR2004
    failure = "failed during its response" if in_stream else f"rejected the call with {status}"
    retryable = retry_decision is not None and retry_decision.retryable
    hint = _HINTS.get(kind, "try again" if retryable else "check the request and the model's name")
    return ProviderError(
        f"the model's service {failure}: {kind}: {message.rstrip('. ')} - {hint}",
        retryable=retryable,
        retry_after_seconds=retry_decision.retry_after_seconds if retry_decision is not None else None,
    )


def find_lost_state(error: BaseException) -> LostState | None:
    """Return what the service has lost, when it rejected a request for that reason.

    Args:
        error: raised by the agent.

    Returns:
        ``container`` when the container no longer exists; ``reasoning`` when it rejects a signature; else None.
    """
    cause: Any = _find_sdk_error(error)
    if getattr(cause, "status_code", None) not in {400, 404, 410}:
        return None
    _, message = _parse_error(cause)
    if _SIGNATURE_REJECTED.search(message):
        return LostState("reasoning")
    if _CONTAINER_EXPIRED.search(message):
        match = _CONTAINER_ID.search(message)
        return LostState("container", match[0] if match else "")
    return None


def _explain_truncated_call(error: BaseException) -> ProviderError | None:
    """Explain the framework's error when a response ends within a tool call."""
    invalid = next(
        (cause for cause in causes_of(error) if type(cause).__name__ == "ResponseInvalidatedException"), None
    )
    if invalid is None or "message_stop" in str(invalid) or classify_error(invalid) is not None:
        return None
    return ProviderError(
        "the model's response ended within a tool call, so the tool is not run: raise max_tokens, or ask for less",
        retryable=False,
    )


def _find_sdk_error(error: BaseException) -> BaseException | None:
    """Return the SDK's error among the causes, without loading the SDK: an SDK not loaded has not failed."""
    sdk: Any = sys.modules.get("anthropic")
    return next((cause for cause in causes_of(error) if isinstance(cause, sdk.AnthropicError)), None) if sdk else None


def _parse_error(cause: BaseException) -> tuple[str, str]:
    """Return the service's error type and message."""
    body: Any = getattr(cause, "body", None)
    error: Any = cast("Mapping[str, Any]", body).get("error") if isinstance(body, Mapping) else None
    if not isinstance(error, Mapping):
        return "", str(getattr(cause, "message", "") or cause)
    error_fields = cast("Mapping[str, Any]", error)
    return str(error_fields.get("type") or ""), str(error_fields.get("message") or getattr(cause, "message", ""))
