"""Runs of agents within the turn's agent, in its tool calls or its workflow: through the same layers as its own calls.

A finished call is answered from the journal, a tool in doubt is decided by its declaration, and a call that needs a
person waits: then its run stops before its next model call, and the tool call that contains the run waits, too. Other
calls of the turn are not cut off.
"""

from collections.abc import AsyncGenerator, Awaitable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from agent_framework import (
    AgentSession,
    ChatContext,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    Message,
    ResponseStream,
)

from durable_agent_host.agent.call_middleware import RunCalls, Send
from durable_agent_host.agent.call_order import chain_model_call, chain_tool_call
from durable_agent_host.agent.call_scope import CallScope, NestedClient
from durable_agent_host.agent.durable_session import SessionState
from durable_agent_host.agent.feature import CurrentRun
from durable_agent_host.agent.layers.nested_run import StopNestedRun
from durable_agent_host.agent.model_call import ModelCall, ModelStream
from durable_agent_host.agent.observer import NestedRunObservers, ObserverGroup
from durable_agent_host.agent.pending_calls import answer_requests, is_provider_request
from durable_agent_host.agent.response_limits import check_model_call, turn_traffic
from durable_agent_host.agent.run_output import EVERY, RunOutput, coalesce_updates
from durable_agent_host.agent.run_result import AwaitingReplies, RunStoppedError
from durable_agent_host.agent.stream_progress import StreamProgress
from durable_agent_host.agent.tool_invocation import ToolCallEnd, ToolInvocation, WaitingToolCall
from durable_agent_host.stream.fold import ItemReader


class NestedRun:
    """One run of an agent within the turn's agent.

    Args:
        turn_run: the run of the turn's agent.
        observers: of the attempt.
        scope: in which the agent runs.
        client: the agent's.
    """

    def __init__(self, turn_run: CurrentRun, observers: ObserverGroup, scope: CallScope, client: NestedClient) -> None:
        journal = scope.journal("compaction" if client.is_strategy else client.executor_id)
        progress = StreamProgress()
        self._client = client
        self._scope = scope
        self._is_waiting = False
        self._has_session = False
        self._requests: list[Content] = []
        self._message_count = 0
        self._replies: list[tuple[int, Sequence[Message]]] = []
        self._run = replace(
            turn_run,
            journal=journal,
            observers=NestedRunObservers(observers, journal.path, client.is_strategy),
            session_state=SessionState(AgentSession(), journal.recorded, journal.path),
            progress=progress,
            output=NestedOutput(client.provider, joins_texts=client.is_tool),
            includes_error_texts=client.includes_error_texts,
            nested=StopNestedRun(
                progress,
                scope.wait_for_others,
                self._record_failure,
                None if client.is_strategy else turn_run.start.retry_policy,
            ),
        )

    def calls(self) -> RunCalls:
        """Return how its calls are made."""
        return RunCalls(
            self._begin_model_call,
            self._run.journal.next_tool_call,
            self._make_tool_call,
            partial(self._run.pending_calls.removed_tools, self._run.journal.path),
            self._answer_requests if self._client.is_tool else None,  # a workflow asks by itself
        )

    def until_end(self, response: Any, *, stream: bool) -> Any:
        """Return a response of the agent's client; the run lasts until it has ended."""
        if not stream:
            return self._respond(response)
        return ResponseStream(self._updates(response), finalizer=lambda _: response.get_final_response())

    async def _respond(self, response: Awaitable[Any]) -> Any:
        with self._scope.running():
            result = await response
            await self._stop_if_waiting()
            return result

    async def _updates(self, response: Any) -> AsyncGenerator[ChatResponseUpdate]:
        with self._scope.running():
            async with response:
                async for update in response:
                    self._requests += (content for content in update.contents if content.user_input_request)
                    yield update
            await self._stop_if_waiting()

    async def _begin_model_call(self, context: ChatContext, send: Send) -> ModelStream:
        """Check that the next model call may be made, and return its stream.

        Raises:
            RunStoppedError: the run is no longer wanted, or waits for a person.
        """
        await self._stop_if_waiting()
        run = self._run
        if not self._has_session and context.session is not None:
            self._has_session = True
            self._run = run = replace(
                run, session_state=SessionState(context.session, run.journal.recorded, run.journal.path)
            )
        if self._client.is_strategy:
            run.journal.skip_finished_calls()
        path, recorded_response = run.journal.next_model_call()
        turn_traffic().started_calls.add(path)
        options = dict(context.options or {})
        if recorded_response is None:
            run.gate.check_nested()
            check_model_call()
            if not await run.admit():
                await self._stop()
        self._message_count = len(context.messages)
        messages = self._with_replies(context.messages, is_stored="conversation_id" in options)
        call = ModelCall(path, context.client, self._client.provider, messages, options, send)
        return chain_model_call(run, call)

    async def _answer_requests(self, response: ChatResponse[Any]) -> Sequence[Message]:
        """Answer what the provider's tools ask in a response, for the model's next one; none when they ask nothing.

        Raises:
            RunStoppedError: something has no answer yet.
        """
        messages = response.messages
        contents = [content for message in messages for content in message.contents]
        provider = self._client.provider
        asks = any(map(is_provider_request, contents)) or bool(provider.client_calls(messages))
        if not asks:
            return []
        calls_tools = any(content.type == "function_call" for content in contents)
        replies = await answer_requests(
            self._run.pending_calls, self._run.journal, self._run.observers, provider, messages
        )
        if not replies and not calls_tools:
            await self._stop()
        for content in (*contents, *self._requests):  # the agent has them, and would ask whoever called it
            content.user_input_request = False
        if not calls_tools:
            return replies
        self._is_waiting = self._is_waiting or not replies
        self._replies.append((self._message_count + len(messages), replies))
        return []

    def _with_replies(self, messages: Sequence[Message], *, is_stored: bool) -> list[Message]:
        """Add answers to what was asked beside tool calls: after the request, or once if the service stores that."""
        complete_messages = [*messages]
        for position, replies in reversed(self._replies):
            complete_messages[position:position] = replies
        if is_stored:
            self._replies = []
        return complete_messages

    def _record_failure(self, error: Exception) -> None:
        if not self._client.is_strategy:
            self._scope.failure = error

    async def _make_tool_call(self, call: ToolInvocation) -> ToolCallEnd:
        end = await chain_tool_call(self._run, call)
        self._is_waiting = self._is_waiting or isinstance(end, WaitingToolCall)
        return end

    async def _stop_if_waiting(self) -> None:
        self._run.gate.raise_if_stopped()
        if self._is_waiting:
            await self._stop()

    async def _stop(self) -> None:
        self._run.gate.raise_if_cancelled()
        await self._scope.wait_for_others()
        raise RunStoppedError(AwaitingReplies(tuple(self._run.pending_calls.pending)))


class NestedOutput(RunOutput):
    """The updates of a run that nobody follows are joined as they come."""

    def __init__(self, items: ItemReader, *, joins_texts: bool) -> None:
        super().__init__(items)
        self._joins_texts = joins_texts
        self._joined_count = 0

    def coalesce(self, client_updates: Sequence[ChatResponseUpdate], position: int, items: ItemReader) -> None:
        """Join the texts of updates that the agent has read."""
        del position
        if len(client_updates) < self._joined_count:  # of the next call
            self._joined_count = 0
        if self._joins_texts and len(client_updates) - self._joined_count >= EVERY:
            updates = client_updates[self._joined_count :]
            coalesce_updates(updates, updates, items)
            self._joined_count = len(client_updates)
