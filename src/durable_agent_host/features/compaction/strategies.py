"""The strategies that compact a hosted agent's context, copied so that their model calls are journaled."""

import json
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any, Final, cast

from agent_framework import (
    ChatResponse,
    CompactionProvider,
    CompactionStrategy,
    Message,
    TokenizerProtocol,
    UsageDetails,
    add_usage_details,
    normalize_messages,
)

from durable_agent_host.agent.call_order import chain_strategy_call
from durable_agent_host.agent.feature import CurrentRun
from durable_agent_host.agent.hosted_agent import HostedAgent
from durable_agent_host.agent.model_call import CompletedResponse, ModelCall
from durable_agent_host.agent.nested_agents import copy_strategy, with_clients
from durable_agent_host.agent.response_limits import check_model_call, turn_traffic
from durable_agent_host.agent.run_result import Failed, RunStoppedError, log_errors_stop_run
from durable_agent_host.codec.journal_entry import decode_model_response, encode_answer
from durable_agent_host.errors import ProviderError, TurnLimitError
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.journal_entry import ModelCallCompletedEntry

# Model calls of a compaction strategy: answered from the journal, or made and journaled.
#
# A strategy of the framework calls the model through its own chat client. A hosted agent gets a copy of the strategy,
# whose client asks `CompactionModelCalls` of the current run. A call is identified by the model call before which it
# is made and its number there. A strategy that reaches its client in another way, or streams, calls it as it would
# without this host.

Call = Callable[[], Awaitable[ChatResponse[Any]]]


class CompactionModelCalls:
    """The calls that strategies make before one model call of a run.

    Args:
        run: of the turn's agent.
        path: of the model call.

    Attributes:
        usage: tokens of the answered calls.
    """

    def __init__(self, run: CurrentRun, path: CallPath) -> None:
        self.usage: UsageDetails | None = None
        self._run = run
        self._path = path
        self._count = 0

    async def respond(self, call: Call, messages: Sequence[Message], options: Mapping[str, Any]) -> ChatResponse[Any]:
        """Return the response of the next call, which is durable.

        Raises:
            RunStoppedError: the run is no longer wanted.
            ProviderError: the call failed earlier, before a model call that is finished.
            Exception: raised by the client, when a retry would not help.
        """
        run = self._run
        path = self._path.compaction_call(self._count)
        self._count += 1
        recorded_response = run.journal.recorded.compaction_responses.get(path)
        if recorded_response is not None:
            response = decode_model_response(recorded_response)
        elif self._path in run.journal.recorded.responses:
            raise ProviderError("the model call of a compaction had failed", retryable=False)
        else:
            response = await self._make_call(
                ModelCall(path, None, run.agent.provider, messages, options, lambda _, __: call())
            )
        self.usage = add_usage_details(self.usage, response.usage_details)
        return response

    async def _make_call(self, call: ModelCall) -> ChatResponse[Any]:
        """Make a call if limits and features admit it, and record its response."""
        run = self._run
        response: ChatResponse[Any] = ChatResponse()
        try:
            turn_traffic().inner_calls += 1
            check_model_call()
            with log_errors_stop_run():
                await run.admit()
                async with aclosing(chain_strategy_call(run, call)) as items:
                    async for item in items:
                        response = cast("CompletedResponse", item).response
                await run.journal.append(ModelCallCompletedEntry(call.path, encode_answer(response)))
        except TurnLimitError as error:
            raise RunStoppedError(Failed(error)) from error
        return response


_CURRENT: Final = ContextVar[CompactionModelCalls | None]("durable_agent_host_side_calls", default=None)


@contextmanager
def answering(calls: CompactionModelCalls) -> Generator[None]:
    """Route the calls of a strategy's clients through these while the context lasts."""
    before = _CURRENT.set(calls)
    try:
        yield
    finally:
        _CURRENT.reset(before)


class JournaledClient:
    """Replaces a chat client in a strategy.

    Args:
        client: makes the calls.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def get_response(self, messages: Any, *, stream: bool = False, **arguments: Any) -> Any:
        """Answer as the client does; within a turn, through the turn's journal."""
        client = self._client

        def call() -> Any:
            return client.get_response(messages, stream=stream, **arguments)

        calls = _CURRENT.get()
        if stream or calls is None:
            return call()
        is_sequence = isinstance(
            messages, str | Message | list | tuple
        )  # what else a client takes may be read only once
        request_messages = normalize_messages(cast("Any", messages)) if is_sequence else []
        return calls.respond(cast("Call", call), request_messages, arguments.get("options") or {})


