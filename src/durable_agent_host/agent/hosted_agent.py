"""Copies of an agent for its hosted runs; the app's agent, its client and its tools are not changed.

At registration, an agent gets the stored conversation as its history and a client that keeps the provider's items. Each
run gets another copy of that client, with an override that inserts the run's middleware and replaces tools that need
approval with views.
"""

import copy
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from typing import Any, Final, cast

from agent_framework import (
    AgentResponse,
    AgentResponseUpdate,
    AgentSession,
    ChatResponse,
    FunctionTool,
    HistoryProvider,
    InMemoryHistoryProvider,
    Message,
    RawAgent,
    SupportsAgentRun,
    WorkflowAgent,
    normalize_tools,
)

from durable_agent_host.agent.call_middleware import RunCalls, as_middleware_list, client_for_run, supports_middleware
from durable_agent_host.agent.context_stores import keep_in_session
from durable_agent_host.agent.declarations import find_parameters
from durable_agent_host.agent.durable_session import TranscriptProvider
from durable_agent_host.agent.dynamic_subclass import copy_with_mixin
from durable_agent_host.agent.mcp_servers import with_reconnection
from durable_agent_host.agent.nested_agents import NestedAgents
from durable_agent_host.agent.provider import ModelProvider, ProviderFor
from durable_agent_host.agent.workflow_agents import HostedWorkflow
from durable_agent_host.errors import RegistrationError, RequestError, TurnError
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.turn.client_tools import client_tool

CONVERSATION_OPTIONS: Final = frozenset({"conversation_id", "previous_response_id", "conversation"})
"""Options that name what a model's service keeps."""


class HostedAgent:
    """An agent as the host runs it.

    Args:
        agent: the app's.
        provider_for: returns the provider of its client.

    Attributes:
        agent: the copy, without anything that belongs to a run.
        owns_history: whether it uses the stored conversation as its history.
        has_own_history: whether a history provider of the app supplies the model's history instead.
        provider: of its chat client.
        has_journal: whether its model and tool calls can be journaled.
        is_workflow: whether it is a workflow, whose agents have their calls journaled.
        is_opaque: whether none of its calls is journaled, so that its run is like one tool call.
        why_no_journal: why it has no journal.
        may_run_again: for agents without a journal, whether a run cut off by a crash is simply repeated; the agent
            declares it with an attribute ``may_run_again``.
    """

    def __init__(self, agent: SupportsAgentRun, provider_for: ProviderFor) -> None:
        self.agent = agent
        self.owns_history = isinstance(agent, RawAgent | WorkflowAgent)
        self.provider = provider_for(_get_client(agent))
        if self.owns_history:
            self.agent = _with_history(cast("Any", agent), self.provider)
        self._inner = NestedAgents(provider_for)
        self.has_own_history = self.owns_history and not any(
            isinstance(provider, TranscriptProvider) for provider in cast("Any", self.agent).context_providers
        )
        self.why_no_journal = why_no_journal(agent)
        self.has_journal = not self.why_no_journal
        if self.has_journal:
            self._sdk_clients = self.provider.sdk_clients(cast("Any", self.agent).client)
        else:
            self.agent = self._inner.agent(self.agent)
        self.is_workflow = isinstance(agent, WorkflowAgent)
        self.is_opaque = not (self.has_journal or self.is_workflow)
        self.may_run_again = bool(getattr(agent, "may_run_again", False))

    @property
    def client(self) -> Any:
        """The hosted copy of the agent's chat client; None for agents whose clients the host does not see."""
        return _get_client(self.agent)

    def strategy_client(self, client: Any) -> Any:
        """Copy a chat client that something beside the agent calls in its runs, such as a strategy."""
        return self._inner.strategy_client(client)

    def restores(self, session: AgentSession) -> bool:
        """Return whether the agent continues from its state in the session and needs no transcript."""
        return isinstance(self.agent, WorkflowAgent) and HostedWorkflow(self.agent).restores(session)

    @property
    def has_middleware(self) -> bool:
        """Whether the app's middleware may change what it gets and answers."""
        return bool(getattr(self.agent, "middleware", None))

    @property
    def includes_error_texts(self) -> bool:
        """Whether its model receives the texts of tools' exceptions."""
        configuration: Any = getattr(self.client, "function_invocation_configuration", None)
        return bool(configuration and configuration.get("include_detailed_errors"))

    def check_client_tools(self, client_tools: Sequence[Mapping[str, Any]]) -> None:
        """Refuse tools of a request that the agent cannot have.

        Raises:
            RequestError: the agent has a tool of the same name, or takes none.
        """
        if not client_tools:
            return
        if not self.has_journal:
            raise RequestError(f"the agent takes no client_tools: {self.why_no_journal}")
        names = {getattr(tool, "name", None) for tool in self._own_tools()}
        for tool in client_tools:
            if tool["name"] in names:
                raise RequestError(
                    f"the agent has a tool {tool['name']!r} itself: give the tool in client_tools another name"
                )

    def find_parameters(self, tool_name: str) -> Mapping[str, Any] | None:
        """Return the JSON schema of a tool's arguments; None when it is no function of the agent itself."""
        functions = (tool for tool in self._own_tools() if isinstance(tool, FunctionTool)) if self.has_journal else ()
        function = next((tool for tool in functions if tool.name == tool_name), None)
        return None if function is None else find_parameters(function)

    def _own_tools(self) -> list[Any]:
        agent: Any = self.agent
        return [
            *normalize_tools(agent.default_options.get("tools")),
            *(function for server in agent.mcp_tools for function in server.functions),
        ]

    def for_run(
        self,
        turn_id: str,
        calls: RunCalls,
        fold_call: Callable[[Sequence[Any]], Any],
        continuation_messages: Callable[[ChatResponse[Any]], Sequence[Message] | None],
        *,
        with_tools: bool,
        has_transcript: bool,
    ) -> SupportsAgentRun:
        """Return the agent for one run.

        Args:
            turn_id: of the run's turn.
            calls: how the calls of the run are made.
            fold_call: folds the updates of one model call.
            continuation_messages: returns the messages after a response in which the model has paused, or None.
            with_tools: whether it has its tools.
            has_transcript: whether it is sent the transcript, which a conversation in its options lacks or has already.

        Returns:
            A copy, or the agent itself when it has no journal and is not a workflow.

        Raises:
            TurnError: this kind of agent cannot run without its tools.
        """
        agent = self.agent
        if not with_tools:
            agent = _without_tools(agent)
        if isinstance(agent, WorkflowAgent):
            return cast("Any", HostedWorkflow(agent))
        if not self.has_journal:
            return agent
        agent_copy: Any = copy_with_mixin(agent, _TracedAsAttempt)
        if has_transcript:
            options = agent_copy.default_options.items()
            agent_copy.default_options = {name: value for name, value in options if name not in CONVERSATION_OPTIONS}
        agent_copy.client = client_for_run(
            agent_copy.client,
            calls,
            continuation_messages,
            partial(self._inner.host_tools, self.provider),
            as_middleware_list(agent_copy.middleware),
        )
        agent_copy.client.turn_id = turn_id
        agent_copy.client.fold_call = fold_call
        agent_copy.client.__dict__.update(self._sdk_clients)
        return agent_copy


