"""The model calls of a turn as sent over the wire, read from its log.

Each request is a separate call here, including retries and calls of strategies; `name` is unique in the turn. A
finished call that a later attempt found in the journal is listed for that attempt, too, as replayed: nothing was sent
then.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NotRequired, TypedDict

from durable_agent_host.codec.journal_entry import decode_journal_entry
from durable_agent_host.codec.log_entry import format_entry_time
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.journal_entry import CompactionCallCompletedEntry, ModelCallCompletedEntry
from durable_agent_host.model.log_entry import (
    ATTEMPT,
    ATTEMPT_STARTED,
    MODEL_FINISHED,
    MODEL_RECEIVED,
    MODEL_SENT,
    SIDE_CALL_FINISHED,
    LogRecord,
)
from durable_agent_host.turn.call_body import CallBody, decode_body
from durable_agent_host.turn.recorded_stream import FinalResponse, fold_stream

Side = Literal["request", "answer"]
_FAILED_STATUS: Final = 400
"""HTTP statuses from here on are failures."""


class ModelCallBodyWire(TypedDict):
    """A body of a call: its size on the wire, and the hash of what is kept of it.

    A single call has the body itself as far as it is kept, and where it can be downloaded. The form of the answer to a
    stream says whether it is the whole answer, or its events.
    """

    bytes: NotRequired[int]
    sha256: NotRequired[str | None]
    form: NotRequired[str]
    complete: NotRequired[bool]
    missing_characters: NotRequired[int]
    body: NotRequired[Any]
    text: NotRequired[str]
    too_large: NotRequired[Literal[True]]
    url: NotRequired[str]


_TryWire = TypedDict("_TryWire", {"try": NotRequired[int | None]})  # a keyword, which only this form can name


class ModelCallWire(_TryWire):
    """A request to the model's service and its answer, by its unique name; nothing was sent for a replayed one."""

    name: str
    position: int | None
    strategy_call: NotRequired[int]
    attempt: int
    method: str | None
    url: str | None
    outcome: Literal["completed", "failed", "lost"] | None
    status: int | None
    replayed: bool
    made_in_attempt: NotRequired[int]
    error: NotRequired[str | None]
    sent_at: NotRequired[str | None]
    answered_at: NotRequired[str | None]
    request: NotRequired[ModelCallBodyWire | None]
    answer: NotRequired[ModelCallBodyWire | None]
    redacted: NotRequired[Literal[True]]


class ModelCallPageWire(TypedDict):
    """A page of the requests to the model's service in a turn."""

    calls: Sequence[ModelCallWire]
    cursor: str | None


class CallReader:
    """Reads the calls of one turn.

    Args:
        has_ended: whether the turn has ended; a call without an answer is then lost.
    """

    def __init__(self, *, has_ended: bool) -> None:
        self._has_ended = has_ended
        self._calls: list[ModelCallWire] = []
        self._sent: dict[str, ModelCallWire] = {}
        self._bodies: dict[tuple[str, Side], Mapping[str, Any]] = {}
        self._completed_calls: dict[CallPath, ModelCallWire] = {}

    def read(self, records: Iterable[LogRecord]) -> None:
        """Add the next records of the log."""
        for record in records:
            kind = record.entry.kind
            data = record.entry.data
            if kind == MODEL_SENT:
                self._add_request(data, record.attempt)
            elif kind == MODEL_RECEIVED:
                self._add_response(data)
            elif kind == ATTEMPT:
                self._lose()
            elif kind == ATTEMPT_STARTED:
                self._add_replays(record.attempt)
            elif kind in (MODEL_FINISHED, SIDE_CALL_FINISHED):
                self._add_completion(record)

    def calls(self) -> list[ModelCallWire]:
        """Return the calls in order, without their bodies; call it once."""
        if self._has_ended:
            self._lose()
        return self._calls

    def body(self, name: str, side: Side, final_response: FinalResponse) -> tuple[CallBody, str] | None:
        """Return a body, and its form.

        Returns:
            The body; that of a stream as JSON. The form is empty for another body than that of a stream, see
            `fold_stream`. None when there is no body.
        """
        if (data := self._bodies.get((name, side))) is None:
            return None
        body = decode_body(data)
        if not data.get("is_stream"):
            return body, ""
        form, folded_body = fold_stream(body, final_response)
        return folded_body, form

    def _add_request(self, data: Mapping[str, Any], attempt: int) -> None:
        name = str(data.get("name"))
        call: ModelCallWire = {
            "name": name,
            "position": data.get("position"),
            "attempt": attempt,
            "try": data.get("try"),
            "method": data.get("method"),
            "url": data.get("url"),
            "sent_at": format_entry_time(data),
            "answered_at": None,
            "outcome": None,
            "status": None,
            "error": None,
            "request": _sizes(data),
            "answer": None,
            "replayed": False,
        }
        if "number" in data:
            call["strategy_call"] = data["number"]
        self._sent[name] = call
        self._calls.append(call)
        if "body" in data:
            self._bodies[name, "request"] = data

    def _add_response(self, data: Mapping[str, Any]) -> None:
        name = str(data.get("name"))
        if (call := self._sent.get(name)) is None:
            return
        status = data.get("status")
        error = data.get("error")
        has_failed = error is not None or not isinstance(status, int) or status >= _FAILED_STATUS
        call["answered_at"] = format_entry_time(data)
        call["outcome"] = "failed" if has_failed else "completed"
        call["status"] = status
        call["error"] = error
        call["answer"] = _sizes(data)
        if "body" in data:
            self._bodies[name, "answer"] = data

    def _add_completion(self, record: LogRecord) -> None:
        step = decode_journal_entry(record.entry)
        if isinstance(step, ModelCallCompletedEntry | CompactionCallCompletedEntry) and not step.path.is_nested:
            path = step.path
            matching_calls = [
                call
                for call in self._calls
                if (call["position"], call.get("strategy_call")) == (path.position, path.compaction_number)
            ]
            if matching_calls and not matching_calls[-1]["replayed"]:
                self._completed_calls[path] = matching_calls[-1]

    def _add_replays(self, attempt: int) -> None:
        for completed_call in self._completed_calls.values():
            replay: ModelCallWire = {
                "name": completed_call["name"],
                "position": completed_call["position"],
                "method": completed_call["method"],
                "url": completed_call["url"],
                "outcome": completed_call["outcome"],
                "status": completed_call["status"],
                "attempt": attempt,
                "replayed": True,
                "made_in_attempt": completed_call["attempt"],
            }
            if "strategy_call" in completed_call:
                replay["strategy_call"] = completed_call["strategy_call"]
            self._calls.append(replay)

    def _lose(self) -> None:
        for call in self._sent.values():
            call["outcome"] = call["outcome"] or "lost"


def _sizes(data: Mapping[str, Any]) -> ModelCallBodyWire:
    """Return the size of a body."""
    return {"bytes": data.get("bytes", 0), "sha256": data.get("sha256")}
