"""Journal entries to log entries and back: the steps of a turn, and the responses and results in them.

`durable_agent_host.turn_log.journal` decides when an entry is written; the JSON keys are here.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final, cast

from agent_framework import ChatResponse, ChatResponseUpdate, Content

from durable_agent_host.codec.content import decode_content, decode_usage, encode_content, encode_usage
from durable_agent_host.codec.content_fields import dump_value, load_value
from durable_agent_host.codec.message import decode_message, encode_message
from durable_agent_host.codec.strict_json import MAX_DEPTH, has_python_class, is_nested_too_deeply
from durable_agent_host.codec.tool_result_text import value_text
from durable_agent_host.errors import CorruptStateError, ProviderError
from durable_agent_host.model.call_path import (
    TURN_AGENT,
    CallPath,
    CompactionStep,
    ModelStep,
    ToolStep,
    parse_call_path,
)
from durable_agent_host.model.journal_entry import (
    FeatureEntry,
    JournalStep,
    ModelCallCompletedEntry,
    ModelCallStartedEntry,
    Rejection,
    ToolCallCompletedEntry,
    ToolCallStartedEntry,
)
from durable_agent_host.model.log_entry import (
    FEATURE_ENTRY,
    MODEL_FINISHED,
    MODEL_STARTED,
    TOOL_FINISHED,
    TOOL_STARTED,
    LogEntry,
)

_STEPS: Final[Mapping[str, type[JournalStep]]] = {
    MODEL_STARTED: ModelCallStartedEntry,
    MODEL_FINISHED: ModelCallCompletedEntry,
    TOOL_STARTED: ToolCallStartedEntry,
    TOOL_FINISHED: ToolCallCompletedEntry,
    FEATURE_ENTRY: FeatureEntry,
}
"""Kind of a log entry → its step. The JSON has the fields of the step, and those of its path."""
_KINDS: Final = {step_type: kind for kind, step_type in _STEPS.items()}
_ABSENT_WHEN_EMPTY: Final = frozenset({"state", "rejection", "is_agent"})


def encode_journal_entry(step: JournalStep) -> LogEntry:
    """Encode a step of a turn."""
    wire: dict[str, Any] = {}
    for field in fields(step):
        match value := getattr(step, field.name):
            case CallPath():
                wire |= _encode_path(value)
            case Rejection(reason=reason, request=request):
                wire[field.name] = {"reason": reason, "request": request}
            case _:
                wire[field.name] = value
    present = {
        name: value for name, value in wire.items() if name not in _ABSENT_WHEN_EMPTY or value not in (None, {}, False)
    }
    return LogEntry(_KINDS[type(step)], present)


def decode_journal_entry(entry: LogEntry) -> JournalStep | None:
    """Decode a step of a turn.

    Returns:
        The step, or None when the entry is of another kind.
    """
    step_type = _STEPS.get(entry.kind)
    if step_type is None:
        return None
    wire = entry.data
    values: list[Any] = []
    for field in fields(step_type):
        match field.name:
            case "path":
                values.append(_decode_path(wire))
            case "rejection":
                values.append(_decode_rejection(wire.get("rejection")))
            case name:
                values.append(wire.get(name) if name in _ABSENT_WHEN_EMPTY else wire[name])
    return step_type(*values)


def _decode_rejection(wire: Mapping[str, Any] | None) -> Rejection | None:
    return None if wire is None else Rejection(wire["reason"], wire["request"])


_NO_POSITION: Final = -1
"""Stored for calls that no model call of the turn's agent has made."""


def _encode_path(path: CallPath) -> dict[str, Any]:
    """Encode where a call is made: as fields for a call of the turn's agent, as text for one of an agent within it."""
    match path.steps:
        case ():
            return {}
        case (ModelStep(position),):
            return {"position": position}
        case (ModelStep(position), CompactionStep(number)):
            return {"position": position, "number": number}
        case (ModelStep(position), ToolStep(call_id, occurrence)):
            return {"position": position, "call_id": call_id, "occurrence": occurrence}
        case (ToolStep(call_id, occurrence),):
            return {"position": _NO_POSITION, "call_id": call_id, "occurrence": occurrence}
        case _:
            return {"position": _NO_POSITION, "path": str(path)}


def _decode_path(wire: Mapping[str, Any]) -> CallPath:
    if "path" in wire:
        return parse_call_path(wire["path"])
    if "position" not in wire:
        return TURN_AGENT
    position = wire["position"]
    if "call_id" in wire:
        model_call = CallPath() if position == _NO_POSITION else CallPath().model_call(position)
        return model_call.tool_call(wire["call_id"], wire["occurrence"])
    if "number" not in wire:
        return CallPath().model_call(position)
    return CallPath().model_call(position).compaction_call(wire["number"])


