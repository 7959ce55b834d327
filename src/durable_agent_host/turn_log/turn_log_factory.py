"""Selects and opens the store of the turn logs; the only place that does.

A new technology is a class that implements `durable_agent_host.turn_log.protocol.TurnLog`, and a row of `STORES`.
"""

import asyncio
import logging
import math
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from durable_agent_host.errors import SettingError
from durable_agent_host.settings import Settings
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

    Returns:
        Ends the thread when it is set.
    """
    stop_event = threading.Event()

    def run() -> None:
        pause = first_seconds
        while not stop_event.wait(pause):
            pause = every_seconds
            try:
                swept = asyncio.run(log.sweep(older_than_seconds=older_than_seconds))
            except Exception as error:  # noqa: BLE001 - an edge: a thread of its own
                _LOGGER.warning("old turn logs could not be deleted, the next try is in %g s: %s", every_seconds, error)
            else:
                _LOGGER.info("%d old turn logs were deleted", swept)

    threading.Thread(target=run, name="turn-log-retention", daemon=True).start()
    return stop_event


@dataclass(frozen=True)
class Store:
    """A technology that keeps turn logs.

    Attributes:
        form: how the setting is written, for error messages.
        accepts: returns whether a setting with this store's scheme has that form.
        open: creates the log; connects to nothing. Gets the setting, all settings, and the environment.
    """

    form: str
    accepts: Callable[[str], bool]
    open: Callable[[str, Settings, Mapping[str, str]], TurnLog]


def open_turn_log(settings: Settings, environment: Mapping[str, str] = os.environ) -> TurnLog:
    """Create the log of `choose_turn_log`, and sweep old logs from its store regularly."""
    log = choose_turn_log(settings, environment)
    sweep_regularly(log, older_than_seconds=settings.turn_log_retention_hours * 3600)
    return log


def choose_turn_log(settings: Settings, environment: Mapping[str, str] = os.environ) -> TurnLog:
    """Create the turn log that the settings name; connects to nothing.

    Returns:
        The log; without a setting a SQLite file in the embedded host's data folder, else the app's storage account.

    Raises:
        SettingError: the setting is invalid, or something it needs is missing.
    """
    data = environment.get("FUNCTIONS_HOST_DATA")
    setting = settings.turn_log or (f"sqlite:{Path(data, 'turn-log.sqlite')}" if data else "blob")
    store = STORES.get(setting.partition(":")[0])
    if store is None or not store.accepts(setting):
        forms = ", ".join(dict.fromkeys(store.form for store in STORES.values()))
        raise SettingError(f"DURABLE_AGENT_HOST_TURN_LOG is {setting!r}: set {forms} or nothing")
    return store.open(setting, settings, environment)


def _open_sqlite(setting: str, settings: Settings, environment: Mapping[str, str]) -> TurnLog:
    from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog  # noqa: PLC0415 - imports only the store in use

    del settings, environment
    return SqliteTurnLog(setting.partition(":")[2])


def _open_blob(setting: str, settings: Settings, environment: Mapping[str, str]) -> TurnLog:
    from durable_agent_host.turn_log.blob.log import BlobTurnLog  # noqa: PLC0415

    del setting, settings
    return BlobTurnLog.from_environment(environment)


def _open_redis(setting: str, settings: Settings, environment: Mapping[str, str]) -> TurnLog:
    del environment
    if find_spec("redis") is None:
        raise SettingError("DURABLE_AGENT_HOST_TURN_LOG needs: pip install 'durable-agent-host[redis]'")
    from durable_agent_host.turn_log.redis_log import RedisTurnLog  # noqa: PLC0415

    return RedisTurnLog(setting, retention_seconds=math.ceil(settings.turn_log_retention_hours * 3600))


def _is_server(url: str) -> bool:
    try:
        return url.partition(":")[2].startswith("//") and urlsplit(url).port != 0
    except ValueError:
        return False


_REDIS: Final = Store("'redis://HOST:PORT'", _is_server, _open_redis)

STORES: Final[dict[str, Store]] = {
    "sqlite": Store("'sqlite:PATH'", lambda setting: bool(setting.partition(":")[2]), _open_sqlite),
    "blob": Store("'blob'", lambda setting: not setting.partition(":")[2], _open_blob),
    "redis": _REDIS,
    "rediss": _REDIS,
}
"""By the part of the setting before its first colon."""