def _with_history(agent: Any, provider: ModelProvider) -> Any:
    """Add the stored conversation as the agent's history, unless it has its own: where the framework has it."""
    replaced_flags = [is_replaced(agent, context_provider) for context_provider in agent.context_providers]
    providers = [
        keep_in_session(context_provider)
        for context_provider in agent.context_providers
        if not is_replaced(agent, context_provider)
    ]
    agent_copy = copy.copy(agent)
    if not any(
        isinstance(context_provider, HistoryProvider) and context_provider.load_messages
        for context_provider in providers
    ):
        providers.insert(replaced_flags.index(True) if True in replaced_flags else len(providers), TranscriptProvider())
        agent_copy.require_per_service_call_history_persistence = False  # there would be nothing to load again
    agent_copy.context_providers = providers
    if not isinstance(agent, WorkflowAgent):
        agent_copy.client = provider.adapt(agent_copy.client)
        agent_copy.mcp_tools = with_reconnection(agent_copy.mcp_tools)
    return agent_copy


def is_replaced(agent: Any, provider: object) -> bool:
    """Return whether the host replaces a provider: a plain `InMemoryHistoryProvider`, that nobody else reads.

    It keeps the transcript in the framework session's state; the host has it already.
    """
    if type(provider) is not InMemoryHistoryProvider or not isinstance(agent, RawAgent):
        return False
    stores_all = provider.load_messages and provider.store_inputs and provider.store_outputs
    is_plain = not provider.store_context_messages and not provider.skip_excluded
    readers = [getattr(reader, "history_source_id", None) for reader in cast("Any", agent).context_providers]
    return stores_all and is_plain and provider.source_id not in readers


def _get_client(agent: object) -> Any:
    return cast("Any", agent).client if isinstance(agent, RawAgent) else None


