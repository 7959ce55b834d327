"""Cancels work that the model's service still does for an ended turn, whose answer is no longer wanted.

This applies when a person cancels a turn or when it fails. A process that dies ends no turn, and cancels nothing.
"""

import asyncio
import logging
from typing import Final

from durable_agent_host.agent.run import AgentRuns
from durable_agent_host.errors import log_reason

_LOGGER = logging.getLogger(__name__)
_SECONDS: Final = 10.0


async def cancel_at_service(runs: AgentRuns) -> None:
    """Cancel what the service still does for a turn. If that fails, the turn ends all the same.

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
