"""Cancel marks, polled by many turns with few requests.

A mark is the blob ``{log_id}/cancel``. Whoever sets one then writes the bell, one small blob for all turns. A running
turn polls the bell, with one request for all turns of its process, and its own mark only if the bell has changed since.
Now and then it polls its mark anyway, in case the writer of a mark died before it rang.
"""

import asyncio
import uuid
from collections import OrderedDict
from typing import Final

from durable_agent_host.turn_log.blob.container import LogContainer

_BELL: Final = "cancels/bell"
_TOGETHER_SECONDS: Final = 0.1
_TRUST_SECONDS: Final = 10.0
_NEVER_HEARD: Final = ""
_CACHED_LOGS: Final = 8192


class BlobCancels:
    """The cancel marks of one container. All calls come from one loop.

    Args:
        container: of the marks.
    """

    def __init__(self, container: LogContainer) -> None:
        self._container = container
        self._looked: OrderedDict[str, tuple[str | None, float]] = OrderedDict()
        self._hearing: asyncio.Task[str | None] | None = None

    async def leave(self, log_id: str) -> None:
        """Set a mark."""
        await self._container.mark(_mark(log_id), b"")
        await self._container.mark(_BELL, uuid.uuid4().hex.encode())

    async def look(self, log_id: str) -> bool:
        """Return whether a mark is set."""
        now = asyncio.get_running_loop().time()
        bell, looked_at = self._looked.get(log_id, (_NEVER_HEARD, 0.0))
        is_first = log_id not in self._looked
        if not is_first:
            heard = await self._hear()  # before the mark: whoever rings later has set it before the next look
            if heard == bell and now < looked_at + _TRUST_SECONDS:
                return False
            bell = heard
        if await self._container.exists(_mark(log_id)):
            self._looked.pop(log_id, None)
            return True
        self._looked[log_id] = (bell, now)
        self._looked.move_to_end(log_id)
        if len(self._looked) > _CACHED_LOGS:
            self._looked.popitem(last=False)
        return False

    async def _hear(self) -> str | None:
        """Return the bell's state, by one request for all callers within a moment; it starts after the last of them."""
        if self._hearing is None:
            self._hearing = asyncio.create_task(self._ask())
        return await asyncio.shield(self._hearing)

    async def _ask(self) -> str | None:
        await asyncio.sleep(_TOGETHER_SECONDS)
        self._hearing = None
        return await self._container.etag(_BELL)


def _mark(log_id: str) -> str:
    return f"{log_id}/cancel"
