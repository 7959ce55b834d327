"""Agents whose conversations live in a history provider of the app, and what a cancelled turn saves there."""

from collections.abc import Sequence
from typing import Any, cast

from agent_framework import AgentResponse, HistoryProvider, InMemoryHistoryProvider, Message, RawAgent, SessionContext

from durable_agent_host.agent.coalescing_history import CoalescingHistoryProvider
from durable_agent_host.agent.history import DurableSession, TranscriptProvider
from durable_agent_host.model.histories import Histories


def histories_of(agent: Any) -> Histories:
    """Find where an agent's conversations are kept. Guarantee: pure.

    Args:
        agent: the app's.

    Returns:
        Empty for an agent without a history provider: the host keeps its conversations.
    """
    owners: list[str] = []
    copies: list[str] = []
    in_session = False
    for provider in _history_providers(agent):
        wrapped = provider.wrapped if isinstance(provider, CoalescingHistoryProvider) else provider
        if type(wrapped) is InMemoryHistoryProvider:
            in_session = in_session or provider.load_messages
            continue
        name = f"{type(wrapped).__name__} ({provider.source_id})"
        (owners if provider.load_messages else copies).append(name)
    return Histories(tuple(owners), tuple(copies), in_session)


async def save_cut_off(agent: Any, session: DurableSession, asked: Message, produced: Sequence[Message]) -> None:
    """Save what a cancelled turn had produced with the agent's history providers, as the framework does at a run's end.

    Guarantee: at-least-once.

    Args:
        agent: the hosted copy.
        session: of the run.
        asked: the turn's message.
        produced: as the host stores it.
    """
    if getattr(agent, "require_per_service_call_history_persistence", False):
        return  # each model call has been saved
    for provider in reversed(_history_providers(agent)):
        context = SessionContext(session_id=session.session_id, input_messages=[asked])
        cast("Any", context)._response = AgentResponse(messages=list(produced))  # noqa: SLF001 - as the framework does
        state: dict[str, Any] = session.state.setdefault(provider.source_id, {})
        await provider.after_run(agent=agent, session=session, context=context, state=state)


def _history_providers(agent: Any) -> list[HistoryProvider]:
    if not isinstance(agent, RawAgent):
        return []
    providers = cast("Sequence[Any]", cast("Any", agent).context_providers)
    return [one for one in providers if isinstance(one, HistoryProvider) and not isinstance(one, TranscriptProvider)]
