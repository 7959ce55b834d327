"""Explains failures of runs and requests in one sentence, and whether to retry."""

import re
from collections.abc import Mapping
from typing import Any, Final

from agent_framework.exceptions import ChatClientException

from durable_agent_host.agent.retry_classification import causes_of, extract_message
from durable_agent_host.errors import ProviderError, RequestBlockedError
from durable_agent_host.model.ending import CONTENT_FILTER
from durable_agent_host.model.provider_item import LostState

_TRANSIENT_CODES: Final = frozenset({"rate_limit_exceeded", "server_error"})
_ACTIVE: Final = re.compile(r"while a run \S+ is active|already has an active run")
_HINTS: Final = {
    "failed": "look at the code",
    "expired": "a run that waits for tools or approvals expires after a while: try again",
    "cancelled": "it was cancelled at the service: try again",
}


class RunEndedError(ChatClientException):
    """A run ended without a response.

    Attributes:
        status: ``failed``, ``expired`` or ``cancelled``.
        code: of the service; empty when it gave none.
        service_message: the service's message, or empty.
        run_id: of the run; empty when it had not started.
        has_acted: whether the app's tools have run for it, so that another run would run them again.
    """

    def __init__(self, status: str, error: Mapping[str, Any], run_id: str, *, has_acted: bool = False) -> None:
        self.status = status
        self.run_id = run_id
        self.has_acted = has_acted
        self.code = str(error.get("code") or "")
        self.service_message = str(error.get("message") or "")
        super().__init__(f"run {run_id} is {status}: {self.code or 'no code'}: {self.service_message or 'no message'}")

    @property
    def retryable(self) -> bool:
        """Whether another run may succeed without repeating anything."""
        return self.status == "failed" and self.code in _TRANSIENT_CODES and not self.has_acted


def explain_run(error: BaseException) -> ProviderError | None:
    """Explain why a run ended without a response.

    Args:
        error: raised by the agent; its causes are searched, too.

    Returns:
        The explanation; None for other errors.
    """
    run_error = next((cause for cause in causes_of(error) if isinstance(cause, RunEndedError)), None)
    if run_error is None:
        return _explain_active(error)
    if run_error.code == CONTENT_FILTER:
        return RequestBlockedError(run_error.service_message or run_error.code)
    reason = (
        ": ".join(part for part in (run_error.code, run_error.service_message.rstrip(". ")) if part)
        or "no reason was given"
    )
    hint = "try again" if run_error.retryable else _HINTS.get(run_error.status, "ask again")
    return ProviderError(
        f"the run {run_error.run_id} is {run_error.status}: {reason} - {hint}", retryable=run_error.retryable
    )


def _explain_active(error: BaseException) -> ProviderError | None:
    """Explain that another run uses the thread, until it ends or expires."""
    for cause in causes_of(error):
        if getattr(cause, "status_code", None) == 400 and _ACTIVE.search(message := extract_message(cause)):  # noqa: PLR2004
            return ProviderError(
                f"another run works on the thread: {message.rstrip('. ')} - wait for its end", retryable=True
            )
    return None


def find_lost_state(error: BaseException) -> LostState | None:
    """Return whether a thread no longer exists, or its run has expired.

    Args:
        error: raised by the agent; its causes are searched, too.
    """
    for cause in causes_of(error):
        if isinstance(cause, RunEndedError) and cause.status == "expired":
            return LostState("continuation", cause.run_id)
        if getattr(cause, "status_code", None) == 404 and "thread" in extract_message(cause).lower():  # noqa: PLR2004
            return LostState("continuation")
    return None
