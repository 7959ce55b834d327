"""What goes on at the model's service when a turn is cancelled: a person asked, so the service is told as well."""

import asyncio
import logging
from typing import Final

from durable_agent_host.agent.run import AgentRuns
from durable_agent_host.errors import log_reason
from durable_agent_host.turn_log.journal import Recorded

_LOGGER = logging.getLogger(__name__)
_SECONDS: Final = 10.0


async def cancel_at_service(runs: AgentRuns, recorded: Recorded) -> None:
    """Cancel what the service still does for a turn. The turn is cancelled all the same when that fails.

    Args:
        runs: of the attempt, given up.
        recorded: the journal as it is now.
    """
    begun = [one for _, one in sorted(recorded.continuations.items()) if one]
    if not begun or runs.run is None:
        return
    try:
        async with asyncio.timeout(_SECONDS):
            await runs.provider.cancel(runs.hosted.client, begun[-1])
    except Exception as error:  # noqa: BLE001 - the service may be gone; the turn ends here
        _LOGGER.warning("turn %s: the model's service was not cancelled: %s", runs.request.turn_id, log_reason(error))
