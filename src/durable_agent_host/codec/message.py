"""Messages and entries of a conversation to stored JSON and back. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from agent_framework import AgentResponse, Message

from durable_agent_host.codec.content import decode_content, encode_content, encode_usage, plain_json
from durable_agent_host.codec.wire import EXTENSION, EntryWire, MessageWire
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.turn import TurnRequest

REQUEST: Final = "request"
RESPONSE: Final = "response"


def encode_message(message: Message, *, created_at: str) -> MessageWire:
    """Write a message as it is stored.

    Guarantee: pure.

    Args:
        message: with contents of any type.
        created_at: UTC, ISO-8601.

    Returns:
        A dictionary that JSON can hold.

    Raises:
        CorruptStateError: a content holds what JSON cannot.
    """
    wire: MessageWire = {
        "role": message.role,
        "createdAt": created_at,
        "contents": [encode_content(content) for content in message.contents],
    }
    if message.author_name is not None:
        wire["authorName"] = message.author_name
    extension: dict[str, Any] = {}
    if message.message_id is not None:
        extension["messageId"] = message.message_id
    if message.additional_properties:
        extension["additionalProperties"] = plain_json(message.additional_properties, path="additional_properties")
    if extension:
        wire["extensionData"] = {EXTENSION: extension}
    return wire


def decode_message(wire: Mapping[str, Any]) -> Message:
    """Read a stored message.

    Guarantee: pure.

    Args:
        wire: as this program or upstream wrote it.

    Returns:
        A new message.

    Raises:
        CorruptStateError: it has no role or no list of contents.
    """
    role, contents = wire.get("role"), wire.get("contents")
    if not isinstance(role, str) or not isinstance(contents, list):
        raise CorruptStateError(f"a stored message has role {role!r} and contents of {type(contents).__name__}")
    all_extensions = cast("dict[str, Any]", wire.get("extensionData") or {})
    extension = cast("dict[str, Any]", all_extensions.get(EXTENSION) or {})
    return Message(
        role,
        [decode_content(content) for content in cast("list[dict[str, Any]]", contents)],
        author_name=wire.get("authorName"),
        message_id=extension.get("messageId"),
        additional_properties=dict(extension.get("additionalProperties") or {}),
    )


def encode_request_entry(request: TurnRequest) -> EntryWire:
    """Write the entry of what a client asked. Guarantee: pure.

    Args:
        request: the turn's request.

    Returns:
        An entry of type ``request``; its correlation id is the turn's id.
    """
    message = Message(request.role, [request.message])
    entry: EntryWire = {
        "$type": REQUEST,
        "correlationId": request.turn_id,
        "createdAt": request.created_at,
        "messages": [encode_message(message, created_at=request.created_at)],
        "responseType": "json" if request.response_format else "text",
    }
    if request.response_format is not None:
        entry["responseSchema"] = dict(request.response_format)
    if request.orchestration_id is not None:
        entry["orchestrationId"] = request.orchestration_id
    return entry


def encode_response_entry(turn_id: str, response: AgentResponse[Any], *, created_at: str) -> EntryWire:
    """Write the entry of an agent's response, with the response's own id, finish reason and structured value.

    Guarantee: pure.

    Args:
        turn_id: the turn's id, the same as the request's.
        response: folded.
        created_at: when the response ended, UTC, ISO-8601.

    Returns:
        An entry of type ``response``.

    Raises:
        CorruptStateError: a content holds what JSON cannot.
    """
    entry: EntryWire = {
        "$type": RESPONSE,
        "correlationId": turn_id,
        "createdAt": created_at,
        "messages": [encode_message(message, created_at=created_at) for message in response.messages],
    }
    if response.usage_details:
        entry["usage"] = cast("Any", encode_usage(cast("Mapping[str, Any]", response.usage_details)))
    extension = {
        "responseId": response.response_id,
        "agentId": response.agent_id,
        "finishReason": response.finish_reason,
        "additionalProperties": plain_json(response.additional_properties or None, path="additional_properties"),
    }
    if extension := {name: value for name, value in extension.items() if value is not None}:
        entry["extensionData"] = {EXTENSION: extension}
    return entry


def response_id_of(entry: Mapping[str, Any]) -> str | None:
    """Find the provider's id of a stored response. Guarantee: pure.

    Args:
        entry: of any type.

    Returns:
        The id, or None when the entry is no response of ours or the provider gave none.
    """
    extension = cast("dict[str, Any]", entry.get("extensionData") or {})
    return cast("dict[str, Any]", extension.get(EXTENSION) or {}).get("responseId")


def decode_messages(entries: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Read the messages of entries, in order.

    Guarantee: pure.

    Args:
        entries: request and response entries.

    Returns:
        New messages.

    Raises:
        CorruptStateError: an entry is of a type that this program does not know, or a message has no shape.
    """
    messages: list[Message] = []
    for entry in entries:
        if entry.get("$type") not in {REQUEST, RESPONSE}:
            raise CorruptStateError(
                f"the conversation has an entry of type {entry.get('$type')!r}, which this program cannot replay: "
                "upgrade durable-agent-host, or start another session; nothing was changed"
            )
        messages.extend(decode_message(message) for message in entry.get("messages") or ())
    return messages
