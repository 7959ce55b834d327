"""Where the wrapped data keys of an app are kept, which tells that its conversations are encrypted."""

import asyncio
from collections.abc import Callable
from typing import Final

from durable_agent_host.errors import EncryptionKeyError, LogError
from durable_agent_host.model.ids import derived_id
from durable_agent_host.segments.protocol import SegmentStore

KEYS_HOME: Final = derived_id("data-keys")
"""The home of the wrapped keys."""


class NoKeys:
    """Refuses an app without keys to go on where one with keys was.

    Args:
        open_store: returns the store of the wrapped keys.
    """

    def __init__(self, open_store: Callable[[], SegmentStore]) -> None:
        self._open_store = open_store
        self._is_plain = False

    async def check(self) -> None:
        """Look for data keys, until the store has answered that it has none.

        A store that does not answer says so where it is needed.

        Raises:
            EncryptionKeyError: there are some.
        """
        if self._is_plain:
            return
        try:
            store = await asyncio.to_thread(self._open_store)
            has_keys = bool([piece async for piece in store.pieces(KEYS_HOME)])
        except LogError:
            return
        if has_keys:
            raise EncryptionKeyError(
                "what is stored is encrypted, and the app has no keys: set DURABLE_AGENT_HOST_ENCRYPTION_KEYS; nothing "
                "was changed"
            )
        self._is_plain = True
