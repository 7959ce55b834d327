"""Whole threads with their runs, steps and files, as a conversation that any provider can continue."""

import base64
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.model.provider_item import LOST_RESULT
from durable_agent_host.providers.azure_ai_agents.call_kinds import hosted_file, parse_call_from_agents
from durable_agent_host.providers.azure_ai_agents.events import carrier_of
from durable_agent_host.providers.azure_ai_agents.service import AgentsService
from durable_agent_host.providers.azure_ai_agents.thread_messages import parse_message_from_agents

Json = dict[str, Any]

_NOT_GIVEN: Final = frozenset({400, 401, 403, 404})


@dataclass
class MovedThread:
    """A complete thread.

    Attributes:
        thread_id: of the service.
        messages: oldest first.
        files: downloaded: id → size in bytes.
        missing: what could not be read, in words.
    """

    thread_id: str
    messages: list[Message] = field(default_factory=list[Message])
    files: dict[str, int] = field(default_factory=dict[str, int])
    missing: list[str] = field(default_factory=list[str])


async def read_thread(service: AgentsService, thread_id: str) -> MovedThread:
    """Read a thread with everything that its runs have done; the thread is not changed.

    Args:
        service: the service that has it.
        thread_id: of the thread.

    Returns:
        The conversation; files are contents with their bytes, where the service releases them.

    Raises:
        HttpResponseError: from the SDK: the service does not have the thread, or fails.
    """
    return await _Reading(service, MovedThread(thread_id)).read()


@dataclass
class _Reading:
    service: AgentsService
    moved: MovedThread

    async def read(self) -> MovedThread:
        thread_id = self.moved.thread_id
        thread = await self.service.thread(thread_id)
        posted = await self.service.messages(thread_id)
        by_id = {str(one["id"]): one for one in posted}
        runs = await self.service.runs(thread_id)
        known = {str(run["id"]) for run in runs}
        alone = [one for one in posted if one.get("run_id") not in known]
        for one in sorted([*alone, *reversed(runs)], key=lambda one: int(one.get("created_at") or 0)):
            if str(one["id"]) in by_id:
                self._add("user" if one.get("role") == "user" else "assistant", await self._message(one, {}))
            else:
                await self._read_run(one, by_id)
        for store in cast("list[str]", _within(thread, "tool_resources", "file_search", "vector_store_ids") or []):
            self.moved.missing.append(f"vector store {store}: what was found in it is kept, the store is not")
        return self.moved

    async def _read_run(self, run: Json, by_id: Mapping[str, Json]) -> None:
        said: list[Content] = []
        for step in await self.service.steps(self.moved.thread_id, str(run["id"])):
            rest = {name: value for name, value in step.items() if name != "step_details"}
            message = by_id.get(str(_within(step, "step_details", "message_creation", "message_id")))
            calls = cast("list[Json]", _within(step, "step_details", "tool_calls") or [])
            if message is not None:
                said += await self._message(message, rest)
            elif not calls:
                said.append(carrier_of(step))
            results: list[Content] = []
            for number, call in enumerate(calls):
                contents = parse_call_from_agents(call, {"id": step.get("id")} if number else rest)
                said += [await self._with_files(content) for content in contents]
                if call.get("type") == "function":
                    output = _within(call, "function", "output")
                    told = LOST_RESULT if output is None else str(output)
                    results.append(Content.from_function_result(str(call.get("id")), result=told))
            if results:
                self._add("assistant", said)
                self._add("tool", results)
                said = []
        self._add("assistant", said)
        if run.get("status") not in {"completed", "incomplete"}:
            self.moved.missing.append(f"run {run['id']} is {run.get('status')}: it has no answer")

    def _add(self, role: str, contents: list[Content]) -> None:
        if contents:
            self.moved.messages.append(Message(role, contents))

    async def _message(self, message: Json, step: Json) -> list[Content]:
        contents = [await self._with_files(one) for one in parse_message_from_agents(message, step or None)]
        named = [str(one.get("file_id")) for one in cast("list[Json]", message.get("attachments") or [])]
        cited = [note for one in contents for note in one.annotations or ()]
        named += [
            str(note.get("file_id"))
            for note in cited
            if (note.get("additional_properties") or {}).get("kind") == "file_path"
        ]
        return [*contents, *[await self._with_files(hosted_file(name)) for name in dict.fromkeys(named)]]

    async def _with_files(self, content: Content) -> Content:
        """Put the bytes of a file into its place, and into the outputs of code."""
        if content.type == "hosted_file" and content.file_id:
            return await self._downloaded(content, content.file_id)
        outputs: Any = content.outputs
        if content.type == "code_interpreter_tool_result" and isinstance(outputs, list):
            content.outputs = [await self._with_files(one) for one in cast("list[Content]", outputs)]
        return content

    async def _downloaded(self, content: Content, file_id: str) -> Content:
        try:
            told = await self.service.file(file_id)
            data = await self.service.read_file(file_id)
        except Exception as error:
            if getattr(error, "status_code", None) not in _NOT_GIVEN:
                raise
            self.moved.missing.append(f"file {file_id}: the service does not give it out ({_status(error)})")
            return content
        self.moved.files[file_id] = len(data)
        name = str(told.get("filename") or file_id)
        guessed = "image/png" if content.additional_properties.get("kind") == "image" else "application/octet-stream"
        media_type = mimetypes.guess_type(name)[0] or guessed
        uri = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
        properties = {**content.additional_properties, "file_id": file_id, "filename": name}
        return Content("data", uri=uri, media_type=media_type, name=name, additional_properties=properties)


def _status(error: Exception) -> Any:
    return getattr(error, "status_code", "")


def _within(value: Any, *names: str) -> Any:
    for name in names:
        value = cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None
    return value
