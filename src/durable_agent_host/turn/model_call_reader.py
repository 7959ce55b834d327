"""The model calls of a turn as sent over the wire, read from its log.

Each request is a separate call here, including retries and calls of strategies; `name` is unique in the turn.
"""

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NotRequired, TypedDict

from durable_agent_host.codec.log_entry import format_entry_time
from durable_agent_host.model.log_entry import ATTEMPT, MODEL_RECEIVED, MODEL_SENT, LogRecord

_FAILED_STATUS: Final = 400
"""HTTP statuses from here on are failures."""
_LEVEL: Final = 1
"""Bodies are compressed while agents wait; level 6 takes three times as long, and saves a tenth."""


class ModelCallBodyWire(TypedDict):
    """A body of a call: its size on the wire; of a single call also its text, which may lack its end."""

    bytes: int
    complete: NotRequired[bool]
    text: NotRequired[str]


class ModelCallWire(TypedDict):
    """A request to the model's service and its answer, by its unique name."""

    name: str
    position: int | None
    strategy_call: NotRequired[int]
    attempt: int
    method: str | None
    url: str | None
    outcome: Literal["completed", "failed", "lost"] | None
    status: int | None
    error: str | None
    sent_at: str | None
    answered_at: str | None
    request: ModelCallBodyWire
    answer: ModelCallBodyWire | None


class ModelCallListWire(TypedDict):
    """The requests to the model's service in a turn."""

    calls: Sequence[ModelCallWire]


def encode_body(text: str) -> str:
    """Encode a body as it is stored."""
    return b64encode(zlib.compress(text.encode(), _LEVEL)).decode()


def decode_body(body: str) -> str:
    """Decode the output of `encode_body`."""
    return zlib.decompress(b64decode(body)).decode()


class CallReader:
    """Reads the calls of one turn.

    Args:
        has_ended: whether the turn has ended; a call without an answer is then lost.
    """

    def __init__(self, *, has_ended: bool) -> None:
        self._has_ended = has_ended
        self._calls: dict[str, ModelCallWire] = {}
        self._entries: dict[tuple[str, str], Mapping[str, Any]] = {}

    def read(self, records: Iterable[LogRecord]) -> None:
        """Add the next records of the log."""
        for record in records:
            if record.entry.kind == MODEL_SENT:
                self._add_request(record.entry.data, record.attempt)
            elif record.entry.kind == MODEL_RECEIVED:
                self._add_response(record.entry.data)
            elif record.entry.kind == ATTEMPT:
                self._lose()

    def calls(self) -> list[ModelCallWire]:
        """Return the calls in order, without the texts of their bodies."""
        if self._has_ended:
            self._lose()
        return list(self._calls.values())

    def find(self, name: str) -> ModelCallWire | None:
        """Return a call with the texts of its bodies, or None."""
        call = next((call for call in self.calls() if call["name"] == name), None)
        if call is not None:
            self._add_text(call["request"], name, MODEL_SENT)
            if call["answer"] is not None:
                self._add_text(call["answer"], name, MODEL_RECEIVED)
        return call

    def _add_text(self, body: ModelCallBodyWire, name: str, kind: str) -> None:
        entry = self._entries[name, kind]
        if "body" in entry:
            body["text"] = decode_body(entry["body"])
            body["complete"] = "is_cut" not in entry

    def _add_request(self, data: Mapping[str, Any], attempt: int) -> None:
        name = str(data["name"])
        call: ModelCallWire = {
            "name": name,
            "position": data["position"],
            "attempt": attempt,
            "method": data["method"],
            "url": data["url"],
            "sent_at": format_entry_time(data),
            "answered_at": None,
            "outcome": None,
            "status": None,
            "error": None,
            "request": {"bytes": data["bytes"]},
            "answer": None,
        }
        if "number" in data:
            call["strategy_call"] = data["number"]
        self._calls[name] = call
        self._entries[name, MODEL_SENT] = data

    def _add_response(self, data: Mapping[str, Any]) -> None:
        name = str(data["name"])
        if (call := self._calls.get(name)) is None:
            return
        status = data["status"]
        error = data.get("error")
        call["answered_at"] = format_entry_time(data)
        call["outcome"] = "failed" if error is not None or status is None or status >= _FAILED_STATUS else "completed"
        call["status"] = status
        call["error"] = error
        call["answer"] = {"bytes": data["bytes"]}
        self._entries[name, MODEL_RECEIVED] = data

    def _lose(self) -> None:
        for call in self._calls.values():
            call["outcome"] = call["outcome"] or "lost"
