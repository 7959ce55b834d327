"""One model call: it begins a run, answers the calls of a run that waits, or re-attaches to a run.

Theory of operation. What a crash must not repeat is journaled before it is done, as the call's continuation token:
first the thread, then the run. The token comes with an update, and the reader of the stream has stored it when it asks
for the next update. With a token without a run, the thread is searched for the turn's message and run before anything
is posted. With a token for a run, the run is followed by its steps: it is never cancelled here, and never begun again
unless it has failed for a transient reason before the app's tools did anything for it. Results are submitted again only
while the run still waits for these very calls.
"""

import asyncio
import base64
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, cast

from agent_framework import ChatResponseUpdate, Message

from durable_agent_host.providers.azure_ai_agents.bodies_sent import (
    Answers,
    answers_in,
    approval_headers,
    build_answers,
    build_messages,
    build_run,
    files_to_upload,
    metadata_of,
)
from durable_agent_host.providers.azure_ai_agents.errors import RunEndedError
from durable_agent_host.providers.azure_ai_agents.events import ENDED_STEPS, ENDS, RunReader
from durable_agent_host.providers.azure_ai_agents.service import AgentsService
from durable_agent_host.providers.azure_ai_agents.words import system_words

Json = dict[str, Any]
Updates = AsyncGenerator[ChatResponseUpdate]

_RUNS_LOOKED_AT: Final = 5


@dataclass(frozen=True)
class RunCall:
    """A model call.

    Attributes:
        service: that runs the agent.
        agent: from the service.
        messages: of the request.
        options: of the request.
        resources: for tools, given to every run by the app.
        turn_id: of the turn; empty when nobody would look for it after a crash.
        poll_seconds: interval for polling a run.
        begun: the requests for which this process has posted messages; changed here.
    """

    service: AgentsService
    agent: Mapping[str, Any]
    messages: Sequence[Message]
    options: Mapping[str, Any]
    resources: Mapping[str, Any]
    turn_id: str
    poll_seconds: float
    begun: set[str]

    async def updates(self) -> Updates:
        """Return the updates of the call.

        Raises:
            RunEndedError: the run has failed.
            HttpResponseError: the service refuses a request.
        """
        token = cast("Mapping[str, Any]", self.options.get("continuation_token") or {})
        thread_id = str(token.get("thread_id") or self.options.get("conversation_id") or "")
        answers = answers_in(self.messages) if self.options.get("conversation_id") else Answers()
        doing = self._answer(thread_id, answers, token) if answers else self._begin(thread_id, token)
        async with aclosing(doing) as updates:
            async for update in updates:
                yield update

    async def _begin(self, thread_id: str, token: Mapping[str, Any]) -> Updates:
        """Post new messages and begin a run, or re-attach to the run that was begun."""
        if run_id := token.get("run_id"):
            run = await self.service.run(thread_id, str(run_id))
            if run.get("status") == "expired" and not self.options.get("conversation_id"):
                thread_id, token = "", {}  # nothing else holds the conversation
            elif not _failed_in_passing(run):
                async with aclosing(self._follow(RunReader(thread_id), run)) as told:
                    async for update in told:
                        yield update
                return
        bodies = build_messages(self.messages, await self._uploaded())
        metadata = metadata_of(self.turn_id, bodies)
        if not thread_id:
            before = {"messages": bodies[:-1]} if bodies[1:] else {}
            thread_id = str((await self.service.create_thread({"metadata": metadata} | before))["id"])
        if not token:
            yield _begins(thread_id, {"thread_id": thread_id})
        run = await self._run_of(thread_id, metadata) if token and metadata else None
        if run is not None:
            async with aclosing(self._follow(RunReader(thread_id), run)) as told:
                async for update in told:
                    yield update
            return
        new = bodies if self.options.get("conversation_id") else bodies[-1:]
        request = f"{thread_id}/{metadata}"
        may_be_there = bool(token) or request in self.begun
        self.begun.add(request)
        await self._post(thread_id, new, metadata, may_be_there=may_be_there)
        body = build_run(self.options, self.agent, self.resources, system_words(self.messages))
        reader = RunReader(thread_id)
        async with aclosing(
            self._whole(reader, self.service.begin_run(thread_id, body | {"metadata": metadata}))
        ) as told:
            async for update in told:
                yield update

    async def _whole(self, reader: RunReader, stream: AsyncGenerator[tuple[str, Any]]) -> Updates:
        """Read a stream, and from the run's steps what it omits: the output of code."""
        async with aclosing(stream) as events:
            async for name, data in events:
                if reader.lacks_outputs and name.removeprefix("thread.run.") in ENDS:
                    for step in await self.service.steps(reader.thread_id, reader.run_id):
                        for update in reader.read_outputs(step):
                            yield update
                for update in reader.read(name, data):
                    yield update

    async def _uploaded(self) -> dict[int, str]:
        return {
            id(content): await self.service.upload(*_file_of(content)) for content in files_to_upload(self.messages)
        }

    async def _post(self, thread_id: str, bodies: Sequence[Json], metadata: Json, *, may_be_there: bool) -> None:
        """Post each message once: existing ones are recognized by their number."""
        for number, body in enumerate(bodies):
            mark = {"metadata": {**metadata, "number": str(number)}} if metadata else {}
            if may_be_there and mark and await self.service.has_message(thread_id, mark["metadata"]):
                continue
            await self.service.post_message(thread_id, body | mark)

    async def _run_of(self, thread_id: str, metadata: Mapping[str, str]) -> Json | None:
        """Return the run that this call has begun, except one that failed for a transient reason."""
        runs = await self.service.runs(thread_id, _RUNS_LOOKED_AT)
        ours = (run for run in runs if metadata.items() <= cast("Json", run.get("metadata") or {}).items())
        run = next(ours, None)
        return None if run is None or _failed_in_passing(run) else run

    async def _answer(self, thread_id: str, answers: Answers, token: Mapping[str, Any]) -> Updates:
        """Answer the calls that a run waits for, unless that is done, and yield what follows."""
        run_id, run = str(token.get("run_id") or answers.run_id), Json()
        if token or answers.approvals or not run_id:
            run = await self._waiting_run(thread_id, answers, run_id)
            run_id = str(run["id"])
        reader = RunReader(thread_id, run_id, answered=answers.call_ids)
        if run and not _waits_for(run, answers):
            async with aclosing(self._follow(reader, run)) as told:
                async for update in told:
                    yield update
            return
        if not token:
            yield _begins(thread_id, {"thread_id": thread_id, "run_id": run_id})
        async with aclosing(self._submit(reader, answers, run)) as told:
            async for update in told:
                yield update

    async def _submit(self, reader: RunReader, answers: Answers, run: Json) -> Updates:
        """Send the answers; a run that no longer accepts them has ended, and reports how."""
        asked = {str(call.get("id")): str(call.get("server_label")) for call in _required(run)}
        headers = approval_headers(
            [*cast("list[Any]", self.options.get("tools") or []), *cast("list[Any]", self.agent.get("tools") or [])],
            {**self.resources, **cast("Json", self.options.get("tool_resources") or {})},
        )
        body = build_answers(answers, asked, headers)
        refused: Exception | None = None
        try:
            async with aclosing(
                self._whole(reader, self.service.submit(reader.thread_id, reader.run_id, body))
            ) as told:
                async for update in told:
                    yield update
        except Exception as error:
            if getattr(error, "status_code", None) != HTTPStatus.BAD_REQUEST:
                raise
            refused = error
        if refused is not None:
            ended = await self.service.run(reader.thread_id, reader.run_id)
            reader.read_ending(ended)
            raise refused

    async def _waiting_run(self, thread_id: str, answers: Answers, run_id: str) -> Json:
        """Return the run whose calls are answered."""
        if run_id:
            return await self.service.run(thread_id, run_id)
        runs = await self.service.runs(thread_id, _RUNS_LOOKED_AT)
        found = next((run for run in runs if _waits_for(run, answers)), None)
        if found is None and runs:
            found = runs[0]
        if found is None:
            raise RunEndedError("expired", {"message": f"thread {thread_id} has no run that waits"}, "", has_acted=True)
        return found

    async def _follow(self, reader: RunReader, run: Json) -> Updates:
        """Wait for a run to end, and yield its steps and messages as its stream would have."""
        thread_id, run_id = reader.thread_id, str(run["id"])
        for update in reader.read(f"thread.run.{run.get('status')}", run) if run.get("status") not in ENDS else ():
            yield update
        seconds = min(self.poll_seconds, 0.05)
        while run.get("status") not in ENDS:
            await asyncio.sleep(seconds)
            seconds = min(seconds * 2, self.poll_seconds)
            run = await self.service.run(thread_id, run_id)
        for step in _new_steps(await self.service.steps(thread_id, run_id), reader.answered):
            details = cast("Json", step.get("step_details") or {})
            if message_id := cast("Json", details.get("message_creation") or {}).get("message_id"):
                message = await self.service.message(thread_id, str(message_id))
                for update in reader.read(f"thread.message.{message.get('status') or 'completed'}", message):
                    yield update
            for update in reader.read(f"thread.run.step.{step.get('status')}", step):
                yield update
        for update in reader.read(f"thread.run.{run.get('status')}", run):
            yield update


