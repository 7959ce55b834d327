"""The framework's middleware around every call of a turn: the seam between the framework and the chains of calls.

That of model calls is the innermost chat middleware: the app's own runs again on a replay. That of tool calls is the
outermost function middleware: the journal records what the model receives, and nothing of a finished call runs again,
including the app's own middleware.
"""

import copy
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from agent_framework import (
    ChatContext,
    ChatMiddleware,
    ChatResponse,
    ChatResponseUpdate,
    FunctionInvocationContext,
    FunctionMiddleware,
    Message,
    MiddlewareTermination,
    ResponseStream,
    add_usage_details,
)

from durable_agent_host.agent.agent_run import AgentRun
from durable_agent_host.agent.call_order import chain_model_call
from durable_agent_host.agent.model_call import ModelCall
from durable_agent_host.agent.response_limits import check_model_call, received_bytes
from durable_agent_host.agent.tool_invocation import ToolCallEnd, ToolInvocation
from durable_agent_host.agent.tool_wrappers import plain_arguments
from durable_agent_host.errors import ProviderError
from durable_agent_host.turn_log.journal import Journal

CallNext = Callable[[], Awaitable[None]]


class ModelCallMiddleware(ChatMiddleware):
    """Passes the model calls of one run through their chain.

    Args:
        run: the calls' run.

    Attributes:
        run: the calls' run.
        is_watched: whether code of the app may change what is streamed, so that it gets copies.
    """

    def __init__(self, run: AgentRun) -> None:
        self.run = run
        self.is_watched = False

    async def process(self, context: ChatContext, call_next: CallNext) -> None:
        """Answer a call from the journal, or make it and journal its response.

        Raises:
            RunStoppedError: the run is no longer wanted.
        """
        answer = _ModelResponse(self.run, context, call_next)
        await answer.begin()
        if context.stream:
            updates = answer.stream()
            stream = _copies(updates) if self.is_watched else updates
            context.result = ResponseStream(stream, finalizer=lambda _: answer.response())
        else:
            async for _ in answer.stream():
                pass
            context.result = answer.response()


_TEXTS: Final = frozenset({"text", "text_reasoning"})
"""What middleware changes in place; the framework gives ids to the very calls that its client has streamed."""


async def _copies(updates: AsyncGenerator[ChatResponseUpdate]) -> AsyncGenerator[ChatResponseUpdate]:
    async with aclosing(updates):
        async for update in updates:
            update_copy = copy.copy(update)
            update_copy.contents = [
                copy.copy(content) if content.type in _TEXTS else content for content in update.contents
            ]
            yield update_copy


class _ModelResponse:
    """The agent's view of one model call: one call, or several when the model pauses in its answer."""

    def __init__(self, run: AgentRun, context: ChatContext, call_next: CallNext) -> None:
        self._run = run
        self._context = context
        self._call_next = call_next
        self._request_messages = [*context.messages]
        self._responses: list[ChatResponse[Any]] = []
        self._call: ModelCall

    async def begin(self) -> None:
        """Choose the messages of the next call, and check that it may be made."""
        run = self._run
        context = self._context
        run.gate.raise_if_waiting()
        position, recorded_response = run.journal.next_model_call()
        is_finished = recorded_response is not None
        received_bytes().calls = position + 1
        run.progress.record_available_tools(context.options)
        context.messages = self._request_messages
        messages = await run.choose_messages(run, context, position, is_finished)
        if not is_finished:
            run.gate.check()
            check_model_call(run.bounds, started_count=1)
            messages = [*run.prepare_messages(messages)]
        options = dict(context.options or {})
        if run.budget_account is not None and not is_finished:
            await run.budget_account.admit_model_call(position, None, messages, options)
            run.gate.raise_if_waiting()
        self._call = ModelCall(position, None, context.client, run.provider, messages, options, self._send)

    async def _send(self, messages: Sequence[Message], options: Mapping[str, Any]) -> Any:
        self._context.messages = [*messages]
        self._context.options = dict(options)
        await self._call_next()
        return self._context.result

    async def stream(self) -> AsyncGenerator[ChatResponseUpdate]:
        """Yield the updates of all calls; each response is durable before the next call is made."""
        while True:
            response: ChatResponse[Any] = ChatResponse()
            async with aclosing(chain_model_call(self._run, self._call)) as items:
                async for item in items:
                    if isinstance(item, ChatResponseUpdate):
                        yield item
                    else:
                        response = item.response
            self._responses.append(response)
            more = self._run.provider.continuation_messages(response)
            if more is None:
                return
            if len(self._responses) > _MOST_PAUSES:
                raise ProviderError(
                    f"the model has paused {len(self._responses)} times in one answer; ask for less at once",
                    retryable=False,
                )
            self._request_messages = [*self._request_messages, *more]
            await self.begin()

    def response(self) -> ChatResponse[Any]:
        """Return the response of all calls as one."""
        *paused_responses, last = self._responses
        if not paused_responses:
            return last
        merged_response = copy.copy(last)
        merged_response.messages = [message for response in self._responses for message in response.messages]
        for response in paused_responses:
            merged_response.usage_details = add_usage_details(merged_response.usage_details, response.usage_details)
        return merged_response


_MOST_PAUSES: Final = 50
"""Maximum pauses in one answer; the services pause after about ten calls of their own tools."""


class ToolCallMiddleware(FunctionMiddleware):
    """Passes the tool calls of one run through their chain.

    Args:
        journal: of the run, which numbers the calls.
        make_call: makes a call through its chain.
        host_tools: returns the tools of a call as the framework may see them.
    """

    def __init__(
        self,
        journal: Journal,
        make_call: Callable[[ToolInvocation], Awaitable[ToolCallEnd]],
        host_tools: Callable[[Iterable[Any]], list[Any]],
    ) -> None:
        self._journal = journal
        self._make_call = make_call
        self._host_tools = host_tools

    async def process(self, context: FunctionInvocationContext, call_next: CallNext) -> None:
        """Make a call, and give the framework its result or raise its error.

        Raises:
            RunStoppedError: the run is no longer wanted, or its log cannot be written.
        """

        async def run(changed_arguments: Mapping[str, Any] | None) -> Any:
            if changed_arguments is not None:
                context.arguments = dict(changed_arguments)
            try:
                await call_next()
            except MiddlewareTermination as error:
                error.result = error.result if context.result is None else context.result
                raise
            return context.result

        key, recorded_call = self._journal.next_tool_call(str(context.metadata["call_id"]))
        call = ToolInvocation(
            key=key,
            tool=context.function,
            arguments=plain_arguments(context.arguments),
            starts=recorded_call.starts,
            has_changed_arguments=False,
            metadata=context.metadata,
            run=run,
        )
        try:
            end = await self._make_call(call)
        finally:
            if context.tools is not None:
                context.tools[:] = self._host_tools(context.tools)  # a tool can add tools
        context.result = end.value
        if end.error is not None:
            raise end.error
