"""Commands of many turns in few pipelines.

Theory of operation. Commands that arrive while a pipeline is under way go together into the next one, so 200 turns cost
few requests, system calls and wake-ups. Each command is answered, refused, or retried after its own pause, independent
of the others. A broken connection leaves all answers of its pipeline unknown; pipelines then get shorter, so that some
get through a bad network. A slow pipeline, with a large entry or on a dead connection, does not block the next one.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from durable_agent_host.errors import LogError
from durable_agent_host.loops.loop_thread import LoopThread
from durable_agent_host.loops.waiters import Promise
from durable_agent_host.storage.backoff import Backoff

_MOST_COMMANDS: Final = 512
_MOST_BYTES: Final = 1024 * 1024
_MOST_AT_ONCE: Final = 4
_SLOW_SECONDS: Final = 0.05


class Command(ABC):
    """One command; created in the loop that waits for its answer.

    Args:
        size_bytes: of the request, roughly.

    Attributes:
        size_bytes: as given.
        tries: how often it was sent.
        promise: of the answer.
        backoff: of its retries; set when the pipelines get it.
    """

    def __init__(self, size_bytes: int = 0) -> None:
        self.size_bytes = size_bytes
        self.tries = 0
        self.promise = Promise()
        self.backoff: Backoff | None = None

    @abstractmethod
    def arguments(self) -> Sequence[Any]:
        """Return what to send at this try."""


class Pipelines:
    """Sends commands in pipelines. All methods but `ask` are called in the store's loop.

    Args:
        loop: the store's.
        send: sends commands and returns an answer or an error for each; raises if the answers are unknown.
        explain: returns the error for the caller, or None if it may be gone at the next try.
        on_answers: gets commands and answers before the callers do.
        give_up_seconds: how long a command is retried.
    """

    def __init__(
        self,
        loop: LoopThread,
        send: Callable[[Sequence[Command]], Awaitable[Sequence[Any]]],
        *,
        explain: Callable[[Exception], Exception | None],
        on_answers: Callable[[Sequence[tuple[Command, Any]]], None],
        give_up_seconds: float,
    ) -> None:
        self._loop = loop
        self._send = send
        self._explain = explain
        self._on_answers = on_answers
        self._give_up_seconds = give_up_seconds
        self._waiting: deque[Command] = deque()
        self._resting: dict[Command, asyncio.TimerHandle] = {}
        self._most = _MOST_COMMANDS
        self._under_way: set[asyncio.Task[None]] = set()
        self._current: asyncio.Task[None] | None = None
        self._is_woken = False

    async def ask(self, command: Command) -> Any:
        """Send a command and wait for its answer, in the loop that created it.

        Raises:
            LogError: the server does not answer, or refuses the command.
        """
        self._loop.post(self._add, command)
        return await command.promise.future

    def close(self) -> None:
        """Refuse what waits; called after running pipelines have ended."""
        for timer in self._resting.values():
            timer.cancel()
        for command in (*self._waiting, *self._resting):
            self._refuse(command, LogError("the turn log is closed"))
        self._waiting.clear()
        self._resting.clear()

    def _add(self, command: Command) -> None:
        self._resting.pop(command, None)
        if command.backoff is None:
            command.backoff = Backoff("Redis", self._give_up_seconds)
        self._waiting.append(command)
        if self._current is None and not self._is_woken:
            self._is_woken = True  # commands posted in the same step join
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Start a pipeline with what waits, unless one has just started or too many are in progress."""
        self._is_woken = False
        if self._current is not None or len(self._under_way) >= _MOST_AT_ONCE:
            return
        group = self._next_group()
        if not group:
            return
        loop = asyncio.get_running_loop()
        task = self._current = loop.create_task(self._run(group))
        slow = loop.call_later(_SLOW_SECONDS, self._pass, task)

        def end(_: asyncio.Task[None]) -> None:
            slow.cancel()
            self._under_way.discard(task)
            self._pass(task)

        self._under_way.add(task)
        task.add_done_callback(end)

    def _pass(self, task: asyncio.Task[None]) -> None:
        if self._current is task:
            self._current = None
        self._go_on()

    def _next_group(self) -> list[Command]:
        group: list[Command] = []
        size_bytes = 0
        while self._waiting and len(group) < self._most:
            size_bytes += self._waiting[0].size_bytes
            if group and size_bytes > _MOST_BYTES:
                break
            command = self._waiting.popleft()
            if not command.promise.future.done():  # the caller was cancelled
                group.append(command)
        return group

    async def _run(self, group: list[Command]) -> None:
        for command in group:
            command.tries += 1
        try:
            answers = await self._send(group)
        except Exception as error:  # noqa: BLE001 (raised in the callers, who would wait forever)
            self._most = max(1, len(group) // 2)
            self._settle(group, [error] * len(group))
        except BaseException:  # the store is closed
            for command in group:
                self._refuse(command, LogError("the turn log is closed"))
            raise
        else:
            self._most = min(self._most * 2, _MOST_COMMANDS)
            self._settle(group, answers)

    def _settle(self, group: Sequence[Command], answers: Sequence[Any]) -> None:
        done: list[tuple[Command, Any]] = []
        for command, answer in zip(group, answers, strict=True):
            if isinstance(answer, Exception):
                self._fail(command, answer)
            else:
                done.append((command, answer))
        self._on_answers(done)
        for command, answer in done:
            self._loop.answer(command.promise, answer)

    def _fail(self, command: Command, error: Exception) -> None:
        """Refuse a command, or schedule its next try."""
        refusal = self._explain(error)
        if refusal is not None:
            self._refuse(command, refusal)
            return
        assert command.backoff is not None
        try:
            pause = command.backoff.next_pause(error)
        except LogError as given_up:
            self._refuse(command, given_up)
        else:
            self._resting[command] = asyncio.get_running_loop().call_later(pause, self._add, command)

    def _refuse(self, command: Command, error: Exception) -> None:
        self._loop.answer(command.promise, None, error)
