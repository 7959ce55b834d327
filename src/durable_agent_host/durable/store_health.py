"""Health of the stores: the durable store, which holds the sessions, the turn log, and the pieces of sessions."""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from azure.durable_functions import DurableOrchestrationClient, EntityId

from durable_agent_host.errors import DiskFullError, LogUnavailableError
from durable_agent_host.model.ids import entity_name
from durable_agent_host.segments.conversation_reader import OpenSegments
from durable_agent_host.turn_log.protocol import TurnLog

# Whether a store is writable: checked by the health route, and before work that needs the store.

TRUSTED_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 5.0

_LOGGER = logging.getLogger(__name__)
_KEYS: Final = re.compile(r"(?<=[?&]code=)[^&\s]+|(?<=://)[^/@\s]*(?=@)")


class Probe:
    """Checks a store with a small write, at most once a second, for all concurrent callers together.

    A store that hangs is checked once; later callers wait for that answer, or time out. A change between writable and
    not writable is logged once.

    Args:
        label: the store, for messages.
        trusted_seconds: how long an answer is reused.
        answer_seconds: timeout of a check.
    """

    def __init__(
        self, label: str, *, trusted_seconds: float = TRUSTED_SECONDS, answer_seconds: float = ANSWER_SECONDS
    ) -> None:
        self._label = label
        self._trusted_seconds = trusted_seconds
        self._answer_seconds = answer_seconds
        self._check_task: asyncio.Task[Exception | None] | None = None
        self._check_started_at = 0.0
        self._check_completed_at = 0.0
        self._was_reported = False

    async def problem(self, ask: Callable[[], Awaitable[Any]]) -> Exception | None:
        """Return what is wrong with the store.

        Returns:
            The error, a `TimeoutError` without an answer in time, or None if the write succeeded.
        """
        check_task = self._check_task
        if check_task is None or check_task.get_loop() is not asyncio.get_running_loop() or self._is_stale(check_task):
            check_task = self._check_task = asyncio.create_task(self._ask(ask))
            self._check_started_at = time.monotonic()
        left = self._check_started_at + self._answer_seconds - time.monotonic()
        done, _ = await asyncio.wait({check_task}, timeout=max(left, 0.0))
        error = check_task.result() if done else TimeoutError(f"no answer for {self._answer_seconds:g} s")
        self._report(error)
        return error

    def _is_stale(self, check_task: "asyncio.Task[Exception | None]") -> bool:
        if not check_task.done():
            return False
        is_full = isinstance(check_task.result(), DiskFullError)  # a deletion may just have been given room
        return is_full or time.monotonic() > self._check_completed_at + self._trusted_seconds

    async def _ask(self, ask: Callable[[], Awaitable[Any]]) -> Exception | None:
        try:
            await ask()
        except Exception as error:  # noqa: BLE001 - any error is the problem
            return error
        finally:
            self._check_completed_at = time.monotonic()
        return None

    def _report(self, error: Exception | None) -> None:
        if error is not None and not self._was_reported:
            reason = _KEYS.sub("...", " ".join(str(error).split())[:400])
            _LOGGER.warning("%s cannot be written: %s: %s", self._label, type(error).__name__, reason)
        elif error is None and self._was_reported:
            _LOGGER.warning("%s can be written again", self._label)
        self._was_reported = error is not None


class LogProbe(Probe):
    """Checks the turn log.

    Args:
        open_log: returns the log of the process.
    """

    def __init__(self, open_log: Callable[[], TurnLog]) -> None:
        super().__init__("the turn log")
        self._open_log = open_log

    async def find_problem(self) -> Exception | None:
        """Return what is wrong with the log; see `Probe.problem`."""
        return await self.problem(lambda: self._open_log().check())

    async def check(self) -> None:
        """Check that the log is writable.

        Raises:
            DiskFullError: its disk is full.
            LogUnavailableError: it is not, or does not answer in time; the message says why.
        """
        if isinstance(error := await self.find_problem(), DiskFullError):
            raise error
        if error is not None:
            raise LogUnavailableError(
                f"the turn log cannot be written ({_KEYS.sub('...', str(error))}). Nothing was begun without it: "
                "try again later"
            ) from error


CHECK_OPERATION: Final = "check"
"""An operation of an agent's entity that does nothing."""

CHECK_KEY: Final = "durable-agent-host.health"
"""The entity that is signalled. It never has a state, so it never exists; a session with this id is not affected."""


class StoreProbe(Probe):
    """Checks the durable store with a signal to an entity (a write) and the status of a turn (a read).

    Args:
        agents: the app's, by name; a live view. An app without agents gets only the read.
    """

    def __init__(self, agents: Mapping[str, Any]) -> None:
        super().__init__("the durable store")
        self._agents = agents

    async def find_problem(self, client: DurableOrchestrationClient) -> Exception | None:
        """Return what is wrong with the store; see `Probe.problem`."""

        async def ask() -> None:
            await client.get_status("health")
            for name in sorted(self._agents)[:1]:
                await client.signal_entity(EntityId(entity_name(name), CHECK_KEY), CHECK_OPERATION)

        return await self.problem(ask)


class StoreProbes:
    """Checks the stores.

    Args:
        open_log: returns the turn log of the process.
        open_pieces: returns the piece store of the process.
        agents: the app's, by name; a live view.

    Attributes:
        check_log: checks that the turn log is writable; see `LogProbe.check`.
    """

    def __init__(self, open_log: Callable[[], TurnLog], open_pieces: OpenSegments, agents: Mapping[str, Any]) -> None:
        self._log = LogProbe(open_log)
        self.check_log = self._log.check
        self._pieces = Probe("the piece store")
        self._open_pieces = open_pieces
        self._store = StoreProbe(agents)

    async def find_problems(self, client: DurableOrchestrationClient) -> dict[str, Exception | None]:
        """Return what is wrong; cheap enough for frequent calls.

        Returns:
            The problem by store (``session_store``, ``turn_log``, ``piece_store``), or None.
        """
        session_store, turn_log, piece_store = await asyncio.gather(
            self._store.find_problem(client),
            self._log.find_problem(),
            self._pieces.problem(lambda: self._open_pieces().check()),
        )
        return {"session_store": session_store, "turn_log": turn_log, "piece_store": piece_store}
