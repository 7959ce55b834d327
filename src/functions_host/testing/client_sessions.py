"""HTTP sessions of durable clients, one per event loop.

The SDK keeps one session per process. It belongs to the loop of its first use, which is closed when the next app
under test, or the next life of a crashed one, uses it.
"""

import asyncio
import importlib
from typing import Any

_sessions: dict[asyncio.AbstractEventLoop, Any] = {}


def keep_sessions_apart() -> None:
    """Make the SDK use one session per event loop."""
    http_utils: Any = importlib.import_module("azure.durable_functions.models.utils.http_utils")
    if getattr(http_utils, "_session_factory_of_sdk", None) is not None:
        return
    http_utils._session_factory_of_sdk = make_session = http_utils._get_session  # noqa: SLF001 - there is no public way

    async def get_session() -> Any:
        loop = asyncio.get_running_loop()
        http_utils._client_session = _sessions.get(loop)  # noqa: SLF001
        _sessions[loop] = session = await make_session()
        return session

    http_utils._get_session = get_session  # noqa: SLF001


async def close_session() -> None:
    """Close the session of the running loop, if it has one."""
    session = _sessions.pop(asyncio.get_running_loop(), None)
    if session is not None:
        await session.close()
