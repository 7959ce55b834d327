"""Whether the stores can be written: checked by the health route, and before work that needs the turn log."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from azure.durable_functions import DurableOrchestrationClient, EntityId

from durable_agent_host.errors import DiskFullError, LogUnavailableError
from durable_agent_host.model.ids import entity_name
from durable_agent_host.segments.conversation_reader import OpenSegments
from durable_agent_host.turn_log.protocol import TurnLog

TRUSTED_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 5.0

CHECK_OPERATION: Final = "check"
"""An operation of an agent's entity that does nothing."""
CHECK_KEY: Final = "durable-agent-host.health"
"""The entity that is signalled. It never has a state, so it never exists; a session with this id is not affected."""

_LOGGER = logging.getLogger(__name__)


class _Probe:
    """Checks a store with one small write for all concurrent callers; a success is trusted for a second.

    A change between writable and not writable is logged once.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._task: asyncio.Task[Exception | None] | None = None
        self._started_at = 0.0
        self._was_reported = False

    async def problem(self, write: Callable[[], Awaitable[Any]]) -> Exception | None:
        """Return what is wrong with the store: the error, a `TimeoutError` without an answer in time, or None."""
        task = self._task
        if task is None or task.get_loop() is not asyncio.get_running_loop() or self._is_stale(task):
            task = self._task = asyncio.create_task(_try(write))
            self._started_at = time.monotonic()
        left = self._started_at + ANSWER_SECONDS - time.monotonic()
        done, _ = await asyncio.wait({task}, timeout=max(left, 0.0))
        error = task.result() if done else TimeoutError(f"no answer for {ANSWER_SECONDS:g} s")
        if error is not None and not self._was_reported:
            _LOGGER.warning("%s cannot be written: %s: %s", self._label, type(error).__name__, error)
        elif error is None and self._was_reported:
            _LOGGER.warning("%s can be written again", self._label)
        self._was_reported = error is not None
        return error

    def _is_stale(self, task: "asyncio.Task[Exception | None]") -> bool:
        return task.done() and (task.result() is not None or time.monotonic() > self._started_at + TRUSTED_SECONDS)


async def _try(write: Callable[[], Awaitable[Any]]) -> Exception | None:
    try:
        await write()
    except Exception as error:  # noqa: BLE001 - any error is the problem
        return error
    return None


class StoreProbes:
    """Checks the stores.

    Args:
        open_log: returns the turn log of the process.
        open_blobs: returns the blob store of the process.
        agents: the app's, by name; a live view. An app without agents only reads the durable store.
    """

    def __init__(self, open_log: Callable[[], TurnLog], open_blobs: OpenSegments, agents: Mapping[str, Any]) -> None:
        self._open_log = open_log
        self._open_blobs = open_blobs
        self._agents = agents
        self._log = _Probe("the turn log")
        self._blobs = _Probe("the blob store")
        self._sessions = _Probe("the durable store")

    async def check_log(self) -> None:
        """Check that the turn log is writable.

        Raises:
            DiskFullError: its disk is full.
            LogUnavailableError: it is not, or does not answer in time; the message says why.
        """
        error = await self._log.problem(lambda: self._open_log().check())
        if isinstance(error, DiskFullError):
            raise error
        if error is not None:
            raise LogUnavailableError(
                f"the turn log cannot be written ({error}). Nothing was begun without it: try again later"
            ) from error

    async def find_problems(self, client: DurableOrchestrationClient) -> dict[str, Exception | None]:
        """Return what is wrong; cheap enough for frequent calls.

        Returns:
            The problem by store (``session_store``, ``turn_log``, ``piece_store``), or None.
        """

        async def signal_entity() -> None:
            await client.get_status("health")
            for name in sorted(self._agents)[:1]:
                await client.signal_entity(EntityId(entity_name(name), CHECK_KEY), CHECK_OPERATION)

        session_store, turn_log, piece_store = await asyncio.gather(
            self._sessions.problem(signal_entity),
            self._log.problem(lambda: self._open_log().check()),
            self._blobs.problem(lambda: self._open_blobs().check()),
        )
        return {"session_store": session_store, "turn_log": turn_log, "piece_store": piece_store}
