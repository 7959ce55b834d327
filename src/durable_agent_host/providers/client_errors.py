"""Explains why a model call failed: the status and the service's own message, for any chat client."""

import json
import re
from collections.abc import Collection
from http import HTTPStatus
from typing import Any, Final, cast

from agent_framework.exceptions import ChatClientException, ResponseInvalidatedException

from durable_agent_host.agent.retry_classification import (
    RetryDecision,
    causes_of,
    classify_error,
    extract_message,
    is_passing_status,
    read_failure,
)
from durable_agent_host.codec.strict_json import value_at
from durable_agent_host.errors import ContextOverflowError, ProviderError, RequestBlockedError
from durable_agent_host.providers.neutral_contents import filtered_categories

_INVALID: Final = re.compile("invalid", re.IGNORECASE)
"""In the codes of failures during a response that are about the request."""

_CLIENT_REJECTED: Final = re.compile(
    r"api.?key|\bauth(?:enticat|oriz)|permission|quota|billing|credits?\b|balance|exceeded.?budget|budget has been"
    r"|good standing|suspended|has been (?:restricted|disabled)|location is|usage limit|in your region"
    r"|not support tools|(unknown|unavailable|access .*) model|valid model|model_not_"
    r"|(model|deployment).*(not exist|not found|not supported|unavailable|decommissioned|identifier is|on-demand)"
    r"|\b1211\b",
    re.IGNORECASE,
)
"""How services refuse a key, an account or a model as they refuse a wrong request: Anthropic, Bedrock, DashScope,
DeepSeek, Gemini, GitHub, Groq, Hugging Face, LiteLLM, Mistral, Ollama, OpenRouter, Perplexity, Snowflake, Together,
xAI, Zhipu."""
_CLIENT_STATUS: Final = re.compile(r"3\d\d|40[1-6]|41[0-2]|451")

_OVERFLOW: Final = re.compile(
    r"context_length_exceeded|exceed_context_size|model_context_window_exceeded"
    r"|prompt (?:is )?too long|input is too long|maximum (?:allowed )?(?:context|prompt|model|input) length"
    r"|exceeds?\b.{0,40}\bcontext (?:window|length|size|limit)|context (?:window|length|size) (?:has been )?exceed"
    r"|context limit:"
    r"|greater than the (?:maximum )?context length|longer than the (?:maximum )?model"
    r"|input token count.{0,80}(?:exceeds|only supports)|exceeded model token limit|prompt token count.{0,60}exceed"
    r"|reduce the length of (?:the|your) (?:messages|prompt|input)|too large for|too many (?:input )?tokens"
    r"|Max size: \d+ tokens|must have less than \d+ tokens|max_new_tokens` must be|max_tokens must be at least 1, got -"
    r"|input tokens?(?: \d+)? (?:cannot )?exceed|max tokens of \d+ exceeded|exceeds? (?:the )?max(?:_model_len| length)"
    r"|range of input length should be|context (?:length of only|size is)",
    re.IGNORECASE | re.DOTALL,
)
"""How services say that a request is longer than the context window, as quoted in public projects: OpenAI, Azure,
Anthropic, Bedrock, Gemini, Mistral, Groq, xAI, OpenRouter, GitHub, Kimi, vLLM, llama.cpp, Ollama, LM Studio, TGI,
Zhipu, DashScope, Databricks, Snowflake, watsonx. OpenAI and Groq also say "too large for" of the tokens in a minute."""
_COUNT: Final = re.compile(r"(?<![\w.-])\d{3,}(?![\w.-]*\w)")
_SUM: Final = re.compile(r"(\d+) \+ (\d+) > (\d+)")
"""Anthropic: the request, the longest answer, the window."""
_HALF: Final = 0.5
_MARGIN: Final = 0.8
"""Of the window, for what the estimate misses: instructions and tools are not messages."""
_OVERFLOW_HINT: Final = (
    "the request is longer than the model's context window. Give the agent a compaction strategy (see "
    "docs/guides/compaction.md), or send less"
)


def explain_overflow(text: str, *, is_certain: bool = False) -> ContextOverflowError | None:
    """Explain a service's message that a request is longer than the context window; None for another message.

    Most messages begin with two counts: of the request and of the window, in any order.
    """
    if not is_certain and _OVERFLOW.search(text) is None:
        return None
    counts = [int(match[0]) for match in _COUNT.finditer(text.replace(",", ""))][:2]
    if sums := _SUM.search(text):
        counts = [int(sums[1]), int(sums[3]) - int(sums[2])]
    share = _MARGIN * min(counts) / max(counts) if len(counts) > 1 else _HALF
    return ContextOverflowError(f"{_OVERFLOW_HINT}: {text.strip('. ')}", share=share)


