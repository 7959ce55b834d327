"""Calls in the journal: a finished call is answered from it, the response or result of another is made durable.

Within these layers, no call is a replay.
"""

import copy
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, cast

from agent_framework import ChatResponse, ChatResponseUpdate, Message

from durable_agent_host.agent.declarations import is_agent_tool
from durable_agent_host.agent.durable_session import SessionState
from durable_agent_host.agent.model_call import CompletedResponse, ModelCall, ModelStream, NextModelCall
from durable_agent_host.agent.observer import (
    ModelCallCompleted,
    ModelCallResponded,
    RunObservers,
    RunRestarted,
    ToolCallCompleted,
    ToolCallStarted,
)
from durable_agent_host.agent.response_limits import check_calls
from durable_agent_host.agent.run_gate import RunGate
from durable_agent_host.agent.run_output import RunOutput
from durable_agent_host.agent.run_result import log_errors_stop_run
from durable_agent_host.agent.stream_progress import StreamProgress
from durable_agent_host.agent.tool_invocation import (
    NextToolCall,
    ToolCallEnd,
    ToolInvocation,
    ToolResult,
    decode_result,
    text_result,
)
from durable_agent_host.codec.journal_entry import (
    decode_model_response,
    encode_answer,
    replayed_updates,
    tool_result_text,
)
from durable_agent_host.errors import InvalidAnswerError
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.ending import CALLS_NOT_RUN, end_of_answer
from durable_agent_host.model.journal_entry import (
    JournalStep,
    ModelCallCompletedEntry,
    Rejection,
    ToolCallCompletedEntry,
)
from durable_agent_host.model.turn import ResponseLimits
from durable_agent_host.stream.response_messages import response_text
from durable_agent_host.turn_log.journal import Journal


@dataclass(frozen=True)
class JournalModelCalls:
    """Answers finished calls of the agent's model, and records the others.

    Attributes:
        journal: of the run.
        observers: notified of each call.
        session_state: whose changes are recorded with a response, and restored with it.
        output: what the run has streamed, in which a finished call is folded.
        progress: of the run's stream.
        bounds: limits on the tool calls of a response.
        drop_continuations: whether replayed responses omit their conversation ids, which the service has lost.
    """

    journal: Journal
    observers: RunObservers
    session_state: SessionState
    output: RunOutput
    progress: StreamProgress
    bounds: ResponseLimits
    drop_continuations: bool

    async def __call__(self, call: ModelCall, call_next: NextModelCall) -> ModelStream:
        """Answer a call, or record its response before it is passed on."""
        recorded_response = self.journal.recorded.responses.get(call.path)
        items = self._record(call, call_next) if recorded_response is None else self._replay(call, recorded_response)
        async with aclosing(items):
            async for item in items:
                yield item

    async def _replay(self, call: ModelCall, recorded_response: Mapping[str, Any]) -> ModelStream:
        position = call.position
        if self.drop_continuations:
            recorded_response = {**recorded_response, "conversationId": None}
        response = decode_model_response(recorded_response)
        self.session_state.restore(call.path)
        self.progress.record_invalid_calls(response, position)
        self.progress.has_client_calls = bool(call.provider.client_calls(response.messages))
        with self.progress.replaying():
            for update in replayed_updates(decode_model_response(recorded_response)):
                yield update
        await self.observers.notify(ModelCallResponded(replayed=True))
        await self.observers.notify(_build_completed(response, position, response.messages, replayed=True))
        await self._end_cut_calls(response)
        yield CompletedResponse(response, ())

    async def pass_over(
        self, path: CallPath, recorded_response: Mapping[str, Any], rejection: Rejection
    ) -> list[Message]:
        """Report a response that was rejected, and restore its changes of the session's state.

        Returns:
            The messages with which the model is asked again.
        """
        self.session_state.restore(path)
        response = decode_model_response(recorded_response)
        await self.observers.notify(_build_completed(response, path.position, (), replayed=True))
        text = response_text(response.messages)
        return [*([Message("assistant", [text])] if text else []), Message("user", [rejection.request])]

    async def _record(self, call: ModelCall, call_next: NextModelCall) -> ModelStream:
        position = call.position
        self.progress.begin_call(position)
        async with aclosing(call_next(call)) as items:
            async for item in items:
                if isinstance(item, ChatResponseUpdate):
                    yield item
                    continue
                await self.observers.notify(ModelCallResponded(replayed=False))
                recorded_response = await self._append(call.path, item)
                messages = recorded_response.messages
                self.progress.has_client_calls = bool(call.provider.client_calls(messages))
                self.output.finish_call(position, item.updates, recorded_response)
                self.progress.finish_call(position, item.response)
                await self.observers.notify(_build_completed(item.response, position, messages, replayed=False))
                await self._end_cut_calls(item.response)
                if item.rejection is not None:
                    self.progress.restart = RunRestarted("the answer was rejected", 0.0)
                    raise InvalidAnswerError(item.rejection.reason)
                yield item

    async def _append(self, path: CallPath, completed: CompletedResponse) -> ChatResponse[Any]:
        """Make a response durable, and return it with its folded messages; its tool calls run after that."""
        folded_response = copy.copy(completed.response)
        if completed.updates and not completed.is_folded:  # the messages that the turn will store
            folded_response.messages = self.output.fold_call(completed.updates).response().messages
        check_calls((content for message in folded_response.messages for content in message.contents), self.bounds)
        entry = ModelCallCompletedEntry(
            path, encode_answer(folded_response), self.session_state.changes(), completed.rejection
        )
        await self._commit(entry)
        return folded_response

    async def _end_cut_calls(self, response: ChatResponse[Any]) -> None:
        """Report and record the calls that do not run because the response was cut off or refused."""
        for call_id, name in response.additional_properties.get(CALLS_NOT_RUN, ()):
            path, recorded_call = self.journal.next_tool_call(call_id)
            if recorded_call.finished is None:
                text = f"Error: The answer ended with {end_of_answer(response).finish_reason}; the tool did not run."
                await self.observers.notify(ToolCallCompleted(call_id, name, "not_run", replayed=False, result=text))
                await self._commit(ToolCallCompletedEntry(path, "not_run", text_result("not_run", text).wire))

    async def _commit(self, entry: JournalStep) -> None:
        with log_errors_stop_run():
            await self.journal.append(entry)


