"""Complete threads with their runs, steps and files, as a conversation that any provider can continue."""

import base64
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.codec.strict_json import value_at
from durable_agent_host.model.provider_item import LOST_RESULT
from durable_agent_host.providers.azure_ai_agents.run_events import complete_item
from durable_agent_host.providers.azure_ai_agents.service_client import AgentsService
from durable_agent_host.providers.azure_ai_agents.thread_contents import hosted_file
from durable_agent_host.providers.neutral_contents import as_objects

Json = dict[str, Any]

_UNAVAILABLE_STATUSES: Final = frozenset({400, 401, 403, 404})


@dataclass
class ImportedThread:
    """A complete thread.

    Attributes:
        thread_id: of the service.
        messages: oldest first.
        files: downloaded: id → size in bytes.
        missing: descriptions of data that could not be read.
    """

    thread_id: str
    messages: list[Message] = field(default_factory=list[Message])
    files: dict[str, int] = field(default_factory=dict[str, int])
    missing: list[str] = field(default_factory=list[str])


async def read_thread(service: AgentsService, thread_id: str) -> ImportedThread:
    """Read a thread with all steps of its runs; the thread is not changed.

    Returns:
        The conversation; files are contents with their bytes, where the service releases them.

    Raises:
        HttpResponseError: from the SDK: the service does not have the thread, or fails.
    """
    return await _ThreadReader(service, ImportedThread(thread_id)).read()


@dataclass
class _ThreadReader:
    service: AgentsService
    imported_thread: ImportedThread

    async def read(self) -> ImportedThread:
        thread_id = self.imported_thread.thread_id
        thread = await self.service.thread(thread_id)
        messages = await self.service.messages(thread_id)
        by_id = {str(entry["id"]): entry for entry in messages}
        runs = await self.service.runs(thread_id)
        run_ids = {str(run["id"]) for run in runs}
        messages_without_run = [entry for entry in messages if entry.get("run_id") not in run_ids]
        for entry in sorted(
            [*messages_without_run, *reversed(runs)], key=lambda entry: int(entry.get("created_at") or 0)
        ):
            if str(entry["id"]) in by_id:
                self._add("user" if entry.get("role") == "user" else "assistant", await self._message(entry, {}))
            else:
                await self._read_run(entry, by_id)
        for store in cast("list[str]", value_at(thread, "tool_resources", "file_search", "vector_store_ids") or []):
            self.imported_thread.missing.append(f"vector store {store}: what was found in it is kept, the store is not")
        return self.imported_thread

    async def _read_run(self, run: Json, by_id: Mapping[str, Json]) -> None:
        contents_so_far: list[Content] = []
        for step in await self.service.steps(self.imported_thread.thread_id, str(run["id"])):
            step_fields = {name: value for name, value in step.items() if name != "step_details"}
            message = by_id.get(str(value_at(step, "step_details", "message_creation", "message_id")))
            calls = as_objects(value_at(step, "step_details", "tool_calls"))
            if message is not None:
                contents_so_far += await self._message(message, step_fields)
            elif not calls:
                contents_so_far += complete_item([], {"step": step})
            results: list[Content] = []
            for index, call in enumerate(calls):
                contents = complete_item([], {"call": call, "step": {"id": step.get("id")} if index else step_fields})
                contents_so_far += [await self._with_files(content) for content in contents]
                if call.get("type") == "function":
                    output = value_at(call, "function", "output")
                    result = LOST_RESULT if output is None else str(output)
                    results.append(Content.from_function_result(str(call.get("id")), result=result))
            if results:
                self._add("assistant", contents_so_far)
                self._add("tool", results)
                contents_so_far = []
        self._add("assistant", contents_so_far)
        if run.get("status") not in {"completed", "incomplete"}:
            self.imported_thread.missing.append(f"run {run['id']} is {run.get('status')}: it has no answer")

    def _add(self, role: str, contents: list[Content]) -> None:
        if contents:
            self.imported_thread.messages.append(Message(role, contents))

    async def _message(self, message: Json, step: Json) -> list[Content]:
        contents = [await self._with_files(item) for item in complete_item([], {"message": message, "step": step})]
        file_ids = [str(item.get("file_id")) for item in as_objects(message.get("attachments"))]
        annotations = [annotation for item in contents for annotation in item.annotations or ()]
        file_ids += [
            str(annotation.get("file_id"))
            for annotation in annotations
            if (annotation.get("additional_properties") or {}).get("kind") == "file_path"
        ]
        return [*contents, *[await self._with_files(hosted_file(name)) for name in dict.fromkeys(file_ids)]]

    async def _with_files(self, content: Content) -> Content:
        """Replace files by their bytes, also in the outputs of code."""
        if content.type == "hosted_file" and content.file_id:
            return await self._download(content, content.file_id)
        outputs: Any = content.outputs
        if content.type == "code_interpreter_tool_result" and isinstance(outputs, list):
            content.outputs = [await self._with_files(output) for output in cast("list[Content]", outputs)]
        return content

    async def _download(self, content: Content, file_id: str) -> Content:
        try:
            file_fields = await self.service.file(file_id)
            data = await self.service.read_file(file_id)
        except Exception as error:
            status: Any = getattr(error, "status_code", None)
            if status not in _UNAVAILABLE_STATUSES:
                raise
            self.imported_thread.missing.append(f"file {file_id}: the service does not give it out ({status})")
            return content
        self.imported_thread.files[file_id] = len(data)
        name = str(file_fields.get("filename") or file_id)
        default_type = (
            "image/png" if content.additional_properties.get("kind") == "image" else "application/octet-stream"
        )
        media_type = mimetypes.guess_type(name)[0] or default_type
        uri = f"data:{media_type};base64,{base64.b64encode(data).decode()}"
        properties = {**content.additional_properties, "file_id": file_id, "filename": name}
        return Content("data", uri=uri, media_type=media_type, name=name, additional_properties=properties)
