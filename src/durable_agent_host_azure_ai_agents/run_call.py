"""One model call: it starts a run, sends results to a run that waits, or re-attaches to a run.

Theory of operation. A step that a crash must not repeat is journaled before it is done, as the call's continuation
token: first the thread, then the run. The token comes with an update, and the reader of the stream has stored it when
it asks for the next update. With a token without a run, the thread is searched for the turn's message and run before
anything is posted. With a token for a run, the run is followed by its steps: it is never cancelled here, and never
started again unless it has failed for a transient reason before the app's tools did anything for it. Results are
submitted again only while the run still waits for these very calls.
"""

import asyncio
import base64
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, cast

from agent_framework import ChatResponseUpdate, Message

from durable_agent_host.agent.retry_classification import classify_error
from durable_agent_host.codec.strict_json import object_at, value_at
from durable_agent_host.providers.neutral_contents import as_objects
from durable_agent_host_azure_ai_agents.errors import RunEndedError
from durable_agent_host_azure_ai_agents.request_bodies import (
    ToolOutputs,
    approval_headers,
    build_messages,
    build_metadata,
    build_run,
    build_tool_outputs,
    files_to_upload,
    instructions_text,
    parse_tool_outputs,
)
from durable_agent_host_azure_ai_agents.run_events import FINAL_STATUSES, FINAL_STEP_STATUSES, RunReader
from durable_agent_host_azure_ai_agents.service_client import AgentsService

Json = dict[str, Any]
Updates = AsyncGenerator[ChatResponseUpdate]

_MAX_RUNS_SEARCHED: Final = 5


