"""Messages and entries of a conversation to stored JSON and back."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from agent_framework import AgentResponse, Message

from durable_agent_host.codec.content import STORED, decode_content, decode_usage, encode_content, encode_usage
from durable_agent_host.codec.content_fields import dump_value, load_value
from durable_agent_host.codec.extension_data import extension_of, with_extension
from durable_agent_host.codec.shared_text import detach_shared_texts, restore_shared_texts
from durable_agent_host.codec.strict_json import object_at, read_json
from durable_agent_host.codec.wire_types import (
    EXTENSION,
    REQUEST,
    RESPONSE,
    EntryExtensionWire,
    EntryWire,
    MessageExtensionWire,
    MessageWire,
)
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.ending import STRUCTURED, AnswerEnd, end_of_answer
from durable_agent_host.model.turn import TurnRequest

_REPLIES: Final = "answers"
_ANSWER_FIELDS: Final = ("approved", "reason", "arguments", "by", "at", "expired", "redacted")
_CALL_FIELDS: Final = ("kind", "name", "askedBy", "askedArguments", "idempotencyKey", "outcome")


def with_replies(entry: Mapping[str, Any], replies: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Record in a response the answers to the turn's calls, with the calls.

    Returns:
        A copy, or the entry itself when there is nothing to record.
    """
    if not replies:
        return cast("dict[str, Any]", entry)
    recorded_replies = {
        call_id: {name: answer[name] for name in (*_ANSWER_FIELDS, *_CALL_FIELDS) if answer.get(name) is not None}
        for call_id, answer in replies.items()
    }
    return with_extension(entry, extension_of(entry) | {_REPLIES: recorded_replies})


def replies_of(entry: Mapping[str, Any] | None) -> Mapping[str, Mapping[str, Any]]:
    """Return the answers to the calls of a stored response's turn, by call id."""
    replies = object_at(extension_of(entry), _REPLIES) if entry is not None else {}
    return {
        call_id: {name: reply[name] for name in _ANSWER_FIELDS if name in reply} for call_id, reply in replies.items()
    }


_LIST: Final[Any] = list


def encode_message(message: Message) -> MessageWire:
    """Encode a message for storage; its time is that of its entry.

    Raises:
        CorruptStateError: a content holds a value that JSON cannot represent.
    """
    wire: MessageWire = {"role": message.role, "contents": []}
    wire["contents"] = [encode_content(content) for content in detach_shared_texts(message.contents)]
    if message.author_name is not None:
        wire["authorName"] = message.author_name
    properties = message.additional_properties
    message_json = properties.get(STORED)
    if message_json is not None:
        properties = {name: value for name, value in properties.items() if name != STORED}
    if extension := _message_extension(message.message_id, properties):
        wire["extensionData"] = {EXTENSION: extension}
    return wire if message_json is None else _with_unknown(wire, message_json)


def _message_extension(message_id: str | None, properties: Mapping[str, Any]) -> MessageExtensionWire:
    extension: MessageExtensionWire = {} if message_id is None else {"messageId": message_id}
    if properties:
        extension["additionalProperties"] = dump_value(properties, "additional_properties")
    return extension


def decode_message(wire: Mapping[str, Any]) -> Message:
    """Decode a stored message.

    Raises:
        CorruptStateError: it has no role or no list of contents.
    """
    role: Any = wire.get("role")
    contents: Any = wire.get("contents")
    if not isinstance(role, str) or not isinstance(contents, _LIST):
        raise CorruptStateError(f"a stored message has role {role!r} and contents of {type(contents).__name__}")
    message = Message.__new__(Message)  # same as the constructor, without checking each content again
    message.role = role
    message.contents = [decode_content(content) for content in cast("list[dict[str, Any]]", contents)]
    restore_shared_texts(message.contents)
    message.author_name = wire.get("authorName")
    message.raw_representation = None
    extension = extension_of(wire)
    properties = extension.get("additionalProperties")
    message.message_id = extension.get("messageId")
    message.additional_properties = dict(load_value(properties)) if properties else {}
    if not wire.keys() <= _MESSAGE_NAMES or not _has_only_host_fields(wire):
        unknown = {name: value for name, value in wire.items() if name not in _MESSAGE_NAMES}
        if "extensionData" in wire:
            unknown["extensionData"] = wire["extensionData"]
        message.additional_properties[STORED] = copy.deepcopy(unknown)
    return message


_MESSAGE_NAMES: Final = frozenset({"role", "createdAt", "contents", "authorName", "extensionData"})
_MESSAGE_EXTENSION: Final = frozenset({"messageId", "additionalProperties"})


def _has_only_host_fields(wire: Mapping[str, Any]) -> bool:
    if "extensionData" not in wire:
        return True
    extension = extension_of(wire)
    return bool(extension) and extension.keys() <= _MESSAGE_EXTENSION and len(wire["extensionData"]) == 1


def _with_unknown(wire: MessageWire, stored_json: Mapping[str, Any]) -> MessageWire:
    """Put unknown fields back in their places."""
    merged_json: dict[str, Any] = {**stored_json, **wire}
    if isinstance(found := stored_json.get("extensionData"), dict):
        inner = {
            name: value for name, value in extension_of(stored_json).items() if name not in _MESSAGE_EXTENSION
        } | extension_of(wire)
        merged_json["extensionData"] = {**found, EXTENSION: inner} if inner or EXTENSION in found else found
    return cast("MessageWire", merged_json)


