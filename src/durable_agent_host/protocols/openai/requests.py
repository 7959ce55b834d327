"""Requests of the Responses API: what each field means for `run`, and which response the input continues."""

from collections.abc import Container, Mapping, Sequence
from typing import Any, Final, Literal, Required, TypedDict

from pydantic import ConfigDict, TypeAdapter, with_config

from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.errors import RequestError
from durable_agent_host.http.request_handling import HandlerContext
from durable_agent_host.protocols.openai.events import OPTIONS
from durable_agent_host.protocols.openai.ids import ItemName, find_name, read_name
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
_REPLIES: Final = {"function_call_output": "call_id", "mcp_approval_response": "approval_request_id"}
"""Item that replies to a call → its field that names the call."""
_Object = dict[str, Any]


_OPEN: Final = ConfigDict(extra="allow", strict=True)


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
    tool_choice: Literal["auto", "none"] | None
    text: _Object | None


_REQUEST: Final = TypeAdapter[Any](RequestWire)


class ResponseRequest:
    """A request for a response.

    Args:
        body: of the request.
        host: the app.

    Attributes:
        agent: its name, as registered.
        is_streamed, is_background: how the client wants the response.
        fields: further fields of `run`.
        previous: the conversation or the response that it continues: the one that it names, or that of the last item of
            its input that is of this host.
        message: for `run`: what comes after that item.
        replies: to the calls of that response, by the ids of the calls.

    Raises:
        RequestError: a field cannot be honoured; names it.
        NotFoundError: an agent, a response or a conversation is unknown.
    """

    def __init__(self, body: Mapping[str, Any], host: HandlerContext) -> None:
        fields = {name: value for name, value in validate(_REQUEST, body).items() if value is not None}
        self.agent = host.agent(fields["model"])
        self.is_streamed = fields.get("stream", False)
        self.is_background = fields.get("background", False)
        self.previous: ItemName | None = None
        self.message: Any = fields.get("input", [])
        self.replies: dict[str, _Object] = {}
        conversation = fields.get("conversation")
        for client_id in (object_at(conversation).get("id", conversation), fields.get("previous_response_id")):
            if client_id is not None and self.previous is not None:
                raise RequestError("'previous_response_id' and 'conversation' exclude each other: send one of them")
            if client_id is not None:
                self.previous = read_name(client_id)
        if not isinstance(self.message, str):
            instructions = self._read_input(self.message)
            if instructions:
                fields["instructions"] = "\n\n".join([*instructions, fields.get("instructions", "")]).rstrip()
        if self.previous is not None and self.previous.agent != self.agent:
            raise RequestError(f"the conversation is one of {self.previous.agent!r}: send that as 'model'")
        text = fields.pop("text", {})
        run_fields: _Object = {
            "response_format": text.pop("format", None),
            "client_tools": self._read_tools(fields.get("tools", ())),
            "enable_tool_calls": fields.get("tool_choice") != "none",
            "options": _read_options(fields | text, host.options[self.agent].allowed_options),
        }
        self.fields = {
            name: value for name, value in run_fields.items() if value not in (None, [], {}, {"type": "text"})
        }

    def _read_input(self, items: Sequence[_Object]) -> list[str]:
        """Read the items of the input; return instructions that are among them."""
        instructions: list[str] = []
        self.message = []
        for item in items:
            item_type = item.get("type", "message")
            content: Any = item.get("content") or []
            parts: list[_Object] = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
            name = find_name(item.get(_REPLIES.get(item_type, "id"))) or find_name(item.get("call_id"))
            if name is not None:
                if self.previous is None or name[:4] != self.previous[:4]:
                    self.replies = {}
                self.previous = name
                if item_type in _REPLIES:
                    self.replies[str(name.suffix)] = _reply(item, str(name.suffix))
                else:
                    self.message = []
            elif item_type == "message" and item.get("role") == "user":
                self.message += parts
            elif item_type == "message" and item.get("role") in {"system", "developer"}:
                instructions += [str(part.get("text")) for part in parts]
            elif item_type != "reasoning":
                raise RequestError(
                    f"'input' has an item of type {item_type!r} that is not of this host, which has the history of "
                    "its own: continue a conversation by 'previous_response_id' or 'conversation'"
                )
        return instructions

    def _read_tools(self, tools: Sequence[_Object]) -> list[_Object]:
        client_tools: list[_Object] = []
        for tool in tools:
            if tool.get("type") == "function":
                client_tools.append({name: value for name, value in tool.items() if name not in {"type", "strict"}})
            elif tool.get("server_label") != self.agent:  # by which a client declares that it knows the agent's tools
                raise RequestError(f"'tools' has a {tool.get('type')!r}: only those of type 'function' are taken")
        return client_tools


def _read_options(fields: Mapping[str, Any], allowed_options: Container[str]) -> _Object:
    """Read what only some apps let requests set."""
    options: _Object = {}
    for name, value in fields.items():
        option = OPTIONS.get(name, name)
        if option in allowed_options:
            options[option] = value
        elif name not in RequestWire.__annotations__ and value not in _NEUTRAL.get(name, ()):
            raise RequestError(f"{name!r} cannot be set: leave it out, or let 'allowed_options' have {option!r}")
    return options


def _reply(item: Mapping[str, Any], call_id: str) -> _Object:
    if item["type"] == "function_call_output":
        return {"call_id": call_id, "result": item.get("output")}
    return {"call_id": call_id, "approved": item.get("approve") is True, "reason": item.get("reason")}
