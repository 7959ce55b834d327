"""Answers that the model's service produces in the background.

Such an answer is fetched by its id, also after a crash or a broken connection: a new one would be paid for again.
"""

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from agent_framework import ChatResponseUpdate

from durable_agent_host.agent.model_call import ModelCall, ModelStream, NextModelCall, TruncatedResponseError
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
    """

    journal: Journal

    async def __call__(self, call: ModelCall, call_next: NextModelCall) -> ModelStream:
        """Fetch the answer that the service has for a call; without one, make the call.

        Raises:
            ProviderError: the answer is gone; a retry makes the call.
        """
        token = self.journal.recorded.continuations.get(call.path)
        try:
            async with aclosing(call_next(call if token is None else _with_token(call, token))) as items:
                async for item in items:
                    new_token: Any = item.continuation_token if isinstance(item, ChatResponseUpdate) else None
                    if isinstance(new_token, Mapping):
                        await self._record_token(call.path, dict(cast("Mapping[str, Any]", new_token)))
                    elif not isinstance(item, ChatResponseUpdate):
                        self.journal.recorded.continuations.pop(call.path, None)  # nothing is left to cancel
                    yield item
        except Exception as error:
            decision = classify_error(error)
            is_missing = token is not None and decision is not None and decision.is_response_missing
            has_failed = any(
                isinstance(cause, ProviderError) and not isinstance(cause, TruncatedResponseError)
                for cause in causes_of(error)
            )
            if is_missing or has_failed:
                await self._record_token(call.path, None)
            if is_missing:
                raise ProviderError(str(call.provider.explain(error) or error), retryable=True) from error
            raise

    async def _record_token(self, path: CallPath, token: Mapping[str, Any] | None) -> None:
        if self.journal.recorded.continuations.get(path) == token:
            return
        with log_errors_stop_run():
            await self.journal.append(ModelCallStartedEntry(path, token))


def _with_token(call: ModelCall, token: Mapping[str, Any]) -> ModelCall:
    return replace(call, options={**call.options, _CONTINUATION: dict(token)})
