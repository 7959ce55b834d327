"""Where the wrapped data keys and the secret of an app are kept; keys show that its conversations are encrypted."""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from durable_agent_host.errors import EncryptionKeyError, LogError
from durable_agent_host.model.ids import derived_id
from durable_agent_host.segments.protocol import BlobStore

KEYS_NAMESPACE: Final = derived_id("data-keys")
"""The home of the wrapped keys."""

SECRET_NAMESPACE: Final = derived_id("app-secret")
"""The home of the app's secret, which is not encrypted."""

_AGAIN_SECONDS: Final = 2.0
"""Between two attempts to read the keys."""
_LOGGER = logging.getLogger(__name__)


def wait_for(check_keys: Callable[[], object]) -> None:
    """Block until the needed keys are there."""
    has_warned = False
    while True:
        try:
            check_keys()
        except (EncryptionKeyError, LogError, OSError) as error:
            if not has_warned:
                _LOGGER.warning("turns that were under way wait for their key, and lose nothing meanwhile: %s", error)
            has_warned = True
            time.sleep(_AGAIN_SECONDS)
        else:
            return


class PlaintextGuard:
    """Prevents an app without keys from continuing the data of one with keys.

    Args:
        open_store: returns the store of the wrapped keys.
    """

    def __init__(self, open_store: Callable[[], BlobStore]) -> None:
        self._open_store = open_store
        self._is_plain = False

    async def check(self) -> None:
        """Look for data keys until the store has answered that it has none.

        A store that does not answer fails where it is used.

        Raises:
            EncryptionKeyError: there are data keys.
        """
        if self._is_plain:
            return
        try:
            await self._check_store()
        except LogError:
            return

    def wait(self, *, is_encrypted: bool) -> None:
        """Block while there are data keys; see `wait_for`."""
        check_once = self._check_store if is_encrypted else self.check

        def check_keys() -> None:
            with ThreadPoolExecutor(1) as executor:  # the caller's thread may have a running loop
                executor.submit(lambda: asyncio.run(check_once())).result()

        if not self._is_plain:
            wait_for(check_keys)

    async def _check_store(self) -> None:
        store = await asyncio.to_thread(self._open_store)
        if [piece async for piece in store.list_blobs(KEYS_NAMESPACE)]:
            raise EncryptionKeyError(
                "the stored data is encrypted, and the app has no keys: set DURABLE_AGENT_HOST_ENCRYPTION_KEYS; "
                "nothing was changed"
            )
        self._is_plain = True
