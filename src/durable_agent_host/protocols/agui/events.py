"""The events of a run, made from those of its turn: a pure function, so a stream that is read again is the same.

Theory of operation: a run is the part of a turn up to its end, or to a wait for the client; the next run is the part
after that. The messages are folded as clients fold them, because a snapshot of them takes text back. The id of a
message names its turn, so that the history that a client sends is recognised: see `turn_of_message`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from durable_agent_host.agent_client import TurnEvent
from durable_agent_host.model.pending_call import DECISIONS
from durable_agent_host.protocols.dialect import text_of
from durable_agent_host.turn import turn_events as names

Wire = dict[str, Any]
_MESSAGE_ID: Final = re.compile(r"msg_(.+)_(?:user|(?:stored)?\d+)")
_MODEL_CALL: Final = re.compile(r"/m\d+$")
_USAGE: Final[Mapping[str, str]] = {
    "input_token_count": "inputTokens",
    "output_token_count": "outputTokens",
    "total_token_count": "totalTokens",
    "reasoning_output_token_count": "reasoningTokens",
    "cache_read_input_token_count": "cachedInputTokens",
}
_FIELDS: Final = {
    "Idempotency-Key": "runId",
    "the session id": "threadId",
    "client_tools": "tools",
    "ask with policy 'queue'": "if it waits, connect and answer its interrupts and tool calls",
}
"""What errors name → what it is for a client."""
STATE_SNAPSHOT: Final = "STATE_SNAPSHOT"
_DECISION: Final = {"approved": {"type": "boolean"}, "reason": {"type": "string"}}
_EDIT: Final = {"editedArgs": {"type": "object"}}


def message_id(turn_id: str, name: object) -> str:
    """Return the id of a message of a turn: the request's is ``user``, the others are numbered."""
    return f"msg_{turn_id}_{name}"


def turn_of_message(message: Mapping[str, Any]) -> str | None:
    """Return the turn of a message; None for a message of the client."""
    match = _MESSAGE_ID.fullmatch(message["id"])
    return match[1] if match else None


def run_error(message: str, code: object) -> Wire:
    """Make the event of a run that has failed."""
    for name, field in _FIELDS.items():
        message = message.replace(name, field)
    return {"type": "RUN_ERROR", "message": message, "code": str(code)}


