"""The framework's middleware around every call of a turn: the seam between the framework and the chains of calls.

That of model calls is the innermost chat middleware: the app's own runs again on a replay. That of tool calls is the
outermost function middleware: the journal records what the model receives, and nothing of a finished call runs again,
including the app's own middleware.
"""

import copy
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, cast

from agent_framework import (
    ChatContext,
    ChatMiddleware,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    FunctionInvocationContext,
    FunctionInvocationLayer,
    FunctionMiddleware,
    Message,
    MiddlewareTermination,
    ResponseStream,
    add_usage_details,
    normalize_tools,
)

from durable_agent_host.agent.declarations import RemovedTool
from durable_agent_host.agent.dynamic_subclass import copy_with_mixin
from durable_agent_host.agent.model_call import ModelStream
from durable_agent_host.agent.tool_invocation import ToolCallEnd, ToolInvocation, plain_arguments
from durable_agent_host.errors import ProviderError
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.turn_log.journal import RecordedTool

CallNext = Callable[[], Awaitable[None]]


Send = Callable[[Sequence[Message], Mapping[str, Any]], Awaitable[Any]]
"""Sends messages and options through the chat client; returns its `ResponseStream` or its response."""


@dataclass(frozen=True)
class RunCalls:
    """How the calls of one run are made.

    Attributes:
        begin_model_call: decides what the next model call sends and whether it may be made; returns its stream.
        next_tool_call: numbers a tool call, by its id.
        make_tool_call: makes a tool call through its layers.
        removed_tools: returns what stands for the tools of earlier calls that are not among given ones.
        answer_requests: answers what the provider's tools ask in a response, whose model then continues; None where
            the run that surrounds the agent's does it.
    """

    begin_model_call: Callable[[ChatContext, Send], Awaitable[ModelStream]]
    next_tool_call: Callable[[str], tuple[CallPath, RecordedTool]]
    make_tool_call: Callable[[ToolInvocation], Awaitable[ToolCallEnd]]
    removed_tools: Callable[[Iterable[Any]], Iterable[Any]]
    answer_requests: Callable[[ChatResponse[Any]], Awaitable[Sequence[Message]]] | None = None


class ModelCallMiddleware(ChatMiddleware):
    """Passes the model calls of one run through their chain.

    Args:
        calls: of the run.
        continuation_messages: returns the messages after a response in which the model has paused, or None.

    Attributes:
        is_watched: whether code of the app may change what is streamed, so that it gets copies.
    """

    def __init__(
        self, calls: RunCalls, continuation_messages: Callable[[ChatResponse[Any]], Sequence[Message] | None]
    ) -> None:
        self.is_watched = False
        self._calls = calls
        self._continuation_messages = continuation_messages

    async def process(self, context: ChatContext, call_next: CallNext) -> None:
        """Answer a call from the journal, or make it and journal its response.

        Raises:
            RunStoppedError: the run is no longer wanted.
        """
        answer = _ModelResponse(self._calls, self._continuation_messages, context, call_next)
        await answer.begin()
        if context.stream:
            updates = answer.stream()
            stream = await _begin(_copies(updates)) if self.is_watched else updates
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


async def _begin(updates: AsyncGenerator[ChatResponseUpdate]) -> AsyncGenerator[ChatResponseUpdate]:
    """Wait for the first update, so that the app's middleware around the call gets the error of one that fails."""
    first = await anext(updates, None)

    async def stream() -> AsyncGenerator[ChatResponseUpdate]:
        async with aclosing(updates):
            if first is not None:
                yield first
            async for update in updates:
                yield update

    return stream()


