"""The data keys of an app: kept in its piece store, each wrapped by a key of the operator.

Theory of operation. The keys are pieces in a home of their own: JSON with the data key's id, the wrapping key's id and
the wrapped secret. The first process that needs a key makes one; when two do so at once, there are two, and every
process uses the older one as soon as it has read both. A process that meets an unknown key reads the home again.

To rotate, the operator puts a new key first in the setting: the next process that reads the home wraps the data keys
with it and deletes the earlier wrapping. Data that was encrypted with the data keys stays as it is. A process that
cannot unwrap any key makes no new one, so a lost key is an error, not a fresh start.
"""

import asyncio
import logging
import secrets
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from durable_agent_host.codec.offloaded_text import blob_name
from durable_agent_host.codec.session_blobs import json_bytes_of, json_of_bytes
from durable_agent_host.encryption.cipher import KEY_BYTES, DataKey
from durable_agent_host.encryption.data_key_storage import KEYS_NAMESPACE, wait_for
from durable_agent_host.encryption.key_wrapping import SETTING, WrappingKey
from durable_agent_host.errors import CorruptStateError, EncryptionKeyError
from durable_agent_host.segments.protocol import BlobStore
from durable_agent_host.turn_log.crash_points import reach

_HOLDER: Final = "data-keys"
"""Holds the home for ever: a sweep leaves alone what it cannot read."""
_NO_KEY: Final = "none"
_AGAIN_SECONDS: Final = 2.0
"""After this time an unknown key is looked up again."""
_MISSED: Final = 1000
"""Maximum unknown keys that are remembered."""
_LOGGER = logging.getLogger(__name__)


class _Wrapped(NamedTuple):
    """A data key in its stored form."""

    name: str
    key_id: str
    by: str
    created_at: str
    secret: bytes


