"""When a failed model call is retried. Only this layer retries: the SDKs' own retries are off on hosted clients."""

from collections.abc import Callable
from dataclasses import dataclass

from durable_agent_host.agent.model_errors import advice_of
from durable_agent_host.errors import ProviderError


@dataclass(frozen=True)
class RetryPolicy:
    """How often a model call is retried, and how long to wait.

    Attributes:
        retries: calls after the first.
        first_seconds: the backoff before the first retry, with jitter from half to all of it; doubled each time.
        most_seconds: the maximum; a service that asks for a longer wait is not retried.
    """

    retries: int = 4
    first_seconds: float = 0.5
    most_seconds: float = 30.0

    def wait_before(
        self, retry: int, error: BaseException, explain: Callable[[BaseException], ProviderError | None], chance: float
    ) -> float | None:
        """Decide whether a failed model call is retried.

        Guarantee: pure.

        Args:
            retry: 0 for the first.
            error: what the call raised.
            explain: returns what only the provider knows of an error.
            chance: jitter, between 0 and 1.

        Returns:
            Seconds to wait, or None for no retry: 400, 401, 403, 404 and errors of the program are never retried.
        """
        known = (error if isinstance(error, ProviderError) else explain(error)) or advice_of(error)
        if known is None or not known.retryable or retry >= self.retries:
            return None
        after = known.retry_after_seconds
        if after is not None and after > self.most_seconds:
            return None
        backoff = min(self.first_seconds * 2**retry, self.most_seconds) * (0.5 + chance / 2)
        return max(backoff, after or 0.0)
