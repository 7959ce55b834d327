"""Writes a conversation for Chat Completions: every call directly followed by its results."""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.model.provider_item import LOST_RESULT
from durable_agent_host.providers.call_pairing import unique_id
from durable_agent_host.providers.chat_completions.content_mapping import transcripts
from durable_agent_host.providers.chat_completions.message_metadata import (
    MAX_CALL_ID_CHARACTERS,
    METADATA,
    rebuild_message,
)
from durable_agent_host.providers.tool_call_names import accepted_name

Wire = dict[str, Any]

_MEDIA: Final = frozenset({"data", "uri"})
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ANY_ID: Final = re.compile(".*", re.DOTALL)


def assistant_messages(contents: Sequence[Content], service: str, now: float) -> list[Wire]:
    """Write the contents of an assistant's message.

    Returns:
        One message for each original one; contents of other origin become one. Messages without content are omitted.
    """
    messages: list[Wire] = []
    for is_item, group in METADATA.runs(contents):
        message = rebuild_message(group, service)
        messages.append(_with_audio(message, group, now) if is_item else _with_short_ids(message))
    return [message for message in messages if _has_content(message)]


def _has_content(message: Mapping[str, Any]) -> bool:
    return bool(message.keys() - {"role", "content"}) or bool(message.get("content"))


def _with_audio(message: Wire, group: Sequence[Content], now: float) -> Wire:
    audio: Any = message.get("audio")
    if not isinstance(audio, dict):
        transcript = transcripts(group)
        return message | {"content": transcript} if transcript and not message.get("content") else message
    audio_fields = cast("dict[str, Any]", audio)
    expires: Any = audio_fields.get("expires_at")
    if audio_fields.get("id") and not (isinstance(expires, int | float) and expires <= now):
        return message | {"audio": {"id": audio_fields["id"]}}
    other_fields = {name: value for name, value in message.items() if name != "audio"}
    return other_fields | {"content": message.get("content") or transcripts(group) or None}


def _with_short_ids(message: Wire) -> Wire:
    calls = cast("list[Wire]", message.get("tool_calls") or [])
    return message | ({"tool_calls": [call | {"id": short_id(call["id"])} for call in calls]} if calls else {})


def short_id(call_id: Any) -> str:
    """Return an id for a call that OpenAI accepts; longer ones come from other services."""
    text = str(call_id)
    return text if len(text) <= MAX_CALL_ID_CHARACTERS else "call_" + hashlib.sha256(text.encode()).hexdigest()[:24]


def extract_media(contents: Iterable[Content]) -> list[Content]:
    """List images and files that only a user's message can carry: from results, and an assistant's of other origin."""
    media: list[Content] = []
    for group in METADATA.group(contents):
        if METADATA.find(group[0]) is not None:
            continue
        for content in group:
            results = content.items or [] if content.type == "function_result" else [content]
            media += [item for item in results if item.type in _MEDIA]
    return media


def pair_messages(messages: Iterable[Wire]) -> list[Wire]:
    """Put the results of calls directly after the message with the calls.

    Returns:
        The messages. A call without a result gets one that reports it as unknown; results without a call are omitted.
        A result belongs to the nearest earlier call with its id, since ids may be reused; calls of one message that
        share an id are distinguished by order, and have different ids: OpenAI rejects two results of one id.
    """
    ordered_messages: list[Wire] = []
    open_results: dict[str, list[Wire]] = {}
    for message in messages:
        if message.get("role") == "tool":
            call_id = str(message.get("tool_call_id"))
            if results := open_results.get(call_id) or open_results.get(short_id(call_id)):
                result = results.pop(0)
                result.update(message | {"tool_call_id": result["tool_call_id"]})
            continue
        calls = _calls(message)
        id_counts: Counter[str] = Counter()
        ids = [unique_id(call.get("id"), id_counts, _ANY_ID, "call_") for call in calls]
        sent_calls = [call | {"id": sent_id} for call, sent_id in zip(calls, ids, strict=True)]
        results = [{"role": "tool", "tool_call_id": sent_id, "content": LOST_RESULT} for sent_id in ids]
        open_results |= {str(call.get("id")): list[Wire]() for call in calls}
        for call, result in zip(calls, results, strict=True):
            open_results[str(call.get("id"))].append(result)
        ordered_messages += [message | {"tool_calls": sent_calls} if calls else message, *results]
    return ordered_messages


def with_valid_names(messages: Iterable[Wire], tool_names: Collection[str]) -> list[Wire]:
    """Give calls names that OpenAI accepts."""
    return [_with_names(message, tool_names) if _calls(message) else message for message in messages]


def _with_names(message: Wire, tool_names: Collection[str]) -> Wire:
    return message | {"tool_calls": [_with_name(call, tool_names) for call in _calls(message)]}


def _with_name(call: Wire, tool_names: Collection[str]) -> Wire:
    kind = "custom" if "custom" in call else "function"
    function_fields = cast("Wire", call.get(kind) or {"arguments": ""})
    name = accepted_name(function_fields.get("name"), _NAME, tool_names)
    return call if name == function_fields.get("name") else call | {kind: function_fields | {"name": name}}


def _calls(message: Mapping[str, Any]) -> list[Wire]:
    return cast("list[Wire]", message.get("tool_calls") or [])
