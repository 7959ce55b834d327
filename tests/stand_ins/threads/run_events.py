"""The events of a run that produces a response; ids and the time are arguments.

The response's items are those of the Responses API: a message becomes a step that creates a message, a code run a step
with a call, function calls one step for which the run waits. Any other item is sent unchanged as a call of its type;
with ``approval`` the run waits for a person first. An item of type ``step`` is a step with its own details.

Source: recorded streams of the service. As in those, steps in a stream have no code outputs; listed steps have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from practice_model.dialects.responses.ids import IdGenerator
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import split_text
from tests.stand_ins.threads import objects

_EXAMPLE_IDS = {"step": "step_" + "0" * 24, "msg": "msg_" + "0" * 24, "call": "call_" + "0" * 24}
_NON_CALL_TYPES = frozenset({"message", "reasoning", "function_call", "compaction"})


def build_event(name: str, data: Any) -> Json:
    """Return an event as sent."""
    return {"event": name, "data": data}


@dataclass
class RunScript:
    """Writes the events of a run, from its creation or from the results of its calls.

    Attributes:
        run: the run object, updated with each status.
        id_generator: generates ids.
        now: time in seconds.
        chunk_characters: length of the deltas.
        events: events in order.
        outputs: outputs of code by call id; streams omit them.
    """

    run: Json
    id_generator: IdGenerator
    now: int
    chunk_characters: int
    events: list[Json] = field(default_factory=list[Json])
    outputs: dict[str, list[Json]] = field(default_factory=dict[str, list[Json]])

    def set_status(self, status: str, **changed_fields: Any) -> None:
        """Write that the run has another status."""
        self.run = {**self.run, "status": status, **changed_fields}
        self.events.append(build_event(f"thread.run.{status}", self.run))

    def start(self) -> None:
        """Write that the run was created and is in progress."""
        self.events.append(build_event("thread.run.created", self.run))
        self.resume()

    def resume(self) -> None:
        """Write that the run is in progress, for the first time or again."""
        self.set_status("queued", required_action=None)
        self.set_status("in_progress", started_at=self.now)

    def play_items(self, items: Sequence[Json]) -> None:
        """Write the steps of items; the run waits if they have function calls or approvals."""
        for item in items:
            match item.get("type"):
                case "message":
                    self._write_message(item)
                case "code_interpreter_call":
                    self._write_code_run(item)
                case "step":
                    self._write_step(dict(item["step_details"]))
                case kind if kind not in _NON_CALL_TYPES and not item.get("approval"):
                    self._write_hosted_call(item)
                case _:
                    pass
        function_calls = [item for item in items if item.get("type") == "function_call"]
        approval_items = [item for item in items if item.get("approval")]
        if function_calls:
            self._require_action("submit_tool_outputs", [_build_function_call(item) for item in function_calls])
        elif approval_items:
            self._require_action("submit_tool_approval", [self._build_approval_call(item) for item in approval_items])

    def _new_id(self, kind: str) -> str:
        return self.id_generator.new_like(_EXAMPLE_IDS[kind])

    def _start_step(self, details: Json) -> str:
        step_id = self._new_id("step")
        for status in ("created", "in_progress"):
            step = objects.build_step(step_id, self.run, details, self.now, "in_progress")
            self.events.append(build_event(f"thread.run.step.{status}", step))
        return step_id

    def _complete_step(self, step_id: str, details: Json) -> None:
        step = objects.build_step(step_id, self.run, details, self.now, "completed")
        self.events.append(build_event("thread.run.step.completed", step))

    def _write_step(self, details: Json) -> None:
        self._complete_step(self._start_step({"type": details["type"]}), details)

    def _write_delta(self, step_id: str, call: Json) -> None:
        calls = {"step_details": {"type": "tool_calls", "tool_calls": [call]}}
        delta = {"id": step_id, "object": "thread.run.step.delta", "delta": calls}
        self.events.append(build_event("thread.run.step.delta", delta))

    def _write_message(self, item: Json) -> None:
        message_id = self._new_id("msg")
        details: Json = {"type": "message_creation", "message_creation": {"message_id": message_id}}
        step_id = self._start_step(details)
        for status in ("created", "in_progress"):
            message = objects.build_response_message(message_id, self.run, [], self.now, "in_progress")
            self.events.append(build_event(f"thread.message.{status}", message))
        parts = [_text_part(part) for part in item["content"]]
        for index, part in enumerate(parts):
            for chunk in split_text(part["text"]["value"], self.chunk_characters):
                text_delta: Json = {"index": index, "type": "text", "text": {"value": chunk, "annotations": []}}
                delta: Json = {"id": message_id, "object": "thread.message.delta", "delta": {"content": [text_delta]}}
                self.events.append(build_event("thread.message.delta", delta))
        completed_message = objects.build_response_message(message_id, self.run, parts, self.now, "completed")
        self.events.append(build_event("thread.message.completed", completed_message))
        self._complete_step(step_id, details)

    def _write_code_run(self, item: Json) -> None:
        call_id = self._new_id("call")
        step_id = self._start_step({"type": "tool_calls", "tool_calls": []})
        empty_run = {"input": "", "outputs": list[Json]()}
        self._write_delta(
            step_id, {"index": 0, "id": call_id, "type": "code_interpreter", "code_interpreter": empty_run}
        )
        for chunk in split_text(item["code"], self.chunk_characters):
            self._write_delta(step_id, {"index": 0, "type": "code_interpreter", "code_interpreter": {"input": chunk}})
        self.outputs[call_id] = list(item.get("outputs") or [])
        code_run: Json = {"input": item["code"], "outputs": []}
        call = {"id": call_id, "type": "code_interpreter", "code_interpreter": code_run}
        self._complete_step(step_id, {"type": "tool_calls", "tool_calls": [call]})

    def _build_approval_call(self, item: Json) -> Json:
        call = {name: value for name, value in item.items() if name not in {"approval", "output"}}
        return {**call, "id": self._call_id(item)}

    def _call_id(self, item: Json) -> str:
        return self._new_id("call") if item.get("id", "item").startswith("item") else item["id"]

    def _write_hosted_call(self, item: Json) -> None:
        call = {**item, "id": self._call_id(item)}
        step_id = self._start_step({"type": "tool_calls", "tool_calls": []})
        self._write_delta(step_id, {"index": 0, **call})
        self._complete_step(step_id, {"type": "tool_calls", "tool_calls": [call]})

    def _require_action(self, action: str, calls: list[Json]) -> None:
        step_id = self._start_step({"type": "tool_calls", "tool_calls": []})
        for index, call in enumerate(calls):
            if call["type"] != "function":
                self._write_delta(step_id, {"index": index, **call, "output": None})
                continue
            function = {"name": call["function"]["name"], "arguments": "", "output": None}
            self._write_delta(step_id, {"index": index, "id": call["id"], "type": "function", "function": function})
            for chunk in split_text(call["function"]["arguments"], self.chunk_characters):
                self._write_delta(step_id, {"index": index, "type": "function", "function": {"arguments": chunk}})
        self.set_status("requires_action", required_action={"type": action, action: {"tool_calls": calls}})

    def complete_calls(self, step: Json, outputs: Mapping[str, Any]) -> None:
        """Write that the calls for which the run waited are complete."""
        calls = [_with_output(call, outputs.get(call["id"])) for call in step["step_details"]["tool_calls"]]
        self._complete_step(step["id"], {"type": "tool_calls", "tool_calls": calls})
        self.resume()
        for index, call in enumerate(calls):
            if call["type"] != "function" and outputs.get(call["id"]) is not None:
                self._write_delta(step["id"], {"index": index, "type": call["type"], "output": outputs[call["id"]]})

    def complete(self, failure: Mapping[str, Any] | None, incomplete: str | None, usage: Json) -> None:
        """Write the end of the run, unless it waits."""
        if failure:
            error = {"code": failure.get("code"), "message": failure.get("message")}
            self.set_status("failed", failed_at=self.now, last_error=error, expires_at=None)
        elif self.run["status"] == "requires_action":
            return
        elif incomplete:
            self.set_status("incomplete", incomplete_details={"reason": incomplete}, usage=usage, expires_at=None)
        else:
            self.set_status("completed", completed_at=self.now, usage=usage, expires_at=None)


def _build_function_call(item: Json) -> Json:
    function = {"name": item["name"], "arguments": item["arguments"]}
    return {"id": item["call_id"], "type": "function", "function": function}


def _with_output(call: Json, output: Any) -> Json:
    if call["type"] == "function":
        return {**call, "function": {**call["function"], "output": output}}
    return {**call, "output": None}


def _text_part(part: Json) -> Json:
    annotations: list[Json] = part.get("annotations") or []
    file_paths = [_annotation(annotation) for annotation in annotations]
    return {
        "type": "text",
        "text": {"value": str(part.get("text") or part.get("refusal") or ""), "annotations": file_paths},
    }


def _annotation(annotation: Json) -> Json:
    if annotation.get("type") != "container_file_citation":
        return annotation
    span = {"start_index": annotation["start_index"], "end_index": annotation["end_index"]}
    text = f"sandbox:/mnt/data/{annotation['filename']}"
    return {"type": "file_path", "text": text, **span, "file_path": {"file_id": annotation["file_id"]}}
