"""Deletes old logs regularly."""

import asyncio
import logging
import threading
from typing import Final

from durable_agent_host.turn_log.protocol import TurnLog

_LOGGER = logging.getLogger(__name__)

FIRST_SECONDS: Final = 60.0
"""Not during the start of the process."""
EVERY_SECONDS: Final = 3600.0


def sweep_regularly(
    log: TurnLog,
    *,
    older_than_seconds: float,
    first_seconds: float = FIRST_SECONDS,
    every_seconds: float = EVERY_SECONDS,
) -> threading.Event:
    """Delete old logs periodically, in a daemon thread.

    A failed sweep is logged. Several processes may sweep one store.

    Args:
        log: of the store to sweep.
        older_than_seconds: age of a log's last entry.
        first_seconds: until the first sweep.
        every_seconds: between sweeps.

    Returns:
        Ends the thread when it is set.
    """
    ended = threading.Event()

    def run() -> None:
        pause = first_seconds
        while not ended.wait(pause):
            pause = every_seconds
            try:
                swept = asyncio.run(log.sweep(older_than_seconds=older_than_seconds))
            except Exception as error:  # noqa: BLE001 - an edge: a thread of its own
                _LOGGER.warning("old turn logs could not be deleted, the next try is in %g s: %s", every_seconds, error)
            else:
                _LOGGER.info("%d old turn logs were deleted", swept)

    threading.Thread(target=run, name="turn-log-retention", daemon=True).start()
    return ended
