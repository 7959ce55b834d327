"""The events of a turn as chunks of the AI SDK's UI message stream. Pure: the same log gives the same chunks.

Theory of operation: a step of the message is what happens between two waits. A page that continues after a wait has
whole steps, and gets those that follow. `reset-step` takes back a whole step: what remains of it after
`turn.restarted` is translated again.
"""

from collections.abc import Mapping
from typing import Any, Final

from durable_agent_host.agent_client import TurnEvent
from durable_agent_host.codec.strict_json import read_json
from durable_agent_host.model.pending_call import DECISIONS
from durable_agent_host.turn import turn_events

Chunk = dict[str, Any]
"""A chunk of a stream, or a part of a message. Source: ``ui-message-chunks.ts`` of the package ``ai``, 7.0.173."""

_FINISH_REASONS: Final = {
    "success": "stop",
    "incomplete": "length",
    "refused": "content-filter",
    "cancelled": "interrupted",
}
"""Status of an answer → how its message finishes; the status of a problem is a number."""
_TEXTS: Final = {turn_events.MESSAGE_DELTA: "text", turn_events.REASONING_DELTA: "reasoning"}
_RETRACTED: Final = (*_TEXTS, turn_events.MESSAGE_STARTED, turn_events.MESSAGE_COMPLETED)
_SILENT: Final = (turn_events.MESSAGE_STARTED, turn_events.TURN_STARTED, turn_events.TURN_WAITING)


class UIMessageStream:
    """Translates the events of one turn, in their order.

    Attributes:
        step: the number of the step to which the last chunks belong, from 1.
    """

    def __init__(self) -> None:
        self.step = 0
        self._events: list[TurnEvent] = []
        self._names: dict[str, str] = {}
        self._open: str | None = None

    def feed(self, event: TurnEvent) -> list[Chunk]:
        """Return the chunks of the next event, without the end of the message."""
        if event.name == turn_events.TURN_RESTARTED:
            self._events = [
                item for item in self._events if item.id < event.data["discard_from"] or item.name not in _RETRACTED
            ]
            self._open = None
            return [{"type": "reset-step"}, *(chunk for item in self._events for chunk in self._translate(item))]
        chunks: list[Chunk] = []
        if not self._events:
            self.step += 1
            chunks.append({"type": "start-step"})
            if event.is_last and self.step == 1:  # the log has been deleted: the end has the answer
                chunks += [chunk for message in event.data.get("messages", ()) for chunk in _parts_of_message(message)]
        self._events.append(event)
        chunks += self._translate(event)
        if event.is_last or event.name == turn_events.TURN_WAITING:
            chunks.append({"type": "finish-step"})
            self._events = []
        return chunks

    def _translate(self, event: TurnEvent) -> list[Chunk]:
        kind = _TEXTS.get(event.name)
        chunks: list[Chunk] = []
        if self._open not in {None, kind}:
            chunks.append({"type": f"{self._open}-end", "id": self._open})
            self._open = None
        if kind is None:
            return [*chunks, *self._parts_of(event.name, event.data)]
        text = event.data["text"]
        if self._open is None:
            if text == turn_events.SEPARATOR:  # between two messages, which are parts here
                return chunks
            self._open = kind
            chunks.append({"type": f"{kind}-start", "id": kind})
        return [*chunks, {"type": f"{kind}-delta", "id": kind, "delta": text}]

    def _parts_of(self, name: str, data: Mapping[str, Any]) -> list[Chunk]:
        if name in _SILENT or data.get("waits") or turn_events.rule_of_stored(name).is_terminal:
            return []
        match name:
            case turn_events.MESSAGE_COMPLETED:
                return _attachments_of(data)
            case turn_events.TOOL_STARTED:
                return [self._call(data, providerExecuted=True)]
            case turn_events.TOOL_COMPLETED:
                return self._result(data)
            case turn_events.CALL_PENDING:
                call = self._call(data, providerExecuted=data["kind"] == "callback")
                if data["kind"] not in DECISIONS:
                    return [call]
                names = {"approvalId": data["call_id"], "toolCallId": data["call_id"]}
                return [call, {"type": "tool-approval-request", **names, "reason": data.get("reason") or ""}]
            case turn_events.CALL_REPLIED if data["kind"] in DECISIONS:
                names = {"approvalId": data["call_id"], "approved": data["outcome"] == "approved"}
                return [{"type": "tool-approval-response", **names}]
            case _:
                return [{"type": f"data-{name}", "data": data, "transient": "tool." in name}]

    def _call(self, data: Mapping[str, Any], **fields: Any) -> Chunk:
        self._names[data["call_id"]] = data["name"]
        names = {"toolCallId": data["call_id"], "toolName": data["name"], "dynamic": True}
        return {"type": "tool-input-available", **names, "input": data["arguments"], **fields}

    def _result(self, data: Mapping[str, Any]) -> list[Chunk]:
        call_id = data["call_id"]
        outcome = data["outcome"]
        chunks: list[Chunk] = []
        if data.get("arguments"):  # the final ones of a tool of the model's service
            chunks = [self._call({**data, "name": self._names[call_id]}, providerExecuted=True)]
        if outcome == "success":
            result: Chunk = {"type": "tool-output-available", "output": output_of(data["result"])}
        elif outcome == "denied":
            result = {"type": "tool-output-denied"}
        else:
            result = {"type": "tool-output-error", "errorText": data["result"] or outcome}
        return [*chunks, {**result, "toolCallId": call_id}]


def output_of(result: str) -> Any:
    """Return the result of a tool: a page shows JSON as a value."""
    value = read_json(result)
    return result if value is None else value


def ending_of(event: TurnEvent) -> list[Chunk]:
    """Return how a message ends, by the last event of its turn."""
    data = event.data
    chunks: list[Chunk] = []
    if event.name == turn_events.TURN_FAILED:
        chunks.append({"type": "error", "errorText": data["detail"].replace("Idempotency-Key", "message id")})
    elif event.name == turn_events.TURN_CANCELLED:
        chunks.append({"type": "abort"})
    finish = {
        "finishReason": _FINISH_REASONS.get(data["status"], "error"),
        "messageMetadata": {"usage": data.get("usage")},
    }
    return [*chunks, {"type": "finish", **finish}]


def _parts_of_message(message: Mapping[str, Any]) -> list[Chunk]:
    part = {"id": "text"}
    text = [{"type": "text-start"}, {"type": "text-delta", "delta": message["text"]}, {"type": "text-end"}]
    return [*({**chunk, **part} for chunk in text), *_attachments_of(message)]


def _attachments_of(message: Mapping[str, Any]) -> list[Chunk]:
    sources = {
        url: {"type": "source-url", "sourceId": url, "url": url, "title": citation.get("title") or url}
        for citation in message["citations"]
        if (url := citation.get("url"))
    }
    files = [
        {"type": "file", "url": file["file_url"], "mediaType": file["media_type"] or "application/octet-stream"}
        for file in message["files"]
        if "file_url" in file
    ]
    return [*sources.values(), *files]
