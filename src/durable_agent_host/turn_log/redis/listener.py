"""Subscriptions to the appends of other processes, for logs that are followed here.

There is no subscription for a log that this process writes: its followers are woken in the process, and would drop its
own publications. The subscription is restored when an append is fenced, or after some seconds without one, because
another process may then continue the turn.
"""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

_PREFIX: Final = "durable-agent-host:turn"
_WAKE_SECONDS: Final = 0.1
_PAUSE_SECONDS: Final = 1.0
_QUIET_SECONDS: Final = 3.0


def channel_of(log_id: str) -> str:
    """Return the channel that publishes the appends to a log. Guarantee: pure."""
    return f"{_PREFIX}:{{{log_id}}}"


@dataclass
class _Followed:
    count: int = 0
    written_at: float = -math.inf


class RedisListener:
    """Wakes followers when another process has appended. A missed publication only delays them until they poll.

    All calls come from one loop.

    Args:
        name: of this process; its publications start with it.
        subscribe: opens a connection for subscriptions.
        errors: of a connection that breaks.
        on_news: called with the log's id.
    """

    def __init__(
        self,
        name: str,
        subscribe: Callable[[], Any],
        errors: tuple[type[Exception], ...],
        on_news: Callable[[str], None],
    ) -> None:
        self._name = name
        self._subscribe = subscribe
        self._errors = errors
        self._on_news = on_news
        self._followed: dict[str, _Followed] = {}
        self._heard: set[str] = set()
        self._is_out_of_tune = True
        self._listening: asyncio.Task[None] | None = None

    def follow(self, log_id: str) -> None:
        """Subscribe for one more follower of a log."""
        self._followed.setdefault(log_id, _Followed()).count += 1
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())
        self._is_out_of_tune = True

    def forget(self, log_id: str) -> None:
        """Unsubscribe for one follower."""
        found = self._followed[log_id]
        found.count -= 1
        if not found.count:
            del self._followed[log_id]
            self._is_out_of_tune = True

    def wrote(self, log_id: str) -> None:
        """Record an append by this process."""
        found = self._followed.get(log_id)
        if found is not None:
            found.written_at = asyncio.get_running_loop().time()
            if log_id in self._heard:
                self._is_out_of_tune = True

    def gave_way(self, log_id: str) -> None:
        """Record that another process appends."""
        found = self._followed.get(log_id)
        if found is not None:
            found.written_at = -math.inf
            self._is_out_of_tune = True

    def close(self) -> None:
        """Stop listening."""
        if self._listening is not None:
            self._listening.cancel()

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with self._subscribe() as channels:
                    self._heard, self._is_out_of_tune = set(), True
                    await channels.subscribe(f"{_PREFIX}:{self._name}")  # a connection without one cannot wait
                    tuned_at = loop.time()
                    while True:
                        if self._is_out_of_tune or loop.time() >= tuned_at + _QUIET_SECONDS / 4:
                            self._is_out_of_tune, tuned_at = False, loop.time()
                            await self._tune(channels)
                        self._hear(await channels.get_message(timeout=_WAKE_SECONDS))
            except self._errors:
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _tune(self, channels: Any) -> None:
        """Change the subscriptions to those wanted now."""
        quiet_since = asyncio.get_running_loop().time() - _QUIET_SECONDS
        wanted = {log_id for log_id, found in self._followed.items() if found.written_at < quiet_since}
        added, dropped = wanted - self._heard, self._heard - wanted
        self._heard = wanted
        if added:
            await channels.subscribe(*map(channel_of, added))
        if dropped:
            await channels.unsubscribe(*map(channel_of, dropped))

    def _hear(self, message: Any) -> None:
        """Report a publication of another process, and a new subscription: it may have missed some."""
        if message is None:
            return
        is_others = message["type"] == "message" and not message["data"].startswith(self._name.encode())
        if is_others or message["type"] == "subscribe":
            log_id = message["channel"].decode().rpartition("{")[2].partition("}")[0]
            self._on_news(log_id)
