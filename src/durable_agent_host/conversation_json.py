"""Messages and conversations as JSON that keeps the identity of every tool call; streamed updates as one response.

For programs that store or move conversations without hosting the agents here. The JSON has the format of a session's
document, so `durable-agent-host sessions import` accepts an encoded `Conversation`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, cast

from agent_framework import AgentResponse, AgentResponseUpdate, AgentSession, ChatResponseUpdate, Message

from durable_agent_host.codec.content import decode_agent_session, encode_agent_session
from durable_agent_host.codec.entity_state import decode_session, encode_session
from durable_agent_host.codec.message import (
    decode_message,
    decode_messages,
    decode_response,
    encode_message,
    encode_response_entry,
)
from durable_agent_host.codec.session_blobs import has_blobs
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.session import Session
from durable_agent_host.providers.registry import provider_for
from durable_agent_host.stream.fold import fold_updates

_ASKING: Final = frozenset({"user", "system"})


@dataclass(frozen=True)
class Conversation:
    """A conversation and the framework's data that belongs to it.

    Attributes:
        messages: oldest first.
        agent_session: the framework's session, with its state and the service's conversation id, or None.
    """

    messages: Sequence[Message] = ()
    agent_session: AgentSession | None = None


def fold(updates: Iterable[AgentResponseUpdate | ChatResponseUpdate], *, client: Any = None) -> AgentResponse[Any]:
    """Fold streamed updates into one response, the same however the stream was split.

    The time is linear; the updates are not changed.

    Args:
        updates: of an agent or a chat client, in arrival order, may be empty; the stream may have ended early. The
            provider's own events are read from ``raw_representation`` where present.
        client: the chat client that streamed them. Without it, the provider is recognized by its events, which works
            for OpenAI and registered providers.

    Returns:
        The response: one content per call, a code interpreter's complete script with its outputs, calls before
        results, items in the order of the model's output; without live objects of the provider's SDK.
    """
    return fold_updates(updates, provider_for(client))


def encode(value: Message | AgentResponse[Any] | Conversation, /) -> dict[str, Any]:
    """Encode a message, a response or a conversation as JSON.

    `decode` returns an equal value, including call ids, the provider's item ids, argument strings,
    annotations and properties. Live objects of the provider's SDK (``raw_representation``) are omitted: `fold` first.

    Args:
        value: the value to encode.

    Raises:
        CorruptStateError: a content holds a value that JSON cannot represent.
        TypeError: the value has another type.
    """
    if isinstance(value, Message):
        return cast("dict[str, Any]", encode_message(value))
    if isinstance(value, AgentResponse):
        created_at = str(value.created_at or "")
        return cast("dict[str, Any]", encode_response_entry(value.response_id or "", value, created_at=created_at))
    if isinstance(value, Conversation):  # pyright: ignore[reportUnnecessaryIsInstance] - callers need not be typed
        agent_session = value.agent_session
        session = Session(
            entries=tuple(_entries(value.messages)),
            agent_session=None if agent_session is None else encode_agent_session(agent_session),
        )
        return encode_session(session)
    raise TypeError(f"{type(value).__name__} is no Message, AgentResponse or Conversation")


def decode(wire: Mapping[str, Any], /) -> Message | AgentResponse[Any] | Conversation:
    """Decode the output of `encode`, an entry of a session's document, or a whole document, also upstream's.

    The result shares nothing with the argument.

    Args:
        wire: JSON.

    Returns:
        A message for an object with a ``role``, a response for one of ``$type`` ``response``, a conversation for one
        with a ``schemaVersion``.

    Raises:
        CorruptStateError: it is none of these, is malformed inside, or is only the head of a session; says where.
        UnknownSchemaVersionError: the document is of a version that this program does not read.
    """
    if "schemaVersion" in wire:
        session = decode_session(wire)
        if has_blobs(wire):
            raise CorruptStateError(
                "the document is the head of a session, whose older messages and large contents are stored elsewhere: "
                "decode what 'durable-agent-host sessions export' gives"
            )
        session_json = session.agent_session
        agent_session = None if session_json is None else decode_agent_session(session_json, AgentSession)
        return Conversation(decode_messages(session.entries), agent_session)
    if wire.get("$type") == "response":
        return decode_response(wire)
    if "role" in wire:
        return decode_message(wire)
    raise CorruptStateError(
        "the object is no message ('role'), no response ('$type': 'response') and no session's document "
        "('schemaVersion')"
    )


def _entries(messages: Sequence[Message]) -> Iterable[dict[str, Any]]:
    """Group messages into entries of a document: request and response, turn by turn."""
    turn = 0
    for is_asking, together in groupby(messages, lambda message: message.role in _ASKING):
        turn += is_asking or not turn
        name = derived_id("conversation", str(turn))
        if is_asking:
            request_messages = [encode_message(message) for message in together]
            yield {"$type": "request", "correlationId": name, "createdAt": "", "messages": request_messages}
        else:
            response = AgentResponse[Any](messages=list(together))
            yield cast("dict[str, Any]", encode_response_entry(name, response, created_at=""))
