"""Gemini behind the port: its client is adapted; the rest is neutral."""

import re
import sys
from collections.abc import Sequence
from typing import Any, Final

from agent_framework import Message

from durable_agent_host.agent.retry_classification import causes_of, classify_error
from durable_agent_host.errors import ProviderError, RequestError
from durable_agent_host.model.provider_item import LostState
from durable_agent_host.providers.client_errors import REDIRECTED, explain_client_error, is_explained
from durable_agent_host.providers.cross_provider_history import TOOLS_OF_SERVICES, ReplayTarget
from durable_agent_host.providers.gemini.client import adapt_client
from durable_agent_host.providers.gemini.lost_signatures import mark_lost_signatures
from durable_agent_host.providers.gemini.part_mapping import METADATA
from durable_agent_host.providers.generic_provider import remove_completed_approvals
from durable_agent_host.providers.provider_base import ProviderBase, ProviderHooks

_HINTS: Final = (
    (400, re.compile(r"API[ _]key", re.IGNORECASE), "check GOOGLE_API_KEY"),
    (400, re.compile(r"thought.?signature", re.IGNORECASE), "verify the session, or begin a new one"),
    (400, re.compile(r"location is not supported"), "the service does not serve the place that the host runs in"),
    (400, re.compile(r"token count"), "the conversation is too long: give the agent a compaction strategy"),
    *((n, re.compile(""), REDIRECTED) for n in range(300, 400)),
    (401, re.compile(""), "check GOOGLE_API_KEY, or the Google Cloud credentials"),
    (403, re.compile(""), "check that the key may use this model, and that files in the conversation still exist"),
    (404, re.compile(""), "check GOOGLE_MODEL, and the endpoint"),
    (429, re.compile(""), "wait and try again, or raise the quota"),
)
"""Status, the service's wording, and what to do; the first row that matches."""

_SIGNATURE_REJECTED: Final = re.compile(
    r"(?:corrupted|invalid) thought.?signature|thought.?signature is (?:not valid|invalid|corrupted)", re.IGNORECASE
)
"""As quoted in public projects (google-gemini/gemini-cli#13467, alphaXiv/agents#61)."""


def explain_error(error: BaseException) -> ProviderError | None:
    """Explain in one sentence why a model call failed, and what to do.

    Args:
        error: raised by the agent; its causes are searched for the SDK's error.

    Returns:
        The explanation; None when no chat client failed, or the cause is unknown.
    """
    cause = _find_sdk_error(error)
    retry_decision = None if cause is None else classify_error(cause)
    if retry_decision is None or retry_decision.status is None or is_explained(error):
        return explain_client_error(error)
    message = retry_decision.message.rstrip(". ") or "no reason was given"
    default = "try again" if retry_decision.retryable else "check the request and the model's name"
    hint = next(
        (hint for status, pattern, hint in _HINTS if status == retry_decision.status and pattern.search(message)),
        default,
    )
    return ProviderError(
        f"the model's service rejected the call with {retry_decision.status}: {message} - {hint}",
        retryable=retry_decision.retryable,
        retry_after_seconds=retry_decision.retry_after_seconds,
    )


def find_lost_state(error: BaseException) -> LostState | None:
    """Return whether the service has rejected thought signatures.

    Args:
        error: raised by the agent.

    Returns:
        ``reasoning`` when it cannot read one; None for other errors, including a missing signature.
    """
    cause = _find_sdk_error(error)
    retry_decision = None if cause is None else classify_error(cause)
    if retry_decision is None or retry_decision.status != 400:  # noqa: PLR2004
        return None
    return LostState("reasoning") if _SIGNATURE_REJECTED.search(retry_decision.message) else None


def _find_sdk_error(error: BaseException) -> BaseException | None:
    """Return the SDK's error among the causes, without loading the SDK: an SDK not loaded has not failed."""
    sdk: Any = sys.modules.get("google.genai.errors")
    return next((cause for cause in causes_of(error) if isinstance(cause, sdk.APIError)), None) if sdk else None


class GeminiProvider(ProviderBase):
    """Clients of Google's Gemini, whose parts are stored and sent back."""

    hooks = ProviderHooks(
        target=ReplayTarget(
            METADATA.provider, unsent=TOOLS_OF_SERVICES, media=re.compile(r"(image|audio|video|application|text)/.*")
        ),
        adapt=adapt_client,
        carry=mark_lost_signatures,
        lost_state=find_lost_state,
        explain=explain_error,
    )

    def as_history(self, messages: Sequence[Message], /) -> list[Message]:
        """Remove completed hosted approvals; carriers of parts stay."""
        return remove_completed_approvals(messages)

    def check_message(self, message: Message, /) -> None:
        """Reject file ids, which the client would omit."""
        if any(content.type == "hosted_file" for content in message.contents):
            raise RequestError("the agent's client does not send file ids: send the file's bytes, or its URL at Gemini")


GEMINI: Final = GeminiProvider()
