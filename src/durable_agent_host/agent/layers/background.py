"""Answers that the model's service produces in the background.

Such an answer is fetched by its id, also after a crash or a broken connection: a new one would be paid for again.
"""

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from agent_framework import ChatResponseUpdate

from durable_agent_host.agent.model_call import ModelCall, ModelStream, NextModelCall, TruncatedResponseError
from durable_agent_host.agent.observer import ModelCallFailed, RunObservers
from durable_agent_host.agent.retry_classification import causes_of, classify_error
from durable_agent_host.agent.run_result import log_errors_stop_run
from durable_agent_host.errors import ProviderError
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.journal_entry import ModelCallStartedEntry
from durable_agent_host.turn_log.journal import Journal

_CONTINUATION: Final = "continuation_token"


@dataclass(frozen=True)
class FetchBackgroundAnswers:
    """Records how to fetch the answers of one run's model calls, and fetches them.

    Attributes:
        journal: of the run.
        observers: notified of an answer that the service no longer has.
    """

    journal: Journal
    observers: RunObservers

    async def __call__(self, call: ModelCall, call_next: NextModelCall) -> ModelStream:
        """Fetch the answer that the service has for a call; without one, or when it is gone, make the call."""
        token = self.journal.recorded.continuations.get(call.path)
        if token is None:
            async with aclosing(self._stream(call, call_next)) as items:
                async for item in items:
                    yield item
            return
        has_content = False
        try:
            async with aclosing(self._stream(_with_token(call, token), call_next)) as items:
                async for item in items:
                    has_content = has_content or bool(isinstance(item, ChatResponseUpdate) and item.contents)
                    yield item
        except Exception as error:
            decision = classify_error(error)
            if decision is None or not decision.is_response_missing:
                raise
            await self._record_token(call.path, None)
            reason = call.provider.explain(error) or error
            if has_content:
                raise ProviderError(str(reason), retryable=True) from error
            await self.observers.notify(ModelCallFailed(call.position, reason, 0.0))
        else:
            return
        async with aclosing(self._stream(_with_token(call, None), call_next)) as items:
            async for item in items:
                yield item

    async def _stream(self, call: ModelCall, call_next: NextModelCall) -> ModelStream:
        """Make a call, and record its token; that of an answer that has failed is removed."""
        try:
            async with aclosing(call_next(call)) as items:
                async for item in items:
                    token: Any = item.continuation_token if isinstance(item, ChatResponseUpdate) else None
                    if isinstance(token, Mapping):
                        await self._record_token(call.path, dict(cast("Mapping[str, Any]", token)))
                    elif not isinstance(item, ChatResponseUpdate):
                        self.journal.recorded.continuations.pop(call.path, None)  # nothing is left to cancel
                    yield item
        except Exception as error:
            has_failed = any(
                isinstance(cause, ProviderError) and not isinstance(cause, TruncatedResponseError)
                for cause in causes_of(error)
            )
            if has_failed:
                await self._record_token(call.path, None)
            raise

    async def _record_token(self, path: CallPath, token: Mapping[str, Any] | None) -> None:
        if self.journal.recorded.continuations.get(path) == token:
            return
        with log_errors_stop_run():
            await self.journal.append(ModelCallStartedEntry(path, token))


def _with_token(call: ModelCall, token: Mapping[str, Any] | None) -> ModelCall:
    options = {name: value for name, value in call.options.items() if name != _CONTINUATION}
    return replace(call, options=options if token is None else options | {_CONTINUATION: dict(token)})
