"""How providers mark the end of a response, and whether a stream ended without that mark.

A proxy that closes a connection cleanly causes no error, and a page of HTML has no events: the data until then looks
like a response. Each row of the table recognizes the objects of one SDK by their attributes, as the framework's clients
pass them on in ``raw_representation``. A response that no row recognizes counts as complete unless it is empty.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from durable_agent_host.providers.adapted_client import ItemUpdate, unwrap_update


def is_truncated(updates: Iterable[Any]) -> bool:
    """Return whether a model call ended without the provider's end mark.

    Returns:
        True when the mark is missing or the response is empty; False when the mark is there, and for responses of
        unknown providers.
    """
    is_recognized = has_output = False
    for update in updates:
        raw = unwrap_update(update)
        raw = raw.event if type(raw) is ItemUpdate else raw
        results = {is_end for row in _ENDINGS if (is_end := row(raw)) is not None}
        if True in results:
            return False
        is_recognized = is_recognized or bool(results)
        has_output = has_output or _has_output(update)
    return is_recognized or not has_output


def _has_output(update: object) -> bool:
    contents: Any = getattr(update, "contents", None) or getattr(
        update, "messages", None
    )  # of an update, of a response
    return bool(contents or getattr(update, "finish_reason", None))


_RESPONSES_FINAL_EVENTS: Final = frozenset({"response.completed", "response.incomplete"})
_RESPONSES_STATUS: Final = frozenset({"completed", "incomplete", "failed", "cancelled"})


def _is_responses_end(raw: Any) -> bool | None:
    """OpenAI Responses: the last event; a response retrieved by its id may be complete in its first."""
    kind = getattr(raw, "type", None)
    if isinstance(kind, str) and kind.startswith("response."):
        initial_status = getattr(getattr(raw, "response", None), "status", None) if kind == "response.created" else None
        return kind in _RESPONSES_FINAL_EVENTS or initial_status in _RESPONSES_STATUS
    if getattr(raw, "object", None) == "response":
        return getattr(raw, "status", None) in _RESPONSES_STATUS
    return None


def _is_chat_completions_end(raw: Any) -> bool | None:
    """Chat Completions: a choice with its finish reason; the usage may come after it."""
    choices: Any = getattr(raw, "choices", None)
    if not isinstance(choices, list):
        return None
    return any(getattr(choice, "finish_reason", None) for choice in cast("list[Any]", choices))


def _is_anthropic_end(raw: Any) -> bool | None:
    """Anthropic: the stop reason of a message that was not streamed; the adapter reads the events of others."""
    return getattr(raw, "stop_reason", None) is not None if getattr(raw, "type", None) == "message" else None


def _is_gemini_end(raw: Any) -> bool | None:
    """Gemini: a candidate with its finish reason."""
    if not hasattr(raw, "candidates") or not hasattr(raw, "prompt_feedback"):
        return None
    return any(getattr(candidate, "finish_reason", None) for candidate in raw.candidates or ())


READ_TO_END: Final = object()
"""In place of an SDK's object: an adapter has found the end of the response by marks of its own."""


_ENDINGS: Final[tuple[Callable[[Any], bool | None], ...]] = (
    lambda raw: raw is READ_TO_END or None,
    _is_responses_end,
    _is_chat_completions_end,
    _is_anthropic_end,
    _is_gemini_end,
)
"""A provider's object → whether it ends the response; None for objects of other providers."""
