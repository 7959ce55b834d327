"""The messages of the stored conversation that go to the model."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.codec.content import OPAQUE, STORED
from durable_agent_host.codec.extension_data import extension_of, set_extension
from durable_agent_host.codec.message import decode_messages
from durable_agent_host.model.ending import REFUSAL, is_marked_refusal
from durable_agent_host.model.provider_item import STAMP

_EXTERNAL_PROVIDER: Final = "keptBy"
"""In the extension of an entry that has the turn, its times, usage and ids, and whose messages are with a provider."""

BuildResult = Callable[[str, int], Content]
"""A call's id, and how often that id occurred before in the same batch → the result for the model."""


def finished_part(messages: Iterable[Message]) -> list[Message]:
    """Keep the usable part of a model call whose stream was cut off.

    Returns:
        Texts and reasoning, and the calls of hosted tools that the provider had finished. Calls of function tools are
        left out: their arguments may be cut off, and none of them has run. So is the reasoning at the end: it may lack
        its seal, and what it led to is missing.
    """
    complete_messages: list[Message] = []
    for message in messages:
        contents = [content for content in message.contents if _is_finished(content)]
        while contents and contents[-1].type == "text_reasoning":
            contents.pop()
        if contents:
            complete_messages.append(
                Message(message.role, contents, author_name=message.author_name, message_id=message.message_id)
            )
    return complete_messages


def _is_finished(content: Content) -> bool:
    if content.type in {"text", "text_reasoning"}:
        return True
    is_call = content.type.endswith(("_call", "_request", "_result"))
    return not is_call or (content.type != "function_call" and STAMP in content.additional_properties)


def close_calls(messages: Sequence[Message], build_result: BuildResult) -> list[Message]:
    """Give every function call of a turn its result.

    Returns:
        The messages, with the missing results in a separate message after the last.
    """
    open_calls: list[str] = []
    for content in (content for message in messages for content in message.contents):
        if content.type == "function_call" and not (content.informational_only or content.hosted):
            open_calls.append(content.call_id or "")
        elif content.type == "function_result" and content.call_id in open_calls:
            open_calls.remove(content.call_id)
    results = [
        build_result(call_id, open_calls[:call_index].count(call_id)) for call_index, call_id in enumerate(open_calls)
    ]
    return [*messages, Message("tool", results)] if results else list(messages)


def replay_messages(entries: Iterable[Mapping[str, Any]], *, omits_refusals: bool = False) -> list[Message]:
    """Rehydrate the messages that the model receives again.

    Returns:
        New messages in order, without the turns of `unsent_turns`. Contents unknown to this program are left out too;
        the stored entries keep them.

    Raises:
        CorruptStateError: an entry cannot be read.
    """
    all_entries = list(entries)
    unsent_turn_ids = unsent_turns(all_entries, omits_refusals=omits_refusals)
    messages: list[Message] = []
    for entry in all_entries:
        if not unsent_turn_ids or entry.get("correlationId") not in unsent_turn_ids:
            messages += decode_messages([entry])
    return sendable(messages)


def sendable(messages: Iterable[Message]) -> list[Message]:
    """Remove from decoded messages contents unknown to this program, and marks only for stored entries.

    Returns:
        The messages that still have contents.
    """
    sent = list(messages)
    for message in sent:
        message.additional_properties.pop(STORED, None)
        for content in message.contents:
            if not content.additional_properties.keys().isdisjoint(_MARKS):
                message.contents = _without_marks(message.contents)
                break
    return [message for message in sent if message.contents]


_MARKS: Final = (OPAQUE, STORED)


def _without_marks(contents: list[Content]) -> list[Content]:
    for content in contents:
        content.additional_properties.pop(STORED, None)
    return [content for content in contents if OPAQUE not in content.additional_properties]


def unsent_turns(entries: Iterable[Mapping[str, Any]], *, omits_refusals: bool) -> set[Any]:
    """Return the turns that the model does not receive again, question and answer.

    Upstream stored some as failed (a response of nothing but errors): the model never answered them.

    Args:
        entries: of the conversation.
        omits_refusals: see `durable_agent_host.agent.provider.ModelProvider`.
    """
    return {
        entry.get("correlationId")
        for entry in entries
        if _is_failure(entry)
        or (omits_refusals and extension_of(entry).get("finishReason") == REFUSAL and not _has_refusal_text(entry))
    }


def _has_refusal_text(entry: Mapping[str, Any]) -> bool:
    """Return whether a model has refused in words, which any service takes as its answer."""
    return any(
        is_marked_refusal(extension_of(cast("dict[str, Any]", content)).get("additional_properties"))
        for message in _as_list(entry.get("messages"))
        if isinstance(message, dict)
        for content in _as_list(cast("dict[str, Any]", message).get("contents"))
        if isinstance(content, dict)
    )


def _is_failure(entry: Mapping[str, Any]) -> bool:
    if entry.get("$type") != "response":
        return False
    has_contents = False
    for message in _as_list(entry.get("messages")):
        if isinstance(message, dict):
            for content in _as_list(cast("dict[str, Any]", message).get("contents")):
                if not isinstance(content, dict) or cast("dict[str, Any]", content).get("$type") != "error":
                    return False
                has_contents = True
    return has_contents


def _as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def external_provider_of(entry: Mapping[str, Any]) -> str | None:
    """Return which history provider of the app keeps the messages of an entry.

    Returns:
        The provider's name; None for an entry that has its messages.
    """
    mark: Any = extension_of(entry).get(_EXTERNAL_PROVIDER)
    return str(cast("dict[str, Any]", mark).get("name")) if isinstance(mark, dict) else None


def without_messages(entry: Mapping[str, Any], provider: str) -> dict[str, Any]:
    """Remove the messages from an entry.

    Returns:
        The entry without them, with a mark; an entry with such a mark is returned as it is.
    """
    if external_provider_of(entry) is not None:
        return dict(entry)
    short: dict[str, Any] = {**entry, "messages": []}
    set_extension(short, {**extension_of(entry), _EXTERNAL_PROVIDER: {"name": provider}})
    return short
