"""How providers mark the end of an answer, and whether a stream ended without that mark.

A proxy that closes a connection cleanly causes no error, and a page of HTML has no events: the data until then looks
like an answer. Each row of the table recognizes the objects of one SDK by their shape, as the framework's clients pass
them on in ``raw_representation``. An answer that no row recognizes counts as complete unless it is empty.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

from agent_framework import AgentResponseUpdate, ChatResponse, ChatResponseUpdate


def ended_early(said: Iterable[Any]) -> bool:
    """Return whether a model call ended without the provider's end mark.

    Guarantee: pure.

    Args:
        said: all updates of one model call, live, in any order (the last first is fastest); of a call that was not
            streamed, its one response.

    Returns:
        True when the mark is missing or the answer is empty; False when the mark is there, and for answers of unknown
        providers.
    """
    is_known = is_answer = False
    for one in said:
        raw = _raw(one)
        known = {ends for row in _ENDINGS if (ends := row(raw)) is not None}
        if True in known:
            return False
        is_known = is_known or bool(known)
        is_answer = is_answer or _says_something(one)
    return is_known or not is_answer


def is_whole(body: Iterable[bytes]) -> bool:
    """Return whether an answer that is not streamed has arrived in full, however its connection ended.

    Args:
        body: its pieces.
    """
    try:
        return isinstance(json.loads(b"".join(body)), dict)
    except (ValueError, RecursionError):
        return False


def _says_something(said: object) -> bool:
    contents: Any = getattr(said, "contents", None) or getattr(said, "messages", None)  # of an update, of a response
    return bool(contents or getattr(said, "finish_reason", None))


def _raw(said: Any) -> Any:
    while isinstance(said, ChatResponseUpdate | AgentResponseUpdate | ChatResponse):
        said = cast("Any", said).raw_representation
    return said


_RESPONSES_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
_RESPONSES_STATUS: Final = frozenset({"completed", "incomplete", "failed", "cancelled"})


def _ends_responses(raw: Any) -> bool | None:
    """OpenAI Responses: the last event; a response retrieved by its id may be complete in its first."""
    kind = getattr(raw, "type", None)
    if isinstance(kind, str) and kind.startswith("response."):
        begun = getattr(getattr(raw, "response", None), "status", None) if kind == "response.created" else None
        return kind in _RESPONSES_ENDS or begun in _RESPONSES_STATUS
    if kind == "error":
        return True
    if getattr(raw, "object", None) == "response":
        return getattr(raw, "status", None) in _RESPONSES_STATUS
    return None


def _ends_chat_completions(raw: Any) -> bool | None:
    """Chat Completions: a choice with its finish reason; the usage may come after it."""
    choices: Any = getattr(raw, "choices", None)
    if not isinstance(choices, list):
        return None
    return any(getattr(choice, "finish_reason", None) for choice in cast("list[Any]", choices))


_ANTHROPIC_EVENTS: Final = ("message_start", "message_delta", "message_stop", "content_block_")


def _ends_anthropic(raw: Any) -> bool | None:
    """Anthropic: the stop reason, which the framework passes on; ``message_stop`` after it adds nothing."""
    kind = getattr(raw, "type", None)
    if kind == "message":
        return getattr(raw, "stop_reason", None) is not None
    if not isinstance(kind, str) or not kind.startswith(_ANTHROPIC_EVENTS):
        return None
    return kind == "message_stop" or getattr(getattr(raw, "delta", None), "stop_reason", None) is not None


def _ends_gemini(raw: Any) -> bool | None:
    """Gemini: a candidate with its finish reason, or a blocked prompt."""
    if not hasattr(raw, "candidates") or not hasattr(raw, "prompt_feedback"):
        return None
    if getattr(raw.prompt_feedback, "block_reason", None):
        return True
    return any(getattr(candidate, "finish_reason", None) for candidate in raw.candidates or ())


def _ends_bedrock(raw: Any) -> bool | None:
    """Bedrock: the event ``messageStop``, or the ``stopReason`` of an answer that was not streamed."""
    if not isinstance(raw, Mapping):
        return None
    names = set(cast("Mapping[str, Any]", raw))
    if not names & {"messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", *_BEDROCK_ENDS}:
        return None
    return bool(names & _BEDROCK_ENDS)


_BEDROCK_ENDS: Final = frozenset({"messageStop", "stopReason"})

_ENDINGS: Final[tuple[Callable[[Any], bool | None], ...]] = (
    _ends_responses,
    _ends_chat_completions,
    _ends_anthropic,
    _ends_gemini,
    _ends_bedrock,
)
"""A provider's object → whether it ends the answer; None for objects of other providers."""
