"""Copies of an agent for its hosted runs; neither the app's agent nor its client nor its tools are changed.

Once, at registration, an agent gets the stored conversation as its history and a client that keeps the provider's
items. For each run it gets one more copy of that client, whose class adds an override to the class that the client
had: there the run's middleware is put in its places, and tools that need approval are replaced by views.
"""

import copy
from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol, cast

from agent_framework import (
    ChatMiddlewareLayer,
    FunctionInvocationLayer,
    HistoryProvider,
    RawAgent,
    SupportsAgentRun,
    normalize_tools,
)

from durable_agent_host.durable.hosted_tools import without_approvals
from durable_agent_host.durable.model_calls import ModelCalls
from durable_agent_host.durable.running import AgentRun
from durable_agent_host.durable.tool_runs import ToolRuns
from durable_agent_host.errors import TurnError
from durable_agent_host.history.provider import TranscriptProvider


class AdaptsClient(Protocol):
    """What hosting needs of a provider's adapter."""

    def adapt_client(self, client: Any, /) -> Any:
        """Give a chat client that sends the provider's items back; clients of others as they are."""
        ...


class HostedAgent:
    """An agent as the host runs it.

    Args:
        agent: the app's.
        provider: adapts its client.

    Attributes:
        agent: the copy, without what belongs to a run.
        owns_history: whether it takes the stored conversation as its history.
        keeps_items: whether its client sends the provider's own items back.
        has_journal: whether its model and tool calls can be journaled.
        may_run_again: for agents without a journal, whether a run that a crash has cut off is simply made again; the
            agent says so by an attribute ``may_run_again``.
    """

    def __init__(self, agent: SupportsAgentRun, provider: AdaptsClient) -> None:
        self.agent = agent
        self.owns_history = isinstance(agent, RawAgent)
        if self.owns_history:
            self.agent = _with_history(cast("Any", agent), provider)
        client: object = getattr(cast("Any", self.agent), "client", None)
        self.keeps_items: bool = getattr(client, "keeps_provider_items", False)
        self.has_journal = self.owns_history and _takes_middleware(client)
        if self.has_journal:
            self._sdk_clients = _without_retries(cast("Any", client))
        self.may_run_again = bool(getattr(agent, "may_run_again", False))

    def for_run(self, run: AgentRun, *, with_tools: bool) -> SupportsAgentRun:
        """Give the agent of one run.

        Args:
            run: what its middleware works with.
            with_tools: False offers the model no tools.

        Returns:
            A copy, or the agent itself when it has no journal.

        Raises:
            TurnError: the tools of this kind of agent cannot be taken away.
        """
        agent = self.agent
        if not with_tools:
            agent = _without_tools(agent)
        if not self.has_journal:
            return agent
        hosted: Any = copy.copy(cast("Any", agent))
        hosted.client = _client_for_run(hosted.client, run, hosted.mcp_tools)
        hosted.client.__dict__.update(self._sdk_clients)
        return hosted


def _with_history(agent: Any, provider: AdaptsClient) -> Any:
    """Give the agent the stored conversation as its history, unless it brings a history of its own."""
    providers = list(agent.context_providers)
    hosted = copy.copy(agent)
    if not any(isinstance(one, HistoryProvider) and one.load_messages for one in providers):
        providers.insert(0, TranscriptProvider())
    hosted.context_providers = providers
    hosted.client = provider.adapt_client(hosted.client)
    return hosted


def _takes_middleware(client: object) -> bool:
    """Tell whether a client runs the tools itself, and passes every single model call through chat middleware."""
    kinds = type(client).__mro__
    both = FunctionInvocationLayer in kinds and ChatMiddlewareLayer in kinds
    return both and kinds.index(FunctionInvocationLayer) < kinds.index(ChatMiddlewareLayer)


def _without_retries(client: Any) -> dict[str, Any]:
    """Give the attributes of a chat client that are clients of an SDK with retries of its own, without those.

    The SDKs of OpenAI and of Anthropic have this form. The connections are shared with the client that was given.
    """
    return {
        name: value.with_options(max_retries=0)
        for name, value in cast("dict[str, Any]", vars(client)).items()
        if getattr(value, "max_retries", 0) and callable(getattr(value, "with_options", None))
    }


def _without_tools(agent: SupportsAgentRun) -> SupportsAgentRun:
    if not isinstance(agent, RawAgent):
        raise TurnError(
            f"enable_tool_calls is false, and the tools of a {type(agent).__name__} cannot be taken away: "
            "leave enable_tool_calls out"
        )
    silent: Any = copy.copy(cast("Any", agent))
    silent.default_options = {
        name: value for name, value in silent.default_options.items() if name not in {"tools", "tool_choice"}
    }
    silent.mcp_tools = []
    return silent


class _RunsJournaled:
    """The override; stands before the client's own class in the method resolution order."""

    innermost_chat_middleware: ModelCalls

    def get_response(self, messages: Any, *, options: Any = None, middleware: Any = None, **arguments: Any) -> Any:
        client: Any = super()
        if options and options.get("tools"):
            options = {**options, "tools": without_approvals(cast("Any", normalize_tools(options["tools"])))}
        chain = [*(middleware or ()), self.innermost_chat_middleware]
        return client.get_response(messages, options=options, middleware=chain, **arguments)


@cache
def _journaled_class(base: type[Any]) -> type[Any]:
    return type(base.__name__, (_RunsJournaled, base), {})


def _client_for_run(client: Any, run: AgentRun, mcp_servers: Sequence[Any]) -> Any:
    brought = cast("type[Any]", type(client))
    hosted: Any = object.__new__(_journaled_class(brought))
    hosted.__dict__.update(client.__dict__)
    hosted.innermost_chat_middleware = ModelCalls(run)
    hosted.function_middleware = [ToolRuns(run, mcp_servers), *client.function_middleware]
    return hosted
