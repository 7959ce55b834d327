"""The requests of AG-UI's clients, and the messages of a session for them."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import takewhile
from typing import Any, Final, Literal, NamedTuple, Required, TypedDict, cast

from pydantic import ConfigDict, TypeAdapter, with_config

from durable_agent_host.agent_client import Answer
from durable_agent_host.codec.tool_result_text import value_text
from durable_agent_host.errors import RequestError
from durable_agent_host.http.parse import parse_object
from durable_agent_host.model.ids import check_idempotency_key, check_session_id, derived_id
from durable_agent_host.model.pending_call import DECISIONS
from durable_agent_host.protocols.agui.events import RunEvents, Wire, message_id, turn_of_message
from durable_agent_host.turn.turn_wire import validate

_CONTEXT: Final = "Context of the application:\n"
_KINDS: Final[Mapping[Any, str]] = {"image": "image", "audio": "audio", "video": "file", "document": "file"}
_SOURCES: Final[Mapping[Any, str]] = {"data": "data", "url": "url", "file": "file_id"}


@with_config(ConfigDict(extra="allow"))
class _MessageWire(TypedDict, total=False):
    id: Required[str]
    role: Required[Literal["user", "assistant", "tool", "reasoning", "activity", "system", "developer"]]
    content: str | list[Wire] | None
    toolCallId: str


class _ResumeWire(TypedDict, total=False):
    interruptId: Required[str]
    status: Required[Literal["resolved", "cancelled"]]
    payload: Any


@with_config(ConfigDict(extra="forbid"))
class RunInputWire(TypedDict, total=False):
    """The body of a request."""

    threadId: Required[str]
    runId: Required[str]
    protocolVersion: str | None
    messages: Required[list[_MessageWire]]
    tools: list[Wire] | None
    context: list[dict[Literal["description", "value"], str]] | None
    state: Any
    forwardedProps: Any
    resume: list[_ResumeWire] | None


@cache
def _adapter() -> TypeAdapter[RunInputWire]:
    """Make the reader of requests when there is one: that takes milliseconds of a start."""
    return TypeAdapter(RunInputWire)


class RunInput(NamedTuple):
    """What a client asks for.

    Attributes:
        thread_id, run_id: as the client names them.
        version: of the client's protocol.
        session_id: of the thread.
        messages: all that the client has.
        history: those up to the last that the host wrote.
        replies: by the id of the call: an entry of ``resume``, or a message of a tool.
        content: of the user's new message.
        parts: the same, for a turn.
        tools: those of the client.
    """

    thread_id: str
    run_id: str
    version: str | None
    session_id: str
    messages: list[Wire]
    history: list[Wire]
    replies: Mapping[str, Wire]
    content: Any
    parts: list[Wire]
    tools: list[Wire]

    def run_events(self, turn_id: str) -> RunEvents:
        """Return what makes the events of the run, of a turn."""
        return RunEvents(self.thread_id, self.run_id, turn_id, self.version)

    @property
    def turn_id(self) -> str | None:
        """The last turn that the client knows."""
        return turn_of_message(self.history[-1]) if self.history else None


def read_input(body: bytes) -> RunInput:
    """Read a request.

    Raises:
        RequestError: it has a field that is not valid, or that the host does not take.
    """
    wire = validate(_adapter(), parse_object(body))
    for name in ("state", "forwardedProps"):
        if wire.get(name):
            raise RequestError(
                f"{name!r} is not taken: leave it empty, and send what the model is to know as 'context'"
            )
    check_idempotency_key(wire["runId"], "runId")
    messages = cast("list[Wire]", wire["messages"])
    new_messages = [*takewhile(lambda message: not turn_of_message(message), reversed(messages))][::-1]
    for message in new_messages:
        if message["role"] not in {"user", "tool", "activity"}:
            raise RequestError(
                f"the message {message['id']!r} of role {message['role']!r} is not of this host: remove it"
            )
    contents = [message.get("content") for message in new_messages if message["role"] == "user"]
    parts = [part for content in contents for part in _parts(content)]
    outputs = takewhile(lambda message: message["role"] != "assistant", reversed(messages))
    replies = {message.get("toolCallId", ""): message for message in outputs if _is_reply(message)}
    context = [{"type": "text", "text": _CONTEXT + json.dumps(item)} for item in wire.get("context") or ()]
    return RunInput(
        thread_id=wire["threadId"],
        run_id=wire["runId"],
        version=wire.get("protocolVersion"),
        session_id=_session_id(wire["threadId"]),
        messages=messages,
        history=messages[: len(messages) - len(new_messages)],
        replies=replies | {entry["interruptId"]: {**entry} for entry in wire.get("resume") or ()},
        content=contents[0] if len(contents) == 1 else parts,
        parts=[*context, *map(_part_for_turn, parts)] if parts else [],
        tools=wire.get("tools") or [],
    )


def _is_reply(message: Wire) -> bool:
    return message["role"] == "tool" and not turn_of_message(message)


def _session_id(thread_id: str) -> str:
    """Return the session of a thread: the same id, or one derived from an id that sessions do not take."""
    try:
        return check_session_id(thread_id)
    except RequestError:
        return derived_id("ag-ui", thread_id)


def _parts(content: str | list[Wire] | None) -> list[Wire]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content or []


def _part_for_turn(part: Wire) -> Wire:
    """Translate a part of a message into one of ours, which is checked with the turn's request."""
    source: Any = part.get("source")
    if not isinstance(source, dict):
        return {name: part.get(name) for name in ("type", "text")}
    fields = cast("Wire", source)
    media_type = {"media_type": fields["mimeType"]} if fields.get("mimeType") else {}
    return {
        "type": _KINDS.get(part.get("type")),
        _SOURCES.get(fields.get("type"), "source"): fields.get("value"),
    } | media_type