_FUNCTION_NAME: Final = re.compile(r"[A-Za-z0-9_\-]{1,120}")


def validate_agent_name(name: object) -> str:
    """Return the name of an agent.

    Raises:
        RegistrationError: no function can have this name.
    """
    if isinstance(name, str) and _FUNCTION_NAME.fullmatch(name):
        return name
    problem = "an agent has no name" if name is None else f"an agent cannot be named {name!r}"
    raise RegistrationError(f"{problem}: write Agent(…, name='Helper'), with up to 120 letters, digits, '_' and '-'")


def duplicate_name_error(existing_name: str, name: str) -> RegistrationError:
    """Make the error for a name that another agent has, ignoring case."""
    case = "" if existing_name == name else f" and {name!r}, which differ only in case"
    return RegistrationError(f"two agents are named {existing_name!r}{case}: rename one")


def why_no_journal(agent: object) -> str:
    """Return why an agent's calls cannot be journaled.

    Returns:
        The reason and how to get a journal; empty for an agent that has one.
    """
    if isinstance(agent, WorkflowAgent):
        return "it is a workflow, whose agents call their models themselves"
    if not isinstance(agent, RawAgent):
        return f"{type(agent).__name__} is not an Agent of the framework with a chat client"
    client: object = cast("Any", agent).client
    if supports_middleware(client):
        return ""
    return (
        f"its chat client {type(client).__name__} lacks the framework's layers: derive the class from "
        "FunctionInvocationLayer, ChatMiddlewareLayer and BaseChatClient, in this order"
    )


def _without_tools(agent: SupportsAgentRun) -> SupportsAgentRun:
    if not isinstance(agent, RawAgent):
        raise TurnError(
            f"enable_tool_calls is false, and the tools of a {type(agent).__name__} cannot be removed: leave "
            "enable_tool_calls out"
        )
    silent: Any = copy.copy(cast("Any", agent))
    silent.default_options = {
        name: value for name, value in silent.default_options.items() if name not in {"tools", "tool_choice"}
    }
    silent.mcp_tools = []
    return silent


class _TracedAsAttempt:
    """The agent's override: the attempt's span replaces that of the agent's run.

    The framework's own span of a run would be lost in a crash while its children are written, and would count the
    tokens of replayed calls.
    """

    def _trace_agent_invocation(self, *, execute: Callable[[], Any], **_: Any) -> Any:
        return execute()


async def stream_updates(
    agent: SupportsAgentRun,
    messages: Sequence[Message],
    session: AgentSession,
    options: dict[str, Any],
    apply_result: Callable[[AgentResponse[Any]], None] | None,
) -> AsyncGenerator[AgentResponseUpdate]:
    """Run an agent and yield what it streams."""
    arguments: dict[str, Any] = {"options": options} if options else {}
    running: Any = cast("Any", agent.run)(messages, stream=True, session=session, **arguments)
    if not hasattr(running, "__aiter__"):
        running = await running
    if isinstance(running, AgentResponse):
        for update in cast("AgentResponse[Any]", running).to_updates():
            yield update
        return
    try:
        async for update in running:
            yield update
        if callable(finish := getattr(running, "get_final_response", None)):
            result = await cast("Awaitable[Any]", finish())  # runs the framework's end: providers, the session's id
            if apply_result is not None and isinstance(result, AgentResponse):
                apply_result(cast("AgentResponse[Any]", result))
    finally:
        # a stream of the framework, or the generator of an agent of the app's own
        if callable(close := getattr(running, "close", None) or getattr(running, "aclose", None)):
            closing = close()
            if isawaitable(closing):
                await closing


def build_options(request: TurnRequest) -> dict[str, Any]:
    """Return the options with which the agent runs."""
    format_options: Any = (
        {} if request.response_format is None else {"response_format": _name_schema(request.response_format)}
    )
    options: dict[str, Any] = {**request.options, **format_options}
    if not request.enable_tool_calls:
        options.pop("tools", None)
        options["tool_choice"] = "none"
    elif request.client_tools:
        options["tools"] = [*(options.get("tools") or ()), *map(client_tool, request.client_tools)]
    return options


def _name_schema(response_format: Mapping[str, Any]) -> dict[str, Any]:
    """Wrap a bare schema without one type, such as an ``enum``: not every client takes it for a schema."""
    if isinstance(response_format.get("type"), str):
        return dict(response_format)
    schema = {name: value for name, value in response_format.items() if name != "title"}
    json_schema = {"name": str(response_format.get("title") or "response"), "schema": schema, "strict": True}
    return {"type": "json_schema", "json_schema": json_schema}