class Keyring:
    """The data keys of an app. Implements `durable_agent_host.encryption.cipher.DataKeys`.

    Guarantee: callable from any thread and event loop. The first use reads the store and blocks; `ready` does so off
    the event loop.

    Args:
        open_store: returns the store of the wrapped keys, unencrypted.
        wrapping: the operator's keys, the current one first.
    """

    def __init__(self, open_store: Callable[[], BlobStore], wrapping: Sequence[WrappingKey]) -> None:
        self._open_store = open_store
        self._wrapping = {key.id: key for key in wrapping}
        self._current = wrapping[0]
        self._keys: tuple[DataKey, ...] = ()
        self._found: dict[bytes, DataKey] = {}
        self._missed_at: dict[str, float] = {}
        self._failure: Exception | None = None
        self._lock = threading.Lock()

    def all(self) -> Sequence[DataKey]:
        """Return the keys, the current one first."""
        return self._keys or self._load("")

    def find(self, prefix: bytes) -> DataKey:
        """Return a key by the bytes of its id."""
        return self._found.get(prefix) or self._search(prefix.hex())

    def _search(self, key_id: str) -> DataKey:
        """Read the home, looking for a key."""
        self._load(key_id)
        found = self._find_loaded(key_id)
        if found is None:
            raise EncryptionKeyError(
                f"stored data is encrypted with the data key {key_id}, which the store of this app does not have, or "
                f"which is wrapped by a key that {SETTING} does not have: restore it; nothing was changed"
            )
        return found

    def wait(self) -> None:
        """Block until there are keys: for orchestrations and entities, where a failed step is recorded for good.

        The platform gives up a waiting step at its ``functionTimeout``, or when the process ends, and runs it again:
        nothing of it is kept.
        """
        wait_for(self.all)

    async def ready(self) -> None:
        """Read the keys if they have not been read."""
        if not self._keys:
            await asyncio.to_thread(self.all)

    async def reload_keys(self) -> None:
        """Read keys that other processes have made, at most once every few moments."""
        with suppress(EncryptionKeyError):
            await asyncio.to_thread(self._search, _NO_KEY)

    def _find_loaded(self, key_id: str) -> DataKey | None:
        for key in self._keys:
            if key.id == key_id:
                return key
        return None

    def _load(self, key_id: str) -> Sequence[DataKey]:
        """Read the home, for one key or for any; for the same key not too often.

        Runs in its own thread, because the caller's may have a running loop.
        """
        with self._lock:
            if (self._find_loaded(key_id) is not None) if key_id else self._keys:
                return self._keys
            if time.monotonic() - self._missed_at.get(key_id, float("-inf")) < _AGAIN_SECONDS:
                if self._failure is not None:
                    raise self._failure
                return self._keys
            thread = threading.Thread(target=self._read_in_thread, name="data-keys")
            thread.start()
            thread.join()
            if self._failure is None and (not key_id or self._find_loaded(key_id) is not None):
                return self._keys
            if len(self._missed_at) > _MISSED:
                self._missed_at.clear()
            self._missed_at[key_id] = time.monotonic()
            if self._failure is not None:
                raise self._failure
            return self._keys

    def _read_in_thread(self) -> None:
        try:
            self._keys = asyncio.run(self._read())
            self._failure = None
            self._found = {key.prefix: key for key in self._keys}
        except Exception as error:  # noqa: BLE001 - raised where the keys are needed
            self._failure = error

    async def _read(self) -> tuple[DataKey, ...]:
        store = self._open_store()
        wrapped_keys = await _read_wrapped_keys(store)
        if not wrapped_keys:
            await self._make(store)
            wrapped_keys = await _read_wrapped_keys(store)
        keys_by_wrapped = {
            wrapped_key: key for wrapped_key in wrapped_keys if (key := self._unwrap(wrapped_key)) is not None
        }
        if not keys_by_wrapped:
            raise self._lost(wrapped_keys)
        for key, wrapped_key in {key.id: (key, wrapped_key) for wrapped_key, key in keys_by_wrapped.items()}.values():
            same_keys = [other for other in wrapped_keys if other.key_id == key.id]
            if not any(other.key_id == key.id and other.by == self._current.id for other in keys_by_wrapped):
                await self._wrap_again(store, key, wrapped_key, same_keys)
            elif left := [other.name for other in same_keys if other.by != self._current.id]:
                await store.delete(
                    KEYS_NAMESPACE, left
                )  # the process that wrapped it again was killed before it did this
        oldest = sorted(keys_by_wrapped, key=lambda wrapped_key: (wrapped_key.created_at, wrapped_key.key_id))
        return tuple({keys_by_wrapped[wrapped_key].id: keys_by_wrapped[wrapped_key] for wrapped_key in oldest}.values())

    def _unwrap(self, wrapped_key: _Wrapped) -> DataKey | None:
        wrapping = self._wrapping.get(wrapped_key.by)
        secret = wrapping.unwrap(wrapped_key.secret) if wrapping is not None else None
        key = DataKey(secret) if secret is not None and len(secret) == KEY_BYTES else None
        return key if key is not None and key.id == wrapped_key.key_id else None

    async def _make(self, store: BlobStore) -> None:
        key = DataKey(secrets.token_bytes(KEY_BYTES))
        await store.hold(KEYS_NAMESPACE, _HOLDER)
        await self._put(store, key, datetime.now(UTC).isoformat())
        _LOGGER.info("encryption: made the data key %s, wrapped by the key %r", key.id, self._current.id)

    async def _wrap_again(
        self, store: BlobStore, key: DataKey, wrapped_key: _Wrapped, before: Sequence[_Wrapped]
    ) -> None:
        """Wrap a key with the operator's current key; delete the earlier wrapping once the new one is stored."""
        name = await self._put(store, key, wrapped_key.created_at)
        again = next(stored_key for stored_key in await _read_wrapped_keys(store) if stored_key.name == name)
        unwrapped_key = self._unwrap(again)
        if unwrapped_key is None or unwrapped_key.secret != key.secret:
            raise EncryptionKeyError(
                f"the key {self._current.id!r} does not unwrap what it has wrapped: the data key {key.id} is kept as "
                "it was; check the key"
            )
        await store.delete(KEYS_NAMESPACE, [stored_key.name for stored_key in before])
        reach("keys.after_delete")
        _LOGGER.warning("encryption: the data key %s is now wrapped by the key %r", key.id, self._current.id)

    async def _put(self, store: BlobStore, key: DataKey, created_at: str) -> str:
        wrapped_secret = b64encode(self._current.wrap(key.secret)).decode()
        data = json_bytes_of(
            {"dataKey": key.id, "wrappedBy": self._current.id, "madeAt": created_at, "wrapped": wrapped_secret}
        )
        name = blob_name(data)
        reach("keys.before_put")
        await store.put(KEYS_NAMESPACE, {name: data})
        reach("keys.after_put")
        return name

    def _lost(self, wrapped_keys: Sequence[_Wrapped]) -> EncryptionKeyError:
        by = ", ".join(sorted({repr(wrapped_key.by) for wrapped_key in wrapped_keys}))
        has = ", ".join(sorted(map(repr, self._wrapping)))
        return EncryptionKeyError(
            f"the stored data is encrypted, and its data keys are wrapped by the key {by}: {SETTING} has {has}, which "
            "is not the key that wrapped them. Set the key that did; nothing was changed"
        )


async def _read_wrapped_keys(store: BlobStore) -> list[_Wrapped]:
    names = [piece.name async for piece in store.list_blobs(KEYS_NAMESPACE)]
    found = await store.get(KEYS_NAMESPACE, names) if names else {}
    wrapped_keys: list[_Wrapped] = []
    for name, data in found.items():
        key_json: Any = json_of_bytes(data, "a wrapped data key")
        try:
            of_key = str(key_json["dataKey"]), str(key_json["wrappedBy"]), str(key_json["madeAt"])
            wrapped_keys.append(_Wrapped(name, *of_key, b64decode(key_json["wrapped"])))
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptStateError(
                f"the piece {name} of {KEYS_NAMESPACE} is no wrapped data key: restore a copy; nothing was changed"
            ) from error
    return wrapped_keys
