"""Explains the errors that all chat clients of the framework have in common."""

import json
from typing import Final

from agent_framework.exceptions import ChatClientException, ResponseInvalidatedException

from durable_agent_host.agent.model_errors import Advice, advice_of, causes_of
from durable_agent_host.errors import ProviderError

REDIRECTED: Final = "it redirects, and the conversation was not sent there: check the endpoint's address"
"""What to do about a status below 400."""

_ADVICE: Final = {
    401: "check the key",
    403: "check that the key may use this model",
    404: "check the model's name and the endpoint",
    429: "wait and try again, or raise the quota",
}


def explain_client_error(error: BaseException) -> ProviderError | None:
    """Explain in a sentence why a model call failed, and what to do.

    Guarantee: pure, except for dates, which are compared with the clock.

    Args:
        error: raised by the agent; its causes are searched for the error of a chat client.

    Returns:
        The explanation; None when no chat client failed, or the cause is unknown.
    """
    causes = list(causes_of(error))
    if (explained := next((one for one in causes if isinstance(one, ProviderError)), None)) is not None:
        return explained
    if _holds_no_json(error):
        return ProviderError("the model's service sent an event that is not JSON; try again", retryable=True)
    failed = next((one for one in causes if isinstance(one, ChatClientException)), None)
    if failed is None:
        return None
    if _redirects_in_circles(error):
        return ProviderError("the model's endpoint redirects in a circle: check its address", retryable=False)
    if (advice := advice_of(failed)) is not None:
        return _explained(advice)
    if isinstance(failed, ResponseInvalidatedException) and "message_stop" in str(failed):
        return ProviderError("the model's stream ended before the answer was complete; try again", retryable=True)
    return None


def says_enough(error: BaseException) -> bool:
    """Return whether no SDK's own error says more than `explain_client_error`. Guarantee: pure."""
    is_explained = any(isinstance(one, ProviderError) for one in causes_of(error))
    return is_explained or _holds_no_json(error) or _redirects_in_circles(error)


def _holds_no_json(error: BaseException) -> bool:
    causes = causes_of(error)
    return isinstance(error, ChatClientException) and any(isinstance(one, json.JSONDecodeError) for one in causes)


def _redirects_in_circles(error: BaseException) -> bool:
    return any(type(one).__name__ == "TooManyRedirects" for one in causes_of(error))


def _explained(advice: Advice) -> ProviderError:
    if advice.status is None and not advice.said:
        return ProviderError(
            "the model's endpoint cannot be reached, or broke the connection; try again", retryable=True
        )
    how = f"refused the call with {advice.status}" if advice.status else "failed in the middle of its answer"
    default = "try again" if advice.retryable else "check the request and the model's name"
    if advice.status is not None and advice.status < 400:  # noqa: PLR2004
        default = REDIRECTED
    todo = _ADVICE.get(advice.status or 0, default)
    return ProviderError(
        f"the model's service {how}: {advice.said.rstrip('. ') or 'no reason was given'} - {todo}",
        retryable=advice.retryable,
        retry_after_seconds=advice.retry_after_seconds,
    )
