"""Inner agents, and agents without a journal: limits apply to what their models send and request, too.

An agent used as a tool of another (`as_tool()`), at any depth, and the agents of a workflow call their models
themselves. They get copies of their chat clients, whose connections are guarded like those of the hosted agent's own,
and which count each call with the turn's. Exceeding a limit there ends the turn, as if its own model had: the agents
in between would treat the error as a failed tool, and ask again.
"""

import copy
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from types import CellType, FunctionType
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

from agent_framework import (
    ChatResponse,
    ChatResponseUpdate,
    CompactionProvider,
    FunctionInvocationContext,
    FunctionInvocationLayer,
    FunctionMiddleware,
    FunctionTool,
    Message,
    MiddlewareFailure,
    MiddlewareTermination,
    RawAgent,
    ResponseStream,
    Workflow,
    WorkflowAgent,
    normalize_messages,
    normalize_tools,
)
from agent_framework.exceptions import UserInputRequiredException

from durable_agent_host.agent.call_order import chain_nested_call
from durable_agent_host.agent.compaction import with_clients
from durable_agent_host.agent.context_stores import keep_in_session
from durable_agent_host.agent.declarations import reject_declared_tools
from durable_agent_host.agent.dynamic_subclass import copy_with_mixin, overridden_class
from durable_agent_host.agent.layers.run_tool import log_tool_failure
from durable_agent_host.agent.layers.running_call import CALL_SCOPE
from durable_agent_host.agent.mcp_servers import with_reconnection
from durable_agent_host.agent.model_call import CompletedResponse, ModelCall, ModelStream
from durable_agent_host.agent.nested_model_calls import INNER_CALLS
from durable_agent_host.agent.provider import ModelProvider, ProviderFor
from durable_agent_host.agent.response_limits import (
    OutputSizeMeter,
    check_calls,
    is_larger,
    lacks_finish_reason,
    received_bytes,
    until_its_end,
)
from durable_agent_host.agent.run_output import EVERY
from durable_agent_host.agent.run_result import Failed, RunStoppedError
from durable_agent_host.agent.tool_invocation import plain_arguments
from durable_agent_host.codec.journal_entry import encode_tool_result
from durable_agent_host.errors import CorruptStateError, ProviderError
from durable_agent_host.model.call_path import AGENT_RUN
from durable_agent_host.model.response_normalization import correct_contents
from durable_agent_host.tool_calls import RUNNING_CALL

_LOGGER = logging.getLogger(__name__)
_WRAPPED: Final = "self"
"""The agent's name in the function that `as_tool` makes."""

_UPDATE_BYTES: Final = 512
"""Counted for an update: the framework's layers keep some kilobytes of each until the answer ends."""

_FUNCTIONS: Final[WeakKeyDictionary[Any, Any]] = WeakKeyDictionary()
"""Functions of tools that are agents → functions of their bounded copies."""