@dataclass(frozen=True)
class RunCall:
    """A model call.

    Attributes:
        service: that runs the agent.
        agent: from the service.
        messages: of the request.
        options: of the request.
        resources: of tools, as set by the app for every run.
        turn_id: of the turn; empty when no caller searches for it after a crash.
        poll_seconds: interval for polling a run.
        started_requests: the requests for which this process has posted messages; changed here.
    """

    service: AgentsService
    agent: Mapping[str, Any]
    messages: Sequence[Message]
    options: Mapping[str, Any]
    resources: Mapping[str, Any]
    turn_id: str
    poll_seconds: float
    started_requests: set[str]

    def updates(self) -> Updates:
        """Return the updates of the call.

        Raises:
            RunEndedError: the run has failed.
            HttpResponseError: the service rejects a request.
        """
        token = object_at(self.options, "continuation_token")
        thread_id = str(token.get("thread_id") or self.options.get("conversation_id") or "")
        tool_outputs = parse_tool_outputs(self.messages) if self.options.get("conversation_id") else ToolOutputs()
        return self._continue(thread_id, tool_outputs, token) if tool_outputs else self._start(thread_id, token)

    async def _start(self, thread_id: str, token: Mapping[str, Any]) -> Updates:
        """Post new messages and start a run, or re-attach to the run that was started."""
        if run_id := token.get("run_id"):
            run = await self.service.run(thread_id, str(run_id))
            if run.get("status") == "expired" and not self.options.get("conversation_id"):
                thread_id = ""  # no other thread has the conversation
                token = {}
            elif not _is_transient_failure(run):
                async with aclosing(self._follow(RunReader(thread_id), run)) as updates:
                    async for update in updates:
                        yield update
                return
        bodies = build_messages(self.messages, await self._upload_files())
        metadata = build_metadata(self.turn_id, bodies)
        if not thread_id:
            earlier_messages = {"messages": bodies[:-1]} if bodies[1:] else {}
            thread_id = str((await self.service.create_thread({"metadata": metadata} | earlier_messages))["id"])
        if not token:
            yield _token_update(thread_id, {"thread_id": thread_id})
        run = await self._find_own_run(thread_id, metadata) if token and metadata else None
        if run is not None:
            async with aclosing(self._follow(RunReader(thread_id), run)) as updates:
                async for update in updates:
                    yield update
            return
        new = bodies if self.options.get("conversation_id") else bodies[-1:]
        request = f"{thread_id}/{metadata}"
        may_be_posted = bool(token) or request in self.started_requests
        self.started_requests.add(request)
        await self._post(thread_id, new, metadata, may_be_posted=may_be_posted)
        body = build_run(self.options, self.agent, self.resources, instructions_text(self.messages))
        reader = RunReader(thread_id)
        async with aclosing(
            self._read_stream(reader, self.service.start_run(thread_id, body | {"metadata": metadata}))
        ) as updates:
            async for update in updates:
                yield update

    async def _read_stream(self, reader: RunReader, stream: AsyncGenerator[tuple[str, Any]]) -> Updates:
        """Read a stream, and the output of code, which it omits, from the run's steps."""
        async with aclosing(stream) as events:
            async for name, data in events:
                if reader.lacks_outputs and name.removeprefix("thread.run.") in FINAL_STATUSES:
                    for step in await self._list_steps(reader):
                        for update in reader.read_outputs(step):
                            yield update
                for update in reader.read(name, data):
                    yield update

    async def _list_steps(self, reader: RunReader) -> list[Json]:
        """List the steps; none if the service refuses: then the output of code stays unknown."""
        try:
            return await self.service.steps(reader.thread_id, reader.run_id)
        except Exception as error:
            decision = classify_error(error)
            if decision is None or decision.retryable:
                raise
            return []

    async def _upload_files(self) -> dict[int, str]:
        return {
            id(content): await self.service.upload(*_decode_file(content)) for content in files_to_upload(self.messages)
        }

    async def _post(self, thread_id: str, bodies: Sequence[Json], metadata: Json, *, may_be_posted: bool) -> None:
        """Post each message once: existing ones are recognized by their index."""
        for index, body in enumerate(bodies):
            message_metadata = {"metadata": {**metadata, "number": str(index)}} if metadata else {}
            if (
                may_be_posted
                and message_metadata
                and await self.service.has_message(thread_id, message_metadata["metadata"])
            ):
                continue
            await self.service.post_message(thread_id, body | message_metadata)

    async def _find_own_run(self, thread_id: str, metadata: Mapping[str, str]) -> Json | None:
        """Return the run that this call has started, except one that failed for a transient reason."""
        runs = await self.service.runs(thread_id, _MAX_RUNS_SEARCHED)
        own_runs = (run for run in runs if metadata.items() <= object_at(run, "metadata").items())
        run = next(own_runs, None)
        return None if run is None or _is_transient_failure(run) else run

    async def _continue(self, thread_id: str, tool_outputs: ToolOutputs, token: Mapping[str, Any]) -> Updates:
        """Send the results that a run waits for, unless it has them, and yield the updates that follow."""
        run_id = str(token.get("run_id") or tool_outputs.run_id or await self._newest_run_id(thread_id))
        reader = RunReader(thread_id, run_id, completed_call_ids=tool_outputs.call_ids)
        run = await self.service.run(thread_id, run_id) if token or tool_outputs.approvals else Json()
        has_outputs = bool(run) and not _needs_outputs(run, tool_outputs)
        if not has_outputs and not token:
            yield _token_update(thread_id, {"thread_id": thread_id, "run_id": run_id})
        run_updates = self._follow(reader, run) if has_outputs else self._submit(reader, tool_outputs, run)
        async with aclosing(run_updates) as updates:
            async for update in updates:
                yield update

    async def _newest_run_id(self, thread_id: str) -> str:
        """Return the only run of a thread that can wait: approvals, and results of clients, do not name it."""
        runs = await self.service.runs(thread_id, 1)
        if not runs:
            raise RunEndedError("expired", {"message": f"thread {thread_id} has no run that waits"}, "", has_acted=True)
        return str(runs[0]["id"])

    async def _submit(self, reader: RunReader, tool_outputs: ToolOutputs, run: Json) -> Updates:
        """Send the results; a run that no longer accepts them has ended, and reports how."""
        labels_by_call_id = {str(call.get("id")): str(call.get("server_label")) for call in _required_calls(run)}
        headers = approval_headers(
            [*cast("list[Any]", self.options.get("tools") or []), *cast("list[Any]", self.agent.get("tools") or [])],
            {**self.resources, **object_at(self.options, "tool_resources")},
        )
        body = build_tool_outputs(tool_outputs, labels_by_call_id, headers)
        rejection: Exception | None = None
        try:
            async with aclosing(
                self._read_stream(reader, self.service.submit(reader.thread_id, reader.run_id, body))
            ) as updates:
                async for update in updates:
                    yield update
        except Exception as error:
            if getattr(error, "status_code", None) != HTTPStatus.BAD_REQUEST:
                raise
            rejection = error
        if rejection is not None:
            run_state = await self.service.run(reader.thread_id, reader.run_id)
            reader.read_ending(run_state)
            raise rejection

    async def _follow(self, reader: RunReader, run: Json) -> Updates:
        """Wait for a run to end, and yield its steps and messages like its stream."""
        thread_id = reader.thread_id
        run_id = str(run["id"])
        for update in (
            reader.read(f"thread.run.{run.get('status')}", run) if run.get("status") not in FINAL_STATUSES else ()
        ):
            yield update
        seconds = min(self.poll_seconds, 0.05)
        while run.get("status") not in FINAL_STATUSES:
            await asyncio.sleep(seconds)
            seconds = min(seconds * 2, self.poll_seconds)
            run = await self.service.run(thread_id, run_id)
        for step in _new_steps(await self.service.steps(thread_id, run_id), reader.completed_call_ids):
            if message_id := value_at(step, "step_details", "message_creation", "message_id"):
                message = await self.service.message(thread_id, str(message_id))
                for update in reader.read(f"thread.message.{message.get('status') or 'completed'}", message):
                    yield update
            for update in reader.read(f"thread.run.step.{step.get('status')}", step):
                yield update
        for update in reader.read(f"thread.run.{run.get('status')}", run):
            yield update


