"""A turn as the events of one of its responses: a pure function of the turn's log.

Theory of operation: a response is a round of its turn. It ends where the turn waits for whoever has sent the request,
and the next one begins there; so the events of earlier rounds are read for the calls that they leave open. An item of
the output begins with an event of the turn, whose offset is in the item's id. Text that a restart discards was sent and
stays sent: its item ends as incomplete, and is empty in the response. Of a turn whose log is gone, only the
end is left: it is that of the last response, which is any that is not the first.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from durable_agent_host.codec.content import decode_content
from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.model.pending_call import DECISIONS
from durable_agent_host.model.turn import Turn, TurnRequest
from durable_agent_host.protocols.dialect import text_of
from durable_agent_host.protocols.openai.ids import ItemName, encode_id

Wire = Mapping[str, Any]
OPTIONS: Final = {"max_output_tokens": "max_tokens", "parallel_tool_calls": "allow_multiple_tool_calls"}
"""Field of a request → the option of an agent, where they have other names."""
_FIELDS: Final = {option: name for name, option in OPTIONS.items()}
_RESPONSE: Final[Wire] = {
    "object": "response",
    "completed_at": None,
    "status": "queued",
    "background": True,
    "error": None,
    "frequency_penalty": 0,
    "incomplete_details": None,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": None,
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1,
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": 1,
    "truncation": "disabled",
    "usage": None,
}
"""What a response has at its beginning; schemas require also what is null."""
_TYPES: Final = {
    "message": ("msg",),
    "reasoning": ("rs",),
    "function_call": ("fc",),
    "mcp_approval_request": ("mcpr",),
    "mcp_call": ("mcp", "in_progress"),
    "code_interpreter_call": ("ci", "in_progress"),
    "web_search_call": ("ws", "in_progress", "searching"),
    "file_search_call": ("fs", "in_progress", "searching"),
    "image_generation_call": ("ig", "in_progress", "generating"),
}
"""Type of an item → the prefix of its ids, and the events with which it begins."""
_TEXTS: Final[Mapping[str, Wire]] = {
    "message": {"role": "assistant", "status": "in_progress", "content": []},
    "reasoning": {"summary": []},
}
"""Type of an item that has text → its other fields at the beginning."""
_ENDS: Final = {"turn.completed", "turn.cancelled", "turn.failed"}
_REASONS: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}


class _Text(NamedTuple):
    """A kind of text: its item, the field of that for its parts, their events, those of the text, and its field."""

    item_type: str
    parts: str
    group: str
    event: str
    name: str
    fields: Wire
    extra: Wire

    def part(self, text: str, **fields: Any) -> dict[str, Any]:
        """Return the part of an item that has the text."""
        return {**self.fields, **fields, self.name: text}


_LOG: Final[Wire] = {"logprobs": []}
_ANSWER: Final = _Text(
    *("message", "content", "content_part", "output_text", "text"),
    {"type": "output_text", "annotations": [], **_LOG},
    _LOG,
)
_REFUSAL: Final = _Text("message", "content", "content_part", "refusal", "refusal", {"type": "refusal"}, {})
_SUMMARY: Final = _Text(
    *("reasoning", "summary", "reasoning_summary_part", "reasoning_summary_text", "text"), {"type": "summary_text"}, {}
)


@dataclass
class _Item:
    """An item of the output.

    Attributes:
        index: in the output.
        offset: of the event with which it began.
        fields: as clients have it.
        data: of the event of its call.
        text: what was sent of its text or code.
    """

    index: int
    offset: int
    fields: Wire
    data: Wire = field(default_factory=dict[str, Any])
    text: str = ""


class ResponseEvents:
    """Makes the events of one response of a turn; an event of the turn has its method, of the same name.

    Args:
        turn: the turn.
        name: of the response.
        is_function: whether the agent has a function of this name.
        url: below which the routes are.

    Attributes:
        turn, name: as above.
        input: the items with which it began.
        is_started, is_complete: whether there is the response, and whether it is complete.
        problem: why the turn has failed, if it has.
        waiting_calls: the calls for which it has ended.
    """

    def __init__(self, turn: Turn, name: ItemName, is_function: Callable[[str], bool], url: str) -> None:
        self.turn = turn
        self.name = name
        self.is_started = self.is_complete = False
        self.problem: Any = None
        self.waiting_calls: Sequence[Wire] = ()
        request = turn.request
        self.input: list[Wire] = []
        self._conversation_id = encode_id("conv", *name[:2])
        self._is_function = is_function
        self._files_url = f"{url}/containers/{self._conversation_id}/files"
        self._round = self._sequence_number = self._offset = 0
        self._events: list[Wire] = []
        self._items: list[_Item] = []
        self._open: dict[str, _Item] = {}
        self._messages: dict[int, _Item] = {}
        self._pending: dict[str, Wire] = {}
        created_at = int(datetime.fromisoformat(request.created_at).timestamp()) if request.created_at else 0
        self._fields: dict[str, Any] = {
            **_RESPONSE,
            **{_FIELDS.get(option, option): value for option, value in request.options.items()},
            "id": encode_id("resp", *name[:4]),
            "created_at": created_at,
            "model": request.agent,
            "conversation": {"id": self._conversation_id},
            "previous_response_id": encode_id("resp", *name[:3], name.number - 1) if name.number else None,
            "text": {"format": request.response_format or {"type": "text"}},
            "tools": [{"type": "function", "strict": None, **tool} for tool in request.client_tools],
        }

    @property
    def body(self) -> dict[str, Any]:
        """The response as far as it has come."""
        return {**self._fields, "output": [item.fields for item in self._items]}

    def feed(self, offset: int, event: str, data: Wire) -> Sequence[Wire]:
        """Read the turn's next event; return the events of the response."""
        self._events = []
        if self.is_complete:
            return []
        if not self._sequence_number:
            has_no_log = event in _ENDS
            self._begin(self.name.number if has_no_log else 0)
            decisions = [{"call_id": call_id} for call_id, reply in self.turn.replies.items() if "approved" in reply]
            if has_no_log and decisions and not self.name.number:
                self.waiting_calls = decisions
                self._complete("completed")
                return self._events
        self._offset = offset
        if event != "reasoning.delta" and "reasoning" in self._open:
            self._end_text(_SUMMARY)
        if handler := getattr(self, "on_" + event.replace(".", "_"), None):
            handler(data)
        return self._events if self.is_started else []

    def _begin(self, number: int) -> None:
        """Begin one of the turn's responses; nothing of the earlier ones is for the client."""
        self._round = number
        self.waiting_calls = ()
        self.is_started = number == self.name.number
        message = {"id": encode_id("msg", *self.name[:4], "input"), "type": "message", "role": "user"}
        content = input_parts(self.turn.request)
        self.input = [] if number else [{**message, "status": "completed", "content": content}]
        self._items = []
        self._events = []
        self._sequence_number = 0
        self._fields["status"] = "in_progress"
        for event in ("created", "in_progress"):
            self._emit(event, response=self.body)

    def _emit(self, event: str, **fields: Any) -> None:
        self._events.append({"type": f"response.{event}", "sequence_number": self._sequence_number, **fields})
        self._sequence_number += 1

    def _emit_for(self, item: _Item, event: str, **fields: Any) -> None:
        self._emit(event, item_id=item.fields["id"], output_index=item.index, **fields)

    def _add(self, key: str, item_type: str, **fields: Any) -> _Item:
        prefix, *stages = _TYPES[item_type]
        item_id = encode_id(prefix, *self.name[:4], self._offset)
        item = _Item(len(self._items), self._offset, {"id": item_id, "type": item_type, **fields})
        self._items.append(item)
        self._open[key] = item
        self._emit("output_item.added", output_index=item.index, item=item.fields)
        for stage in stages:
            self._emit_for(item, f"{item_type}.{stage}")
        return item

    def _end(self, key: str, **fields: Any) -> None:
        item = self._open.pop(key)
        item.fields = {**item.fields, **fields}
        self._emit("output_item.done", output_index=item.index, item=item.fields)

    def _end_open(self, first_offset: int = 0) -> None:
        for key, item in [*self._open.items()]:
            if item.offset >= first_offset:
                self._end(key, status="incomplete")

    def _emit_text(self, kind: _Text, event: str, **fields: Any) -> None:
        self._emit_for(self._open[kind.item_type], event, **{f"{kind.parts}_index": 0}, **fields)

    def _begin_text(self, kind: _Text) -> _Item:
        item = self._add(kind.item_type, kind.item_type, **_TEXTS[kind.item_type])
        self._emit_text(kind, f"{kind.group}.added", part=kind.part(""))
        return item

    def _add_text(self, kind: _Text, text: str) -> None:
        self._open[kind.item_type].text += text
        self._emit_text(kind, f"{kind.event}.delta", delta=text, **kind.extra)

    def _end_text(self, kind: _Text, part: Wire | None = None, **fields: Any) -> None:
        part = part or kind.part(self._open[kind.item_type].text)
        self._emit_text(kind, f"{kind.event}.done", **{kind.name: part[kind.name]}, **kind.extra)
        self._emit_text(kind, f"{kind.group}.done", part=part)
        self._end(kind.item_type, **{kind.parts: [part]}, **fields)

    # messages and reasoning

    def on_message_started(self, data: Wire) -> None:
        self._messages[data["index"]] = self._begin_text(_ANSWER)

    def on_message_delta(self, data: Wire) -> None:
        if "message" in self._open:  # not the blank line between two
            self._add_text(_ANSWER, data["text"])

    def on_message_completed(self, data: Wire, status: str = "completed") -> None:
        """End a message, or replace one that comes again; the answer also has those that had no events."""
        if data["index"] not in self._messages:
            self.on_message_started(data)
            self.on_message_delta(data)
        item = self._messages[data["index"]]
        annotations = [*self._annotations(data)]
        part = _ANSWER.part(data["text"], annotations=annotations)
        if item is not self._open.get("message"):
            item.fields = {**item.fields, "status": status, "content": [part]}
            return
        for number, annotation in enumerate(annotations):
            self._emit_text(_ANSWER, "output_text.annotation.added", annotation_index=number, annotation=annotation)
        self._end_text(_ANSWER, part, status=status)

    def _annotations(self, data: Wire) -> Iterator[Wire]:
        """Yield the sources of a message, and the files that it has without referring to them."""
        names = {file["id"]: file["name"] for file in data["files"]}
        end = len(data["text"])
        cited_ids = {citation.get("file_id") for citation in data["citations"]}
        files = [{"start": end, "end": end, "file_id": file_id} for file_id in names if file_id not in cited_ids]
        for citation in (*data["citations"], *files):
            file_id = citation.get("file_id")
            span = {"start_index": citation["start"], "end_index": citation["end"]}
            title = citation.get("title") or names.get(file_id) or ""
            if file_id and file_id in names:
                ids = {"container_id": self._conversation_id, "file_id": self._file_id(file_id)}
                yield {"type": "container_file_citation", **ids, "filename": title, **span}
            elif "url" in citation:
                yield {"type": "url_citation", "url": citation["url"], "title": title, **span}
            else:
                yield {"type": "file_citation", "file_id": file_id, "filename": title, "index": citation["start"]}

    def _file_id(self, file_id: Any) -> str:
        return encode_id("cfile", *self.name[:2], "", 0, file_id)

    def on_reasoning_delta(self, data: Wire) -> None:
        if "reasoning" not in self._open:
            self._begin_text(_SUMMARY)
        self._add_text(_SUMMARY, data["text"])

    def on_turn_restarted(self, data: Wire) -> None:
        """Take text back, and calls that are open."""
        for item in self._items:
            if item.offset >= data["discard_from"] and (text_fields := _TEXTS.get(item.fields["type"])):
                item.fields = {**item.fields, **text_fields, "status": "incomplete"}
        self._end_open(data["discard_from"])

    # calls

    def on_tool_started(self, data: Wire) -> None:
        """Begin a call of a tool, unless it waits: then `call.pending` says for what."""
        if data.get("waits"):
            self._pending[data["call_id"]] = data
        else:
            self._begin_call(data)

    def _begin_call(self, data: Wire) -> None:
        item_type = f"{data['name']}_call"
        if self._is_function(data["name"]) or item_type not in _TYPES:
            item_type = "mcp_call"
        fields = self._call_fields(item_type, data)
        if item_type == "mcp_call":
            fields["arguments"] = ""
        item = self._add(data["call_id"], item_type, **fields, status="in_progress")
        item.data = data
        if item_type == "mcp_call" and data["arguments"]:
            self._add_arguments(item, data["arguments"])

    def _call_fields(self, item_type: str, data: Wire) -> dict[str, Any]:
        """Return what an item has of a call that runs or, with the result, has ended."""
        arguments = object_at(data["arguments"])
        result = data.get("result")
        match item_type:
            case "code_interpreter_call":
                logs = [{"type": "logs", "logs": result}] if result else []
                urls = [f"{self._files_url}/{self._file_id(file['id'])}/content" for file in data.get("files", ())]
                outputs = [*logs, *({"type": "image", "url": url} for url in urls)]
                code = arguments.get("code") or data.get("code", "")
                return {"container_id": self._conversation_id, "code": code, "outputs": outputs or None}
            case "file_search_call":
                return {"queries": arguments.get("queries", []), "results": None}
            case "web_search_call":
                return {"action": {"type": "search", **(arguments or {"query": ""})}}
            case "image_generation_call":
                return {"result": None}
            case _:
                error = {"type": "mcp_tool_execution_error", "content": result or data.get("outcome")}
                has_failed = data.get("outcome", "success") != "success"
                return {
                    "approval_request_id": self._pending.get(data.get("approval_request_id", ""), {}).get("client_id"),
                    "server_label": self.name.agent,
                    "name": data["name"],
                    "output": None if has_failed else result,
                    "error": error if has_failed else None,
                }

    def _add_arguments(self, item: _Item, arguments: Any, **fields: Any) -> None:
        text = text_of(arguments)
        item.fields = {**item.fields, "arguments": text}
        event = f"{item.fields['type']}_arguments"
        self._emit_for(item, f"{event}.delta", delta=text)
        self._emit_for(item, f"{event}.done", arguments=text, **fields)

    def on_tool_delta(self, data: Wire) -> None:
        item = self._open.get(data["call_id"])
        if item is not None and item.fields["type"] == "code_interpreter_call":
            item.text += data["text"]
            self._emit_for(item, "code_interpreter_call_code.delta", delta=data["text"])

    def on_tool_completed(self, data: Wire) -> None:
        if (item := self._open.get(data["call_id"])) is None:
            return
        item_type = item.fields["type"]
        data = {"code": item.text, **item.data, **data}
        fields = self._call_fields(item_type, data)
        status = end = "completed" if data["outcome"] == "success" else "failed"
        if item_type != "mcp_call":
            end = "completed"  # the only event that there is
        elif not item.fields["arguments"]:
            self._add_arguments(item, data["arguments"])
        if item_type == "code_interpreter_call":
            self._emit_for(item, "code_interpreter_call_code.done", code=fields["code"])
            self._emit_for(item, "code_interpreter_call.interpreting")
        self._emit_for(item, f"{item_type}.{end}")
        self._end(data["call_id"], **fields, status=status)

    def on_call_pending(self, data: Wire) -> None:
        """Ask for an approval, or for the result of a tool of the client."""
        call_id, name, arguments = (data[field] for field in ("call_id", "name", "arguments"))
        is_decision = data["kind"] in DECISIONS
        client_id = encode_id("mcpr" if is_decision else "call", *self.name[:3], self._round, call_id)
        self._pending[call_id] = {**self._pending.get(call_id, {}), **data, "client_id": client_id}
        if call_id in self._open:  # of a tool of the model's service that the client runs
            self._end(call_id, status="incomplete")
        if data["kind"] == "callback":
            self._begin_call(data)
        elif is_decision:
            fields = {"server_label": self.name.agent, "name": name, "arguments": text_of(arguments)}
            self._add(call_id, "mcp_approval_request", id=client_id, **fields)
            self._end(call_id)
        else:
            fields = {"call_id": client_id, "name": name, "arguments": "", "status": "in_progress"}
            self._add_arguments(self._add(call_id, "function_call", **fields), arguments, name=name)
            self._end(call_id, status="completed")

    def on_call_answered(self, data: Wire) -> None:
        """Begin a call of the agent that was approved, or that continues."""
        call_id = data["call_id"]
        call = self._pending[call_id]
        if data["kind"] == "callback":
            is_resumed = call_id not in self._open
        else:
            is_resumed = data["outcome"] == "approved" and (data["kind"] == "in_doubt" or "waits" in call)
            self.input.append(self._reply(data))
            call = {**call, "approval_request_id": call_id}
        if is_resumed:
            self._begin_call(call)

    def _reply(self, data: Wire) -> Wire:
        call_id = data["call_id"]
        client_id = self._pending[call_id]["client_id"]
        item = {"id": encode_id("in", *self.name[:4], call_id)}
        if data["kind"] in DECISIONS:
            is_approved = data["outcome"] == "approved"
            return {**item, "type": "mcp_approval_response", "approval_request_id": client_id, "approve": is_approved}
        reply = self.turn.replies.get(call_id, {})
        output = text_of(reply.get("result", reply.get("error")))
        return {**item, "type": "function_call_output", "call_id": client_id, "status": "completed", "output": output}

    # ends

    def on_turn_waiting(self, data: Wire) -> None:
        """End the response, if the turn waits for whoever has sent the request."""
        calls = [call for call in data["pending_calls"] if call["kind"] != "callback"]
        if calls:
            self.waiting_calls = calls
            self._complete("completed")
            if not self.is_started:
                self._begin(self._round + 1)

    def on_turn_completed(self, data: Wire) -> None:
        """End the response with the answer, which corrects its messages."""
        is_cut_off = data["status"] in {"cancelled", "incomplete"}
        for index, message in enumerate(data["messages"]):
            status = "incomplete" if is_cut_off and message is data["messages"][-1] else "completed"
            self.on_message_completed({"index": index, **message}, status)
        reason = _REASONS.get(data["finish_reason"])
        if (refusal := data.get("refusal")) and not reason:
            self._begin_text(_REFUSAL)
            self._add_text(_REFUSAL, refusal["message"])
            self._end_text(_REFUSAL, status="completed")
        end = "incomplete" if reason else "completed"
        details = {"reason": reason} if reason else None
        end = "cancelled" if data["status"] == "cancelled" else end
        self._complete(end, usage=_usage(data["usage"]), incomplete_details=details)

    on_turn_cancelled = on_turn_completed

    def on_turn_failed(self, data: Wire) -> None:
        self.problem = data
        error = {"code": "server_error", "message": data["detail"]}
        self._complete("failed", error=error, usage=_usage(data.get("usage")))

    def _complete(self, status: str, **fields: Any) -> None:
        self._end_open()
        self.is_complete = self.is_started
        self._fields |= {"status": status, **fields}
        # clients know no event of a response that was cancelled
        self._emit("incomplete" if status == "cancelled" else status, response=self.body)


def _usage(usage: Wire | None) -> dict[str, Any] | None:
    if usage is None:
        return None

    def count(name: str) -> int:
        return usage.get(f"{name}_token_count") or 0

    cache = {"cached_tokens": count("cache_read_input"), "cache_write_tokens": count("cache_creation_input")}
    return {
        **{f"{name}_tokens": count(name) for name in ("input", "output", "total")},
        "input_tokens_details": cache,
        "output_tokens_details": {"reasoning_tokens": count("reasoning_output")},
    }


def input_parts(request: TurnRequest) -> list[Wire]:
    """Return the message of a turn as parts of input."""
    return [_part(decode_content(content)) for content in request.contents] or [
        {"type": "input_text", "text": request.message}
    ]


def _part(content: Any) -> Wire:
    """Return a content of a message as a part of input."""
    if content.type == "text":
        return {"type": "input_text", "text": content.text}
    file_id = content.file_id
    if str(content.media_type).startswith("image/"):
        return {"type": "input_image", "detail": "auto", "image_url": content.uri, "file_id": file_id}
    return {"type": "input_file", "filename": content.name, "file_url": content.uri, "file_id": file_id}
