"""Hosted copies of agents within an agent: tools (`as_tool()`), at any depth, and the agents of a workflow's executors.

They get copies of their chat clients, which pass each call through the layers of the turn in which it is made
(`durable_agent_host.agent.nested_runs`). Outside of a turn, and for a call of a compaction strategy that the turn
journals, the app's client is called as it is.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from inspect import getclosurevars
from itertools import takewhile
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final, cast

from agent_framework import (
    EXCLUDED_KEY,
    GROUP_ANNOTATION_KEY,
    SUMMARY_OF_MESSAGE_IDS_KEY,
    ChatContext,
    CompactionProvider,
    FunctionTool,
    Message,
    RawAgent,
    ResponseStream,
    Workflow,
    WorkflowAgent,
    normalize_messages,
)

from durable_agent_host.agent.call_middleware import (
    ModelCallMiddleware,
    as_middleware_list,
    client_for_run,
    supports_middleware,
)
from durable_agent_host.agent.call_scope import CALL_SCOPE, NestedClient
from durable_agent_host.agent.context_stores import keep_in_session
from durable_agent_host.agent.declarations import (
    AGENT_FUNCTIONS,
    AgentFunction,
    as_agent_tool,
    without_approvals,
)
from durable_agent_host.agent.dynamic_subclass import copy_with_mixin
from durable_agent_host.agent.mcp_servers import with_reconnection
from durable_agent_host.agent.provider import ModelProvider, ProviderFor
from durable_agent_host.stream.fold import ItemReader, fold_updates

_AGENT: Final = "self"
_ARGUMENTS: Final = ("arg_name", "stream_callback", "propagate_session")
"""Names in the function that `as_tool` makes: the agent, and how it was made a tool."""


class NestedAgents:
    """Hosts the agents within one agent.

    Args:
        provider_for: returns the provider of a chat client.
    """

    def __init__(self, provider_for: ProviderFor) -> None:
        self._provider_for = provider_for

    def strategy_client(self, client: Any) -> Any:
        """Copy the chat client of a compaction strategy."""
        return self._client(client, NestedClient(self._provider_for(client), is_strategy=True))

    def agent(self, agent: Any, *, executor_id: str = "", is_tool: bool = False) -> Any:
        """Copy an agent; a workflow, built for the run, gets its agents in place."""
        match cast("object", agent):
            case RawAgent() if not isinstance(agent.client, _HostedClient):
                return self._copy(agent, executor_id=executor_id, is_tool=is_tool)
            case WorkflowAgent() as team:
                self._host_workflow(team.workflow, prefix=f"{executor_id}." if executor_id else "", is_tool=is_tool)
            case _:
                pass
        return agent

    def host_tools(self, provider: ModelProvider, tools: Iterable[Any]) -> list[Any]:
        """Return tools as the framework may see them: those that are agents call the hosted copies, and none asks."""
        return without_approvals(
            [
                self._tool(member)
                for tool in tools
                for member in ((tool,) if isinstance(tool, FunctionTool) else provider.client_tools(tool))
            ]
        )

    def _host_workflow(self, workflow: Workflow, *, prefix: str, is_tool: bool) -> None:
        for executor in workflow.executors.values():
            for holder, name, member, executor_id in _list_members(executor, prefix):
                if isinstance(member, Workflow):
                    self._host_workflow(member, prefix=f"{executor_id}.", is_tool=is_tool)
                elif (hosted_agent := self.agent(member, executor_id=executor_id, is_tool=is_tool)) is not member:
                    setattr(holder, name, hosted_agent)

    def _copy(self, agent: Any, *, executor_id: str, is_tool: bool) -> Any:
        provider = self._provider_for(agent.client)
        configuration: Any = getattr(agent.client, "function_invocation_configuration", None) or {}
        client = copy.copy(provider.adapt(agent.client))
        agent_copy: Any = copy.copy(agent) if is_tool else copy_with_mixin(agent, _FoldedAgent)
        agent_copy.item_reader = provider
        agent_copy.mcp_tools = with_reconnection(agent.mcp_tools)
        agent_copy.context_providers = [
            self._context_provider(keep_in_session(context_provider)) for context_provider in agent.context_providers
        ]
        for holder in (agent_copy, client):
            if (strategy := getattr(holder, "compaction_strategy", None)) is not None:
                holder.compaction_strategy = OpenedStrategy(with_clients(strategy, self.strategy_client))
        nested_client = NestedClient(
            provider,
            executor_id=executor_id,
            is_tool=is_tool,
            includes_error_texts=bool(configuration.get("include_detailed_errors")),
        )
        agent_copy.client = self._client(client, nested_client, as_middleware_list(agent.middleware))
        return agent_copy

    def _client(self, client: Any, nested_client: NestedClient, agent_middleware: Sequence[Any] = ()) -> Any:
        if isinstance(client, _HostedClient):
            return client
        hosted_client: Any = copy_with_mixin(client, _HostedClient)
        hosted_client.app_client = client
        hosted_client.nested_agents = self
        hosted_client.nested_client = nested_client
        hosted_client.agent_middleware = agent_middleware
        hosted_client.sdk_clients = nested_client.provider.sdk_clients(client)
        return hosted_client

    def _context_provider(self, provider: Any) -> Any:
        if type(provider) is not CompactionProvider:
            return provider
        hosted_provider: Any = copy.copy(provider)
        hosted_provider.before_strategy = with_clients(provider.before_strategy, self.strategy_client)
        hosted_provider.after_strategy = with_clients(provider.after_strategy, self.strategy_client)
        return hosted_provider

    def _tool(self, tool: Any) -> Any:
        agent = _agent_of_tool(tool)
        if agent is None:
            return tool
        function = tool.__dict__["func"]
        if function not in AGENT_FUNCTIONS:
            names = getclosurevars(function).nonlocals
            arguments = {name: names[name] for name in _ARGUMENTS}
            hosted_tool = self.agent(agent, is_tool=True).as_tool(name=tool.name, **arguments)
            is_journaled = any(supports_middleware(member.client) for member in list_agents(agent))
            AGENT_FUNCTIONS[function] = AgentFunction(hosted_tool.func, is_journaled)
        return as_agent_tool(tool)


def list_agents(agent: object) -> Iterator[Any]:
    """List an agent and those within it whose calls the host sees."""
    match agent:
        case RawAgent():
            yield agent
            if supports_middleware(cast("Any", agent).client):
                for tool in cast("Any", agent).default_options.get("tools") or ():
                    yield from list_agents(_agent_of_tool(tool))
        case WorkflowAgent() as team:
            yield from list_agents(team.workflow)
        case Workflow() as workflow:
            for executor in workflow.executors.values():
                for _, _, member, _ in _list_members(executor, ""):
                    yield from list_agents(member)
        case _:
            pass


def _agent_of_tool(tool: object) -> Any:
    """Return the agent that a tool is; None for another tool."""
    function: Any = tool.__dict__.get("func") if isinstance(tool, FunctionTool) else None
    if not isinstance(function, FunctionType) or not {_AGENT, *_ARGUMENTS} <= {*function.__code__.co_freevars}:
        return None
    return getclosurevars(function).nonlocals[_AGENT]


def _list_members(executor: object, prefix: str) -> list[tuple[object, str, object, str]]:
    """List the agents and workflows of an executor: which object has it, in which attribute, and under which id."""
    members: list[tuple[object, str, object]] = [
        (holder, name, cast("object", value))
        for holder in (executor, *_list_managers(executor))
        for name, value in list(vars(holder).items())
        if isinstance(value, RawAgent | WorkflowAgent | Workflow)
    ]
    executor_id = f"{prefix}{getattr(executor, 'id', '')}"
    is_single = len({id(member) for _, _, member in members}) == 1
    return [
        (holder, name, member, executor_id if is_single else f"{executor_id}.{getattr(member, 'name', name)}")
        for holder, name, member in members
    ]


def _list_managers(executor: object) -> Iterator[object]:
    """List the objects of an orchestrator that call agents on its behalf."""
    return (value for value in vars(executor).values() if callable(getattr(value, "on_checkpoint_save", None)))


class _FoldedAgent:
    """The override of an agent: it keeps the same of a streamed answer as of a recorded one.

    Attributes:
        item_reader: the provider.
    """

    item_reader: ItemReader

    def _finalize_response_updates(self, updates: Sequence[Any], **arguments: Any) -> Any:
        agent: Any = super()
        response = agent._finalize_response_updates(updates, **arguments)  # noqa: SLF001 - calls what it overrides
        response.messages = fold_updates(updates, self.item_reader).messages
        return response


class _HostedClient:
    """The override of a chat client; stands before the client's own class in the method resolution order."""

    app_client: Any
    nested_agents: NestedAgents
    nested_client: NestedClient
    agent_middleware: Sequence[Any]
    sdk_clients: dict[str, Any]

    def get_response(self, messages: Any, *, stream: bool = False, **arguments: Any) -> Any:
        if (scope := CALL_SCOPE.get()) is None:
            client = copy.copy(self.app_client)
            client.__dict__.update(self.sdk_clients)
            return client.get_response(messages, stream=stream, **arguments)
        run = scope.begin_run(self.nested_client)
        calls = run.calls()
        provider = self.nested_client.provider
        host_tools = partial(self.nested_agents.host_tools, provider)
        if supports_middleware(self.app_client):
            client = client_for_run(
                self.app_client, calls, provider.continuation_messages, host_tools, self.agent_middleware
            )
            client.__dict__.update(self.sdk_clients)
            return run.until_end(client.get_response(messages, stream=stream, **arguments), stream=stream)
        client = copy.copy(self.app_client)
        client.__dict__.update(self.sdk_clients)
        middleware = ModelCallMiddleware(calls, provider.continuation_messages)
        return run.until_end(_respond(middleware, client, messages, arguments, stream=stream), stream=stream)


