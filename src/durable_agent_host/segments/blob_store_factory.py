"""Selects and opens the store of conversations' pieces; the only place that does.

A new technology is a class that implements `durable_agent_host.segments.protocol.BlobStore`, and a row of `STORES`.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from durable_agent_host.errors import SettingError
from durable_agent_host.segments.protocol import BlobStore
from durable_agent_host.settings import Settings


@dataclass(frozen=True)
class Store:
    """A technology that keeps pieces.

    Attributes:
        form: how the setting is written, for error messages.
        accepts: returns whether a setting with this store's scheme has that form.
        open: creates the store; connects to nothing. Gets the setting and the environment.
    """

    form: str
    accepts: Callable[[str], bool]
    open: Callable[[str, Mapping[str, str]], BlobStore]


def open_segment_store(settings: Settings, environment: Mapping[str, str] = os.environ) -> BlobStore:
    """Create the store that the settings name; connects to nothing.

    Returns:
        The store; without a setting a SQLite file in the embedded host's data folder, else the app's storage account.

    Raises:
        SettingError: the setting is invalid, or something it needs is missing.
    """
    setting = segment_setting(settings, environment)
    return STORES[setting.partition(":")[0]].open(setting, environment)


def segment_setting(settings: Settings, environment: Mapping[str, str] = os.environ) -> str:
    """Return the store that the settings name.

    Raises:
        SettingError: the setting is invalid.
    """
    data = environment.get("FUNCTIONS_HOST_DATA")
    setting = settings.segments or (f"sqlite:{Path(data, 'segments.sqlite')}" if data else "blob")
    store = STORES.get(setting.partition(":")[0])
    if store is None or not store.accepts(setting):
        forms = ", ".join(store.form for store in STORES.values())
        raise SettingError(f"DURABLE_AGENT_HOST_SEGMENTS is {setting!r}: set {forms} or nothing")
    return setting


def _open_sqlite(setting: str, environment: Mapping[str, str]) -> BlobStore:
    from durable_agent_host.segments.sqlite_store import SqliteBlobStore  # noqa: PLC0415 - only the store in use

    del environment
    return SqliteBlobStore(setting.partition(":")[2])


def _open_blob(setting: str, environment: Mapping[str, str]) -> BlobStore:
    from durable_agent_host.segments.blob_store import AzureBlobStore  # noqa: PLC0415

    del setting
    return AzureBlobStore.from_environment(environment)


STORES: Final[dict[str, Store]] = {
    "sqlite": Store("'sqlite:PATH'", lambda setting: bool(setting.partition(":")[2]), _open_sqlite),
    "blob": Store("'blob'", lambda setting: not setting.partition(":")[2], _open_blob),
}
"""By the part of the setting before its first colon."""