class _ModelResponse:
    """The agent's view of one model call: one call, or several when the model pauses in its answer."""

    def __init__(
        self,
        calls: RunCalls,
        continuation_messages: Callable[[ChatResponse[Any]], Sequence[Message] | None],
        context: ChatContext,
        call_next: CallNext,
    ) -> None:
        self._calls = calls
        self._continuation_messages = continuation_messages
        self._context = context
        self._call_next = call_next
        self._request_messages = [*context.messages]
        self._responses: list[ChatResponse[Any]] = []
        self._run_tools = cast("list[Any]", (context.options or {}).get("tools", []))
        self._items: ModelStream

    async def begin(self) -> None:
        """Begin the next call."""
        self._context.messages = self._request_messages
        self._items = await self._calls.begin_model_call(self._context, self._send)

    async def _send(self, messages: Sequence[Message], options: Mapping[str, Any]) -> Any:
        self._context.messages = [*messages]
        tools = [tool for tool in options.get("tools") or () if not isinstance(tool, RemovedTool)]
        self._context.options = {**options, "tools": tools or None}
        await self._call_next()
        return self._context.result

    async def stream(self) -> AsyncGenerator[ChatResponseUpdate]:
        """Yield the updates of all calls; each response is durable before the next call is made."""
        while True:
            response: ChatResponse[Any] = ChatResponse()
            async with aclosing(self._items) as items:
                async for item in items:
                    if isinstance(item, ChatResponseUpdate):
                        yield item
                    else:
                        response = item.response
            self._responses.append(response)
            self._add_unknown_tools(response)
            more = self._continuation_messages(response) or await self._answer_requests(response)
            if not more:
                return
            if len(self._responses) > _MOST_PAUSES:
                raise ProviderError(
                    f"the model has paused {len(self._responses)} times in one answer; ask for less at once",
                    retryable=False,
                )
            self._request_messages = [*self._request_messages, *more]
            await self.begin()

    def _add_unknown_tools(self, response: ChatResponse[Any]) -> None:
        """Let the calls of tools that the agent does not have pass through their chain, which answers them."""
        names = {getattr(tool, "name", None) for tool in self._run_tools}
        contents = (content for message in response.messages for content in message.contents)
        calls = [content for content in contents if content.type == "function_call" and not content.informational_only]
        unknown_names = dict.fromkeys(str(call.name) for call in calls if call.name not in names)
        self._run_tools += [RemovedTool(name, ends_run=not names) for name in unknown_names]

    async def _answer_requests(self, response: ChatResponse[Any]) -> Sequence[Message]:
        if self._calls.answer_requests is None or not (replies := await self._calls.answer_requests(response)):
            return ()
        if not response.conversation_id:
            return [*response.messages, *replies]
        self._context.options = {**(self._context.options or {}), "conversation_id": response.conversation_id}
        self._request_messages = []  # the service has the conversation, and accepts only new messages
        return replies

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
        calls: of the run.
        host_tools: returns the tools of a call as the framework may see them.
    """

    def __init__(self, calls: RunCalls, host_tools: Callable[[Iterable[Any]], list[Any]]) -> None:
        self._calls = calls
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

        path, recorded_call = self._calls.next_tool_call(str(context.metadata["call_id"]))
        call = ToolInvocation(
            path=path,
            tool=context.function,
            arguments=plain_arguments(context.arguments),
            starts=recorded_call.starts,
            has_changed_arguments=False,
            metadata=context.metadata,
            run=run,
            deferral=recorded_call.deferral,
        )
        try:
            end = await self._calls.make_tool_call(call)
        finally:
            if context.tools is not None:
                context.tools[:] = self._host_tools(context.tools)  # a tool can add tools
        context.result = end.value
        try:
            if end.error is not None:
                raise end.error
        finally:
            del end  # its error refers to this frame


def supports_middleware(client: object) -> bool:
    """Return whether a client runs the tools itself and passes every model call through chat middleware."""
    kinds = type(client).__mro__
    both = FunctionInvocationLayer in kinds and ChatMiddlewareLayer in kinds
    return both and kinds.index(FunctionInvocationLayer) < kinds.index(ChatMiddlewareLayer)


HostTools = Callable[[Iterable[Any]], list[Any]]
"""Returns the tools of a call as the framework may see them."""


def client_for_run(
    client: Any,
    calls: RunCalls,
    continuation_messages: Callable[[ChatResponse[Any]], Sequence[Message] | None],
    host_tools: HostTools,
    agent_middleware: Sequence[Any],
) -> Any:
    """Copy a chat client so that the calls of one run of an agent pass through their chains.

    Args:
        client: with the framework's layers; its tools are run by the framework.
        calls: of the run.
        continuation_messages: returns the messages after a response in which the model has paused, or None.
        host_tools: returns the tools of a call as the framework may see them.
        agent_middleware: the agent's own, which may change what is streamed.
    """
    client_copy = copy_with_mixin(client, _RunClient)
    client_copy.innermost_chat_middleware = ModelCallMiddleware(calls, continuation_messages)
    client_copy.agent_middleware = agent_middleware
    client_copy.host_tools = host_tools
    client_copy.removed_tools = calls.removed_tools
    client_copy.function_middleware = [ToolCallMiddleware(calls, host_tools), *client.function_middleware]
    return client_copy


class _RunClient:
    """The override; stands before the client's own class in the method resolution order."""

    innermost_chat_middleware: ModelCallMiddleware
    agent_middleware: Sequence[Any]
    host_tools: HostTools
    removed_tools: Callable[[Iterable[Any]], Iterable[Any]]

    def get_response(
        self, messages: Any, *, options: Any = None, middleware: Any = None, client_kwargs: Any = None, **arguments: Any
    ) -> Any:
        client: Any = super()
        chat_options = cast("Mapping[str, Any]", options or {})
        tools = self.host_tools(normalize_tools(chat_options.get("tools")))
        options = {**chat_options, "tools": [*tools, *self.host_tools(self.removed_tools(tools))]}
        client_kwargs = dict(client_kwargs or {})
        chain = [*as_middleware_list(client_kwargs.get("middleware")), *as_middleware_list(middleware)]
        journal_middleware = self.innermost_chat_middleware
        journal_middleware.is_watched = _sees_streams(
            [*self.agent_middleware, *cast("Any", self).chat_middleware, *chain]
        )
        client_kwargs["middleware"] = [*chain, journal_middleware]  # a client may replace it by `middleware`
        return client.get_response(messages, options=options, client_kwargs=client_kwargs, **arguments)


def _sees_streams(middleware: Sequence[Any]) -> bool:
    """Return whether some middleware may see what a model call sends or streams."""
    return not all(isinstance(layer, FunctionMiddleware) for layer in middleware)


def as_middleware_list(middleware: Any) -> list[Any]:
    """List middleware, of which the framework accepts a single object, too."""
    if middleware is None:
        return []
    return list(cast("Sequence[Any]", middleware)) if isinstance(middleware, Sequence) else [middleware]
