"""The events of a run that gives an answer. Pure; ids and the time come as arguments.

The answer's items are those of the Responses API: a message becomes a step that creates a message, a code run a step
with a call, function calls one step for which the run waits. Any other item is a call of its type, as it is; with
``approval`` the run waits for a person first. An item of type ``step`` is a step of its own kind.

Source: recorded streams of the service. As there, the steps of a stream have no outputs of code; listed steps have.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from practice_model.dialects.agents import objects
from practice_model.dialects.responses.ids import IdMint
from practice_model.dialects.responses.items import Json

_LIKE = {"step": "step_" + "0" * 24, "msg": "msg_" + "0" * 24, "call": "call_" + "0" * 24}
_NO_CALLS = frozenset({"message", "reasoning", "function_call", "compaction"})


def event(name: str, data: Any) -> Json:
    """Return an event as it is sent."""
    return {"event": name, "data": data}


@dataclass
class RunScript:
    """Writes the events of a run, from its creation or from the answers to its calls.

    Attributes:
        run: the object, changed as the run goes on.
        mint: generates ids.
        now: seconds.
        chunk: characters of a delta.
        events: in order.
        outputs: of code, by the id of the call, which streams leave out.
    """

    run: Json
    mint: IdMint
    now: int
    chunk: int
    events: list[Json] = field(default_factory=list[Json])
    outputs: dict[str, list[Json]] = field(default_factory=dict[str, list[Json]])

    def goes_to(self, status: str, **more: Any) -> None:
        """Note that the run is in another state."""
        self.run = {**self.run, "status": status, **more}
        self.events.append(event(f"thread.run.{status}", self.run))

    def begins(self) -> None:
        """Note that the run was made, and works."""
        self.events.append(event("thread.run.created", self.run))
        self.goes_on()

    def goes_on(self) -> None:
        """Note that the run works, for the first time or again."""
        self.goes_to("queued", required_action=None)
        self.goes_to("in_progress", started_at=self.now)

    def plays(self, items: Sequence[Json]) -> None:
        """Write steps for items until one has to wait for the app; the run waits then."""
        for item in items:
            match item.get("type"):
                case "message":
                    self._says(item)
                case "code_interpreter_call":
                    self._runs_code(item)
                case "step":
                    self._has_step(dict(item["step_details"]))
                case kind if kind not in _NO_CALLS and not item.get("approval"):
                    self._calls(item)
                case _:
                    pass
        functions = [item for item in items if item.get("type") == "function_call"]
        asking = [item for item in items if item.get("approval")]
        if functions:
            self._waits("submit_tool_outputs", [_function(item) for item in functions])
        elif asking:
            self._waits("submit_tool_approval", [self._identified(item) for item in asking])

    def _new(self, kind: str) -> str:
        return self.mint.like(_LIKE[kind])

    def _step(self, details: Json) -> str:
        step_id = self._new("step")
        for status in ("created", "in_progress"):
            begun = objects.step(step_id, self.run, details, self.now, "in_progress")
            self.events.append(event(f"thread.run.step.{status}", begun))
        return step_id

    def _ends(self, step_id: str, details: Json) -> None:
        ended = objects.step(step_id, self.run, details, self.now, "completed")
        self.events.append(event("thread.run.step.completed", ended))

    def _has_step(self, details: Json) -> None:
        self._ends(self._step({"type": details["type"]}), details)

    def _delta(self, step_id: str, call: Json) -> None:
        calls = {"step_details": {"type": "tool_calls", "tool_calls": [call]}}
        delta = {"id": step_id, "object": "thread.run.step.delta", "delta": calls}
        self.events.append(event("thread.run.step.delta", delta))

    def _says(self, item: Json) -> None:
        message_id = self._new("msg")
        details: Json = {"type": "message_creation", "message_creation": {"message_id": message_id}}
        step_id = self._step(details)
        for status in ("created", "in_progress"):
            begun = objects.answer(message_id, self.run, [], self.now, "in_progress")
            self.events.append(event(f"thread.message.{status}", begun))
        parts = [_text_part(part) for part in item["content"]]
        for index, part in enumerate(parts):
            for piece in self._pieces(part["text"]["value"]):
                said: Json = {"index": index, "type": "text", "text": {"value": piece, "annotations": []}}
                delta: Json = {"id": message_id, "object": "thread.message.delta", "delta": {"content": [said]}}
                self.events.append(event("thread.message.delta", delta))
        whole = objects.answer(message_id, self.run, parts, self.now, "completed")
        self.events.append(event("thread.message.completed", whole))
        self._ends(step_id, details)

    def _pieces(self, text: str) -> Iterator[str]:
        for start in range(0, len(text), self.chunk):
            yield text[start : start + self.chunk]

    def _runs_code(self, item: Json) -> None:
        call_id = self._new("call")
        step_id = self._step({"type": "tool_calls", "tool_calls": []})
        begun = {"input": "", "outputs": list[Json]()}
        self._delta(step_id, {"index": 0, "id": call_id, "type": "code_interpreter", "code_interpreter": begun})
        for piece in self._pieces(item["code"]):
            self._delta(step_id, {"index": 0, "type": "code_interpreter", "code_interpreter": {"input": piece}})
        self.outputs[call_id] = list(item.get("outputs") or [])
        shown: Json = {"input": item["code"], "outputs": []}
        ran = {"id": call_id, "type": "code_interpreter", "code_interpreter": shown}
        self._ends(step_id, {"type": "tool_calls", "tool_calls": [ran]})

    def _identified(self, item: Json) -> Json:
        call = {name: value for name, value in item.items() if name not in {"approval", "output"}}
        return {**call, "id": self._new("call") if item.get("id", "item").startswith("item") else item["id"]}

    def _calls(self, item: Json) -> None:
        call = {**item, "id": self._new("call") if item.get("id", "item").startswith("item") else item["id"]}
        step_id = self._step({"type": "tool_calls", "tool_calls": []})
        self._delta(step_id, {"index": 0, **call})
        self._ends(step_id, {"type": "tool_calls", "tool_calls": [call]})

    def _waits(self, action: str, calls: list[Json]) -> None:
        step_id = self._step({"type": "tool_calls", "tool_calls": []})
        for index, call in enumerate(calls):
            if call["type"] != "function":
                self._delta(step_id, {"index": index, **call, "output": None})
                continue
            begun = {"name": call["function"]["name"], "arguments": "", "output": None}
            self._delta(step_id, {"index": index, "id": call["id"], "type": "function", "function": begun})
            for piece in self._pieces(call["function"]["arguments"]):
                self._delta(step_id, {"index": index, "type": "function", "function": {"arguments": piece}})
        self.goes_to("requires_action", required_action={"type": action, action: {"tool_calls": calls}})

    def answers(self, step: Json, outputs: Mapping[str, Any]) -> None:
        """Write that the calls for which the run waited have their answers.

        Args:
            step: in which they were made.
            outputs: by the call's id; of a call of a server that may run, its output.
        """
        calls = [_with_output(call, outputs.get(call["id"])) for call in step["step_details"]["tool_calls"]]
        self._ends(step["id"], {"type": "tool_calls", "tool_calls": calls})
        self.goes_on()
        for index, call in enumerate(calls):
            if call["type"] != "function" and outputs.get(call["id"]) is not None:
                self._delta(step["id"], {"index": index, "type": call["type"], "output": outputs[call["id"]]})

    def ends(self, failure: Mapping[str, Any] | None, incomplete: str | None, usage: Json) -> None:
        """Write how the run ends, unless it waits."""
        if failure:
            error = {"code": failure.get("code"), "message": failure.get("message")}
            self.goes_to("failed", failed_at=self.now, last_error=error, expires_at=None)
        elif self.run["status"] == "requires_action":
            return
        elif incomplete:
            self.goes_to("incomplete", incomplete_details={"reason": incomplete}, usage=usage, expires_at=None)
        else:
            self.goes_to("completed", completed_at=self.now, usage=usage, expires_at=None)


def _function(item: Json) -> Json:
    asked = {"name": item["name"], "arguments": item["arguments"]}
    return {"id": item["call_id"], "type": "function", "function": asked}


def _with_output(call: Json, output: Any) -> Json:
    if call["type"] == "function":
        return {**call, "function": {**call["function"], "output": output}}
    return {**call, "output": None}


def _text_part(part: Json) -> Json:
    given: list[Json] = part.get("annotations") or []
    notes = [_annotation(note) for note in given]
    return {"type": "text", "text": {"value": str(part.get("text") or part.get("refusal") or ""), "annotations": notes}}


def _annotation(note: Json) -> Json:
    if note.get("type") != "container_file_citation":
        return note
    span = {"start_index": note["start_index"], "end_index": note["end_index"]}
    text = f"sandbox:/mnt/data/{note['filename']}"
    return {"type": "file_path", "text": text, **span, "file_path": {"file_id": note["file_id"]}}