def _respond(
    middleware: ModelCallMiddleware, client: Any, messages: Any, arguments: dict[str, Any], *, stream: bool
) -> Any:
    """Call a client without the framework's layers, whose response is that of one model call."""
    context = ChatContext(client, normalize_messages(messages), arguments.pop("options", None), stream=stream)

    async def call_next() -> None:
        response = client.get_response(context.messages, stream=stream, options=context.options, **arguments)
        context.result = response if isinstance(response, ResponseStream) else await response

    async def respond() -> Any:
        await middleware.process(context, call_next)
        return context.result

    return cast("Any", ResponseStream).from_awaitable(respond()) if stream else respond()


# Strategies of agents within the turn's agent, which the framework applies.

_MOST_NESTED: Final = 8
"""Deeper parts of a strategy are not copied."""
_NO_OBJECTS: Final = (FunctionType, MethodType, BuiltinFunctionType, type)


class OpenedStrategy:
    """Applies a strategy where the framework compacts, in agents within: what is left begins with a question.

    Args:
        strategy: of the framework's protocol.
    """

    def __init__(self, strategy: Any) -> None:
        self.tokenizer = getattr(strategy, "tokenizer", None)
        self._strategy = strategy

    async def __call__(self, messages: list[Message]) -> bool:
        """Apply it; the last question comes back if none is left."""
        has_changed = await self._strategy(messages)
        questions = [message for message in messages if message.role == "user" or _is_summary(message)]
        if has_changed and questions:
            included_questions = (
                message for message in questions if not message.additional_properties.get(EXCLUDED_KEY)
            )
            first = next(included_questions, questions[-1])
            first.role = "user"
            first.additional_properties[EXCLUDED_KEY] = False
            for message in takewhile(lambda message: message is not first, messages):
                message.additional_properties[EXCLUDED_KEY] = message.role not in {"system", "developer"}
        return has_changed


def _is_summary(message: Message) -> bool:
    return SUMMARY_OF_MESSAGE_IDS_KEY in (message.additional_properties.get(GROUP_ANNOTATION_KEY) or {})


def with_clients(strategy: Any, replace_client: Callable[[Any], Any]) -> Any:
    """Copy a strategy, and those nested in it, with other chat clients."""
    return copy_strategy(
        strategy, lambda value: replace_client(value) if callable(getattr(value, "get_response", None)) else None, 0
    )


def copy_strategy(value: Any, replace: Callable[[Any], Any], depth: int) -> Any:
    """Copy a strategy with replacements of its parts; None leaves a part."""
    if depth > _MOST_NESTED or isinstance(value, _NO_OBJECTS):
        return value
    if (replacement := replace(value)) is not None:
        return replacement
    if isinstance(value, list | tuple):
        return type(cast("list[Any]", value))(
            copy_strategy(item, replace, depth + 1) for item in cast("list[Any]", value)
        )
    if not callable(value) or not hasattr(value, "__dict__"):
        return value
    view = copy.copy(value)
    for name, attribute in list(vars(view).items()):
        if (replacement := copy_strategy(attribute, replace, depth + 1)) is not attribute:
            setattr(view, name, replacement)
    return view