def encode_request_entry(request: TurnRequest) -> EntryWire:
    """Encode the entry of a client's request.

    Returns:
        An entry of type ``request``; its correlation id is the turn's id.
    """
    contents: Any = [*request.contents] or [{"$type": "text", "text": request.message}]
    entry: EntryWire = {
        "$type": REQUEST,
        "correlationId": request.turn_id,
        "createdAt": request.created_at,
        "messages": [{"role": request.role, "contents": contents}],
    }
    if request.response_format:
        entry["responseType"] = "json"  # the default is text
    if request.response_format is not None:
        entry["responseSchema"] = dict(request.response_format)
    if request.orchestration_id is not None:
        entry["orchestrationId"] = request.orchestration_id
    if request.options:
        entry["extensionData"] = {EXTENSION: {"options": dict(request.options)}}
    return entry


def encode_response_entry(
    turn_id: str, response: AgentResponse[Any], *, created_at: str, model_info: Mapping[str, str] | None = None
) -> EntryWire:
    """Encode the entry of an agent's response, with the response's own id, finish reason and structured value.

    Returns:
        An entry of type ``response``.

    Raises:
        CorruptStateError: a content holds a value that JSON cannot represent.
    """
    entry: EntryWire = {
        "$type": RESPONSE,
        "correlationId": turn_id,
        "createdAt": created_at,
        "messages": [encode_message(message) for message in response.messages],
    }
    if response.usage_details:
        entry["usage"] = cast("Any", encode_usage(cast("Mapping[str, Any]", response.usage_details)))
    if extension := _response_extension(response, model_info):
        entry["extensionData"] = {EXTENSION: extension}
    return entry


def _response_extension(response: AgentResponse[Any], model_info: Mapping[str, str] | None) -> EntryExtensionWire:
    fields = {
        "served": dict(model_info) if model_info else None,
        "responseId": response.response_id,
        "agentId": response.agent_id,
        "finishReason": response.finish_reason,
        "continuationToken": dump_value(response.continuation_token, "continuation_token"),
        "additionalProperties": dump_value(response.additional_properties or None, "additional_properties"),
    }
    present_fields = {name: value for name, value in fields.items() if value is not None}
    return cast("EntryExtensionWire", present_fields | _encode_value(response))


def _encode_value(response: AgentResponse[Any]) -> dict[str, Any]:
    """Encode the structured value, or a mark when parsing the text gives it."""
    try:
        value = dump_value(response.value, "value")
    except ValueError:  # the text does not match the format that the agent asked for, so there is no value
        return {}
    if value is None:
        return {}
    return {"valueIsText": True} if read_json(response.text) == value else {"value": value}


def is_structured(entry: Mapping[str, Any]) -> bool:
    """Return whether a response is JSON because the agent's own options ask for it."""
    return STRUCTURED in (extension_of(entry).get("additionalProperties") or {})


def decode_response(entry: Mapping[str, Any]) -> AgentResponse[Any]:
    """Decode the entry of an agent's response.

    Returns:
        A new response with its messages, ids, usage, finish reason and structured value (as plain JSON).

    Raises:
        CorruptStateError: it is of another type, or a message is malformed.
    """
    messages = decode_messages([entry])
    extension = extension_of(entry)
    value = load_value(extension.get("value"))
    if extension.get("valueIsText"):
        value = read_json(AgentResponse(messages=messages).text)
    return AgentResponse(
        messages=messages,
        response_id=extension.get("responseId"),
        agent_id=extension.get("agentId"),
        created_at=entry.get("createdAt"),
        finish_reason=extension.get("finishReason"),
        usage_details=cast("Any", decode_usage(entry.get("usage") or {}) or None),
        value=value,
        continuation_token=load_value(extension.get("continuationToken")),
        additional_properties=load_value(extension.get("additionalProperties") or {}),
    )


def response_id_of(entry: Mapping[str, Any]) -> str | None:
    """Return the provider's id of a stored response.

    Returns:
        The id, or None when the entry is not a response of ours or the provider gave none.
    """
    return extension_of(entry).get("responseId")


def served_by(entry: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the model and service tier that served a stored response.

    Returns:
        ``model`` and ``service_tier``, as far as the provider reported them; None when the entry has neither.
    """
    model_info: Any = extension_of(entry).get("served")
    return cast("dict[str, str]", model_info) if isinstance(model_info, dict) and model_info else None


def end_of_entry(entry: Mapping[str, Any]) -> AnswerEnd:
    """Return how a stored response ended."""
    finish_reason: Any = extension_of(entry).get("finishReason")
    end = AnswerEnd(finish_reason if isinstance(finish_reason, str) else None)
    return end_of_answer(decode_response(entry)) if end.status == "refused" else end


def options_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a stored request.

    Returns:
        The options; empty when there were none.
    """
    return object_at(extension_of(entry), "options")


def decode_messages(entries: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Decode the messages of entries, in order.

    Raises:
        CorruptStateError: an entry is of a type unknown to this program, or a message is malformed.
    """
    messages: list[Message] = []
    for entry in entries:
        if entry.get("$type") not in (REQUEST, RESPONSE):
            raise CorruptStateError(
                f"the conversation has an entry of type {entry.get('$type')!r}, which this program cannot replay: "
                "upgrade durable-agent-host, or leave it out with 'durable-agent-host sessions repair'; "
                "nothing was changed"
            )
        try:
            for wire in entry.get("messages") or ():
                message = decode_message(wire)
                _check_call_ids(message)
                messages.append(message)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise CorruptStateError(
                f"the conversation's turn {entry.get('correlationId')} cannot be read "
                f"({type(error).__name__}: {error}): see what 'durable-agent-host sessions verify' says of it; "
                "nothing was changed"
            ) from None
    return messages


def _check_call_ids(message: Message) -> None:
    """Refuse ids of calls that no service accepts, and by which calls and results cannot be paired."""
    for content in message.contents:
        call_id: Any = content.call_id
        if not isinstance(call_id, str | None):
            raise TypeError(f"the id of a call is {call_id!r}, and must be a string")
