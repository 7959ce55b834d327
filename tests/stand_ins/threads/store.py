"""State of the Azure AI Agents service: threads, their messages and runs, files. In memory.

The events of a run contain its full state, so the stored state is read from them.
"""

import time
from typing import Any

from starlette.requests import Request

from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.ids import IdGenerator
from practice_model.dialects.responses.items import Json, file_bytes
from tests.stand_ins.threads import objects, rules

MAX_PAGE_ITEMS = 100


class StoredRun:
    """A run, with the events and items that are still to come."""

    def __init__(self, json_object: Json) -> None:
        self.json_object = json_object
        self.steps: dict[str, Json] = {}
        self.outputs: dict[str, list[Json]] = {}
        self.pending_events: list[Json] = []
        self.remaining_polls: int | None = None
        self.approved_outputs: dict[str, Any] = {}
        self.remaining_items: list[Json] = []


class StoredThread:
    """A thread, with the transcript that the model reads."""

    def __init__(self, json_object: Json) -> None:
        self.json_object = json_object
        self.messages: list[Json] = []
        self.runs: dict[str, StoredRun] = {}
        self.transcript: list[Json] = []

    @property
    def active_run_id(self) -> str | None:
        """The id of the run that locks the thread."""
        return next((key for key, run in self.runs.items() if run.json_object["status"] in rules.ACTIVE), None)


class AgentStore:
    """Everything created since the start of the process."""

    def __init__(self, id_generator: IdGenerator) -> None:
        self.id_generator = id_generator
        self.agents: dict[str, Json] = {}
        self.threads: dict[str, StoredThread] = {}
        self.files: dict[str, tuple[Json, bytes]] = {}

    def new_id(self, prefix: str) -> str:
        """Return a new id."""
        return self.id_generator.new_like(f"{prefix}_{'0' * 24}")

    def add_message(self, thread: StoredThread, body: Json) -> Json:
        """Add a message to a thread."""
        message = objects.build_message(self.new_id("msg"), thread.json_object["id"], body, now())
        thread.messages.append(message)
        texts = [{"text": part["text"]["value"]} for part in message["content"] if part["type"] == "text"]
        thread.transcript.append({"type": "message", "role": message["role"], "content": texts})
        return message

    def store_files(self, item: Json) -> Json:
        """Store the images of a code run and the files that a text cites; return the item with their ids."""
        if item.get("type") == "code_interpreter_call":
            outputs: list[Json] = item.get("outputs") or []
            return {**item, "outputs": [self._store_image(output) for output in outputs]}
        for part in item.get("content") or () if item.get("type") == "message" else ():
            for annotation in part.get("annotations") or ():
                if annotation.get("type") == "container_file_citation":
                    self.add_file(annotation["file_id"], annotation["filename"])
        return item

    def _store_image(self, output: Json) -> Json:
        if output.get("type") != "image":
            return output
        file_id = self.new_id("assistant")
        self.add_file(file_id, "plot.png")
        return {"type": "image", "image": {"file_id": file_id}}

    def add_file(self, file_id: str, name: str, data: bytes | None = None, purpose: str = "assistants_output") -> Json:
        """Store a file, by default one that code has written; return its description."""
        data = file_bytes(name) if data is None else data
        file_fields = {"object": "file", "id": file_id, "purpose": purpose, "filename": name, "bytes": len(data)}
        file_object = {**file_fields, "created_at": now(), "status": "processed", "status_details": None}
        self.files[file_id] = file_object, data
        return file_object

    @staticmethod
    def apply_run_events(thread: StoredThread, run: StoredRun) -> None:
        """Apply the pending events of a run to it and its thread."""
        message_ids = {event["id"]: index for index, event in enumerate(thread.messages)}
        for event in run.pending_events:
            event_name = event["event"]
            data = event["data"]
            if event_name.startswith("thread.run.step.") and not event_name.endswith("delta"):
                run.steps[data["id"]] = data
            elif event_name.startswith("thread.run."):
                run.json_object = data
            elif (
                event_name in {"thread.message.completed", "thread.message.incomplete"}
                and data["id"] not in message_ids
            ):
                thread.messages.append({**data, "status": event_name.rpartition(".")[2]})
        action = run.json_object.get("required_action")
        if run.json_object["status"] == "requires_action" and action:
            waiting_step = next(step for step in reversed(run.steps.values()) if step["status"] == "in_progress")
            calls = action[action["type"]]["tool_calls"]
            run.steps[waiting_step["id"]] = {
                **waiting_step,
                "step_details": {"type": "tool_calls", "tool_calls": calls},
            }
        run.pending_events = []


def now() -> int:
    """Return the time in seconds, as the service reports it."""
    return int(time.time())


class RejectedError(Exception):
    """The service rejects the request."""

    def __init__(self, error: HttpError) -> None:
        super().__init__(error.message)
        self.error = error


def find_or_reject[T](objects_by_id: dict[str, T], object_id: str, kind: str) -> T:
    """Return the object with this id, or reject the request."""
    if object_id not in objects_by_id:
        raise RejectedError(rules.not_found_error(kind, object_id))
    return objects_by_id[object_id]


def with_outputs(step: Json, outputs: dict[str, Any]) -> Json:
    """Return a step with the outputs that come after its end, as listed steps have them."""
    calls: list[Json] = []
    step_calls: list[Json] = step["step_details"].get("tool_calls") or []
    for call in step_calls:
        if call["id"] not in outputs:
            calls.append(call)
        elif call["type"] == "code_interpreter":
            code_run: Json = {**call["code_interpreter"], "outputs": outputs[call["id"]]}
            calls.append({**call, "code_interpreter": code_run})
        else:
            calls.append({**call, "output": outputs[call["id"]]})
    return {**step, "step_details": {**step["step_details"], "tool_calls": calls}} if calls else step


def paginate(request: Request, entries: list[Json]) -> Json:
    """Return a page, newest first unless `order=asc` is requested."""
    ordered_entries = entries if request.query_params.get("order") == "asc" else entries[::-1]
    if after := request.query_params.get("after"):
        ids = [entry["id"] for entry in ordered_entries]
        ordered_entries = ordered_entries[ids.index(after) + 1 :] if after in ids else []
    limit = min(int(request.query_params.get("limit", "20")), MAX_PAGE_ITEMS)
    return objects.build_page(ordered_entries[:limit], has_more=len(ordered_entries) > limit)
