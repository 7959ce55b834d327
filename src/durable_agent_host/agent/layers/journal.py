"""Model calls in the journal: a finished call is answered from it, the response of another is made durable."""

import copy
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, cast

from agent_framework import ChatResponse, ChatResponseUpdate

from durable_agent_host.agent.model_call import CompletedResponse, ModelCall, ModelStream, NextModelCall
from durable_agent_host.agent.observer import ModelCallCompleted, ModelCallResponded, ModelCallStarted, ObserverGroup
from durable_agent_host.agent.response_limits import check_calls
from durable_agent_host.agent.run_output import RunOutput
from durable_agent_host.agent.run_result import RunStoppedError, stop_of
from durable_agent_host.agent.session_state_tracker import SessionState
from durable_agent_host.agent.stream_progress import StreamProgress
from durable_agent_host.codec.journal_entry import decode_model_response, encode_answer, replayed_updates
from durable_agent_host.errors import LogError, ProviderError
from durable_agent_host.model.turn import ResponseLimits
from durable_agent_host.turn_log.journal import Journal


class JournalModelCalls:
    """Answers finished calls, and records the others. Within this layer, no call is a replay.

    Args:
        journal: of the run.
        observers: notified of each call.
        session_state: whose changes are recorded with a response, and restored with it.
        output: what the run has streamed, in which a finished call is folded.
        progress: of the run's stream.
        bounds: limits on the tool calls of a response.
        drop_continuations: whether replayed responses omit their conversation ids, which the service has lost.
    """

    def __init__(
        self,
        journal: Journal,
        observers: ObserverGroup,
        session_state: SessionState,
        output: RunOutput,
        progress: StreamProgress,
        *,
        bounds: ResponseLimits,
        drop_continuations: bool,
    ) -> None:
        self._journal = journal
        self._observers = observers
        self._session_state = session_state
        self._output = output
        self._progress = progress
        self._bounds = bounds
        self._drop_continuations = drop_continuations

    async def __call__(self, call: ModelCall, call_next: NextModelCall) -> ModelStream:
        """Answer a call, or record its response before it is passed on."""
        recorded_response = self._journal.recorded.responses.get(call.position)
        items = (
            self._record(call, call_next)
            if recorded_response is None
            else self._replay(call.position, recorded_response)
        )
        async with aclosing(items):
            async for item in items:
                yield item

    async def _replay(self, position: int, recorded_response: Mapping[str, Any]) -> ModelStream:
        response = decode_model_response(recorded_response)
        if self._drop_continuations:
            response.conversation_id = None
        self._session_state.restore(position)
        await self._observers.notify(ModelCallStarted(position, replayed=True))
        self._progress.record_invalid_calls(response, position)
        with self._progress.replaying():
            for update in replayed_updates(decode_model_response(recorded_response)):
                yield update
        await self._observers.notify(ModelCallResponded(position, replayed=True))
        await self._observers.notify(_build_completed(response, position, replayed=True))
        yield CompletedResponse(response, ())

    async def _record(self, call: ModelCall, call_next: NextModelCall) -> ModelStream:
        position = call.position
        self._progress.begin_call(position)
        await self._observers.notify(ModelCallStarted(position, replayed=False))
        async with aclosing(call_next(call)) as items:
            async for item in items:
                if isinstance(item, ChatResponseUpdate):
                    yield item
                    continue
                await self._observers.notify(ModelCallResponded(position, replayed=False))
                await self._append(position, item)
                self._output.finish_call(position)
                self._progress.finish_call(position, item.response)
                await self._observers.notify(_build_completed(item.response, position, replayed=False))
                yield item

    async def _append(self, position: int, completed: CompletedResponse) -> None:
        """Make a response durable; its tool calls run after that."""
        folded_response = copy.copy(completed.response)
        if completed.updates:  # the messages that the turn will store
            folded_response.messages = self._output.fold_call(completed.updates).response().messages
        check_calls((content for message in folded_response.messages for content in message.contents), self._bounds)
        response = encode_answer(folded_response)
        try:
            await self._journal.model_finished(position, response, self._session_state.changes())
        except LogError as error:
            raise RunStoppedError(stop_of(error)) from error


class JournalCompactionCalls:
    """Answers finished calls of compaction strategies, and records the others.

    Args:
        journal: of the run.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def __call__(self, call: ModelCall, call_next: NextModelCall) -> ModelStream:
        """Answer a call, or record its response before it is passed on.

        Raises:
            ProviderError: the call has failed earlier, before a model call that is finished.
        """
        recorded = self._journal.recorded
        number = cast("int", call.index)
        recorded_response = recorded.side_calls.get((call.position, number))
        if recorded_response is not None:
            yield CompletedResponse(decode_model_response(recorded_response), ())
            return
        if call.position in recorded.responses:
            raise ProviderError("the model call of a compaction had failed", retryable=False)
        async with aclosing(call_next(call)) as items:
            async for item in items:
                if isinstance(item, CompletedResponse):
                    try:
                        await self._journal.side_call_finished(call.position, number, encode_answer(item.response))
                    except LogError as error:
                        raise RunStoppedError(stop_of(error)) from error
                yield item


def _build_completed(response: ChatResponse[Any], position: int, *, replayed: bool) -> ModelCallCompleted:
    usage = cast("Mapping[str, Any] | None", response.usage_details)
    return ModelCallCompleted(position, response.model, usage, response.finish_reason, replayed)
