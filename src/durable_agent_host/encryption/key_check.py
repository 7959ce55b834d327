"""Checks that an app has the key of its stored data, before anything is read or added.

Theory of operation. A small blob beside the app's secret names the key that encrypts, by its prefix. The first process
with keys writes it, and a process whose first key is another one writes it again. So an app that has lost its key, or
its setting, stops before it writes anything: requests fail, and what was under way waits.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from durable_agent_host.errors import EncryptionKeyError, LogError
from durable_agent_host.model.ids import derived_id
from durable_agent_host.segments.protocol import BlobStore

if TYPE_CHECKING:
    from durable_agent_host.encryption.cipher import Cipher

APP_NAMESPACE: Final = derived_id("app-secret")
"""The namespace of the app's secret and of the key's prefix, which are not encrypted."""
_NAME: Final = "key"
_AGAIN_SECONDS: Final = 2.0
"""Between two attempts to read the key's prefix."""
_LOGGER = logging.getLogger(__name__)


def wait_for(check: Callable[[], Awaitable[None]]) -> None:
    """Block until a check succeeds: for orchestrations and entities, where a failed step is recorded for good.

    The platform gives up a waiting step at its ``functionTimeout``, or when the process ends, and runs it again:
    nothing of it is kept.
    """

    async def run() -> None:
        await check()

    has_warned = False
    while True:
        try:
            with ThreadPoolExecutor(1) as executor:  # the caller's thread may have a running loop
                executor.submit(lambda: asyncio.run(run())).result()
        except (EncryptionKeyError, LogError, OSError) as error:
            if not has_warned:
                _LOGGER.warning("turns that were under way wait for their key, and lose nothing meanwhile: %s", error)
            has_warned = True
            time.sleep(_AGAIN_SECONDS)
        else:
            return


class KeyCheck:
    """Checks an app's keys once per process, from any thread and event loop.

    Args:
        open_store: returns the blob store, unencrypted.
        cipher: of the app; None without keys.
    """

    def __init__(self, open_store: Callable[[], BlobStore], cipher: "Cipher | None") -> None:
        self._open_store = open_store
        self._cipher = cipher
        self._has_succeeded = False

    async def ready(self) -> None:
        """Check the keys, unless that has been done.

        Raises:
            EncryptionKeyError: the app does not have the key.
            LogError: the store does not answer; without keys it fails where it is used.
        """
        if self._has_succeeded:
            return
        with suppress(*(() if self._cipher is not None else (LogError,))):
            await self._check()

    def wait(self) -> None:
        """Block while the key is missing; with keys, also while the store does not answer."""
        if not self._has_succeeded:
            wait_for(self.ready)

    async def _check(self) -> None:
        store = await asyncio.to_thread(self._open_store)
        names = [blob.name async for blob in store.list_blobs(APP_NAMESPACE)]
        prefix = (await store.get(APP_NAMESPACE, [_NAME]))[_NAME] if _NAME in names else None
        if self._cipher is not None:
            await self._check_prefix(store, self._cipher, prefix)
        elif prefix is not None:
            raise EncryptionKeyError(
                "the stored data is encrypted, and the app has no keys: set DURABLE_AGENT_HOST_ENCRYPTION_KEYS; "
                "nothing was changed"
            )
        self._has_succeeded = True

    async def _check_prefix(self, store: BlobStore, cipher: "Cipher", prefix: bytes | None) -> None:
        if prefix is not None:
            cipher.find_key(prefix)
        if prefix != cipher.current_prefix:
            await store.delete(APP_NAMESPACE, [_NAME])
            await store.put(APP_NAMESPACE, {_NAME: cipher.current_prefix})
