"""The requests of AG-UI's clients, and the messages of a session for them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, Literal, Required, TypedDict

from pydantic import BaseModel, ConfigDict, TypeAdapter, with_config
from pydantic.alias_generators import to_camel

from durable_agent_host.agent_client import Answer
from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.codec.tool_result_text import value_text
from durable_agent_host.errors import RequestError
from durable_agent_host.http.parse import parse_object
from durable_agent_host.model.ids import check_idempotency_key, check_session_id
from durable_agent_host.model.pending_call import DECISIONS
from durable_agent_host.protocols.agui.events import RunEvents, Wire, message_id, turn_of_message
from durable_agent_host.turn.turn_requests import hash_of
from durable_agent_host.turn.turn_wire import validate

_CONTEXT: Final = "Context of the application:\n"
_SOURCES: Final[Mapping[Any, str]] = {"data": "data", "url": "url", "file": "file_id"}


@with_config(ConfigDict(extra="allow"))
class _MessageWire(TypedDict, total=False):
    id: Required[str]
    role: Required[str]
    content: str | list[Wire] | None
    toolCallId: str


class _ResumeWire(TypedDict, total=False):
    interruptId: Required[str]
    status: Required[Literal["resolved", "cancelled"]]
    payload: Any


class RunInput(BaseModel, extra="forbid", alias_generator=to_camel, defer_build=True):
    """The body of a request."""

    thread_id: str
    run_id: str
    parent_run_id: str | None = None
    protocol_version: str | None = None
    messages: list[_MessageWire]
    tools: list[Wire] | None = None
    context: list[dict[Literal["description", "value"], str]] | None = None
    state: Any = None
    forwarded_props: Any = None
    resume: list[_ResumeWire] | None = None

    def run_events(self, turn_id: str) -> RunEvents:
        """Return what makes the events of the run, of a turn."""
        return RunEvents(self.thread_id, self.run_id, turn_id, self.protocol_version, self.state or {})

    @property
    def new_messages(self) -> list[_MessageWire]:
        """What follows the last message that the host wrote."""
        return [*takewhile(lambda message: not turn_of_message(message), reversed(self.messages))][::-1]

    @property
    def turn_id(self) -> str | None:
        """The last turn that the client knows."""
        return next(filter(None, map(turn_of_message, reversed(self.messages))), None)

    @property
    def replies(self) -> dict[str, Wire]:
        """By the id of the call: an entry of ``resume``, or a message of a tool."""
        messages = takewhile(lambda message: message["role"] != "assistant", reversed(self.messages))
        tool_messages = [item for item in messages if item["role"] == "tool" and not turn_of_message(item)]
        replies = [(item.get("toolCallId", ""), {**item}) for item in tool_messages]
        replies += [(item["interruptId"], {**item}) for item in self.resume or ()]
        if len(dict(replies)) < len(replies):
            raise RequestError("'resume' and the messages of tools answer a call twice: answer it once")
        return dict(replies)

    @property
    def parts(self) -> list[Wire]:
        """What the user's new messages have, for a turn."""
        context = [{"type": "text", "text": _CONTEXT + json.dumps(item)} for item in self.context or ()]
        messages = [message for message in self.new_messages if message["role"] == "user"]
        parts = [_part_for_turn(part) for message in messages for part in _parts(message.get("content"))]
        return parts and [*context, *parts]

    @property
    def message_key(self) -> str:
        """The key of the user's messages that come with results of tools: the same in a repeated run."""
        return hash_of([sorted(self.replies), self.parts])


_reader: Final = TypeAdapter(RunInput)
"""Made when there is a request, as `RunInput` says: that takes milliseconds of a start."""