class RunEvents:
    """Makes the events of a run.

    Args:
        thread_id, run_id: as the client names them.
        turn_id: of the turn.
        version: of the client's protocol; those before 1.0 name none, and know fewer outcomes.
        state: the client's copy of the session's state.

    Attributes:
        is_finished: whether the run has ended.
    """

    def __init__(self, thread_id: str, run_id: str, turn_id: str, version: str | None, state: Wire) -> None:
        self._version = version
        self._state = state
        self._pending: dict[str, Mapping[str, Any]] = {}
        self.is_finished = False
        self._ids: Wire = {"threadId": thread_id, "runId": run_id}
        self._turn_id = turn_id
        self._messages: list[Wire] = []
        self._offsets: dict[str, int] = {}
        self._texts: dict[int, Wire] = {}
        self._text: Wire | None = None
        self._reasoning: Wire | None = None
        self._calls: dict[str, Wire] = {}
        self._steps: list[str] = []

    def begin(self, messages: Iterable[Mapping[str, Any]], state: Wire) -> list[Wire]:
        """Begin a run, with what the thread has; the calls that wait have been answered."""
        self.is_finished = False
        self._messages = [{**message} for message in messages]
        self._pending.clear()
        start = {"type": "RUN_STARTED", **self._ids, "protocolVersion": "1.0"}
        return [start, *self.show_state(state), self._snapshot()]

    def show_state(self, state: Wire) -> list[Wire]:
        """Show the session's state, if the client has another."""
        if state == self._state:
            return []
        self._state = state
        return [{"type": STATE_SNAPSHOT, "snapshot": state}]

    def waiting_calls(self) -> dict[str, Mapping[str, Any]]:
        """Return the pending calls that a client can answer."""
        return {id_: call for id_, call in self._pending.items() if call["kind"] != "callback"}

    def add(self, event: TurnEvent) -> Iterator[Wire]:
        """Make the events of an event of the turn; read them all before the next one is added."""
        data = event.data
        match event.name:
            case names.MESSAGE_STARTED:
                yield from self._close()
                self._text = self._texts[data["index"]] = self._new_message(event.id, "assistant")
                yield _of(self._text, "TEXT_MESSAGE_START", role="assistant")
            case names.MESSAGE_DELTA if self._text:
                yield _append(self._text, "TEXT_MESSAGE_CONTENT", data["text"])
            case names.MESSAGE_COMPLETED:
                details = {name: data[name] for name in ("citations", "files")}
                self._texts[data["index"]] |= {"content": data["text"], "metadata": details}
                yield from self._close()
            case names.REASONING_DELTA:
                if not self._reasoning:
                    self._reasoning = self._new_message(event.id, "reasoning")
                    yield _of(self._reasoning, "REASONING_START")
                    yield _of(self._reasoning, "REASONING_MESSAGE_START", role="reasoning")
                yield _append(self._reasoning, "REASONING_MESSAGE_CONTENT", data["text"])
            case names.TOOL_STARTED:
                yield from self._start_call(event.id, data)
            case names.TOOL_COMPLETED:
                yield from self._complete_call(event.id, data)
            case names.TURN_RESTARTED:
                yield from self._discard(data["discard_from"])
            case _:
                yield from self._add_of_turn(event.name, data)

    def _add_of_turn(self, name: str, data: Mapping[str, Any]) -> Iterator[Wire]:
        match name:
            case names.TURN_WAITING:
                if calls := self.waiting_calls():
                    yield from self.finish(self._wait_outcome(calls))
            case names.TURN_COMPLETED | names.TURN_CANCELLED | names.TURN_FAILED:
                for index, message in enumerate(data.get("messages", ())):
                    if index not in self._texts:
                        yield from self._show_again({"index": index, **message})
                yield from self._end(name, data)
            case names.CALL_PENDING:
                self._pending[data["call_id"]] = data
            case names.TURN_STARTED | names.MESSAGE_DELTA | names.TOOL_DELTA:
                pass  # the blank line between two messages; code that is in the arguments of its call
            case _:
                if name == names.CALL_REPLIED:
                    self._pending.pop(data["call_id"], None)
                if name == names.NESTED and (path := _MODEL_CALL.sub("", data["path"])) not in self._steps:
                    self._steps.append(path)
                    yield {"type": "STEP_STARTED", "stepName": path}
                yield {"type": "CUSTOM", "name": name, "value": data}

    def _new_message(self, offset: int, role: str, **fields: Any) -> Wire:
        """Add a message; its number counts also those that were taken back."""
        message = {"id": message_id(self._turn_id, len(self._offsets)), "role": role, "content": "", **fields}
        self._offsets[message["id"]] = offset
        self._messages.append(message)
        return message

    def _show_again(self, message: Mapping[str, Any]) -> Iterator[Wire]:
        """Show a message whose events are no longer kept."""
        for name in (names.MESSAGE_STARTED, names.MESSAGE_DELTA, names.MESSAGE_COMPLETED):
            yield from self.add(TurnEvent(0, name, message, "", ""))

    def _close(self) -> Iterator[Wire]:
        """End the message and the reasoning that are open."""
        if self._reasoning:
            yield _of(self._reasoning, "REASONING_MESSAGE_END")
            yield _of(self._reasoning, "REASONING_END")
        if self._text:
            yield _of(self._text, "TEXT_MESSAGE_END", metadata=self._text.get("metadata", {}))
        self._text = self._reasoning = None

    def _start_call(self, offset: int, data: Mapping[str, Any]) -> Iterator[Wire]:
        """Show a call once; arguments that are not known yet come with the next snapshot."""
        call_id = data["call_id"]
        if call_id in self._calls:
            return
        yield from self._close()
        message = self._messages[-1] if self._messages else {}
        if message.get("role") != "assistant" or message["id"] not in self._offsets:
            message = self._new_message(offset, "assistant")
        call = {"id": call_id, "type": "function", "function": {"name": data["name"]}}
        self._calls[call_id] = call
        message["toolCalls"] = [*message.get("toolCalls", ()), call]
        head = {"toolCallId": call_id, "toolCallName": data["name"], "parentMessageId": message["id"]}
        yield {"type": "TOOL_CALL_START", **head}
        yield {"type": "TOOL_CALL_ARGS", "toolCallId": call_id, "delta": self._set_arguments(data)}
        yield {"type": "TOOL_CALL_END", "toolCallId": call_id}

    def _set_arguments(self, data: Mapping[str, Any]) -> str:
        text = self._calls[data["call_id"]]["function"]["arguments"] = text_of(data["arguments"])
        return text

    def _complete_call(self, offset: int, data: Mapping[str, Any]) -> Iterator[Wire]:
        """Show a result, unless the client has sent it."""
        call_id = data["call_id"]
        if "arguments" in data:
            self._set_arguments(data)
        if all(message.get("toolCallId") != call_id for message in self._messages):
            fields = {"toolCallId": call_id, "content": data["result"], "metadata": {"outcome": data["outcome"]}}
            message = self._new_message(offset, "tool", **fields)
            yield _of(message, "TOOL_CALL_RESULT", role="tool", **fields)

    def _discard(self, first_offset: int) -> Iterator[Wire]:
        """Take back what is sent again, in new messages."""
        yield from self._close()
        for message in [*self._messages]:
            if self._offsets.get(message["id"], -1) >= first_offset:
                self._messages.remove(message)
                for call in message.get("toolCalls", ()):
                    del self._calls[call["id"]]
        yield self._snapshot()

    def _snapshot(self) -> Wire:
        return {"type": "MESSAGES_SNAPSHOT", "messages": [{**message} for message in self._messages]}

    def _wait_outcome(self, calls: Mapping[str, Mapping[str, Any]]) -> Wire:
        """Say what a turn waits for: decisions and answers to questions, or tools that the client runs."""
        client_ids = [id_ for id_, call in calls.items() if call["kind"] == "client_tool" and id_ in self._calls]
        if interrupts := [self._interrupt(call) for id_, call in calls.items() if id_ not in client_ids]:
            return {"type": "interrupt", "interrupts": interrupts}
        return {"type": "success"} | ({"pendingToolCallIds": client_ids} if self._version else {})

    def _interrupt(self, call: Mapping[str, Any]) -> Wire:
        is_tool_call = call["call_id"] in self._calls
        properties = _DECISION | (_EDIT if call["kind"] == "approval" else {})
        decision = {"type": "object", "properties": properties, "required": ["approved"]}
        return {
            "id": call["call_id"],
            "reason": "tool_call" if is_tool_call else "input_required",
            "message": call.get("reason") or call["name"],
            "responseSchema": decision if call["kind"] in DECISIONS else call.get("schema") or {},
            "expiresAt": call["expires_at"],
            "metadata": call,
        } | ({"toolCallId": call["call_id"]} if is_tool_call else {})

    def _end(self, name: str, data: Mapping[str, Any]) -> Iterator[Wire]:
        counts: Mapping[str, int | None] = data.get("usage") or {}
        usage = {field: counts[count] for count, field in _USAGE.items() if counts.get(count) is not None}
        end: Wire = {"type": "success"}
        if name == names.TURN_FAILED:
            end = run_error(data["detail"], data["status"])
        elif name == names.TURN_CANCELLED:
            end = {"type": "cancelled"} if self._version else run_error("the turn was cancelled", "cancelled")
        elif refusal := data.get("refusal"):
            end = run_error(refusal["message"], data["finish_reason"])
        yield from self.finish(
            end, usage=[usage] if usage else [], metadata={"finishReason": data.get("finish_reason")}
        )

    def finish(self, end: Wire, **fields: Any) -> Iterator[Wire]:
        """End the run: with an outcome, or with the event of an error."""
        yield from self._close()
        for path in self._steps:
            yield {"type": "STEP_FINISHED", "stepName": path}
        self._steps.clear()
        self.is_finished = True
        yield self._snapshot()
        is_error = end["type"] == "RUN_ERROR"
        yield (end if is_error else {"type": "RUN_FINISHED", **self._ids, "outcome": end}) | fields


def _of(message: Wire, event_type: str, **fields: Any) -> Wire:
    return {"type": event_type, "messageId": message["id"], **fields}


def _append(message: Wire, event_type: str, text: str) -> Wire:
    message["content"] += text
    return _of(message, event_type, delta=text)