def _token_update(thread_id: str, token: Json) -> ChatResponseUpdate:
    """Build the update that journals a thread or a run before anything is sent to it."""
    return ChatResponseUpdate(role="assistant", conversation_id=thread_id, continuation_token=cast("Any", token))


def _is_transient_failure(run: Mapping[str, Any]) -> bool:
    error = RunEndedError(str(run.get("status")), object_at(run, "last_error"), str(run.get("id")))
    return error.retryable


def _required_calls(run: Mapping[str, Any]) -> list[Json]:
    action = run.get("required_action")
    return cast("list[Json]", value_at(action, str(value_at(action, "type")), "tool_calls") or [])


def _needs_outputs(run: Mapping[str, Any], tool_outputs: ToolOutputs) -> bool:
    call_ids = {str(call.get("id")) for call in _required_calls(run)}
    return run.get("status") == "requires_action" and bool(call_ids & tool_outputs.call_ids)


def _new_steps(steps: Sequence[Json], completed_call_ids: frozenset[str]) -> list[Json]:
    """Remove open steps, and those before the completed calls, which an earlier model call has emitted."""
    ids = [_call_ids(step) & completed_call_ids for step in steps]
    first = next((index for index, matching_ids in enumerate(ids) if matching_ids), 0) if completed_call_ids else 0
    return [step for step in steps[first:] if step.get("status") in FINAL_STEP_STATUSES]


def _call_ids(step: Mapping[str, Any]) -> frozenset[str]:
    calls = as_objects(value_at(step, "step_details", "tool_calls"))
    return frozenset(str(call.get("id")) for call in calls)


def _decode_file(content: Any) -> tuple[str, bytes]:
    name = content.name or content.additional_properties.get("filename") or "file"
    return str(name), base64.b64decode(str(content.uri).partition(",")[2])