MOST_ANSWER_LEVELS: Final = MAX_DEPTH - 20
"""Maximum nesting of a model's answer; the document around it needs the rest."""


def encode_answer(response: ChatResponse[Any]) -> dict[str, Any]:
    """Encode what a model's service has answered, which may be anything.

    Returns:
        A JSON object, for which a session's document has room.

    Raises:
        ProviderError: it has numbers that JSON does not have, too many levels, or the name of a class of Python.
    """
    try:
        wire = encode_model_response(response)
    except RecursionError as error:
        raise _too_deep() from error
    except CorruptStateError as error:
        raise ProviderError(f"the model's service sent what cannot be stored: {error}", retryable=False) from error
    if is_nested_too_deeply(wire, MOST_ANSWER_LEVELS):
        raise _too_deep()
    if has_python_class(wire):
        raise ProviderError(
            "the model's service sent an object with '__class__', '__module__' and '__data__', which names a class of "
            "Python to Durable Functions: it cannot be stored",
            retryable=False,
        )
    return wire


def _too_deep() -> ProviderError:
    return ProviderError(
        f"the model's service sent values that are nested more than {MOST_ANSWER_LEVELS} levels deep: ask for "
        "something simpler",
        retryable=False,
    )


def encode_model_response(response: ChatResponse[Any]) -> dict[str, Any]:
    """Encode the response of one model call.

    Raises:
        CorruptStateError: a content holds a value that JSON cannot represent.
    """
    wire = {
        "messages": [encode_message(message) for message in response.messages],
        "responseId": response.response_id,
        "conversationId": response.conversation_id,
        "model": response.model,
        "createdAt": response.created_at,
        "finishReason": response.finish_reason,
        "usage": encode_usage(cast("Mapping[str, Any]", response.usage_details)) if response.usage_details else None,
        "continuationToken": dump_value(response.continuation_token, "continuation_token"),
        "additionalProperties": dump_value(response.additional_properties or None, "additional_properties"),
    }
    return {name: value for name, value in wire.items() if value is not None}


def decode_model_response(wire: Mapping[str, Any]) -> ChatResponse[Any]:
    """Decode the response of one model call.

    Raises:
        CorruptStateError: a message is malformed.
    """
    return ChatResponse(
        messages=[decode_message(message) for message in wire["messages"]],
        response_id=wire.get("responseId"),
        conversation_id=wire.get("conversationId"),
        model=wire.get("model"),
        created_at=wire.get("createdAt"),
        finish_reason=wire.get("finishReason"),
        usage_details=cast("Any", decode_usage(wire["usage"])) if wire.get("usage") else None,
        continuation_token=load_value(wire.get("continuationToken")),
        additional_properties=load_value(wire.get("additionalProperties") or {}),
    )


def replayed_updates(response: ChatResponse[Any]) -> list[ChatResponseUpdate]:
    """Return a recorded response as stream updates: one for each message, and the usage at the end.

    Returns:
        Updates that fold into the response's messages; at least one.
    """
    updates = [
        ChatResponseUpdate(
            contents=list(message.contents),
            role=cast("Any", message.role),
            author_name=message.author_name,
            message_id=message.message_id,
        )
        for message in response.messages
    ]
    usage = [Content.from_usage(response.usage_details)] if response.usage_details else []
    last = ChatResponseUpdate(
        contents=usage,
        role=cast("Any", response.messages[-1].role) if response.messages else "assistant",
        message_id=response.messages[-1].message_id if response.messages else None,
        finish_reason=cast("Any", response.finish_reason),
        additional_properties=dict(response.additional_properties or {}),
        continuation_token=response.continuation_token,
    )
    for update in (*updates, last):
        update.response_id = response.response_id
        update.conversation_id = response.conversation_id
        update.model = response.model
        update.created_at = response.created_at
    return [*updates, last]


def encode_tool_result(result: Any) -> dict[str, Any]:
    """Encode a tool's result, in the form that the framework makes of it for the model.

    Returns:
        ``items``, and ``is_text`` when the value was a text.

    Raises:
        CorruptStateError: a content holds a value that JSON cannot represent.
    """
    if isinstance(result, str):
        return {"items": [encode_content(Content.from_text(result))], "is_text": True}
    result_content = Content.from_function_result("", result=result)
    return {"items": [encode_content(item) for item in result_content.items or ()]}


def decode_tool_result(wire: Mapping[str, Any]) -> list[Content] | str:
    """Decode a tool's result.

    Returns:
        The text, or the contents.

    Raises:
        CorruptStateError: a content is malformed.
    """
    items = [decode_content(item) for item in wire["items"]]
    return (items[0].text or "") if wire.get("is_text") else items


def tool_result_text(wire: Mapping[str, Any]) -> str:
    """Return how a tool call ended, as a text."""
    if "items" not in wire:
        return str(wire.get("message") or "")
    return value_text(decode_tool_result(wire))
