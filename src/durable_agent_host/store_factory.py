"""The stores of an app: named by the settings, opened on first use, encrypted when there are keys.

The only place that decides this. A new technology is a class that implements
`durable_agent_host.turn_log.protocol.TurnLog` or `durable_agent_host.segments.protocol.BlobStore`, and a row of
`TURN_LOGS` or `SEGMENT_STORES`.
"""

import asyncio
import logging
import math
import operator
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from durable_agent_host.concurrency.singleton import once
from durable_agent_host.errors import SettingError
from durable_agent_host.segments.protocol import BlobStore
from durable_agent_host.settings import PREFIX, REJECT_PLAINTEXT, Settings
from durable_agent_host.turn_log.protocol import TurnLog

if TYPE_CHECKING:
    from durable_agent_host.encryption.cipher import Cipher

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoreFactory:
    """How an app opens its stores.

    Attributes:
        open_log: returns the turn log; the first call opens it.
        open_blobs: returns the blob store; the first call opens it.
        open_plain_blobs: the same without encryption.
        cipher: for data kept elsewhere; None without encryption.
    """

    open_log: Callable[[], TurnLog]
    open_blobs: Callable[[], BlobStore]
    open_plain_blobs: Callable[[], BlobStore]
    cipher: "Cipher | None" = None


def stores_of(settings: Settings) -> StoreFactory:
    """Prepare to open the stores that the settings name; opens none.

    Raises:
        SettingError: the keys are malformed, the package that encrypts is not installed, or the store of older messages
            does not exist.
    """
    _choose_segments(settings)  # reports an invalid setting at start
    open_log = once(partial(open_turn_log, settings))
    open_blobs = once(partial(open_segment_store, settings))
    if not settings.encryption_keys:
        return StoreFactory(open_log, open_blobs, open_blobs)
    if find_spec("cryptography") is None:
        raise SettingError("DURABLE_AGENT_HOST_ENCRYPTION_KEYS needs: pip install 'durable-agent-host[encryption]'")
    from durable_agent_host.encryption.cipher import Cipher, read_keys  # noqa: PLC0415 - needs a package of its own
    from durable_agent_host.encryption.encrypted_blob_store import EncryptedBlobStore  # noqa: PLC0415
    from durable_agent_host.encryption.encrypted_turn_log import EncryptedTurnLog  # noqa: PLC0415

    refuses_plaintext = settings.encryption_plaintext == REJECT_PLAINTEXT
    cipher = Cipher(read_keys(settings.encryption_keys), refuses_plaintext=refuses_plaintext)
    return StoreFactory(
        once(lambda: EncryptedTurnLog(open_log(), cipher)),
        once(lambda: EncryptedBlobStore(open_blobs(), cipher)),
        open_blobs,
        cipher,
    )


@dataclass(frozen=True)
class StoreKind[T]:
    """A technology that keeps turn logs, or older messages and large contents.

    Attributes:
        form: how the setting is written, for error messages.
        accepts: returns whether what follows the scheme and its colon has that form.
        open: creates the store; connects to nothing. Gets the setting and all settings.
    """

    form: str
    accepts: Callable[[str], bool]
    open: Callable[[str, Settings], T]


def open_turn_log(settings: Settings) -> TurnLog:
    """Create the log of `choose_turn_log`, and sweep old logs from its store regularly."""
    log = choose_turn_log(settings)
    sweep_regularly(log, older_than_seconds=settings.turn_log_retention_hours * 3600)
    return log


def choose_turn_log(settings: Settings) -> TurnLog:
    """Create the turn log that the settings name; connects to nothing.

    Returns:
        The log; without a setting a SQLite file in the embedded host's data folder, else the app's storage account.

    Raises:
        SettingError: the setting is invalid, or something it needs is missing.
    """
    open_log = _choose(TURN_LOGS, settings.turn_log, variable="TURN_LOG", file_name="turn-log.sqlite")
    return open_log(settings)


def open_segment_store(settings: Settings) -> BlobStore:
    """Create the store of older messages and large contents, like `choose_turn_log`."""
    return _choose_segments(settings)(settings)


def _choose_segments(settings: Settings) -> Callable[[Settings], BlobStore]:
    return _choose(SEGMENT_STORES, settings.segments, variable="SEGMENTS", file_name="segments.sqlite")


def _choose[T](
    kinds: Mapping[str, StoreKind[T]], setting: str, *, variable: str, file_name: str
) -> Callable[[Settings], T]:
    """Return what opens the store that a setting names."""
    data = os.environ.get("FUNCTIONS_HOST_DATA")
    setting = setting or (f"sqlite:{Path(data, file_name)}" if data else "blob")
    scheme, _, location = setting.partition(":")
    if (kind := kinds.get(scheme)) is None or not kind.accepts(location):
        forms = ", ".join(dict.fromkeys(kind.form for kind in kinds.values()))
        raise SettingError(f"{PREFIX}{variable} is {setting!r}: set {forms} or nothing")
    return partial(kind.open, setting)


def _open_sqlite_log(setting: str, settings: Settings) -> TurnLog:
    from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog  # noqa: PLC0415 - imports only the store in use

    del settings
    return SqliteTurnLog(setting.partition(":")[2])


def _open_blob_log(setting: str, settings: Settings) -> TurnLog:
    from durable_agent_host.turn_log.blob.log import BlobTurnLog  # noqa: PLC0415

    del setting, settings
    return BlobTurnLog.from_environment()


def _open_redis_log(setting: str, settings: Settings) -> TurnLog:
    if find_spec("redis") is None:
        raise SettingError(f"{PREFIX}TURN_LOG needs: pip install 'durable-agent-host[redis]'")
    from durable_agent_host.turn_log.redis_log import RedisTurnLog  # noqa: PLC0415

    return RedisTurnLog(setting, retention_seconds=math.ceil(settings.turn_log_retention_hours * 3600))


def _open_sqlite_segments(setting: str, settings: Settings) -> BlobStore:
    from durable_agent_host.segments.sqlite_store import SqliteBlobStore  # noqa: PLC0415

    del settings
    return SqliteBlobStore(setting.partition(":")[2])


def _open_blob_segments(setting: str, settings: Settings) -> BlobStore:
    from durable_agent_host.segments.blob_store import AzureBlobStore  # noqa: PLC0415

    del setting, settings
    return AzureBlobStore.from_environment()


def _is_server(location: str) -> bool:
    try:
        server = urlsplit(location)
        return bool(server.hostname) and server.port != 0
    except ValueError:
        return False


_REDIS: Final = StoreKind("'redis://HOST:PORT'", _is_server, _open_redis_log)

TURN_LOGS: Final[Mapping[str, StoreKind[TurnLog]]] = {
    "sqlite": StoreKind("'sqlite:PATH'", bool, _open_sqlite_log),
    "blob": StoreKind("'blob'", operator.not_, _open_blob_log),
    "redis": _REDIS,
    "rediss": _REDIS,
}
"""By the part of the setting before its first colon."""
SEGMENT_STORES: Final[Mapping[str, StoreKind[BlobStore]]] = {
    "sqlite": StoreKind("'sqlite:PATH'", bool, _open_sqlite_segments),
    "blob": StoreKind("'blob'", operator.not_, _open_blob_segments),
}
"""Likewise."""

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
