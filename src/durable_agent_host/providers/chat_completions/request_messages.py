"""Writes a conversation for Chat Completions: every call directly followed by its results, in its service's form."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from agent_framework import Content

from durable_agent_host.codec.strict_json import object_at, value_at
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.provider_item import LOST_RESULT
from durable_agent_host.providers.call_pairing import accepted_name, object_arguments, unique_id
from durable_agent_host.providers.chat_completions.content_mapping import transcripts
from durable_agent_host.providers.chat_completions.message_metadata import (
    MAX_CALL_ID_CHARACTERS,
    METADATA,
    assistant_message,
)
from durable_agent_host.providers.neutral_contents import as_objects
from durable_agent_host.providers.services import Service

Wire = dict[str, Any]


def assistant_messages(contents: Sequence[Content], service: str, now: float) -> list[Wire]:
    """Write the contents of an assistant's message.

    Returns:
        One message for each original one; contents of other origin become one. Messages without content are omitted.
    """
    messages: list[Wire] = []
    for is_item, group in METADATA.runs(contents):
        message = assistant_message(group, service)
        messages.append(_with_audio(message, group, now) if is_item else _with_short_ids(message))
    return [message for message in messages if _has_content(message)]


def _has_content(message: Mapping[str, Any]) -> bool:
    return bool(message.keys() - {"role", "content"}) or bool(message.get("content"))


def _with_audio(message: Wire, group: Sequence[Content], now: float) -> Wire:
    audio = object_at(message, "audio")
    if not audio:
        transcript = transcripts(group)
        return message | {"content": transcript} if transcript and not message.get("content") else message
    expires = audio.get("expires_at")
    if audio.get("id") and not (isinstance(expires, int | float) and expires <= now):
        return message | {"audio": {"id": audio["id"]}}
    other_fields = {name: value for name, value in message.items() if name != "audio"}
    return other_fields | {"content": message.get("content") or transcripts(group) or None}


def _with_short_ids(message: Wire) -> Wire:
    calls = _calls(message)
    return message | ({"tool_calls": [call | {"id": short_id(call["id"])} for call in calls]} if calls else {})


def short_id(call_id: Any) -> str:
    """Return an id for a call that OpenAI accepts; longer ones come from other services."""
    text = str(call_id)
    return text if len(text) <= MAX_CALL_ID_CHARACTERS else "call_" + derived_id(text)


def pair_messages(messages: Iterable[Wire], service: Service) -> list[Wire]:
    """Put the results of calls directly after the message with the calls.

    Returns:
        The messages. A call without a result gets one that reports it as unknown; results without a call are omitted.
        A result belongs to the nearest earlier call with its id, since ids may be reused; calls of one message that
        share an id are distinguished by order. The ids that are sent are unique, and such as the service accepts.
    """
    ordered_messages: list[Wire] = []
    open_results: dict[str, list[Wire]] = {}
    id_counts: Counter[str] = Counter()
    for message in messages:
        if message.get("role") == "tool":
            call_id = str(message.get("tool_call_id"))
            if results := open_results.get(call_id) or open_results.get(short_id(call_id)):
                result = results.pop(0)
                result.update(message | {"tool_call_id": result["tool_call_id"]})
            continue
        calls = _calls(message)
        ids = [unique_id(call.get("id"), id_counts, service.call_ids, "call_") for call in calls]
        sent_calls = [call | {"id": sent_id} for call, sent_id in zip(calls, ids, strict=True)]
        results = [{"role": "tool", "tool_call_id": sent_id, "content": LOST_RESULT} for sent_id in ids]
        open_results |= {str(call.get("id")): list[Wire]() for call in calls}
        for call, result in zip(calls, results, strict=True):
            open_results[str(call.get("id"))].append(result)
        ordered_messages += [message | {"tool_calls": sent_calls} if calls else message, *results]
    return ordered_messages


_SYSTEM_ROLES: Final = frozenset({"system", "developer"})
_NO_OUTPUT: Final = "(no output)"
_AFTER_TOOLS: Final = "The tools have returned."


def messages_for(messages: Iterable[Wire], service: Service) -> list[Wire]:
    """Bring messages into the form that a service takes; see `services.Service`."""
    service_messages = [_accepted_message(message, service) for message in messages]
    service_messages = [
        message for message in service_messages if message["role"] != "assistant" or _has_content(message)
    ]
    if not service.accepts_later_system:
        service_messages = _with_system_first(service_messages)
    accepted_messages: list[Wire] = []
    for message in service_messages:
        last_message = accepted_messages[-1] if accepted_messages else None
        if last_message is not None and not service.accepts_repeated_roles and _can_merge(last_message, message):
            accepted_messages[-1] = _merge(last_message, message)
            continue
        if (
            last_message is not None
            and (last_message["role"], message["role"]) == ("tool", "user")
            and not service.accepts_user_after_tool
        ):
            accepted_messages.append({"role": "assistant", "content": _AFTER_TOOLS})
        accepted_messages.append(message)
    return [_with_content(message, service) for message in accepted_messages]


def _accepted_message(message: Wire, service: Service) -> Wire:
    """Return a message without the fields that the service refuses, with arguments that it reads."""
    accepted_message = without_fields(message, service)
    if message["role"] == "developer" and not service.has_developer_role:
        accepted_message = accepted_message | {"role": "system"}
    if message.get("refusal") and "refusal" not in accepted_message and not message.get("content"):
        accepted_message = accepted_message | {"content": message["refusal"]}
    if (calls := _calls(accepted_message)) and not service.accepts_any_arguments:
        accepted_message = accepted_message | {"tool_calls": [_with_object_arguments(call) for call in calls]}
    return accepted_message


def without_fields(message: Wire, service: Service) -> Wire:
    """Return a message without the fields that the service refuses."""
    if not service.rejected_fields:
        return message
    accepted_message = {name: value for name, value in message.items() if name not in service.rejected_fields}
    if calls := _calls(accepted_message):
        accepted_message["tool_calls"] = [
            {name: value for name, value in call.items() if name not in service.rejected_fields} for call in calls
        ]
    return accepted_message


def _with_object_arguments(call: Wire) -> Wire:
    function = object_at(call, "function")
    return (
        call | {"function": function | {"arguments": object_arguments(function.get("arguments"))}} if function else call
    )


def _with_system_first(messages: list[Wire]) -> list[Wire]:
    system_messages = [message for message in messages if message["role"] in _SYSTEM_ROLES]
    if not system_messages or (len(system_messages) == 1 and messages[0] is system_messages[0]):
        return messages
    first_message, *later_messages = system_messages
    for message in later_messages:
        first_message = _merge(first_message, message)
    return [first_message, *(message for message in messages if message["role"] not in _SYSTEM_ROLES)]


def _can_merge(message: Wire, next_message: Wire) -> bool:
    return message["role"] == next_message["role"] and message["role"] in {"user", "assistant"} and not _calls(message)


def _merge(message: Wire, next_message: Wire) -> Wire:
    contents = [content for content in (message.get("content"), next_message.get("content")) if content]
    if all(isinstance(content, str) for content in contents):
        content: Any = "\n\n".join(contents) if contents else next_message.get("content")
    else:
        content = [part for content in contents for part in _parts(content)]
    return {**message, **next_message, "content": content}


def join_parts(messages: Sequence[Wire]) -> list[Wire]:
    """Join what the framework writes of a message with files, one message for each of its contents."""
    if len(messages) == 1 or all(isinstance(message.get("content"), str) for message in messages):
        return list(messages)
    return [{**messages[0], "content": [part for message in messages for part in _parts(message.get("content"))]}]


def _parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _with_content(message: Wire, service: Service) -> Wire:
    """Return a message whose content is null or empty only where the service takes it."""
    content = message.get("content")
    if content or message["role"] not in {"assistant", "tool"}:
        return message
    if content is None and service.accepts_null_content:
        return message
    if service.accepts_empty_content:
        return message | {"content": ""}
    if message["role"] == "assistant" and service.accepts_null_content:
        return message | {"content": None}
    names = ", ".join(str(value_at(call, "function", "name")) for call in _calls(message))
    return message | {"content": f"(calling {names})" if names else _NO_OUTPUT}


def with_valid_names(messages: Iterable[Wire], tool_names: Collection[str]) -> list[Wire]:
    """Give calls names that OpenAI accepts."""
    return [
        message | {"tool_calls": [_with_name(call, tool_names) for call in calls]}
        if (calls := _calls(message))
        else message
        for message in messages
    ]


def _with_name(call: Wire, tool_names: Collection[str]) -> Wire:
    kind = "custom" if "custom" in call else "function"
    function_fields = object_at(call, kind) or {"arguments": ""}
    name = accepted_name(function_fields.get("name"), tool_names)
    return call if name == function_fields.get("name") else call | {kind: function_fields | {"name": name}}


def _calls(message: Mapping[str, Any]) -> list[Wire]:
    return as_objects(message.get("tool_calls"))
