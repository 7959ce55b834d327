"""Explains why a model call failed: in one sentence for any chat client, with a provider's own hints."""

import json
import re
from collections.abc import Collection, Sequence
from http import HTTPStatus
from typing import Any, Final, cast

from agent_framework.exceptions import ChatClientException, ResponseInvalidatedException

from durable_agent_host.agent.retry_classification import (
    RetryDecision,
    causes_of,
    classify_error,
    extract_message,
    named_wait,
)
from durable_agent_host.codec.strict_json import value_at
from durable_agent_host.errors import ContextOverflowError, ProviderError, RequestBlockedError
from durable_agent_host.providers.neutral_contents import filtered_categories

Hints = Sequence[tuple[int, str, str]]
"""Status, a pattern of the service's code and message, and what to do; the first row that matches is used.

Status 0 is for an endpoint that cannot be reached.
"""

_COMMON_HINTS: Final[Hints] = (
    (0, "", "check its address, and that the service is up"),
    *(
        (status, "", "it redirects, and the conversation was not sent there: check the endpoint's address")
        for status in range(300, 400)
    ),
    (401, "", "check the key"),
    (403, "", "check that the key may use this model"),
    (404, "", "check the model's name and the endpoint"),
    (429, "", "wait and try again, or raise the quota"),
)

_TRANSIENT_CODE: Final = re.compile(
    r"|server_error|rate_limit_exceeded|server_is_overloaded|slow_down"  # OpenAI, or none
    r"|too_many_requests|vector_store_timeout|conversation_locked|tool_use_failed"  # Azure, OpenAI, OpenAI, Groq
    r"|408|409|425|429|5\d\d"  # statuses, of OpenRouter and vLLM
    r"|1000|1001|1002|1024|1033|1039|1041|2045"  # MiniMax: platform.minimax.io/docs/api-reference/errorcode
    r"|1234|1302|1303|1305|1312"  # Zhipu: docs.bigmodel.cn/cn/api/api-code
    r"|2|4|18|336100|336501|336502"  # Baidu: ai.baidu.com/ai-doc/WENXINWORKSHOP/tlmyncueh
    r"|3007|3008|3040"  # Cloudflare: developers.cloudflare.com/workers-ai/platform/errors
)
"""Codes of failures during a response that a retry may avoid; others concern the request, the key or the account."""


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


def explain_client_error(error: BaseException, hints: Hints = ()) -> ProviderError | None:
    """Explain in one sentence why a model call failed, and what to do.

    Args:
        error: raised by the agent; its causes are searched for the chat client's error.
        hints: of the provider; they come before the common ones.

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
    if any(type(cause).__name__ == "TooManyRedirects" for cause in causes):
        return ProviderError("the model's endpoint redirects in a circle: check its address", retryable=False)
    if (blocked := _find_block(client_error)) is not None:
        return blocked
    if (decision := classify_error(client_error)) is not None:
        return _explain_decision(decision, client_error, (*hints, *_COMMON_HINTS))
    if isinstance(client_error, ResponseInvalidatedException):
        return _explain_truncation(client_error)
    for cause in causes_of(client_error):
        if hasattr(cause, "body"):  # an SDK's error with what the service sent in its stream
            return response_failure(getattr(cause, "code", None), extract_message(cause))
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
    is_transient = _TRANSIENT_CODE.fullmatch(str(code or "")) is not None
    hint = "try again" if is_transient else "check the request"
    return ProviderError(
        f"the model's service failed during its response: {reason.rstrip('. ')} - {hint}",
        retryable=is_transient,
        retry_after_seconds=named_wait(reason),
        is_client_rejected=_is_client_rejected(code, reason),
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


def _explain_decision(decision: RetryDecision, error: BaseException, hints: Hints) -> ProviderError:
    if decision.status is None and not decision.message:
        address = next((f" {url}" for cause in causes_of(error) if (url := _requested_url(cause))), "")
        return ProviderError(
            f"the model's endpoint{address} cannot be reached: {_find_hint(hints, 0, '')}; try again", retryable=True
        )
    message = decision.message.rstrip(". ") or "no reason was given"
    text = f"{_find_code(error)} {message}"
    if decision.status != HTTPStatus.TOO_MANY_REQUESTS or "too large for" in text:
        overflow = explain_overflow(text, is_certain=decision.status == HTTPStatus.CONTENT_TOO_LARGE)
        if overflow is not None:
            return overflow
    failure = f"rejected the call with {decision.status}" if decision.status else "failed during its response"
    default = "try again" if decision.retryable else "check the request and the model's name"
    hint = (decision.status and _find_hint(hints, decision.status, text)) or default
    return ProviderError(
        f"the model's service {failure}: {message} - {hint}",
        retryable=decision.retryable,
        retry_after_seconds=decision.retry_after_seconds,
        is_client_rejected=_is_client_rejected(decision.status, text),
    )


def _is_client_rejected(status: Any, text: str) -> bool:
    """Return whether a failure that does not pass is of the key, the account or the model."""
    return _CLIENT_STATUS.fullmatch(str(status)) is not None or _CLIENT_REJECTED.search(text) is not None


def _find_hint(hints: Hints, status: int, text: str) -> str:
    return next((hint for row, pattern, hint in hints if row == status and re.search(pattern, text)), "")


def _requested_url(error: BaseException) -> Any:
    """Return the address of a request, as the SDKs of OpenAI and Anthropic name it."""
    url: Any = getattr(vars(error).get("request"), "url", None)
    return url and url.copy_with(query=None)
