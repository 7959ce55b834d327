"""Message fields that a service sends but does not accept back: known once it has refused them. Pure.

The rule: what a service sent is sent back to it, since some reject a conversation without it (DeepSeek since V3.2, its
``reasoning_content``) and others reason worse (OpenRouter, ``reasoning_details``); a field that it has refused is not
sent again in this session (DeepSeek's R1, Groq, Mistral). Another service gets only the standard fields.
"""

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agent_framework import Message

from durable_agent_host.agent.model_errors import advice_of, causes_of
from durable_agent_host.model.provider_item import STAMP, Forgotten
from durable_agent_host.providers.chat_completions.messages import STAMPS

_REFUSED: Final = "refused_fields"
_STATUS: Final = frozenset({400, 422})
_STANDARD: Final = frozenset({"role", "content", "tool_calls", "tool_call_id", "name", "refusal"})
_WORDINGS: Final = tuple(
    re.compile(wording)
    for wording in (
        r"[Pp]lease remove the [`'\"]?(\w+)[`'\"]? from your message",  # DeepSeek R1
        r"property '(?:[\w.]+\.)?(\w+)' is unsupported",  # Groq, Cerebras
        r"\('(\w+)' was unexpected\)",  # Azure, Fireworks
        r"[Uu]nknown (?:parameter|field|name):? ['\"](?:[\w.\[\]]+[.\]])?(\w+)['\"]",  # OpenAI, Google
        r"['\"]extra_forbidden['\"].*?['\"]loc['\"]: ?[\[(][^\])]*['\"](\w+)['\"][\])]",  # Mistral
    )
)


def refused_field(error: BaseException) -> Forgotten | None:
    """Return which field of a message a service has refused.

    Guarantee: pure.

    Args:
        error: raised by the agent.

    Returns:
        The field by its name; None when the request was refused for another reason.
    """
    advice = advice_of(error)
    if advice is None or advice.status not in _STATUS:
        return None
    said = " ".join(str(one) for one in causes_of(error))
    names = (found[1] for wording in _WORDINGS if (found := wording.search(said)))
    name = next((name for name in names if name not in _STANDARD), None)
    return Forgotten("field", name) if name else None


def without_refused(
    messages: Sequence[Message], remembered: Mapping[str, Any], lost: Iterable[Forgotten]
) -> tuple[list[Message], dict[str, Any]]:
    """Mark the fields that are no longer sent.

    Guarantee: pure; the given messages are not changed.

    Args:
        messages: the conversation.
        remembered: this function's previous result: ``refused_fields``.
        lost: what the service has refused since.
    """
    named = [*remembered.get(_REFUSED, ()), *(one.name for one in lost if one.what == "field")]
    refused = list(dict.fromkeys(named))
    if not refused:
        return list(messages), dict(remembered)
    return [_marked(message, refused) for message in messages], {**remembered, _REFUSED: refused}


def _marked(message: Message, refused: Sequence[str]) -> Message:
    if not any(STAMPS.of(content) for content in message.contents):
        return message
    changed = copy.copy(message)
    changed.contents = list(message.contents)
    for place, content in enumerate(message.contents):
        if (mark := STAMPS.of(content)) is not None:
            marked = changed.contents[place] = copy.copy(content)
            marked.additional_properties = content.additional_properties | {STAMP: {**mark, "refused": list(refused)}}
    return changed