class NestedAgents:
    """Limits the agents within one hosted agent.

    Args:
        provider_for: returns the provider of a chat client.
    """

    def __init__(self, provider_for: ProviderFor) -> None:
        self._provider_for = provider_for

    def client(self, client: Any, *, is_tool: bool = False, agent_name: str = "") -> Any:
        """Copy a chat client so that what it receives is bounded."""
        if isinstance(client, _LimitedClient) or not hasattr(client, "__dict__"):
            return client
        is_raw = not hasattr(client, "_inner_get_response")
        limited_client: Any = copy_with_mixin(client, _LimitedForeignClient if is_raw else _LimitedFrameworkClient)
        provider = self._provider_for(client)
        limited_client.inner_agents = self
        limited_client.lets_go = is_tool
        limited_client.provider_inside = provider
        limited_client.__dict__.update(provider.sdk_clients(client, retries=True))
        if FunctionInvocationLayer in type(client).__mro__:
            limited_client.function_middleware = [_InnerToolCalls(agent_name), *limited_client.function_middleware]
        return limited_client

    def agent(self, agent: Any, *, is_tool: bool = False) -> Any:
        """Copy an agent with a bounded client; a workflow, built for the run, gets bounded agents in place."""
        match cast("object", agent):
            case RawAgent() if not isinstance(agent.client, _LimitedClient):
                limited_agent: Any = copy.copy(agent)
                limited_agent.client = self.client(agent.client, is_tool=is_tool, agent_name=agent.name or "")
                limited_agent.mcp_tools = with_reconnection(limited_agent.mcp_tools, is_inner=True)
                self._bound_compaction(limited_agent)
                return limited_agent
            case WorkflowAgent() as team:
                self._bound_workflow(team.workflow, is_tool=is_tool)
            case _:
                pass
        return agent

    def tools(self, tools: Iterable[Any]) -> list[Any]:
        """Return the tools, with bounded copies of those that are agents."""
        return [self._tool(tool) for tool in tools]

    def _tool(self, tool: Any) -> Any:
        function: Any = tool.__dict__.get("func") if isinstance(tool, FunctionTool) else None
        if isinstance(tool, _BoundedTool) or not isinstance(function, FunctionType):
            return tool
        if function not in _FUNCTIONS:
            names = function.__code__.co_freevars
            cells = function.__closure__ or ()
            if _WRAPPED not in names or not function.__module__.startswith("agent_framework"):
                return tool
            cells_by_name = {_WRAPPED: CellType(self.agent(cells[names.index(_WRAPPED)].cell_contents, is_tool=True))}
            closure = tuple(cells_by_name.get(name, cell) for name, cell in zip(names, cells, strict=True))
            _FUNCTIONS[function] = _rebound(function, closure)
        view = object.__new__(overridden_class(cast("type[Any]", type(tool)), _BoundedTool))
        view.__dict__ = tool.__dict__
        return view

    def _bound_compaction(self, agent: Any) -> None:
        """Give the copy of an agent, and that of its client, strategies whose clients are bounded."""
        for holder in (agent, agent.client):
            if (strategy := getattr(holder, "compaction_strategy", None)) is not None:
                holder.compaction_strategy = with_clients(strategy, self.client)
        agent.context_providers = [
            self._context_provider(keep_in_session(provider)) for provider in agent.context_providers
        ]

    def _context_provider(self, provider: Any) -> Any:
        if type(provider) is not CompactionProvider:
            return provider
        limited_provider: Any = copy.copy(provider)
        limited_provider.before_strategy = with_clients(provider.before_strategy, self.client)
        limited_provider.after_strategy = with_clients(provider.after_strategy, self.client)
        return limited_provider

    def _bound_workflow(self, workflow: Workflow, *, is_tool: bool) -> None:
        for executor in workflow.executors.values():
            self.bound_executor(executor, is_tool=is_tool)

    def bound_executor(self, executor: Any, *, is_tool: bool = False) -> None:
        """Give an executor of a workflow bounded copies of its agents."""
        for holder in (executor, *_managers(executor)):
            for name, value in list(vars(holder).items()):
                if isinstance(value, Workflow):
                    self._bound_workflow(value, is_tool=is_tool)
                elif (limited_agent := self.agent(value, is_tool=is_tool)) is not value:
                    setattr(holder, name, limited_agent)


def _managers(executor: object) -> Iterator[object]:
    """List the objects of an orchestrator that call agents on its behalf."""
    return (value for value in vars(executor).values() if callable(getattr(value, "on_checkpoint_save", None)))


def _rebound(function: FunctionType, closure: tuple[CellType, ...]) -> FunctionType:
    function_copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, closure
    )
    function_copy.__kwdefaults__ = function.__kwdefaults__
    function_copy.__annotations__ = function.__annotations__
    function_copy.__dict__.update(function.__dict__)
    return function_copy


class _BoundedTool:
    """The override of a tool that is an agent; stands before the tool's own class in the method resolution order."""

    @property
    def func(self) -> Any:
        function = self.__dict__.get("func")
        return _FUNCTIONS.get(function, function)

    @func.setter
    def func(self, function: Any) -> None:
        self.__dict__["func"] = function


class _LimitedClient:
    """The override of a chat client; stands before the client's own class in the method resolution order."""

    inner_agents: NestedAgents
    lets_go: bool
    provider_inside: ModelProvider

    def get_response(self, messages: Any, *, options: Any = None, **arguments: Any) -> Any:
        if options and options.get("tools"):
            tools = self.inner_agents.tools(cast("Any", normalize_tools(options["tools"])))
            reject_declared_tools(tools)
            options = {**options, "tools": tools}
        client: Any = super()
        return client.get_response(messages, options=options, **arguments)


class _LimitedFrameworkClient(_LimitedClient):
    """The override of a client whose model calls go through one method, inside all of the framework's layers."""

    def _inner_get_response(self, *, stream: bool = False, **arguments: Any) -> Any:
        client: Any = super()
        inner = client._inner_get_response  # noqa: SLF001 - the override calls what it overrides
        return _make_call(
            _nested_call(
                self,
                arguments.get("messages") or (),
                arguments.get("options"),
                lambda: inner(stream=stream, **arguments),
            ),
            stream=stream,
            lets_go=self.lets_go,
        )


class _LimitedForeignClient(_LimitedClient):
    """The override of a client that is not the framework's."""

    def get_response(self, messages: Any, *, stream: bool = False, **arguments: Any) -> Any:
        ask = super().get_response
        return _make_call(
            _nested_call(
                self,
                normalize_messages(messages),
                arguments.get("options"),
                lambda: ask(messages, stream=stream, **arguments),
            ),
            stream=stream,
            lets_go=self.lets_go,
        )


