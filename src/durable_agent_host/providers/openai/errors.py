"""Errors of the OpenAI SDK: how to fix them, and which of them a turn recovers from."""

import re
import sys
from typing import Any, cast

from durable_agent_host.agent.retry_classification import RETRYABLE_STATUS, causes_of, classify_error
from durable_agent_host.errors import ProviderError
from durable_agent_host.model.provider_item import LostState
from durable_agent_host.providers.client_errors import explain_client_error, is_explained

_TRANSIENT_CODES = frozenset({"", "server_error", "rate_limit_exceeded", "server_is_overloaded", "slow_down"})
"""Codes of failures during a response that a retry may avoid; other codes concern the request."""

_CONTINUATION_NOT_FOUND = re.compile(r"(?:[Pp]revious response|Response|Conversation) with id '[^']*' not found")
_CALL_WITHOUT_OUTPUT = re.compile(r"No tool output found for |MCP approval requests do not have an approval")
_REASONING_UNREADABLE = re.compile(r"The encrypted content .*could not be verified", re.DOTALL)
_CONTAINER_EXPIRED = re.compile(
    r"(?:Expected container_id: |Container (?:is expired|with id |'))\W*(?P<id>cntr_\w+)?", re.IGNORECASE
)
"""The service's wording, recorded or quoted by several public projects (pydantic/pydantic-ai#7461,
openai/codex#8145 and others)."""


def explain_error(error: BaseException) -> ProviderError | None:
    """Explain in one sentence why a model call failed, and what to do.

    Args:
        error: raised by the agent; its causes are searched for the OpenAI SDK's error.

    Returns:
        The explanation; None when no chat client failed, or the cause is unknown.
    """
    cause = _find_sdk_error(error)
    if cause is None or is_explained(error):
        return explain_client_error(error)
    import openai  # noqa: PLC0415 - its error was raised, so it is loaded

    if isinstance(cause, openai.APITimeoutError):
        return ProviderError("the model did not answer in time; try again", retryable=True)
    if isinstance(cause, openai.APIConnectionError):
        return ProviderError(
            f"the model's endpoint {cause.request.url.copy_with(query=None)} cannot be reached: "
            "check OPENAI_BASE_URL or AZURE_OPENAI_ENDPOINT, and that the service is up",
            retryable=True,
        )
    if isinstance(cause, openai.APIStatusError):
        return _explain_status(cause)
    if isinstance(cause, openai.APIError):
        return _build_failure(cause.code, cause.message)
    return explain_client_error(error)


def parse_failure(event_or_response: Any) -> ProviderError | None:
    """Read the failure that an event or a response reports.

    Args:
        event_or_response: an event of a stream, or a response.

    Returns:
        The error with the service's reason; None without a failure.
    """
    if getattr(event_or_response, "type", None) == "error":
        nested_error: Any = getattr(
            event_or_response, "error", None
        )  # nested in the API's JSON, flat in the SDK's model
        error_fields = cast(
            "dict[str, Any]", nested_error if isinstance(nested_error, dict) else vars(event_or_response)
        )
        return _build_failure(error_fields.get("code"), error_fields.get("message"))
    if getattr(event_or_response, "type", None) == "response.failed":
        event_or_response = event_or_response.response
    if not _has_failed(event_or_response):
        return None
    return _build_failure(
        getattr(event_or_response.error, "code", None), getattr(event_or_response.error, "message", None)
    )


def _has_failed(response: Any) -> bool:
    """Return whether a response has failed; False for an event. Missing attributes of SDK models are slow to read."""
    fields: dict[str, Any] = getattr(response, "__dict__", None) or {}
    further: dict[str, Any] = getattr(response, "__pydantic_extra__", None) or {}
    return "failed" in (fields.get("status"), further.get("status"))


def _build_failure(code: str | None, message: str | None) -> ProviderError:
    reason = ": ".join(part for part in (code, message) if part) or "no reason was given"
    is_transient = (code or "") in _TRANSIENT_CODES or _is_transient_status(code)
    hint = "try again" if is_transient else "check the request"
    return ProviderError(
        f"the model's service failed during its response: {reason.rstrip('. ')} - {hint}",
        retryable=is_transient,
    )


def _is_transient_status(code: object) -> bool:
    """Return whether a code is a transient HTTP status, as sent by OpenRouter and vLLM in a stream."""
    status = int(str(code)) if str(code).isdigit() else 0
    return status >= 500 or status in RETRYABLE_STATUS  # noqa: PLR2004


def _find_sdk_error(error: BaseException) -> BaseException | None:
    """Return the SDK's error among the causes, without loading the SDK: an SDK not loaded has not failed."""
    sdk: Any = sys.modules.get("openai")
    return next((cause for cause in causes_of(error) if isinstance(cause, sdk.OpenAIError)), None) if sdk else None


def find_lost_state(error: BaseException) -> LostState | None:
    """Return what the service has lost, when it rejected a request for that reason.

    Args:
        error: raised by the agent.

    Returns:
        ``continuation`` when the previous response or the conversation no longer exists, or ends with an open call;
        ``container`` when a container has expired; ``reasoning`` when encrypted content has another key; otherwise
        None.
    """
    cause: Any = _find_sdk_error(error)
    if getattr(cause, "status_code", None) not in {400, 404, 410}:
        return None
    message = str(cause.message)
    code = getattr(cause, "code", None)
    if (
        code == "previous_response_not_found"
        or _CONTINUATION_NOT_FOUND.search(message)
        or _CALL_WITHOUT_OUTPUT.search(message)
    ):
        return LostState("continuation")
    if code == "invalid_encrypted_content" or _REASONING_UNREADABLE.search(message):
        return LostState("reasoning")
    if match := _CONTAINER_EXPIRED.search(message):
        return LostState("container", match["id"] or "")
    return None


def _explain_status(error: Any) -> ProviderError:
    status: int = error.status_code
    body: Any = error.body
    message = (
        str(cast("dict[str, Any]", body).get("message") or error.message) if isinstance(body, dict) else error.message
    )
    hint = {
        401: "check OPENAI_API_KEY or AZURE_OPENAI_API_KEY",
        403: "check that the key may use this model",
        404: "check OPENAI_MODEL or AZURE_OPENAI_DEPLOYMENT, and the endpoint",
        429: "wait and try again, or raise the quota",
    }.get(status, "try again" if status >= 500 else "check the request and the model's name")  # noqa: PLR2004
    if getattr(error, "code", None) == "model_not_found":
        hint = "check OPENAI_MODEL or AZURE_OPENAI_DEPLOYMENT"
    retry_decision = classify_error(error)
    return ProviderError(
        f"the model's service rejected the call with {status}: {message.rstrip('. ')} - {hint}",
        retryable=retry_decision is not None and retry_decision.retryable,
        retry_after_seconds=retry_decision.retry_after_seconds if retry_decision is not None else None,
    )
