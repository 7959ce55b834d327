"""Explains failures of runs and requests in a sentence, and whether to retry."""

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from agent_framework.exceptions import ChatClientException

from durable_agent_host.agent.model_errors import causes_of
from durable_agent_host.errors import ProviderError
from durable_agent_host.model.provider_item import Forgotten

_PASSING: Final = frozenset({"rate_limit_exceeded", "server_error"})
_ACTIVE: Final = re.compile(r"while a run \S+ is active|already has an active run")
_TODO: Final = {
    "failed": "look at the code",
    "expired": "a run that waits for tools or approvals expires after a while: try again",
    "cancelled": "it was cancelled at the service: try again",
}


class RunEndedError(ChatClientException):
    """A run ended without an answer.

    Attributes:
        status: ``failed``, ``expired`` or ``cancelled``.
        code: of the service; empty when it gave none.
        said: the service's message, or empty.
        run_id: of the run; empty when it had not begun.
        has_acted: whether the app's tools have run for it, so that another run would run them again.
    """

    def __init__(self, status: str, error: Mapping[str, Any], run_id: str, *, has_acted: bool = False) -> None:
        self.status, self.run_id, self.has_acted = status, run_id, has_acted
        self.code = str(error.get("code") or "")
        self.said = str(error.get("message") or "")
        super().__init__(f"run {run_id} is {status}: {self.code or 'no code'}: {self.said or 'no message'}")

    @property
    def retryable(self) -> bool:
        """Whether another run may succeed without repeating anything."""
        return self.status == "failed" and self.code in _PASSING and not self.has_acted


def explain_run(error: BaseException) -> ProviderError | None:
    """Explain why a run ended without an answer. Guarantee: pure.

    Args:
        error: raised by the agent; its causes are searched, too.

    Returns:
        The explanation; None for other errors.
    """
    ended = next((one for one in causes_of(error) if isinstance(one, RunEndedError)), None)
    if ended is None:
        return _explain_active(error)
    why = ": ".join(part for part in (ended.code, ended.said.rstrip(". ")) if part) or "no reason was given"
    todo = "try again" if ended.retryable else _TODO.get(ended.status, "ask again")
    return ProviderError(f"the run {ended.run_id} is {ended.status}: {why} - {todo}", retryable=ended.retryable)


def _explain_active(error: BaseException) -> ProviderError | None:
    """Another run holds the thread: it ends, or it expires."""
    for cause in causes_of(error):
        if getattr(cause, "status_code", None) == 400 and _ACTIVE.search(said := _words_of(cause)):  # noqa: PLR2004
            return ProviderError(
                f"another run works on the thread: {said.rstrip('. ')} - wait for its end", retryable=True
            )
    return None


def find_lost_state(error: BaseException) -> Forgotten | None:
    """Return whether a thread is gone, or its run no longer accepts the results of its calls. Guarantee: pure.

    Args:
        error: raised by the agent; its causes are searched, too.
    """
    for cause in causes_of(error):
        if isinstance(cause, RunEndedError) and cause.status == "expired":
            return Forgotten("continuation", cause.run_id)
        if getattr(cause, "status_code", None) == 404 and "thread" in _words_of(cause).lower():  # noqa: PLR2004
            return Forgotten("continuation")
    return None


def _words_of(error: BaseException) -> str:
    inner: Any = getattr(error, "error", None)
    return str(getattr(inner, "message", None) or getattr(error, "message", None) or cast("object", error))