def _build_completed(
    response: ChatResponse[Any], position: int, messages: Sequence[Message], *, replayed: bool
) -> ModelCallCompleted:
    usage = cast("Mapping[str, Any] | None", response.usage_details)
    return ModelCallCompleted(position, response.model, usage, replayed, messages)


@dataclass(frozen=True)
class JournalToolCalls:
    """Answers finished tool calls, and records the others.

    Attributes:
        journal: of the run.
        observers: notified of each call.
        session_state: whose changes are recorded with a result, and restored with it.
        gate: whether the run may do new work.
    """

    journal: Journal
    observers: RunObservers
    session_state: SessionState
    gate: RunGate

    async def __call__(self, call: ToolInvocation, call_next: NextToolCall) -> ToolCallEnd:
        """Answer a call, or record its result before it is passed on.

        Raises:
            RunStoppedError: the run is no longer wanted, or its log cannot be written.
        """
        self.gate.raise_if_stopped()
        recorded_call = self.journal.recorded.tools.get(call.path)
        if recorded_call is not None and recorded_call.finished is not None:
            return await self._replay(call, recorded_call.finished)
        self.gate.raise_if_cancelled()
        with log_errors_stop_run():
            end = await call_next(call)
            if isinstance(end, ToolResult):
                await self._record(call, end)
        return end

    async def record_start(self, call: ToolInvocation, call_next: NextToolCall) -> ToolCallEnd:
        """Make durable that a tool is about to run; a layer of its chain. Calls of one batch share a write."""
        attempt = call.starts + 1
        is_known = attempt == 1 and call.path in self.journal.recorded.tools  # an earlier start was given up
        await self.observers.notify(
            ToolCallStarted(call.path.call_id, call.name, call.arguments, attempt, replayed=is_known)
        )
        await self.journal.tool_started(call.path, call.name, call.arguments, is_agent=is_agent_tool(call.tool))
        return await call_next(call)

    async def _replay(self, call: ToolInvocation, entry: ToolCallCompletedEntry) -> ToolResult:
        self.session_state.restore(call.path)
        call_id = call.path.call_id
        if call.starts:
            await self.observers.notify(ToolCallStarted(call_id, call.name, call.arguments, call.starts, replayed=True))
        result = decode_result(entry, call.metadata)
        text = tool_result_text(entry.result)
        await self.observers.notify(ToolCallCompleted(call_id, call.name, result.outcome, replayed=True, result=text))
        return result

    async def _record(self, call: ToolInvocation, result: ToolResult) -> None:
        text = tool_result_text(result.wire)
        await self.observers.notify(
            ToolCallCompleted(call.path.call_id, call.name, result.outcome, replayed=False, result=text)
        )
        await self.journal.append(
            ToolCallCompletedEntry(call.path, result.outcome, result.wire, self.session_state.changes())
        )
