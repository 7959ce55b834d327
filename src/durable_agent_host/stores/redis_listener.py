"""Hearing of what other processes append to logs that are followed here.

A log that this process itself writes is not listened to: its followers are told in the process, and each of its
publications would have to be read here only to be thrown away. It is listened to again when an append is fenced, or
when there has been none for some seconds: then another process may go on with the turn.
"""

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

_PREFIX: Final = "durable-agent-host:turn"
_WAKE_SECONDS: Final = 1.0
_QUIET_SECONDS: Final = 3.0


def channel_of(log_id: str) -> str:
    """Name the channel on which the appends to a log are published. Guarantee: pure."""
    return f"{_PREFIX}:{{{log_id}}}"


@dataclass
class _Followed:
    count: int = 0
    written_at: float = -math.inf


class RedisListener:
    """Wake followers when another process has appended. A missed publication costs them a little time only.

    All calls come from one loop.

    Args:
        name: of this process's appends: what is published begins with it.
        subscribe: opens a connection for subscriptions.
        errors: what such a connection raises when it breaks.
        on_news: is told the log's id.
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
        self._channels: Any = None
        self._heard: set[str] = set()
        self._listening: asyncio.Task[None] | None = None
        self._tuning: asyncio.Task[None] | None = None

    def follow(self, log_id: str) -> None:
        """Listen to a log, for one follower more."""
        self._followed.setdefault(log_id, _Followed()).count += 1
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())
        self._tune_soon()

    def forget(self, log_id: str) -> None:
        """Stop listening, for one follower."""
        found = self._followed[log_id]
        found.count -= 1
        if not found.count:
            del self._followed[log_id]
            self._tune_soon()

    def wrote(self, log_id: str) -> None:
        """Note that this process has appended to a log."""
        found = self._followed.get(log_id)
        if found is not None:
            found.written_at = asyncio.get_running_loop().time()
            if log_id in self._heard:
                self._tune_soon()

    def gave_way(self, log_id: str) -> None:
        """Note that another process appends to a log."""
        found = self._followed.get(log_id)
        if found is not None:
            found.written_at = -math.inf
            self._tune_soon()

    def close(self) -> None:
        """Stop listening to all."""
        for task in (self._listening, self._tuning):
            if task is not None:
                task.cancel()

    def _tune_soon(self) -> None:
        if self._channels is not None and (self._tuning is None or self._tuning.done()):
            self._tuning = asyncio.create_task(self._tune())

    async def _tune(self) -> None:
        """Subscribe to what is to be heard, and to nothing else."""
        channels = self._channels
        with suppress(*self._errors):  # the listener connects anew, to all channels
            while channels is self._channels:
                wanted = self._wanted()
                added, dropped = wanted - self._heard, self._heard - wanted
                if not added and not dropped:
                    return
                self._heard = wanted
                if added:
                    await channels.subscribe(*map(channel_of, added))
                if dropped:
                    await channels.unsubscribe(*map(channel_of, dropped))

    def _wanted(self) -> set[str]:
        quiet_since = asyncio.get_running_loop().time() - _QUIET_SECONDS
        return {log_id for log_id, found in self._followed.items() if found.written_at < quiet_since}

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with self._subscribe() as channels:
                    self._heard = self._wanted()
                    await channels.subscribe(f"{_PREFIX}:{self._name}", *map(channel_of, self._heard))
                    self._channels, tuned_at = channels, loop.time()
                    while True:
                        self._hear(await channels.get_message(timeout=_WAKE_SECONDS))
                        if loop.time() >= tuned_at + _WAKE_SECONDS:
                            tuned_at = loop.time()
                            self._tune_soon()
            except self._errors:
                self._channels = None
                await asyncio.sleep(_WAKE_SECONDS)

    def _hear(self, message: Any) -> None:
        """Tell of a publication of another process, and of a subscription: something may have come before it."""
        if message is None:
            return
        is_others = message["type"] == "message" and not message["data"].startswith(self._name.encode())
        if is_others or message["type"] == "subscribe":
            log_id = message["channel"].decode().rpartition("{")[2].partition("}")[0]
            self._on_news(log_id)
