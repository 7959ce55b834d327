"""Messages and entries of a conversation to stored JSON and back. Pure."""

import copy
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from agent_framework import AgentResponse, Content, Message

from durable_agent_host.codec.compact_content import CompactContents
from durable_agent_host.codec.compact_entry import (
    pack_entry,
    pack_usage,
    packed_extension,
    packed_form,
    parts_of,
    unpack_entry,
)
from durable_agent_host.codec.content import STORED, decode_content, decode_usage, encode_content, encode_usage
from durable_agent_host.codec.extension import extension_of, set_extension
from durable_agent_host.codec.fields import dump_value, load_value
from durable_agent_host.codec.wire import EXTENSION, EntryWire, MessageWire
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.turn import TurnRequest

REQUEST: Final = "request"
RESPONSE: Final = "response"
_LIST: Final[Any] = list


def encode_message(message: Message, *, created_at: str | None) -> MessageWire:
    """Encode a message for storage.

    Guarantee: pure; `decode_message` gives an equal message.

    Args:
        message: with contents of any type.
        created_at: UTC, ISO-8601, or None to store no time.

    Returns:
        A JSON object.

    Raises:
        CorruptStateError: a content holds a value that JSON cannot represent.
    """
    wire: MessageWire = {"role": message.role, "contents": [encode_content(content) for content in message.contents]}
    if created_at is not None:
        wire["createdAt"] = created_at
    if message.author_name is not None:
        wire["authorName"] = message.author_name
    properties = message.additional_properties
    stored = properties.get(STORED)
    if stored is not None:
        properties = {name: value for name, value in properties.items() if name != STORED}
    if extension := _message_extension(message.message_id, properties):
        wire["extensionData"] = {EXTENSION: extension}
    return wire if stored is None else _with_unknown(wire, stored)


def _message_extension(message_id: str | None, properties: Mapping[str, Any]) -> dict[str, Any]:
    extension: dict[str, Any] = {} if message_id is None else {"messageId": message_id}
    if properties:
        extension["additionalProperties"] = dump_value(properties, "additional_properties")
    return extension


def decode_message(wire: Mapping[str, Any]) -> Message:
    """Decode a stored message.

    Guarantee: pure; unknown fields are kept under `STORED` and written again.

    Args:
        wire: written by this program or upstream.

    Returns:
        A new message.

    Raises:
        CorruptStateError: it has no role or no list of contents.
    """
    return _message_of(wire, [decode_content(content) for content in _contents_of(wire)])


def _contents_of(wire: Mapping[str, Any]) -> list[dict[str, Any]]:
    role: Any = wire.get("role")
    contents: Any = wire.get("contents")
    if not isinstance(role, str) or not isinstance(contents, _LIST):
        raise CorruptStateError(f"a stored message has role {role!r} and contents of {type(contents).__name__}")
    return contents


def _message_of(wire: Mapping[str, Any], contents: list[Content]) -> Message:
    message = Message.__new__(Message)  # same as the constructor, without checking each content again
    message.role = wire["role"]
    message.contents = contents
    message.author_name = wire.get("authorName")
    message.raw_representation = None
    if "extensionData" not in wire and _MESSAGE_NAMES.issuperset(wire):
        message.message_id = None
        message.additional_properties = {}
        return message
    extension = extension_of(wire)
    properties = extension.get("additionalProperties")
    message.message_id = extension.get("messageId")
    message.additional_properties = dict(load_value(properties)) if properties else {}
    if not wire.keys() <= _MESSAGE_NAMES or not _is_only_ours(wire, _MESSAGE_EXTENSION):
        unknown = {name: value for name, value in wire.items() if name not in _MESSAGE_NAMES}
        if "extensionData" in wire:
            unknown["extensionData"] = wire["extensionData"]
        message.additional_properties[STORED] = copy.deepcopy(unknown)
    return message


_MESSAGE_NAMES: Final = frozenset({"role", "createdAt", "contents", "authorName", "extensionData"})
_MESSAGE_EXTENSION: Final = frozenset({"messageId", "additionalProperties"})


