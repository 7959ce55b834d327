"""Errors as texts for callers and for what is stored, with secrets masked."""

import re
from collections.abc import Callable
from typing import Any, Final

from agent_framework.exceptions import AgentFrameworkException

from durable_agent_host.errors import DurableAgentHostError, ProviderError, RedactionError, RequestBlockedError
from durable_agent_host.redaction import mask_known_secrets, mask_secrets

_MAX_READ_CHARACTERS: Final = 20_000
"""Some services answer with whole pages."""
_MAX_DETAIL_CHARACTERS: Final = 600
"""Of a message that is stored."""
_MAX_PROBLEM_CHARACTERS: Final = 800
"""Of a message for a caller."""

_FAILURE: Final = "Result: Failure"
_STACK: Final = re.compile(
    rf"(?:\n|\\n)[ \t]*(?:{_FAILURE}|Stack:|Traceback \(most recent|File \\?\"|at [\w.<>`]+\("
    r"|\{\"(?:\$type|ClassName)\")"
)
"""Where the details of a failed function begin, after its message: of a Python worker, and of the Durable extension."""


def format_problem(error: DurableAgentHostError) -> str:
    """Return the message of one of our errors for a caller."""
    message = _choose_mask(error)(str(error))
    if len(message) <= _MAX_PROBLEM_CHARACTERS:
        return message
    half = _MAX_PROBLEM_CHARACTERS // 2
    return f"{message[:half]} [...] {message[-half:]}"


def error_details(error: BaseException) -> dict[str, Any]:
    """Describe an error as plain data, for a receipt and for the caller.

    Returns:
        ``type`` (class name) and ``message``; for a `ProviderError` also ``retryable`` and ``retry_after_seconds``, for
        a `RequestBlockedError` also ``category``.
    """
    reason = error.args[0] if isinstance(error, AgentFrameworkException) and error.args else error
    message = _choose_mask(error)(" ".join(str(reason)[:_MAX_READ_CHARACTERS].split()))
    if not isinstance(error, DurableAgentHostError):
        message = f"{type(error).__name__}: {message}"
    details: dict[str, Any] = {"type": type(error).__name__, "message": message[:_MAX_DETAIL_CHARACTERS]}
    if isinstance(error, ProviderError):
        details["retryable"] = error.retryable
        details["retry_after_seconds"] = error.retry_after_seconds
    if isinstance(error, RequestBlockedError) and error.category:
        details["category"] = _choose_mask(error)(error.category)[:_MAX_DETAIL_CHARACTERS]
    return details


def failure_reason(output: str) -> str:
    """Return why an orchestration failed, for callers, without secrets and stack."""
    reason = _STACK.split(output[:_MAX_READ_CHARACTERS], maxsplit=1)[0]
    # A worker's own text begins with these two lines, where the host has put nothing before it.
    reason = " ".join(reason.split()).replace(f"{_FAILURE} Exception: ", "")
    return mask_secrets(reason)[:_MAX_DETAIL_CHARACTERS]


def _choose_mask(error: BaseException) -> Callable[[str], str]:
    """Return what masks the text of an error; that of a failed redaction does not go through it again."""
    return mask_known_secrets if isinstance(error, RedactionError) else mask_secrets
