"""When a failed model call is made again. One layer does it: the SDKs' own retries are off on hosted clients."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from durable_agent_host.errors import ProviderError

_RETRYABLE_STATUS: Final = frozenset({408, 409, 429})
_TRANSPORT_ERRORS: Final = frozenset({"TransportError", "ClientConnectionError", "ClientPayloadError"})
"""Base classes of the errors of httpx and aiohttp, which this module need not import to know."""


@dataclass(frozen=True)
class RetryPolicy:
    """How often, and how long to wait.

    Attributes:
        retries: calls after the first.
        first_seconds: the wait before the first retry, half of it to all of it by chance; doubled each time.
        most_seconds: no wait is longer, and a service that asks for a longer one is not asked again.
    """

    retries: int = 4
    first_seconds: float = 0.5
    most_seconds: float = 30.0

    def wait_before(
        self, retry: int, error: BaseException, explain: Callable[[BaseException], ProviderError | None], chance: float
    ) -> float | None:
        """Decide whether a failed model call is made again.

        Guarantee: pure.

        Args:
            retry: 0 for the first.
            error: what the call raised.
            explain: what only the provider's adapter knows of an error.
            chance: between 0 and 1, so that clients that failed together do not come back together.

        Returns:
            Seconds to wait, or None when it is not made again: 400, 401, 403, 404 and errors of the program are never
            retried.
        """
        known = error if isinstance(error, ProviderError) else explain(error)
        retryable, after = (known.retryable, known.retry_after_seconds) if known else _of_unknown(error)
        if not retryable or retry >= self.retries or (after is not None and after > self.most_seconds):
            return None
        backoff = min(self.first_seconds * 2**retry, self.most_seconds) * (0.5 + chance / 2)
        return max(backoff, after or 0.0)


def _of_unknown(error: BaseException) -> tuple[bool, float | None]:
    """Judge an error by what SDKs have in common: the status, the header, the kind of a broken connection."""
    for cause in _causes(error):
        status: Any = getattr(cause, "status_code", None)
        if isinstance(status, int):
            response: Any = getattr(cause, "response", None)
            after: Any = getattr(response, "headers", {}).get("retry-after", "")
            return status in _RETRYABLE_STATUS or status >= 500, _number(after)  # noqa: PLR2004
        names = {kind.__name__ for kind in type(cause).__mro__}
        if isinstance(cause, ConnectionError | TimeoutError) or names & _TRANSPORT_ERRORS:
            return True, None
    return False, None


def _number(text: Any) -> float | None:
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