def explain_client_error(error: BaseException) -> ProviderError | None:
    """Explain in one sentence why a model call failed: the status and the message of the service, or of its SDK.

    Args:
        error: raised by the agent; its causes are searched for the chat client's error.

    Returns:
        The explanation; None when no chat client failed, or the cause is unknown.
    """
    causes = list(causes_of(error))
    if (provider_error := next((cause for cause in causes if isinstance(cause, ProviderError)), None)) is not None:
        return provider_error
    client_error = next((cause for cause in causes if isinstance(cause, ChatClientException)), None)
    if client_error is None:
        return None
    if any(isinstance(cause, json.JSONDecodeError | UnicodeDecodeError) for cause in causes_of(client_error)):
        return ProviderError("the model's service sent JSON that is cut off or unreadable; try again", retryable=True)
    if (blocked := _find_block(client_error)) is not None:
        return blocked
    if (decision := classify_error(client_error)) is not None:
        return _explain_decision(decision, client_error)
    if isinstance(client_error, ResponseInvalidatedException):
        return _explain_truncation(client_error)
    for cause in causes_of(client_error):
        if hasattr(cause, "body"):  # an SDK's error with what the service sent in its stream
            return response_failure(read_failure(getattr(cause, "body", None))[0], extract_message(cause))
    return None


_BLOCKING_STATUSES: Final = frozenset({None, 400, 403, 422})
_BLOCKED: Final = re.compile(
    r"^content_filter\b|^content_policy_violation\b|content management policy|blocked by content filtering policy"
    r"|violat\w+ (?:our )?usage (?:policy|guidelines)|your input was flagged|put new_sensitive"
    r"|^data_?inspection_?failed|content exists risk|considered high risk",
    re.IGNORECASE,
)
"""Code and message of a blocked request: Azure, OpenAI's images, Azure, Anthropic, OpenAI and xAI, OpenRouter,
MiniMax, DashScope, DeepSeek, Kimi."""


def _find_block(error: BaseException) -> RequestBlockedError | None:
    """Return that a policy of the service blocks the request, with the categories in the service's answer."""
    for cause in causes_of(error):
        body: Any = getattr(cause, "body", None)
        if body is None or getattr(cause, "status_code", None) not in _BLOCKING_STATUSES:
            continue
        message = extract_message(cause)
        if _BLOCKED.search(f"{getattr(cause, 'code', None) or ''} {message}".strip()):
            return RequestBlockedError(message, filtered_categories(body) or _list_reasons(body))
    return None


def _list_reasons(body: Any) -> str:
    """Return OpenRouter's reasons for a block."""
    reasons: Any = value_at(body, "metadata", "reasons")
    return ", ".join(map(str, cast("list[Any]", reasons))) if isinstance(reasons, list) else ""


def response_failure(code: Any, message: Any) -> ProviderError:
    """Explain a failure that the service reports within its response."""
    if _BLOCKED.search(f"{code or ''} {message or ''}".strip()):
        return RequestBlockedError(str(message or code))
    reason = ": ".join(str(part) for part in (code, message) if part) or "no reason was given"
    if (overflow := explain_overflow(reason)) is not None:
        return overflow
    is_client_rejected = _is_client_rejected(code, reason)
    has_status = re.fullmatch(r"[3-5]\d\d", str(code)) is not None
    is_wrong = not is_passing_status(int(code)) if has_status else _INVALID.search(str(code)) is not None
    return ProviderError(
        f"the model's service failed during its response: {reason}",
        retryable=not (is_wrong or is_client_rejected),
        is_client_rejected=is_client_rejected,
    )


def rejection_text(error: BaseException, statuses: Collection[int]) -> str:
    """Return the service's code and message when it rejected a request with one of the statuses; otherwise empty."""
    decision = classify_error(error)
    if decision is None or decision.status not in statuses:
        return ""
    return f"{_find_code(error)} {decision.message}"


def _find_code(error: BaseException) -> str:
    codes = (code for cause in causes_of(error) if isinstance(code := getattr(cause, "code", None), str))
    return next(codes, "")


def _explain_truncation(error: ResponseInvalidatedException) -> ProviderError:
    if "message_stop" in str(error):
        return ProviderError("the model's stream ended before the response was complete; try again", retryable=True)
    return ProviderError(
        "the model's response ended within a tool call, so the tool is not run: raise max_tokens, or ask for less",
        retryable=False,
    )


def _explain_decision(decision: RetryDecision, error: BaseException) -> ProviderError:
    message = decision.message or "no reason was given"
    if decision.status is None:
        address = next((f" {url}" for cause in causes_of(error) if (url := _requested_url(cause))), "")
        return ProviderError(f"the model's endpoint{address} cannot be reached: {message}", retryable=True)
    text = f"{_find_code(error)} {message}"
    if decision.status != HTTPStatus.TOO_MANY_REQUESTS or "too large for" in text:
        overflow = explain_overflow(text, is_certain=decision.status == HTTPStatus.CONTENT_TOO_LARGE)
        if overflow is not None:
            return overflow
    return ProviderError(
        f"the model's service rejected the call with {decision.status}: {message}",
        retryable=decision.retryable,
        retry_after_seconds=decision.retry_after_seconds,
        is_client_rejected=_is_client_rejected(decision.status, text),
    )


def _is_client_rejected(status: Any, text: str) -> bool:
    """Return whether a failure that does not pass is of the key, the account or the model."""
    return _CLIENT_STATUS.fullmatch(str(status)) is not None or _CLIENT_REJECTED.search(text) is not None


def _requested_url(error: BaseException) -> Any:
    """Return the address of a request, as the SDKs of OpenAI and Anthropic name it."""
    url: Any = getattr(vars(error).get("request"), "url", None)
    return url and url.copy_with(query=None)