@dataclass(frozen=True)
class Compaction:
    """How the context of an agent is compacted.

    Attributes:
        strategies: of the framework's protocol, in the order in which they are applied before each model call; none for
            an agent whose context is compacted only when it is longer than the model's context window.
        tokenizer: for strategies without their own, or None.
        compaction_id: identifies the strategies with their parameters, and the provider; an overlay applies only to
            these.
        is_compaction_item: returns whether the model's service compacted everything earlier into a message; or None.
    """

    strategies: tuple[CompactionStrategy, ...]
    tokenizer: TokenizerProtocol | None
    compaction_id: str
    is_compaction_item: Callable[[Message], bool] | None

    @property
    def is_regular(self) -> bool:
        """Whether every model call is compacted, and not only one that is too long."""
        return bool(self.strategies) or self.is_compaction_item is not None


def select_compaction(hosted_agent: HostedAgent, strategy: Any, default: Any) -> Compaction:
    """Select how the context of an agent with a journal is compacted; the most specific choice wins.

    Args:
        hosted_agent: the agent.
        strategy: the app's choice for it; None to use the agent's own strategy.
        default: the app's choice for an agent that has none.

    Returns:
        The strategies, copied, with the tokenizer of the agent or its client.
    """
    agent: Any = hosted_agent.agent
    of_providers = () if hosted_agent.has_own_history else _list_provider_strategies(agent)
    chosen: list[Any] = [strategy for strategy in of_providers if strategy is not None]
    client = agent.client
    agent_strategy = (
        strategy or getattr(agent, "compaction_strategy", None) or getattr(client, "compaction_strategy", None)
    )
    if agent_strategy is None and not chosen:
        agent_strategy = default
    if agent_strategy is not None:
        chosen.append(agent_strategy)
    is_compaction_item = hosted_agent.provider.is_compaction_item(agent.default_options)
    tokenizer = getattr(agent, "tokenizer", None) or getattr(client, "tokenizer", None)
    services = [] if is_compaction_item is None else ["the service's own"]
    compaction_id = _describe([*chosen, *services, type(hosted_agent.provider).__name__])
    copies = tuple(
        with_clients(strategy, lambda client: JournaledClient(hosted_agent.strategy_client(client)))
        for strategy in chosen
    )
    return Compaction(copies, tokenizer, compaction_id, is_compaction_item)


def remove_compaction(agent: Any, *, has_our_history: bool) -> Any:
    """Remove from the copy of an agent for a run what would compact a second time."""
    agent.compaction_strategy = None
    agent.client.compaction_strategy = None
    if has_our_history:
        agent.context_providers = [
            provider for provider in agent.context_providers if type(provider) is not CompactionProvider
        ]
    return agent


def _list_provider_strategies(agent: Any) -> Iterable[Any]:
    """List the strategies of the framework's context provider, ``before_strategy`` first, then ``after_strategy``."""
    for provider in agent.context_providers:
        if type(provider) is CompactionProvider:
            yield from (provider.before_strategy, provider.after_strategy)


def tightened(strategy: Any, share: float) -> Any:
    """Copy a strategy, and those nested in it, with a share of each number that limits the context."""
    return copy_strategy(
        strategy, lambda value: max(int(value * share), 1) if type(value) is int and value > 1 else None, 0
    )


def _describe(strategies: Sequence[Any]) -> str:
    """Return a short name of strategies with their parameters, as far as those are plain values."""
    try:
        text = json.dumps(strategies, default=_list_parameters, skipkeys=True)
    except ValueError:  # one refers to itself
        text = " ".join(type(strategy).__name__ for strategy in strategies)
    return derived_id(text)


def _list_parameters(value: Any) -> Any:
    if isinstance(value, FunctionType | MethodType):
        return f"{value.__module__}.{value.__qualname__}"
    attributes: Mapping[str, Any] = getattr(value, "__dict__", {}) if callable(value) else {}
    parameters = {
        name: attribute
        for name, attribute in attributes.items()
        if not (name.startswith("_") or callable(getattr(attribute, "get_response", None)))
    }
    return [type(value).__name__, parameters]
