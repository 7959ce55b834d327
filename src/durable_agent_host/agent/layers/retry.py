"""Retries of model calls.

A call that has streamed nothing is retried in place. When a stream breaks midway, the error propagates and the agent is
run again, because clients must discard what they have seen of the call and the agent's pipeline cannot retract an
update.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from agent_framework import ChatResponseUpdate, add_usage_details

from durable_agent_host.agent.model_call import CompletedResponse, ModelCall, ModelStream, NextModelCall
from durable_agent_host.agent.observer import ModelCallFailed, RunObservers, RunRestarted
from durable_agent_host.agent.retry_classification import RetryPolicy, usage_of_failure
from durable_agent_host.agent.stream_progress import StreamProgress
from durable_agent_host.errors import log_reason
from durable_agent_host.model.budget import known_counts
from durable_agent_host.model.call_path import CallPath

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class RetryModelCalls:
    """Retries the calls of one run.

    Attributes:
        policy: how often, and after how long.
        breaks: how often a call was retried until its stream broke midway, in earlier runs of the attempt.
        check: raises when no new call may be made.
        observers: notified of failures of the agent's own calls.
        progress: where a broken stream is recorded.
        label: of the run, for log lines.
    """

    policy: RetryPolicy
    breaks: dict[CallPath, int]
    check: Callable[[], None]
    observers: RunObservers
    progress: StreamProgress
    label: str

    async def __call__(self, call: ModelCall, call_next: NextModelCall) -> ModelStream:
        """Make a call until it streams content; its opening updates have none, and each attempt sends them again."""
        retry = self.breaks.get(call.path, 0)
        while True:
            self.check()
            has_content = False
            opening_updates: list[ChatResponseUpdate] = []
            tokens = CountedTokens()
            try:
                async with aclosing(call_next(call)) as items:
                    async for item in items:
                        tokens.add(item)
                        if not has_content and isinstance(item, ChatResponseUpdate) and not item.contents:
                            opening_updates.append(item)
                            continue
                        has_content = has_content or isinstance(item, ChatResponseUpdate)
                        for update in opening_updates:
                            yield update
                        opening_updates = []
                        yield item
            except Exception as error:
                seconds = await self._wait_seconds(call, retry, error, tokens)
                if seconds is None:
                    raise
                if has_content:
                    self.breaks[call.path] = retry + 1
                    self.progress.restart = RunRestarted(log_reason(error), seconds)
                    raise
            else:
                return
            retry += 1
            await asyncio.sleep(seconds)

    async def _wait_seconds(
        self, call: ModelCall, retry: int, error: Exception, tokens: "CountedTokens"
    ) -> float | None:
        """Return after how many seconds a call is retried; None when it is not."""
        explain = call.provider.explain
        seconds = self.policy.wait_before(retry, error, explain, random.random())  # noqa: S311
        reason = explain(error) or error
        if seconds is not None:
            _LOGGER.warning("%s: model call failed, again in %.1f s: %s", self.label, seconds, log_reason(reason))
        if call.path.compaction_number is None:
            usage = tokens.until(error)
            await self.observers.notify(ModelCallFailed(call.position, reason, seconds, usage, tokens.model))
        return seconds


class CountedTokens:
    """The tokens that a service has counted for a request without a complete answer.

    Attributes:
        model: that has begun to answer; None when unknown.
    """

    def __init__(self) -> None:
        self.model: str | None = None
        self._usage: Any = None

    def add(self, item: ChatResponseUpdate | CompletedResponse) -> None:
        """Count an update of the answer."""
        if isinstance(item, ChatResponseUpdate):
            self.model = item.model or self.model
            for content in item.contents:
                if content.type == "usage":
                    self._usage = add_usage_details(self._usage, content.usage_details)

    def until(self, error: BaseException) -> Mapping[str, Any]:
        """Return the tokens up to an error; empty when the service has counted none."""
        return known_counts(self._usage) or usage_of_failure(error)
