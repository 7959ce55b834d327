"""Requests of the Responses API: what each field means for `run`, and which response the input continues."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.errors import RequestError
from durable_agent_host.http.request_handling import HandlerContext
from durable_agent_host.protocols.openai.events import OPTIONS
from durable_agent_host.protocols.openai.ids import ItemName, find_name, read_name

_NEUTRAL: Final[Mapping[str, Any]] = {
    "store": (True,),
    "include": ([],),
    "truncation": ("disabled",),
    "service_tier": ("auto", "default"),
    "parallel_tool_calls": (True,),
    "metadata": ({},),
    "stream_options": ({"include_obfuscation": False},),
}
"""Values that ask for what happens anyway."""
_REPLIES: Final = {"function_call_output": "call_id", "mcp_approval_response": "approval_request_id"}
"""Item that replies to a call → its field that names the call."""
_KINDS: Final = {str: "a text", bool: "true or false", list: "a list", dict: "an object"}
_Object = dict[str, Any]


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
        fields = {name: value for name, value in body.items() if value is not None}
        self.agent = host.agent(pop_field(fields, "model", ""))
        self.is_streamed = pop_field(fields, "stream", False)
        self.is_background = pop_field(fields, "background", False)
        self.previous: ItemName | None = None
        for field in ("conversation", "previous_response_id"):
            if (client_id := fields.pop(field, None)) is not None:
                if self.previous is not None:
                    raise RequestError(f"{field!r} and 'conversation' exclude each other: send one of them")
                self.previous = read_name(client_id, field)
        self.message: list[Any] = []
        self.replies: dict[Any, _Object] = {}
        items = _check("input", fields.pop("input", []), str, list)
        instructions = self._read_input([{"role": "user", "content": items}] if isinstance(items, str) else items)
        if bool(self.message) == bool(self.replies):
            raise RequestError("'input' needs either a new message, or the replies to all calls of the response")
        instructions.append(pop_field(fields, "instructions", ""))
        if text := "\n\n".join(instructions).rstrip():
            fields["instructions"] = text
        if (tool_choice := fields.pop("tool_choice", "auto")) not in ("auto", "none"):
            raise RequestError("'tool_choice' has to be 'auto' or 'none'")
        fields |= pop_field(fields, "text", {})
        response_format = fields.pop("format", None)
        self.fields: _Object = {
            "response_format": None if response_format == {"type": "text"} else response_format,
            "client_tools": self._read_tools(pop_field(fields, "tools", [])),
            "enable_tool_calls": tool_choice == "auto",
            "options": _read_options(fields, host.options[self.agent].allowed_options),
        }

    def _read_input(self, items: Sequence[Any]) -> list[str]:
        """Read the items of the input; return instructions that are among them."""
        instructions: list[str] = []
        for number, value in enumerate(items):
            where = f"input[{number}]"
            item: _Object = _check(where, value, dict)
            kind = str(item.get("role") if item.get("type", "message") == "message" else item["type"])
            content = _check(f"{where}.content", item.get("content") or [], str, list)
            parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
            id_field = _REPLIES.get(kind, "id")
            name = find_name(item.get(id_field)) or find_name(item.get("call_id"))
            if name is not None:
                if self.previous is None or name[:4] != self.previous[:4]:
                    self.replies = {}
                self.previous = name
            if kind in _REPLIES:
                if name is None or name.suffix in self.replies:
                    raise RequestError(
                        f"'{where}.{id_field}' has to be the id of a call of the response, once for each"
                    )
                self.replies[name.suffix] = {"call_id": name.suffix, **_read_reply(item, where)}
            elif name is not None:
                self.message = []
            elif kind == "user":
                self.message += parts
            elif kind in {"system", "developer"}:
                instructions += [_check(f"{where}.content", object_at(part).get("text"), str) for part in parts]
            elif kind != "reasoning":
                raise RequestError(
                    f"{where!r} ({kind[:40]}) is not of this host, which has the history of its own: continue a "
                    "conversation by 'previous_response_id' or 'conversation'"
                )
        return instructions

    def _read_tools(self, tools: Sequence[Any]) -> list[_Object]:
        client_tools: list[_Object] = []
        for number, tool in enumerate(map(object_at, tools)):
            if tool.get("type") == "function":
                client_tools.append({name: value for name, value in tool.items() if name not in {"type", "strict"}})
            elif tool.get("server_label") != self.agent:  # by which a client declares that it knows the agent's tools
                raise RequestError(f"'tools[{number}].type' is {tool.get('type')!r}: only 'function' is taken")
        return client_tools


def pop_field[T](fields: _Object, name: str, default: T) -> T:
    """Remove a field; return its value, which has the type of the default."""
    return _check(name, fields.pop(name, default), type(default))


def _check(field: str, value: Any, *kinds: type) -> Any:
    """Check the type of a field; return its value."""
    if not isinstance(value, kinds):
        raise RequestError(f"{field!r} has to be {' or '.join(_KINDS[kind] for kind in kinds)}")
    return value


def _read_reply(item: _Object, where: str) -> _Object:
    if item["type"] == "function_call_output":
        return {"result": _check(f"{where}.output", item.get("output"), str, list)}
    return {"approved": _check(f"{where}.approve", item.get("approve"), bool), "reason": item.get("reason")}


def _read_options(fields: Mapping[str, Any], allowed_options: Mapping[str, Any]) -> _Object:
    """Read what only some apps let requests set."""
    options: _Object = {}
    for name, value in fields.items():
        option = OPTIONS.get(name, name)
        if option in allowed_options:
            options[option] = value
        elif value not in _NEUTRAL.get(name, ()):
            raise RequestError(f"{name!r} cannot be set: leave it out, or let 'allowed_options' have {option!r}")
    return options
