"""Compaction as a feature: in each run it chooses what the model gets, less after a request that was too long."""

import logging
from functools import partial
from typing import Final, override

from durable_agent_host.agent.call_order import chain_compaction_call
from durable_agent_host.agent.compaction import CompactionModelCalls
from durable_agent_host.agent.feature import AgentFeature, AttemptFeature, AttemptStart, CurrentRun, RunPart
from durable_agent_host.agent.observer import RunRestarted
from durable_agent_host.codec.overlay import decode_overlay
from durable_agent_host.errors import ContextOverflowError
from durable_agent_host.features.compaction.window import ContextWindow
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.journal_entry import FeatureEntry

_LOGGER = logging.getLogger(__name__)
NAME: Final = "overflow"
"""The entries of requests that were too long: the share of the messages' tokens that the next one keeps."""


class CompactionOfAgent(AgentFeature):
    """Compacts the context of one agent, by the strategies of its `HostedAgent`."""

    @override
    def begin(self, start: AttemptStart) -> AttemptFeature:
        return CompactionOfAttempt(start)


class CompactionOfAttempt:
    """The context in one attempt.

    Args:
        start: of the attempt.
    """

    def __init__(self, start: AttemptStart) -> None:
        self._start = start
        self._shares: dict[CallPath, float] = {}

    def begin_run(self, run: CurrentRun, /) -> RunPart:
        """Choose messages where strategies, an earlier turn, or a request that was too long want it."""
        self._shares |= {entry.path: entry.data["share"] for entry in run.journal.entries_of(NAME)}
        return RunPart(
            context=self._new_context(run),
            sends_transcript=bool(self._shares),
            restart_after=partial(self._restart_after, run),
        )

    def _new_context(self, run: CurrentRun) -> ContextWindow | None:
        compaction = run.agent.compaction
        if compaction is None:
            return None
        overlay = decode_overlay(self._start.overlay) if self._start.overlay else None
        entries = self._start.record.session.message_count
        if overlay is not None and not overlay.applies_to(compaction.compaction_id, entries):
            overlay = None  # made by other strategies; the current ones make their own
        if overlay is None and not (run.agent.compacts_every_call or self._shares):
            return None
        return ContextWindow(
            compaction,
            self._start.request,
            overlay,
            entries,
            new_calls=partial(CompactionModelCalls, partial(chain_compaction_call, run), run.agent.provider),
            label=run.start.attempt.label,
            shares=self._shares,
            redactor=self._start.redactor,
            has_our_history=not run.agent.has_own_history,
        )

    async def _restart_after(self, run: CurrentRun, error: Exception) -> RunRestarted | None:
        """Record that the latest model call is made again with a smaller context, once, if it was too long."""
        path = run.journal.current_call
        overflow = run.agent.provider.explain(error)
        if not isinstance(overflow, ContextOverflowError) or not run.agent.has_journal or path in self._shares:
            return None
        self._shares[path] = overflow.share
        await run.journal.append(FeatureEntry(NAME, path, {"share": overflow.share}))
        _LOGGER.warning(
            "%s: the request is longer than the model's context window; again with less", run.start.attempt.label
        )
        return RunRestarted("the request was longer than the model's context window", 0.0)
