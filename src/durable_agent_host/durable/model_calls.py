"""Chat middleware around every model call of a turn: finished ones come from the journal, failed ones are retried.

It is the innermost of the chat middleware, so that what it journals is a call of the model, and what the app's own
middleware does to a request or a response is done again on a replay. A call of which nothing has streamed is retried in
its place. When a stream breaks in its middle, the error goes up, and the runner runs the agent again: what clients have
seen of the call must be discarded, and the agent's own pipeline cannot take an update back.
"""

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, cast

from agent_framework import ChatContext, ChatMiddleware, ChatResponse, ChatResponseUpdate, ResponseStream

from durable_agent_host.codec.journal import decode_model_response, encode_model_response, replayed_updates
from durable_agent_host.durable.running import AgentRun, BrokenStream, RunStoppedError
from durable_agent_host.errors import CorruptStateError, LogError, ProviderError

CallNext = Callable[[], Awaitable[None]]


class ModelCalls(ChatMiddleware):
    """Journals the model calls of one run.

    Args:
        run: whose calls they are.
    """

    def __init__(self, run: AgentRun) -> None:
        self._run = run

    async def process(self, context: ChatContext, call_next: CallNext) -> None:
        """Answer a call from the journal, or make it and journal its response.

        Raises:
            RunStoppedError: the run is not wanted any more.
        """
        if self._run.pending:
            raise RunStoppedError
        position, recorded = self._run.journal.next_model_call()
        if recorded is not None:
            context.result = self._replayed(recorded) if context.stream else self._recorded_response(recorded)
            return
        self._run.check()
        context.messages = list(self._run.prepare_messages(context.messages))
        call = _Call(self._run, context, call_next, position)
        if context.stream:
            context.result = ResponseStream(call.stream(), finalizer=lambda _: call.response)
        else:
            async for _ in call.stream():
                pass
            context.result = call.response

    def _recorded_response(self, recorded: Mapping[str, Any]) -> ChatResponse[Any]:
        response = decode_model_response(recorded)
        if self._run.drop_continuations:
            response.conversation_id = None
        return response

    def _replayed(self, recorded: Mapping[str, Any]) -> ResponseStream[ChatResponseUpdate, ChatResponse[Any]]:
        async def updates() -> AsyncIterator[ChatResponseUpdate]:
            for update in replayed_updates(self._recorded_response(recorded)):
                self._run.is_replaying = True
                try:
                    yield update
                finally:
                    self._run.is_replaying = False

        return ResponseStream(updates(), finalizer=lambda _: self._recorded_response(recorded))


class _Call:
    """One model call, with its retries."""

    def __init__(self, run: AgentRun, context: ChatContext, call_next: CallNext, position: int) -> None:
        self._run = run
        self._context = context
        self._call_next = call_next
        self._position = position
        self._updates: list[ChatResponseUpdate] = []
        self.response: ChatResponse[Any] = ChatResponse()

    async def stream(self) -> AsyncIterator[ChatResponseUpdate]:
        """Give the updates of the first attempt that tells something; the response is durable when it ends."""
        run = self._run
        run.open_position = self._position
        retry = run.breaks.get(self._position, 0)
        while True:
            told = False
            held: list[ChatResponseUpdate] = []  # what opens a stream says nothing, and a retry says it again
            try:
                async for update in self._attempt():
                    if not told and not update.contents:
                        held.append(update)
                        continue
                    told = True
                    for one in (*held, update):
                        yield one
                    held = []
                for one in held:
                    yield one
                break
            except Exception as error:
                seconds = run.wait_before_retry(retry, error)
                if seconds is None:
                    raise
                if told:
                    run.broken = BrokenStream(self._position, seconds)
                    raise
                retry += 1
                await asyncio.sleep(seconds)
                run.check()
        try:
            await run.journal.model_finished(self._position, encode_model_response(self._folded()))
        except (LogError, CorruptStateError) as error:
            raise RunStoppedError(error) from error
        run.open_position = None

    def _folded(self) -> ChatResponse[Any]:
        """Give the response with the messages that the turn will store."""
        folded = copy.copy(self.response)
        if self._updates:
            folded.messages = self._run.fold(self._updates).messages
        return folded

    async def _attempt(self) -> AsyncIterator[ChatResponseUpdate]:
        self._updates = []
        await self._call_next()
        result: Any = self._context.result
        if isinstance(result, ResponseStream):
            async for update in cast("ResponseStream[ChatResponseUpdate, ChatResponse[Any]]", result):
                self._updates.append(update)
                yield update
            if self._run.ended_early(self._updates):
                raise ProviderError("the model's stream ended before the answer was whole; try again", retryable=True)
            self.response = await result.get_final_response()
        else:
            self.response = result
