"""What goes on at the model's service when a turn has ended without it: nobody will take or give an answer any more.

A turn ends so when a person cancels it or when it fails. A process that dies ends no turn, and cancels nothing.
"""

import asyncio
import logging
from typing import Final

from durable_agent_host.agent.run import AgentRuns
from durable_agent_host.errors import log_reason

_LOGGER = logging.getLogger(__name__)
_SECONDS: Final = 10.0


async def cancel_at_service(runs: AgentRuns) -> None:
    """Cancel what the service still does for a turn. The turn ends all the same when that fails.

    Args:
        runs: of the attempt, ended.
    """
    if runs.run is None:
        return
    begun = [one for _, one in sorted(runs.run.journal.recorded.continuations.items()) if one]
    if not begun:
        return
    try:
        async with asyncio.timeout(_SECONDS):
            await runs.provider.cancel(runs.hosted.client, begun[-1])
    except Exception as error:  # noqa: BLE001 - the service may be gone
        _LOGGER.warning("turn %s: the model's service was not cancelled: %s", runs.request.turn_id, log_reason(error))