def _is_only_ours(wire: Mapping[str, Any], known: frozenset[str]) -> bool:
    if "extensionData" not in wire:
        return True
    ours = extension_of(wire)
    return bool(ours) and ours.keys() <= known and len(wire["extensionData"]) == 1


def _with_unknown(wire: MessageWire, stored: Mapping[str, Any]) -> MessageWire:
    """Put unknown fields back in their places."""
    merged: dict[str, Any] = {**stored, **wire}
    if isinstance(found := stored.get("extensionData"), dict):
        inner = {
            name: value for name, value in extension_of(stored).items() if name not in _MESSAGE_EXTENSION
        } | extension_of(wire)
        merged["extensionData"] = {**found, EXTENSION: inner} if inner or EXTENSION in found else found
    return cast("MessageWire", merged)


def encode_request_entry(request: TurnRequest) -> EntryWire:
    """Encode the entry of a client's request. Guarantee: pure.

    Args:
        request: the turn's request.

    Returns:
        An entry of type ``request``; its correlation id is the turn's id.
    """
    contents: Any = [*request.contents] or [{"$type": "text", "text": request.message}]
    entry: EntryWire = {
        "$type": REQUEST,
        "correlationId": request.turn_id,
        "createdAt": request.created_at,
        "messages": [{"role": request.role, "contents": contents}],  # its time is the entry's
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
    turn_id: str, response: AgentResponse[Any], *, created_at: str, served: Mapping[str, str] | None = None
) -> EntryWire:
    """Encode the entry of an agent's response, with the response's own id, finish reason and structured value.

    Guarantee: pure; `decode_response` gives an equal response.

    Args:
        turn_id: the turn's id, the same as the request's.
        response: folded.
        created_at: when the response ended, UTC, ISO-8601.
        served: ``model`` and ``service_tier`` that served it, as far as the provider reported them; see `served_by`.

    Returns:
        An entry of type ``response``.

    Raises:
        CorruptStateError: a content holds a value that JSON cannot represent.
    """
    try:
        messages, parts = _short_messages(response.messages)
    except (AttributeError, KeyError, TypeError, ValueError):
        return _encode_response_in_full(turn_id, response, created_at=created_at, served=served)
    entry: dict[str, Any] = {
        "$type": RESPONSE,
        "correlationId": turn_id,
        "createdAt": created_at,
        "messages": messages,
    }
    short_usage = None
    if response.usage_details:
        usage = encode_usage(cast("Mapping[str, Any]", response.usage_details))
        short_usage = pack_usage(usage)
        entry["usage"] = usage if short_usage is None else short_usage
    extension = packed_extension(_response_extension(response, served), parts, is_usage_packed=short_usage is not None)
    entry["extensionData"] = {EXTENSION: extension}
    return cast("EntryWire", entry)


