"""Fallbacks: when the service of one client does not answer a call, the next client does.

The client is journaled before it is asked, and answers the rest of the turn. When the failed client has streamed a part
of its answer, or its service keeps the conversation, the agent is run again for the next client: from the journal, with
all messages.
"""

import logging
from contextlib import aclosing
from dataclasses import dataclass, replace

from agent_framework import ChatResponseUpdate

from durable_agent_host.agent.feature import CurrentRun
from durable_agent_host.agent.model_call import ModelCall, ModelStream, NextModelCall
from durable_agent_host.agent.observer import RunRestarted
from durable_agent_host.agent.retry_classification import classify_error
from durable_agent_host.agent.run_result import log_errors_stop_run
from durable_agent_host.errors import ProviderError, log_reason
from durable_agent_host.features.fallback.clients import NAME, ActiveClient, without_conversation
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.journal_entry import FeatureEntry, JournalStep, ModelCallStartedEntry

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class FallBack:
    """Has the calls of one run answered by the first client whose service does.

    Attributes:
        active: which client answers.
        run: of the turn's agent.
    """

    active: ActiveClient
    run: CurrentRun

    async def __call__(self, call: ModelCall, call_next: NextModelCall) -> ModelStream:
        """Make a call by the client that answers, or by the next one when its service does not."""
        active = self.active
        while True:
            is_fallback = active.index > 0
            has_switched = active.has_switched
            sent_call = active.make_call(call, self.run.start.session_name)
            has_started = False
            try:
                async with aclosing(call_next(sent_call)) as items:
                    async for item in items:
                        has_started = True
                        if has_switched:
                            without_conversation(item)
                        is_update = isinstance(item, ChatResponseUpdate)
                        yield item if is_update or not is_fallback else replace(item, is_folded=True)
            except Exception as error:
                next_index = self._next_index(call.path)
                if (
                    next_index is None
                    or self.run.progress.restart is not None
                    or not _is_service_failure(sent_call, error)
                ):
                    raise
                await self._switch(sent_call, next_index, error)
                if has_started or call.options.get("conversation_id"):
                    self.run.progress.restart = RunRestarted(log_reason(error), 0.0)
                    self.run.breaks.pop(call.path, None)  # the next run counts the retries of its client from 0
                    raise
            else:
                return

    def _name(self, index: int) -> str:
        return self.active.clients[index].name

    def _next_index(self, path: CallPath) -> int | None:
        """Return the next client that has not failed in a call, after the current one and then from the first."""
        current = self.active.index
        failed_indexes = {current} | {switch.data["failed"] for switch in self.active.switches if switch.path == path}
        count = len(self.active.clients)
        order = [(current + distance) % count for distance in range(1, count)]
        return next((index for index in order if index not in failed_indexes), None)

    async def _switch(self, call: ModelCall, index: int, error: Exception) -> None:
        reason = log_reason(call.provider.explain(error) or error)
        current = self.active.index
        _LOGGER.warning(
            "%s: %s does not answer, %s does: %s",
            self.run.start.attempt.label,
            self._name(current),
            self._name(index),
            reason,
        )
        if (
            self.run.journal.recorded.continuations.get(call.path) is not None
        ):  # another service has no part of the answer
            await self._append(ModelCallStartedEntry(call.path, None))
        data = {"client": index, "failed": current, "name": self._name(index), "reason": reason}
        switch = FeatureEntry(NAME, call.path, data)
        await self._append(switch)
        self.active.switches.append(switch)

    async def _append(self, step: JournalStep) -> None:
        with log_errors_stop_run():
            await self.run.journal.append(step)


def _is_service_failure(call: ModelCall, error: Exception) -> bool:
    """Return whether another service may answer: this one is down, overloaded, or refuses its client or model."""
    if call.provider.lost_state(error) is not None:
        return False
    reason = error if isinstance(error, ProviderError) else call.provider.explain(error)
    if reason is None:
        decision = classify_error(error)
        return decision is not None and decision.retryable
    return reason.retryable or reason.is_client_rejected
