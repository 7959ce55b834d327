"""The reasons of incomplete Gemini responses: blocked prompts, and responses that the service stopped."""

from collections.abc import Mapping
from typing import Any, Final, cast

from durable_agent_host.errors import ProviderError

_FILTER: Final = "say it in another way, or change the agent's safety_settings", False
_NEVER: Final = "say it in another way: no setting allows it", False
_AGAIN: Final = "try again", True

_STOPS: Final[dict[str, tuple[str, str, bool]]] = {
    "SAFETY": ("its safety filters have stopped the response", *_FILTER),
    "IMAGE_SAFETY": ("its safety filters have stopped the image", *_FILTER),
    "BLOCKLIST": ("the response has words of a blocklist", *_NEVER),
    "PROHIBITED_CONTENT": ("the response may have prohibited content", *_NEVER),
    "IMAGE_PROHIBITED_CONTENT": ("the image may have prohibited content", *_NEVER),
    "SPII": ("the response may have sensitive personal data", *_NEVER),
    "LANGUAGE": ("it does not support the language", "use another language", False),
    "RECITATION": ("the response repeats material that may be protected", "ask for more original content", False),
    "IMAGE_RECITATION": ("the image repeats material that may be protected", "ask for another image", False),
    "NO_IMAGE": ("no image was made", *_AGAIN),
    "IMAGE_OTHER": ("no image was made", *_AGAIN),
    "OTHER": ("it gave no reason", *_AGAIN),
    "MALFORMED_FUNCTION_CALL": ("the model wrote a function call that cannot be read", *_AGAIN),
    "MALFORMED_RESPONSE": ("the model wrote a response that cannot be read", *_AGAIN),
    "UNEXPECTED_TOOL_CALL": ("the model called a tool that the request does not declare", *_AGAIN),
    "TOO_MANY_TOOL_CALLS": ("the model called too many tools one after the other", "ask for less per turn", False),
    "MISSING_THOUGHT_SIGNATURE": ("the conversation lacks a thought signature", "start a new session", False),
}
"""The service's reason → its meaning, what to do, and whether a retry can succeed."""


def check_stop(response: Mapping[str, Any], candidate: Mapping[str, Any]) -> None:
    """Reject a response, or a chunk, that the service ended without content.

    Guarantee: pure.

    Args:
        response: from the service.
        candidate: its first candidate; may be empty.

    Raises:
        ProviderError: says why, quoting the service.
    """
    feedback = cast("dict[str, Any]", response.get("promptFeedback") or {})
    if (block_reason := feedback.get("blockReason")) and not candidate:
        _, hint, _ = _STOPS.get(str(block_reason), ("", *_FILTER))
        details = _format_details(feedback.get("blockReasonMessage"))
        raise ProviderError(
            f"the model's service has blocked the prompt: {block_reason}{details} - {hint}", retryable=False
        )
    if (stop := _STOPS.get(reason := str(candidate.get("finishReason")))) is not None:
        meaning, hint, retryable = stop
        details = _format_details(candidate.get("finishMessage"))
        raise ProviderError(
            f"the model's service ended without a response: {meaning} ({reason}){details} - {hint}", retryable=retryable
        )


def _format_details(message: Any) -> str:
    return f": {str(message).rstrip('. ')}" if message else ""
