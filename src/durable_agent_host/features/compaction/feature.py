"""Compaction as a feature: in each run it chooses what the model gets, less after a request that was too long."""

import logging
from collections.abc import Mapping
from functools import partial
from typing import Final, override
from weakref import WeakKeyDictionary

from agent_framework import CompactionStrategy

from durable_agent_host.agent.feature import AgentFeature, CurrentRun, RunPart
from durable_agent_host.agent.hosted_agent import HostedAgent
from durable_agent_host.agent.observer import RunRestarted
from durable_agent_host.codec.overlay import decode_overlay
from durable_agent_host.errors import ContextOverflowError, RegistrationError
from durable_agent_host.features.compaction.strategies import (
    Compaction,
    remove_compaction,
    select_compaction,
)
from durable_agent_host.features.compaction.window import ContextWindow
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.journal_entry import FeatureEntry

_LOGGER = logging.getLogger(__name__)
NAME: Final = "overflow"
"""The entries of requests that were too long: the share of the messages' tokens that the next one keeps."""


def check_strategy(strategy: object, label: str) -> None:
    """Check a strategy of compaction, if there is one.

    Raises:
        RegistrationError: it is something else.
    """
    if strategy is not None and (isinstance(strategy, type) or not callable(strategy)):
        raise RegistrationError(
            f"compaction of {label} is {strategy!r}: give an object of a strategy, such as "
            "SlidingWindowStrategy(keep_last_groups=20), or an async function that takes a list of messages"
        )


def choose_compaction(
    name: str, strategy: CompactionStrategy | None, default: CompactionStrategy | None, why_not: str
) -> "CompactionOfAgent":
    """Return the compaction of an agent, by the app's choice.

    Raises:
        RegistrationError: it is not a strategy, or the agent cannot be compacted.
    """
    check_strategy(strategy, f"agent {name!r}")
    if strategy is not None and why_not:
        raise RegistrationError(f"the context of agent {name!r} cannot be compacted: {why_not}")
    return CompactionOfAgent(strategy, default)


class CompactionOfAgent(AgentFeature):
    """Compacts the context of one agent.

    Args:
        strategy: of the app for this agent; None to use the agent's own strategy.
        default: of the app for agents that have none.
    """

    def __init__(self, strategy: CompactionStrategy | None = None, default: CompactionStrategy | None = None) -> None:
        self._choice = strategy, default
        self._compactions: WeakKeyDictionary[HostedAgent, Compaction] = WeakKeyDictionary()

    def select(self, agent: HostedAgent) -> Compaction:
        """Return the compaction of the agent of a run, which is the same in all its runs."""
        if agent not in self._compactions:
            self._compactions[agent] = select_compaction(agent, *self._choice)
        return self._compactions[agent]

    @override
    def begin_run(self, run: CurrentRun, /) -> RunPart:
        """Choose messages where strategies, an earlier turn, or a request that was too long want it."""
        if not run.agent.has_journal:
            return RunPart()
        shares = {entry.path: entry.data["share"] for entry in run.journal.entries_of(NAME)}
        compaction = self.select(run.agent)
        adapt_agent = partial(remove_compaction, has_our_history=not run.agent.has_own_history)
        return RunPart(
            context=_new_context(run, compaction, shares),
            sends_transcript=bool(shares),
            adapt_agent=adapt_agent if compaction.is_regular else None,
            restart_after=partial(_restart_after, run, shares),
        )


def _new_context(run: CurrentRun, compaction: Compaction, shares: Mapping[CallPath, float]) -> ContextWindow | None:
    start = run.start
    overlay = decode_overlay(start.overlay) if start.overlay else None
    if overlay is not None and not overlay.applies_to(compaction.compaction_id, start.record.session.message_count):
        overlay = None  # made by other strategies; the current ones make their own
    is_needed = overlay is not None or compaction.is_regular or shares
    return ContextWindow(run, compaction, overlay, shares) if is_needed else None


async def _restart_after(run: CurrentRun, shares: Mapping[CallPath, float], error: Exception) -> RunRestarted | None:
    """Record that the latest model call is made again with a smaller context, once, if it was too long."""
    path = run.journal.current_call
    overflow = run.agent.provider.explain(error)
    if not isinstance(overflow, ContextOverflowError) or path in shares:
        return None
    await run.journal.append(FeatureEntry(NAME, path, {"share": overflow.share}))
    _LOGGER.warning(
        "%s: the request is longer than the model's context window; again with less", run.start.attempt.label
    )
    return RunRestarted("the request was longer than the model's context window", 0.0)
