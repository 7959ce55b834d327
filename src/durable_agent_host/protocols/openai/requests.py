"""Requests of the Responses API: what each field means for `run`, and which response the input continues."""

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Required, TypedDict

from pydantic import ConfigDict, TypeAdapter, with_config

from durable_agent_host.agent_client import TurnEvent
from durable_agent_host.codec.log_entry import encode_compact
from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.errors import RequestError
from durable_agent_host.http.request_handling import HandlerContext
from durable_agent_host.model.pending_call import DECISIONS
from durable_agent_host.model.turn import Turn
from durable_agent_host.protocols.openai.events import OPTIONS, calls_for_client
from durable_agent_host.protocols.openai.ids import ItemName, encode_id, find_name, response_name, session_name
from durable_agent_host.turn.turn_wire import validate

_NEUTRAL: Final[Mapping[str, Sequence[Any]]] = {
    "store": (True,),
    "include": ([],),
    "truncation": ("disabled",),
    "service_tier": ("auto", "default"),
    "parallel_tool_calls": (True,),
    "metadata": ({},),
    "stream_options": ({}, {"include_obfuscation": False}),
}
"""Values that ask for what happens anyway."""
_INSTRUCTORS: Final = ("system", "developer")
_CALLS: Final = ("function_call", "mcp_approval_request")


_OPEN: Final = ConfigDict(extra="allow", strict=True)
_Object = dict[str, Any]


@with_config(_OPEN)
class ItemWire(TypedDict, total=False):
    """An item of the input, as far as it is checked."""

    type: str
    content: str | list[_Object] | None


@with_config(_OPEN)
class RequestWire(TypedDict, total=False):
    """The body of a request; its other fields are options, which the app allows or not."""

    model: Required[str]
    input: str | list[ItemWire] | None
    stream: bool | None
    background: bool | None
    previous_response_id: str | None
    conversation: str | _Object | None
    tools: list[_Object] | None
    tool_choice: str | _Object | None
    text: _Object | None


_REQUEST: Final = TypeAdapter[Any](RequestWire)


@dataclass
class ResponseRequest:
    """A request for a response.

    Attributes:
        agent: its name, as registered.
        fields: further fields of `run`.
        session_id: of the conversation that it names, if any.
        previous: the response that it names; otherwise that of the last item of its input that is of this host.
        parts: of the message, which comes after that item.
        replies: to calls of that response, by the ids of the calls.
        instructions: from the beginning of the input.
    """

    agent: str
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    session_id: str | None = None
    previous: ItemName | None = None
    parts: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    replies: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    instructions: list[str] = field(default_factory=list[str])

    @property
    def message(self) -> str | list[dict[str, Any]]:
        """The message for `run`."""
        texts = [part["text"] for part in self.parts if part.keys() == {"type", "text"}]
        return texts[0] if len(texts) == len(self.parts) == 1 else self.parts


def read_request(body: Mapping[str, Any], host: HandlerContext) -> ResponseRequest:
    """Read the body of ``POST /responses``.

    Raises:
        RequestError: a field cannot be honoured; names it.
        NotFoundError: an agent, a response or a conversation is unknown.
    """
    fields = {name: value for name, value in validate(_REQUEST, body).items() if value is not None}
    request = ResponseRequest(host.agent(fields["model"]))
    if (conversation := fields.get("conversation")) is not None:
        agent, request.session_id = session_name(object_at(conversation).get("id", conversation))
        _check_agent(agent, request)
    if (response_id := fields.get("previous_response_id")) is not None:
        request.previous = response_name(response_id)
        if conversation is not None:
            raise RequestError("'previous_response_id' and 'conversation' exclude each other: send one of them")
    _read_input(fields.get("input", []), request)
    if request.previous is not None:
        _check_agent(request.previous.agent, request)
    if request.instructions:
        fields["instructions"] = "\n\n".join([*request.instructions, *filter(None, [fields.get("instructions")])])
    _read_tools(fields, request)
    if options := _read_options(fields, host.options[request.agent].allowed_options):
        request.fields["options"] = options
    return request


def _read_options(fields: Mapping[str, Any], allowed_options: Container[str]) -> dict[str, Any]:
    """Read what only some apps let requests set."""
    options: dict[str, Any] = {}
    for name, value in fields.items():
        option = OPTIONS.get(name, name)
        if option in allowed_options:
            options[option] = value
        elif name not in RequestWire.__annotations__ and value not in _NEUTRAL.get(name, ()):
            raise RequestError(f"{name!r} cannot be set: leave it out, or let 'allowed_options' have {option!r}")
    return options


def _check_agent(name: str, request: ResponseRequest) -> None:
    if name != request.agent:
        raise RequestError(f"the conversation is one of {name!r}: send that as 'model', instead of {request.agent!r}")