def read_input(body: bytes) -> RunInput:
    """Read a request.

    Raises:
        RequestError: it has a field that is not valid, or that the host does not take.
    """
    request = validate(_reader, parse_object(body))
    resumed_ids = {entry["interruptId"] for entry in request.resume or ()}  # CopilotKit sends a result with each entry
    request.messages = [message for message in request.messages if message.get("toolCallId") not in resumed_ids]
    if request.forwarded_props or request.parent_run_id:
        raise RequestError(
            "'forwardedProps' and 'parentRunId' are not taken: what the model is to know is 'context', and to branch "
            "off is to fork the session, and to use the fork's id as 'threadId'"
        )
    check_idempotency_key(request.run_id, "runId")
    check_session_id(request.thread_id)
    if request.resume and request.parts:
        raise RequestError(
            "a message of the user comes with 'resume': send it after the run that goes on, or remove it if the thread "
            "has it"
        )
    for message in request.new_messages:
        if message["role"] not in {"user", "tool", "activity"}:
            raise RequestError(
                f"the message {message['id']!r} of role {message['role']!r} is not of this host: remove it"
            )
    return request


def _parts(content: str | list[Wire] | None) -> list[Wire]:
    return content if content and not isinstance(content, str) else [{"type": "text", "text": content}]


def _part_for_turn(part: Wire) -> Wire:
    """Translate a part of a message into one of ours, which is checked with the turn's request."""
    match part:
        case {"type": "text"}:
            return {name: part.get(name) for name in ("type", "text")}
        case {"type": "image" | "audio" | "video" | "document" as kind, "source": {"value": str(value), **source}} if (
            field := _SOURCES.get(source.get("type"))
        ):
            return {
                "type": kind if kind in {"image", "audio"} else "file",
                field: value,
                "media_type": source.get("mimeType"),
            }
        case _:
            raise RequestError(
                f"a part of type {part.get('type')!r} cannot be read: send 'text', or 'image', 'audio', 'video' or "
                "'document' with a 'source' that has 'type' (data, url or file), 'value' and 'mimeType'"
            )


def reply_to(call: Mapping[str, Any], reply: Wire) -> Answer:
    """Translate a client's answer to a pending call."""
    answer: Wire = {"call_id": call["call_id"]}
    is_decision = call["kind"] in DECISIONS
    if reason := reply.get("error") or (reply.get("status") == "cancelled" and "the user has cancelled it"):
        return answer | ({"approved": False, "reason": reason} if is_decision else {"error": reason})
    if is_decision:
        names = {"approved": "approved", "reason": "reason", "editedArgs": "arguments"}
        payload = object_at(reply, "payload")
        return answer | {field: payload.get(name) for name, field in names.items()}
    if "status" in reply:
        return answer | {"result": reply.get("payload")}
    content = reply.get("content")
    is_text = isinstance(content, str)
    return answer | {"result": content if is_text else [_part_for_turn(part) for part in _parts(content)]}


def session_messages(session: Mapping[str, Any]) -> list[Wire]:
    """Return the messages of a session's ended turns, as far as its page has them."""
    messages: list[Wire] = []
    for message in session["messages"]:
        if message["turn_id"] != session["running_turn_id"]:
            for fields in _messages_of(message["role"], message["contents"]):
                messages.append({"id": message_id(message["turn_id"], f"stored{len(messages)}"), **fields})
    return messages


def _messages_of(role: str, contents: Sequence[Mapping[str, Any]]) -> Iterator[Wire]:
    """Translate a stored message: its reasoning and the results of tools are messages of their own."""
    for content in contents:
        if content["$type"] == "reasoning" and content.get("text"):
            yield {"role": "reasoning", "content": content["text"]}
        if content["$type"] == "functionResult":
            yield {"role": "tool", "toolCallId": content["callId"], "content": value_text(content["result"])}
    texts = [content["text"] for content in contents if content["$type"] == "text"]
    text = "".join(text for text in texts if not text.startswith(_CONTEXT))
    if role == "user":
        files = [
            {"type": "document", "source": {"type": "url", "value": item["uri"]}} for item in contents if "uri" in item
        ]
        yield {"role": role, "content": [*(_parts(text) if text else ()), *files] if files else text}
    calls = [
        {
            "id": content["callId"],
            "type": "function",
            "function": {name: content[name] for name in ("name", "arguments")},
        }
        for content in contents
        if content["$type"] == "functionCall"
    ]
    if role == "assistant" and (text or calls):
        yield {"role": role, "content": text, "toolCalls": calls}
