"""What the Azure AI Agents service keeps: threads, their messages and runs, files. In memory.

The events of a run tell all that is to know of it, so what is kept is read from them.
"""

import base64
import time
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from practice_model.dialects.agents import objects
from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.ids import IdMint
from practice_model.dialects.responses.items import PIXEL, Json
from practice_model.rules import threads as rules

_MOST_LISTED = 100


@dataclass
class StoredRun:
    """A run, and what is to become of it."""

    shown: Json
    steps: dict[str, Json] = field(default_factory=dict[str, Json])
    outputs: dict[str, list[Json]] = field(default_factory=dict[str, list[Json]])
    coming: list[Json] = field(default_factory=list[Json])
    looks: int | None = None
    after_approval: dict[str, Any] = field(default_factory=dict[str, Any])
    rest: list[Json] = field(default_factory=list[Json])


@dataclass
class StoredThread:
    """A thread, and what the model reads of it."""

    shown: Json
    messages: list[Json] = field(default_factory=list[Json])
    runs: dict[str, StoredRun] = field(default_factory=dict[str, StoredRun])
    transcript: list[Json] = field(default_factory=list[Json])

    @property
    def active(self) -> str | None:
        """The run that keeps it."""
        return next((key for key, run in self.runs.items() if run.shown["status"] in rules.ACTIVE), None)


@dataclass
class AgentStore:
    """What was made since the start of the process."""

    mint: IdMint
    agents: dict[str, Json] = field(default_factory=dict[str, Json])
    threads: dict[str, StoredThread] = field(default_factory=dict[str, StoredThread])
    files: dict[str, tuple[Json, bytes]] = field(default_factory=dict[str, tuple[Json, bytes]])

    def new_id(self, prefix: str) -> str:
        """Make an id."""
        return self.mint.like(f"{prefix}_{'0' * 24}")

    def post(self, thread: StoredThread, body: Json) -> Json:
        """Add a message to a thread."""
        message = objects.message(self.new_id("msg"), thread.shown["id"], body, now())
        thread.messages.append(message)
        texts = [{"text": part["text"]["value"]} for part in message["content"] if part["type"] == "text"]
        thread.transcript.append({"type": "message", "role": message["role"], "content": texts})
        return message

    def kept(self, item: Json) -> Json:
        """Keep the images of a code run and the files that a text cites as files of the service."""
        if item.get("type") == "code_interpreter_call":
            outputs: list[Json] = item.get("outputs") or []
            return {**item, "outputs": [self._output(one) for one in outputs]}
        for part in item.get("content") or () if item.get("type") == "message" else ():
            for note in part.get("annotations") or ():
                if note.get("type") == "container_file_citation":
                    self.keep(note["file_id"], note["filename"], f"written by code: {note['filename']}\n".encode())
        return item

    def _output(self, output: Json) -> Json:
        if output.get("type") != "image":
            return output
        file_id = self.new_id("assistant")
        self.keep(file_id, "plot.png", base64.b64decode(PIXEL.partition(",")[2]))
        return {"type": "image", "image": {"file_id": file_id}}

    def keep(self, file_id: str, name: str, data: bytes, purpose: str = "assistants_output") -> Json:
        """Keep a file."""
        named = {"object": "file", "id": file_id, "purpose": purpose, "filename": name, "bytes": len(data)}
        shown = {**named, "created_at": now(), "status": "processed", "status_details": None}
        self.files[file_id] = shown, data
        return shown

    @staticmethod
    def settle(thread: StoredThread, run: StoredRun) -> None:
        """Keep what the events of a run say."""
        known = {one["id"]: place for place, one in enumerate(thread.messages)}
        for one in run.coming:
            name, data = one["event"], one["data"]
            if name.startswith("thread.run.step.") and not name.endswith("delta"):
                run.steps[data["id"]] = data
            elif name.startswith("thread.run."):
                run.shown = data
            elif name in {"thread.message.completed", "thread.message.incomplete"} and data["id"] not in known:
                thread.messages.append({**data, "status": name.rpartition(".")[2]})
        action = run.shown.get("required_action")
        if run.shown["status"] == "requires_action" and action:
            waiting = next(step for step in reversed(run.steps.values()) if step["status"] == "in_progress")
            calls = action[action["type"]]["tool_calls"]
            run.steps[waiting["id"]] = {**waiting, "step_details": {"type": "tool_calls", "tool_calls": calls}}
        run.coming = []


def now() -> int:
    """Give the time in seconds, as the service shows it."""
    return int(time.time())


class RefusedError(Exception):
    """A request that the service refuses."""

    def __init__(self, error: HttpError) -> None:
        super().__init__(error.message)
        self.error = error


def found[T](known: dict[str, T], given: str, kind: str) -> T:
    """Find what an id names, or refuse the request."""
    if given not in known:
        raise RefusedError(rules.no_such(kind, given))
    return known[given]


def with_outputs(step: Json, outputs: dict[str, Any]) -> Json:
    """Fill in what comes after the end of a step, which listed steps have."""
    calls: list[Json] = []
    made: list[Json] = step["step_details"].get("tool_calls") or []
    for call in made:
        if call["id"] not in outputs:
            calls.append(call)
        elif call["type"] == "code_interpreter":
            ran: Json = {**call["code_interpreter"], "outputs": outputs[call["id"]]}
            calls.append({**call, "code_interpreter": ran})
        else:
            calls.append({**call, "output": outputs[call["id"]]})
    return {**step, "step_details": {**step["step_details"], "tool_calls": calls}} if calls else step


def page(request: Request, listed: list[Json]) -> Json:
    """Return a page, newest first unless asked otherwise."""
    ordered = listed if request.query_params.get("order") == "asc" else listed[::-1]
    if after := request.query_params.get("after"):
        ids = [one["id"] for one in ordered]
        ordered = ordered[ids.index(after) + 1 :] if after in ids else []
    limit = min(int(request.query_params.get("limit", "20")), _MOST_LISTED)
    return objects.listing(ordered[:limit], has_more=len(ordered) > limit)