def _read_tools(fields: dict[str, Any], request: ResponseRequest) -> None:
    """Read tools, and the format of the text; other fields of the text are like those of the request."""
    text = fields.pop("text", {})
    text_format = text.pop("format", None)
    if text_format not in (None, {"type": "text"}):
        request.fields["response_format"] = text_format
    fields |= text
    client_tools: list[dict[str, Any]] = []
    for tool in fields.get("tools", ()):
        if tool.get("type") == "function":
            client_tools.append({name: value for name, value in tool.items() if name not in {"type", "strict"}})
        elif tool.get("server_label") != request.agent:  # by which a client declares that it knows the agent's tools
            raise RequestError(f"'tools' has one of type {tool.get('type')!r}: only tools of type 'function' are taken")
    if client_tools:
        request.fields["client_tools"] = client_tools
    choice = fields.get("tool_choice", "auto")
    if choice not in ("auto", "none"):
        raise RequestError(f"'tool_choice' is {json.dumps(choice)[:200]}: send 'auto' or 'none'")
    if choice == "none":
        request.fields["enable_tool_calls"] = False


def _read_input(value: str | Sequence[_Object], request: ResponseRequest) -> None:
    """Read the input: new is what comes after the last item that is of this host."""
    items: Sequence[_Object] = [{"role": "user", "content": value}] if isinstance(value, str) else value
    for item in items:
        item_type = item.get("type", "message")
        content: Any = item.get("content")
        parts: list[Any] = [{"type": "input_text", "text": content}] if isinstance(content, str) else content or []
        if item_type in {"function_call_output", "mcp_approval_response"}:
            _read_reply(item, request)
        elif name := find_name(item.get("id")) or find_name(item.get("call_id")):
            if item_type not in _CALLS or request.previous is None or name[:3] != request.previous[:3]:
                request.replies = {}
            request.previous = name
            request.parts = []
        elif item_type == "message" and item.get("role") == "user":
            request.parts += parts
        elif item_type == "message" and item.get("role") in _INSTRUCTORS and not request.parts:
            request.instructions += [part.get("text", "") for part in parts]
        elif item_type != "reasoning":
            raise RequestError(
                f"'input' has an item of type {item_type!r} that is of no conversation of this host, which has the "
                "history of its own: continue one by 'previous_response_id' or 'conversation'"
            )


def _read_reply(item: Mapping[str, Any], request: ResponseRequest) -> None:
    is_result = item["type"] == "function_call_output"
    call_id: Any = item.get("call_id" if is_result else "approval_request_id")
    name = find_name(call_id)
    if name is None:
        raise RequestError(f"'input' has a {item['type']!r} for {call_id!r}, which is no call of this host")
    if not request.replies or request.previous is None or name.number > request.previous.number:
        request.previous = name
    reply = {"result": item.get("output")} if is_result else {"approved": item.get("approve") is True}
    reason = {"reason": item["reason"]} if item.get("reason") else {}
    request.replies[name.suffix] = {"call_id": name.suffix, **reply, **reason}


def input_items(turn: Turn, number: int, events: Iterable[TurnEvent]) -> list[dict[str, Any]]:
    """Return the input of a response: the turn's message, or of a later response the answers with which it began."""
    request = turn.request
    names = (request.agent, request.session_id, request.turn_id)
    if number == 0:
        parts = [*map(_part, request.contents)] or [{"type": "input_text", "text": request.message}]
        fields = {"type": "message", "role": "user", "status": "completed", "content": parts}
        return [{"id": encode_id("msg", *names, 0, "input"), **fields}]
    items: list[dict[str, Any]] = []
    rounds = 0
    for event in events:
        data = event.data
        if event.name == "turn.waiting":
            rounds += bool(calls_for_client(data["pending_calls"]))
        if event.name == "call.answered" and rounds == number and data["kind"] != "callback":
            call_id = data["call_id"]
            reply = turn.replies.get(call_id, {})
            if data["kind"] in DECISIONS:
                fields = {"type": "mcp_approval_response", "approve": data["outcome"] == "approved"}
                fields |= {"approval_request_id": encode_id("mcpr", *names, number - 1, call_id)}
            else:
                result: Any = reply.get("result", reply.get("error", ""))
                output = result if isinstance(result, str) else encode_compact(result)
                fields = {"type": "function_call_output", "status": "completed", "output": output}
                fields |= {"call_id": encode_id("call", *names, number - 1, call_id)}
            items.append({"id": encode_id("in", *names, number, call_id), **fields})
    return items


def _part(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored content of a message as a part of input."""
    uri = content.get("uri") or ""
    if content.get("type") == "text":
        return {"type": "input_text", "text": content.get("text")}
    if uri and str(content.get("media_type")).startswith("image/"):
        return {"type": "input_image", "detail": "auto", "image_url": uri}
    source = (
        {"file_data" if uri.startswith("data:") else "file_url": uri} if uri else {"file_id": content.get("file_id")}
    )
    return {"type": "input_file", "filename": content.get("name"), **source}