def reply_to(call: Mapping[str, Any], reply: Wire) -> Answer:
    """Translate a client's answer to a pending call.

    Raises:
        RequestError: it has no decision.
    """
    answer: Wire = {"call_id": call["call_id"]}
    is_decision = call["kind"] in DECISIONS
    if reason := reply.get("error") or (reply.get("status") == "cancelled" and "the user has cancelled it"):
        return answer | ({"approved": False, "reason": reason} if is_decision else {"error": reason})
    if not is_decision:
        content = reply.get("payload", reply.get("content"))
        is_text = "status" in reply or isinstance(content, str)
        return answer | {"result": content if is_text else [_part_for_turn(part) for part in _parts(content)]}
    payload: Wire = reply["payload"] if isinstance(reply.get("payload"), dict) else {}
    if "approved" not in payload:
        raise RequestError(f'the answer to {call["call_id"]!r} has no decision: its payload is {{"approved": true}}')
    names = {"approved": "approved", "reason": "reason", "editedArgs": "arguments"}
    return answer | {field: payload[name] for name, field in names.items() if payload.get(name) is not None}


def session_messages(session: Mapping[str, Any]) -> list[Wire]:
    """Return the messages of a session's ended turns, as far as its page has them."""
    numbers: Counter[str] = Counter()
    messages: list[Wire] = []
    for message in session["messages"]:
        turn_id = message["turn_id"]
        for fields in _messages_of(message["role"], message["contents"]):
            if turn_id != session["running_turn_id"]:
                messages.append({"id": message_id(turn_id, f"stored{numbers[turn_id]}"), **fields})
                numbers[turn_id] += 1
    return messages


def _messages_of(role: str, contents: Sequence[Mapping[str, Any]]) -> Iterator[Wire]:
    """Translate a stored message: its reasoning and the results of tools are messages of their own."""
    for content in contents:
        if content["$type"] == "reasoning" and content.get("text"):
            yield {"role": "reasoning", "content": content["text"]}
        if content["$type"] == "functionResult":
            yield {"role": "tool", "toolCallId": content["callId"], "content": value_text(content["result"])}
    texts = [content["text"] for content in contents if content["$type"] == "text"]
    if role == "user":
        files = [
            {"type": "document", "source": {"type": "url", "value": item["uri"]}} for item in contents if "uri" in item
        ]
        parts = [part for text in texts if not text.startswith(_CONTEXT) for part in _parts(text)]
        yield {"role": role, "content": [*parts, *files] if files else "".join(part["text"] for part in parts)}
    calls = [
        {
            "id": content["callId"],
            "type": "function",
            "function": {name: content[name] for name in ("name", "arguments")},
        }
        for content in contents
        if content["$type"] == "functionCall"
    ]
    if role == "assistant" and (texts or calls):
        yield {"role": role, "content": "".join(texts), "toolCalls": calls}
