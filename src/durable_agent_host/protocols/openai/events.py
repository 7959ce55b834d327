"""A turn as the events of one of its responses: a pure function of the turn's log.

Theory of operation: a response is a round of its turn. It ends where the turn waits for whoever has sent the request,
and the next one begins there; so the events of earlier rounds are read for the calls that they leave open. An item of
the output begins with an event of the turn, whose offset is in the item's id. Text that a restart discards was sent and
stays sent: its item ends as incomplete, and is empty in the response. The shapes are in ``shapes.json``.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from durable_agent_host.agent_client import TurnEvent
from durable_agent_host.codec.log_entry import encode_compact
from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.model.pending_call import DECISIONS
from durable_agent_host.model.turn import Turn
from durable_agent_host.protocols.openai.ids import encode_id
from durable_agent_host.turn.turn_events import NESTED, REASONING_DELTA, TOOL_PROGRESS

SHAPES: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("shapes.json").read_text())
Wire = Mapping[str, Any]
_REASONS: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}
_OPTION_FIELDS: Final = {option: name for name, option in SHAPES["options"].items()}
_BEFORE: Final = ("message.started", "tool.started", "call.pending", "turn.waiting")
"""Events of earlier rounds that are read."""
_WITHIN_REASONING: Final = (REASONING_DELTA, TOOL_PROGRESS, NESTED)


@dataclass
class _Item:
    """An item of the output.

    Attributes:
        index: in the output.
        offset: of the event with which it began.
        fields: as clients have it.
        text: fragments that were sent of its text, code or arguments.
    """

    index: int
    offset: int
    fields: dict[str, Any]
    text: list[str] = field(default_factory=list[str])


class ResponseEvents:
    """Makes the events of one response of a turn.

    Args:
        turn: the turn; when its last event is fed, it should have its outcome.
        number: which of the turn's responses, from 0.
        is_function: whether the agent has a function of this name.
        files_url: below which the files are.

    Attributes:
        turn: as above.
        response: as far as it has come.
        is_started, is_complete: whether there is the response, and whether it is complete.
        problem: why the turn has failed, if it has.
    """

    def __init__(self, turn: Turn, number: int, is_function: Callable[[str], bool], files_url: str) -> None:
        self.turn = turn
        self.is_started = self.is_complete = False
        self.problem: Any = None
        request = turn.request
        self._names = (request.agent, request.session_id, request.turn_id)
        self._number = number
        self._is_function = is_function
        self._files_url = files_url
        self._rounds = self._sequence_number = self._offset = 0
        self._events: list[dict[str, Any]] = []
        self._items: list[_Item] = []
        self._open: dict[str, _Item] = {}
        self._messages: dict[int, _Item | None] = {}
        self._pending: dict[str, tuple[Any, str]] = {}
        self._announced_ids: set[str] = set()
        self.response: dict[str, Any] = SHAPES["response"] | {
            "id": encode_id("resp", *self._names, number),
            "created_at": _seconds(request.created_at),
            "model": request.agent,
            "conversation": {"id": encode_id("conv", *self._names[:2])},
            "text": {"format": request.response_format or {"type": "text"}},
            "tools": [{"type": "function", "strict": None, **tool} for tool in request.client_tools],
            **{_OPTION_FIELDS.get(option, option): value for option, value in request.options.items()},
        }
        if number:
            self.response["previous_response_id"] = encode_id("resp", *self._names, number - 1)

    @property
    def output(self) -> list[dict[str, Any]]:
        """The items so far."""
        return [item.fields for item in self._items]

    def is_image(self, call_id: str) -> bool:
        """Return whether a call that is open makes an image, whose bytes are to be fed as ``image``."""
        item = self._open.get(call_id)
        return item is not None and item.fields["type"] == "image_generation_call"

    def feed(self, event: TurnEvent) -> list[dict[str, Any]]:
        """Read the turn's next event; return the events of the response."""
        self._events = []
        if not self.is_complete:
            self._begin()
            if event.name not in _WITHIN_REASONING and "reasoning" in self._open:
                self._end_reasoning()
            handler = getattr(self, "on_" + event.name.replace(".", "_"), None)
            if handler is not None and (self.is_started or event.name in _BEFORE):
                self._offset = event.id
                handler(event.data)
        return self._events

    def _begin(self) -> None:
        if self._rounds == self._number and not self.is_started:
            self.is_started = True
            self.response["status"] = "in_progress"
            for event in ("created", "in_progress"):
                self._emit(event, response={**self.response})

    def _emit(self, event: str, **fields: Any) -> None:
        self._events.append({"type": f"response.{event}", "sequence_number": self._sequence_number, **fields})
        self._sequence_number += 1

    def _emit_for(self, item: _Item, event: str, **fields: Any) -> None:
        self._emit(event, item_id=item.fields["id"], output_index=item.index, **fields)

    def _add(self, key: str, item_type: str, **fields: Any) -> _Item:
        """Begin an item, with the stages of its type."""
        shape = SHAPES["items"][item_type]
        names = {"id": encode_id(shape["prefix"], *self._names, self._number, self._offset), "type": item_type}
        item = _Item(len(self._items), self._offset, {**names, **shape["fields"], **fields})
        self._items.append(item)
        self._open[key] = item
        self._emit("output_item.added", output_index=item.index, item=item.fields)
        for stage in shape.get("stages", ()):
            self._emit_for(item, f"{item_type}.{stage}")
        return item

    def _end(self, key: str, **fields: Any) -> None:
        item = self._open.pop(key)
        item.fields = {**item.fields, **fields}
        self._emit("output_item.done", output_index=item.index, item=item.fields)

    # parts: the text of a message, a refusal, a summary of reasoning

    def _begin_part(self, item: _Item, name: str) -> None:
        shape = SHAPES["parts"][name]
        self._emit_for(item, f"{shape['group']}.added", **shape["index"], part=shape["part"])

    def _add_text(self, item: _Item, name: str, text: str) -> None:
        shape = SHAPES["parts"][name]
        item.text.append(text)
        self._emit_for(item, f"{shape['event']}.delta", **shape["index"], delta=text, **shape["extra"])

    def _end_part(self, item: _Item, name: str, part: Wire) -> None:
        shape = SHAPES["parts"][name]
        text = {shape["field"]: part[shape["field"]]}
        self._emit_for(item, f"{shape['event']}.done", **shape["index"], **text, **shape["extra"])
        self._emit_for(item, f"{shape['group']}.done", **shape["index"], part=part)

    def on_message_started(self, data: Wire) -> None:
        """Begin a message."""
        self._messages[data["index"]] = None
        if self.is_started:
            self._messages[data["index"]] = item = self._add("message", "message")
            self._begin_part(item, "text")

    def on_message_delta(self, data: Wire) -> None:
        """Continue the message; the blank line between two is in none."""
        if item := self._open.get("message"):
            self._add_text(item, "text", data["text"])

    def on_message_completed(self, data: Wire, status: str = "completed") -> None:
        """End a message, or replace one that comes again; in the answer are also those that had no events."""
        if data["index"] not in self._messages:
            self.on_message_started(data)
            self.on_message_delta(data)
        if (item := self._messages[data["index"]]) is None:  # of an earlier response
            return
        part = SHAPES["parts"]["text"]["part"] | {"text": data["text"], "annotations": [*self._annotations(data)]}
        if item is not self._open.get("message"):
            item.fields = {**item.fields, "status": status, "content": [part]}
            return
        for number, annotation in enumerate(part["annotations"]):
            fields = {"content_index": 0, "annotation_index": number, "annotation": annotation}
            self._emit_for(item, "output_text.annotation.added", **fields)
        self._end_part(item, "text", part)
        self._end("message", status=status, content=[part])

    def _annotations(self, data: Wire) -> Iterator[dict[str, Any]]:
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
                fields = {"file_id": self._file_id(file_id), "filename": title}
                yield {"type": "container_file_citation", "container_id": self._container_id, **fields, **span}
            elif "url" in citation:
                yield {"type": "url_citation", "url": citation["url"], "title": title, **span}
            else:
                index = {"filename": title, "index": citation["start"]}
                yield {"type": "file_citation", "file_id": file_id or "", **index}

    def _file_id(self, file_id: Any) -> str:
        return encode_id("cfile", *self._names[:2], file_id)

    @property
    def _container_id(self) -> str:
        return encode_id("cntr", *self._names[:2])

    def on_reasoning_delta(self, data: Wire) -> None:
        """Begin or continue reasoning."""
        if (item := self._open.get("reasoning")) is None:
            item = self._add("reasoning", "reasoning")
            self._begin_part(item, "summary")
        self._add_text(item, "summary", data["text"])

    def _end_reasoning(self) -> None:
        item = self._open["reasoning"]
        part = SHAPES["parts"]["summary"]["part"] | {"text": "".join(item.text)}
        self._end_part(item, "summary", part)
        self._end("reasoning", summary=[part])

    def on_turn_restarted(self, data: Wire) -> None:
        """Take text back, and calls that are open."""
        keys = {item.index: key for key, item in self._open.items()}
        for item in self._items:
            key = keys.get(item.index)
            discarded = SHAPES["discarded"].get(item.fields["type"])
            if item.offset >= data["discard_from"] and (discarded or key):
                item.fields = {**item.fields, "status": "incomplete", **(discarded or {})}
                if key:
                    self._end(key)

    # calls

    def on_tool_started(self, data: Wire) -> None:
        """Begin a call of a tool, unless it waits: then `call.pending` says for what."""
        if data.get("waits"):
            self._announced_ids.add(data["call_id"])
        elif self.is_started:
            self._begin_call(data["call_id"], data)

    def _begin_call(self, call_id: str, data: Wire, **fields: Any) -> None:
        name = data["name"]
        item_type = "mcp_call" if self._is_function(name) else SHAPES["tools"].get(name, "mcp_call")
        fields |= self._call_fields(item_type, data["arguments"])
        if item_type == "mcp_call":
            fields |= {"server_label": self._names[0], "name": name}
        item = self._add(call_id, item_type, **fields)
        if item_type == "mcp_call" and data["arguments"]:
            self._add_arguments(item, "mcp_call_arguments", data["arguments"])

    def _call_fields(self, item_type: str, arguments: Any) -> dict[str, Any]:
        """Return what the arguments of a tool of the model's service are in its item."""
        values = object_at(arguments)
        match item_type:
            case "code_interpreter_call":
                return {"container_id": self._container_id, "code": values.get("code") or ""}
            case "file_search_call":
                return {"queries": values.get("queries") or []}
            case "web_search_call" if values.get("type", "search") == "search":
                return {"action": {"type": "search", "query": "", **values}}
            case "web_search_call":
                return {"action": values}
            case _:
                return {}

    def _add_arguments(self, item: _Item, event: str, arguments: Any, **fields: Any) -> None:
        text = _text_of(arguments)
        item.fields = {**item.fields, "arguments": text}
        self._emit_for(item, f"{event}.delta", delta=text)
        self._emit_for(item, f"{event}.done", arguments=text, **fields)

    def on_tool_delta(self, data: Wire) -> None:
        """Continue the code of a call."""
        item = self._open.get(data["call_id"])
        if item is not None and item.fields["type"] == "code_interpreter_call":
            item.text.append(data["text"])
            self._emit_for(item, "code_interpreter_call_code.delta", delta=data["text"])

    def on_tool_completed(self, data: Wire) -> None:
        """End a call of a tool of the agent or of the model's service."""
        call_id = data["call_id"]
        if (item := self._open.get(call_id)) is None:
            return
        item_type = item.fields["type"]
        result = data["result"]
        arguments = data.get("arguments")
        is_success = data["outcome"] == "success"
        end = "completed"
        fields = self._call_fields(item_type, arguments) if arguments else {}
        if item_type == "code_interpreter_call":
            fields["code"] = fields.get("code") or "".join(item.text)
            self._emit_for(item, "code_interpreter_call_code.done", code=fields["code"])
            self._emit_for(item, "code_interpreter_call.interpreting")
            logs = [{"type": "logs", "logs": result}] if result else []
            urls = [f"{self._files_url}/{self._file_id(file['id'])}/content" for file in data.get("files", ())]
            fields["outputs"] = [*logs, *({"type": "image", "url": url} for url in urls)] or None
        elif item_type == "image_generation_call":
            fields["result"] = data.get("image")
        elif item_type == "mcp_call":
            if arguments or not item.fields["arguments"]:
                self._add_arguments(item, "mcp_call_arguments", arguments)
            end = "completed" if is_success else "failed"
            error = {"type": "mcp_tool_execution_error", "content": result or data["outcome"]}
            fields |= {"output": result} if is_success else {"error": error}
            if approval_id := data.get("approval_request_id"):
                fields["approval_request_id"] = self._pending.get(approval_id, (None, None))[1]
        self._emit_for(item, f"{item_type}.{end}")
        self._end(call_id, status="completed" if is_success else "failed", **fields)

    def on_call_pending(self, data: Wire) -> None:
        """Ask for an approval, or for the result of a tool of the client."""
        call_id = data["call_id"]
        kind = data["kind"]
        prefix = "mcpr" if kind in DECISIONS else "call"
        client_id = encode_id(prefix, *self._names, self._rounds, call_id)
        self._pending[call_id] = (data, client_id)
        if not self.is_started:
            return
        if call_id in self._open:  # of a tool of the model's service that the client runs
            self._end(call_id, status="incomplete")
        if kind == "callback":
            self._begin_call(call_id, data)
        elif kind in DECISIONS:
            fields = {"server_label": self._names[0], "name": data["name"], "arguments": _text_of(data["arguments"])}
            self._add(call_id, "mcp_approval_request", id=client_id, **fields)
            self._end(call_id)
        else:
            item = self._add(call_id, "function_call", call_id=client_id, name=data["name"])
            self._add_arguments(item, "function_call_arguments", data["arguments"], name=data["name"])
            self._end(call_id, status="completed")

    def on_call_answered(self, data: Wire) -> None:
        """Begin a call of the agent that was approved, or that continues."""
        call_id = data["call_id"]
        kind = data["kind"]
        call, client_id = self._pending.get(call_id, (None, None))
        is_approved = data["outcome"] == "approved" and (kind == "in_doubt" or call_id in self._announced_ids)
        if call and call_id not in self._open and (is_approved or kind == "callback"):
            fields = {"approval_request_id": client_id} if is_approved else {}
            self._begin_call(call_id, call, **fields)

    # ends

    def on_turn_waiting(self, data: Wire) -> None:
        """End the response, if the turn waits for whoever has sent the request."""
        if calls := calls_for_client(data["pending_calls"]):
            self._rounds += 1
            if self.is_started:
                self._complete("completed", calls[-1]["created_at"])
            self._begin()

    def on_turn_completed(self, data: Wire) -> None:
        """End the response with the answer, which corrects its messages."""
        is_cut_off = data["status"] in {"cancelled", "incomplete"}
        for index, message in enumerate(data["messages"]):
            status = "incomplete" if is_cut_off and message is data["messages"][-1] else "completed"
            self.on_message_completed({"index": index, **message}, status)
        self.response["usage"] = _usage(data["usage"])
        reason = _REASONS.get(data["finish_reason"])
        if reason:
            self.response["incomplete_details"] = {"reason": reason}
        elif refusal := data.get("refusal"):
            item = self._add("message", "message")
            self._begin_part(item, "refusal")
            self._add_text(item, "refusal", refusal["message"])
            part = {"type": "refusal", "refusal": refusal["message"]}
            self._end_part(item, "refusal", part)
            self._end("message", status="completed", content=[part])
        ended_at = self.turn.outcome.ended_at if self.turn.outcome else ""
        self._complete(
            "cancelled" if data["status"] == "cancelled" else "incomplete" if reason else "completed", ended_at
        )

    on_turn_cancelled = on_turn_completed

    def on_turn_failed(self, data: Wire) -> None:
        """End the response with an error."""
        self.problem = data
        self.response["error"] = {"code": "server_error", "message": data["detail"]}
        self.response["usage"] = _usage(data.get("usage"))
        self._complete("failed")

    def _complete(self, status: str, ended_at: str = "") -> None:
        for key in [*self._open]:
            self._end(key, status="incomplete")
        self.is_complete = True
        self.response |= {"status": status, "output": self.output}
        if status == "completed":
            self.response["completed_at"] = _seconds(ended_at)
        # clients know no event of a response that was cancelled
        self._emit("incomplete" if status == "cancelled" else status, response=self.response)


def calls_for_client(calls: Sequence[Wire]) -> list[Wire]:
    """Return the pending calls for which a response ends."""
    return [call for call in calls if call["kind"] != "callback"]


def _text_of(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else encode_compact(arguments or {})


def _usage(usage: Wire | None) -> dict[str, Any] | None:
    if usage is None:
        return None
    names = ("input", "output", "total", "cache_read_input", "cache_creation_input", "reasoning_output")
    counts = [usage.get(f"{name}_token_count") or 0 for name in names]
    return {
        **dict(zip(("input_tokens", "output_tokens", "total_tokens"), counts, strict=False)),
        "input_tokens_details": {"cached_tokens": counts[3], "cache_write_tokens": counts[4]},
        "output_tokens_details": {"reasoning_tokens": counts[5]},
    }


def _seconds(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp()) if time else 0