def _nested_call(
    client: _LimitedClient, messages: Sequence[Message], options: Any, ask: Callable[[], Any]
) -> ModelCall:
    return ModelCall(AGENT_RUN, client, client.provider_inside, messages, options or {}, lambda _, __: ask())


def _make_call(call: ModelCall, *, stream: bool, lets_go: bool) -> Any:
    """Make one model call within the turn's limits."""
    if not stream:
        return _respond_once(call)
    streams: list[Any] = []

    async def send(messages: Sequence[Message], options: Mapping[str, Any]) -> Any:
        result = call.send(messages, options)
        streams.append(result if isinstance(result, ResponseStream) else await result)
        return streams[0]

    async def updates() -> AsyncGenerator[ChatResponseUpdate]:
        innermost = partial(_read_stream, lets_go=lets_go)
        async with aclosing(chain_nested_call(INNER_CALLS.get(), replace(call, send=send), innermost)) as items:
            async for item in items:
                if isinstance(item, ChatResponseUpdate):
                    yield item

    async def response(_: Any) -> ChatResponse[Any]:
        return _check_response(await streams[0].get_final_response())

    return ResponseStream(updates(), finalizer=response)


async def _respond_once(call: ModelCall) -> ChatResponse[Any]:
    response: ChatResponse[Any] = ChatResponse()
    async with aclosing(chain_nested_call(INNER_CALLS.get(), call, _read_response)) as items:
        async for item in items:
            response = cast("CompletedResponse", item).response
    return _check_response(response)


async def _read_response(call: ModelCall) -> ModelStream:
    response: ChatResponse[Any] = await call.send(call.messages, call.options)
    meter = OutputSizeMeter()
    for message in response.messages:
        meter.add(message.contents)
    yield CompletedResponse(response, ())


async def _read_stream(call: ModelCall, *, lets_go: bool) -> ModelStream:
    """Yield the updates; the response has only the model and its token counts."""
    result = await call.send(call.messages, call.options)
    meter = OutputSizeMeter(_UPDATE_BYTES)
    passed_updates = list[ChatResponseUpdate]()
    usage_updates = list[ChatResponseUpdate]()
    async with result:
        async for update in until_its_end(result, lacks_finish_reason, None):
            meter.add(update.contents)
            correct_contents(update.contents)
            usage = [content for content in update.contents if content.type == "usage"]
            if usage or (update.model and not usage_updates):
                usage_updates.append(ChatResponseUpdate(contents=usage, role="assistant", model=update.model))
            yield update
            if lets_go:
                passed_updates.append(update)
            if len(passed_updates) >= EVERY:
                _let_go(passed_updates)
                passed_updates.clear()
    yield CompletedResponse(ChatResponse.from_updates(usage_updates), ())


def _let_go(updates: Iterable[ChatResponseUpdate]) -> None:
    for update in updates:
        if [content.type for content in update.contents] == ["text"]:
            update.raw_representation = update.contents[0].raw_representation = None


def _check_response(response: ChatResponse[Any]) -> ChatResponse[Any]:
    """Check the tool calls of a response; exceeding a limit ends the turn.

    Raises:
        RunStoppedError: a limit is exceeded.
    """
    contents = (content for message in response.messages for content in message.contents)
    try:
        check_calls(contents, received_bytes().bounds)
    except ProviderError as error:
        raise RunStoppedError(Failed(error)) from error
    return response


class _InnerToolCalls(FunctionMiddleware):
    """Gives each tool call of an inner agent its own key; logs a failure, and reports a result that is too large."""

    def __init__(self, agent_name: str) -> None:
        self._agent_name = agent_name

    async def process(self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]) -> None:
        call = None
        scope = CALL_SCOPE.get()
        if scope is not None:  # within a turn
            arguments = plain_arguments(context.arguments)
            call_id = str(context.metadata["call_id"])
            call = scope.next_call(self._agent_name, context.function.name, arguments, call_id)
        token = RUNNING_CALL.set(call)
        try:
            await call_next()
        except (RunStoppedError, MiddlewareFailure, MiddlewareTermination, UserInputRequiredException):
            raise
        except Exception as error:
            log_tool_failure(f"tool {context.function.name} of an agent within an agent failed", error)
            raise
        finally:
            RUNNING_CALL.reset(token)
        max_bytes = received_bytes().bounds.max_tool_result_bytes
        try:
            is_too_large = is_larger(encode_tool_result(context.result), max_bytes)
        except (CorruptStateError, RecursionError):  # a result that cannot be stored need not be, here
            return
        if is_too_large:
            _LOGGER.warning(
                "the result of tool %s, of an agent within an agent, is larger than %d bytes, and the model is "
                "told so; DURABLE_AGENT_HOST_MAX_TOOL_RESULT_BYTES sets the limit",
                *(context.function.name, max_bytes),
            )
            context.result = (
                f"Error: The tool has run, and its result is larger than {max_bytes} bytes: ask it for less."
            )
