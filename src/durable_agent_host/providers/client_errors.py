"""Explains the errors that all chat clients of the framework have in common."""

import json
from typing import Final

from agent_framework.exceptions import ChatClientException, ResponseInvalidatedException

from durable_agent_host.agent.retry_classification import RetryDecision, causes_of, classify_error
from durable_agent_host.errors import ProviderError

REDIRECTED: Final = "it redirects, and the conversation was not sent there: check the endpoint's address"
"""What to do about a status below 400."""

_HINTS: Final = {
    401: "check the key",
    403: "check that the key may use this model",
    404: "check the model's name and the endpoint",
    429: "wait and try again, or raise the quota",
}


def explain_client_error(error: BaseException) -> ProviderError | None:
    """Explain in one sentence why a model call failed, and what to do.

    Returns:
        The explanation; None when no chat client failed, or the cause is unknown.
    """
    causes = list(causes_of(error))
    if (provider_error := next((cause for cause in causes if isinstance(cause, ProviderError)), None)) is not None:
        return provider_error
    if _is_invalid_json(error):
        return ProviderError("the model's service sent an event that is not JSON; try again", retryable=True)
    client_error = next((cause for cause in causes if isinstance(cause, ChatClientException)), None)
    if client_error is None:
        return None
    if _is_redirect_loop(error):
        return ProviderError("the model's endpoint redirects in a circle: check its address", retryable=False)
    if (retry_decision := classify_error(client_error)) is not None:
        return _explain_decision(retry_decision)
    if isinstance(client_error, ResponseInvalidatedException) and "message_stop" in str(client_error):
        return ProviderError("the model's stream ended before the response was complete; try again", retryable=True)
    return None


def is_explained(error: BaseException) -> bool:
    """Return whether `explain_client_error` explains an error better than any SDK's error."""
    has_provider_error = any(isinstance(cause, ProviderError) for cause in causes_of(error))
    return has_provider_error or _is_invalid_json(error) or _is_redirect_loop(error)


def _is_invalid_json(error: BaseException) -> bool:
    causes = causes_of(error)
    return isinstance(error, ChatClientException) and any(isinstance(cause, json.JSONDecodeError) for cause in causes)


def _is_redirect_loop(error: BaseException) -> bool:
    return any(type(cause).__name__ == "TooManyRedirects" for cause in causes_of(error))


def _explain_decision(retry_decision: RetryDecision) -> ProviderError:
    if retry_decision.status is None and not retry_decision.message:
        return ProviderError(
            "the model's endpoint cannot be reached, or broke the connection; try again", retryable=True
        )
    failure = (
        f"rejected the call with {retry_decision.status}" if retry_decision.status else "failed during its response"
    )
    default = "try again" if retry_decision.retryable else "check the request and the model's name"
    if retry_decision.status is not None and retry_decision.status < 400:  # noqa: PLR2004
        default = REDIRECTED
    hint = _HINTS.get(retry_decision.status or 0, default)
    return ProviderError(
        f"the model's service {failure}: {retry_decision.message.rstrip('. ') or 'no reason was given'} - {hint}",
        retryable=retry_decision.retryable,
        retry_after_seconds=retry_decision.retry_after_seconds,
    )