def _begins(thread_id: str, token: Json) -> ChatResponseUpdate:
    """Make the update that journals a thread or a run before anything is sent to it."""
    return ChatResponseUpdate(role="assistant", conversation_id=thread_id, continuation_token=cast("Any", token))


def _failed_in_passing(run: Mapping[str, Any]) -> bool:
    error = RunEndedError(str(run.get("status")), cast("Json", run.get("last_error") or {}), str(run.get("id")))
    return error.retryable


def _required(run: Mapping[str, Any]) -> list[Json]:
    action = cast("Json", run.get("required_action") or {})
    return cast("list[Json]", cast("Json", action.get(str(action.get("type"))) or {}).get("tool_calls") or [])


def _waits_for(run: Mapping[str, Any], answers: Answers) -> bool:
    asked = {str(call.get("id")) for call in _required(run)}
    return run.get("status") == "requires_action" and bool(asked & answers.call_ids)


def _new_steps(steps: Sequence[Json], answered: frozenset[str]) -> list[Json]:
    """Leave out open steps, and those before the answered calls, which an earlier model call has emitted."""
    ids = [_call_ids(step) & answered for step in steps]
    first = next((number for number, found in enumerate(ids) if found), 0) if answered else 0
    return [step for step in steps[first:] if step.get("status") in ENDED_STEPS]


def _call_ids(step: Mapping[str, Any]) -> frozenset[str]:
    calls = cast("Json", step.get("step_details") or {}).get("tool_calls")
    return frozenset(str(call.get("id")) for call in cast("list[Json]", calls or []))


def _file_of(content: Any) -> tuple[str, bytes]:
    name = content.name or content.additional_properties.get("filename") or "file"
    return str(name), base64.b64decode(str(content.uri).partition(",")[2])