def _short_messages(messages: Iterable[Message]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Encode messages without our extensions; return these by position."""
    wires: list[dict[str, Any]] = []
    parts: dict[str, Any] = {}
    compact = CompactContents()
    for key, message in enumerate(messages):
        properties = message.additional_properties
        if STORED in properties:
            raise ValueError("a message that was found with more than this program knows")
        contents: list[Any] = []
        wire: dict[str, Any] = {"role": message.role, "contents": contents}
        if message.author_name is not None:
            wire["authorName"] = message.author_name
        if properties or message.message_id is not None:
            parts[str(key)] = _message_extension(message.message_id, properties)
        for number, content in enumerate(message.contents):
            short, part = compact.encode(content)
            contents.append(short)
            if part is not None:
                parts[f"{key}.{number}"] = part
        wires.append(wire)
    return wires, parts


def _encode_response_in_full(
    turn_id: str, response: AgentResponse[Any], *, created_at: str, served: Mapping[str, str] | None
) -> EntryWire:
    entry: EntryWire = {
        "$type": RESPONSE,
        "correlationId": turn_id,
        "createdAt": created_at,
        "messages": [encode_message(message, created_at=created_at) for message in response.messages],
    }
    if response.usage_details:
        entry["usage"] = cast("Any", encode_usage(cast("Mapping[str, Any]", response.usage_details)))
    if extension := _response_extension(response, served):
        entry["extensionData"] = {EXTENSION: extension}
    return pack_entry(entry)


def _response_extension(response: AgentResponse[Any], served: Mapping[str, str] | None) -> dict[str, Any]:
    extension: dict[str, Any] = {}
    if served:
        extension["served"] = dict(served)
    if response.response_id is not None:
        extension["responseId"] = response.response_id
    if response.agent_id is not None:
        extension["agentId"] = response.agent_id
    if response.finish_reason is not None:
        extension["finishReason"] = response.finish_reason
    if response.continuation_token is not None:
        extension["continuationToken"] = dump_value(response.continuation_token, "continuation_token")
    if response.additional_properties:
        extension["additionalProperties"] = dump_value(response.additional_properties, "additional_properties")
    extension.update(_encode_value(response))
    return extension


def _encode_value(response: AgentResponse[Any]) -> dict[str, Any]:
    """Encode the structured value, or a mark when parsing the text gives it."""
    try:
        value = dump_value(response.value, "value")
    except ValueError:  # the text does not match the format that the agent asked for, so there is no value
        return {}
    if value is None:
        return {}
    return {"valueIsText": True} if _value_of_text(response.text) == value else {"value": value}


def _value_of_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def decode_response(entry: Mapping[str, Any]) -> AgentResponse[Any]:
    """Decode the entry of an agent's response.

    Guarantee: pure.

    Args:
        entry: of type ``response``, written by this program or upstream.

    Returns:
        A new response with its messages, ids, usage, finish reason and structured value (as plain JSON).

    Raises:
        CorruptStateError: it is of another type, or a message is malformed.
    """
    messages = decode_messages([entry])
    entry = unpack_entry(entry)
    extension = extension_of(entry)
    value = load_value(extension.get("value"))
    if extension.get("valueIsText"):
        value = _value_of_text(AgentResponse(messages=messages).text)
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
    """Return the provider's id of a stored response. Guarantee: pure.

    Args:
        entry: of any type.

    Returns:
        The id, or None when the entry is not a response of ours or the provider gave none.
    """
    extension = cast("dict[str, Any]", entry.get("extensionData") or {})
    return cast("dict[str, Any]", extension.get(EXTENSION) or {}).get("responseId")


def served_by(entry: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the model and service tier that served a stored response. Guarantee: pure.

    Args:
        entry: of any type.

    Returns:
        ``model`` and ``service_tier``, as far as the provider reported them; None when the entry has neither.
    """
    served: Any = extension_of(entry).get("served")
    return cast("dict[str, str]", served) if isinstance(served, dict) and served else None


def options_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a stored request. Guarantee: pure.

    Args:
        entry: of any type.

    Returns:
        The options; empty when there were none.
    """
    options: Any = extension_of(entry).get("options")
    return cast("dict[str, Any]", options) if isinstance(options, dict) else {}


def decode_messages(entries: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Decode the messages of entries, in order.

    Guarantee: pure.

    Args:
        entries: request and response entries.

    Returns:
        New messages.

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
            messages.extend(_messages_of(entry))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise CorruptStateError(
                f"the conversation's turn {entry.get('correlationId')} cannot be read "
                f"({type(error).__name__}: {error}): see what 'durable-agent-host sessions verify' says of it; "
                "nothing was changed"
            ) from None
    return messages


def _messages_of(entry: Mapping[str, Any]) -> list[Message]:
    extension = extension_of(entry)
    if not packed_form(extension):
        return [decode_message(message) for message in entry.get("messages") or ()]
    parts, compact = parts_of(extension), CompactContents()
    return [_read_message(message, str(key), parts, compact) for key, message in enumerate(entry["messages"])]


def _read_message(wire: Mapping[str, Any], place: str, parts: Mapping[str, Any], compact: CompactContents) -> Message:
    """Decode a message of a compact entry."""
    contents = [
        compact.decode(content, parts.get(f"{place}.{number}")) for number, content in enumerate(_contents_of(wire))
    ]
    if place in parts:
        full = dict(wire)
        set_extension(full, parts[place])
        wire = full
    return _message_of(wire, contents)
