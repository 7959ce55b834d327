"""Deletes what only a running turn needs, soon after its end, for apps that redact what is kept.

The journal, the request and persons' answers are as they were said, so that a turn that a crash cuts off goes on with
the same bytes. When the turn has ended they are needed by nobody. Clients that read its events get a few seconds to
read the last ones; who comes later gets the answer alone. It is an orchestration, so that a process that dies meanwhile
is no end of it.
"""

from collections.abc import Generator, Mapping
from datetime import timedelta
from typing import Any, Final

from azure.durable_functions import DurableOrchestrationClient, DurableOrchestrationContext

from durable_agent_host.durable.holders import ENDED
from durable_agent_host.model.ids import turn_log_id
from durable_agent_host.segments.keeper import Keeper, raw_home
from durable_agent_host.turn_log.crash_points import reach
from durable_agent_host.turn_log.protocol import TurnLog

FORGET_ORCHESTRATION: Final = "forget_turn"
FORGET_ACTIVITY: Final = "forget_agent_turn"
READERS_SECONDS: Final = 10.0
"""How long clients that follow a turn have for its last events."""

_PAUSES: Final = (READERS_SECONDS, 10.0, 60.0, *(600.0,) * 144)
"""Before each attempt: a store that is away for a day holds it up, and does not end it."""


def run_forgetting(context: DurableOrchestrationContext) -> Generator[Any, Any, bool]:
    """Delete what a turn has left, as an orchestration.

    Guarantee: replay-safe.

    Args:
        context: the SDK's; its input is that of the activity, see `forget_turn`.

    Returns:
        Whether it is deleted; else it goes with the retention of turn logs.
    """
    sdk: Any = context
    named = sdk.get_input()
    for pause in _PAUSES:
        yield sdk.create_timer(sdk.current_utc_datetime + timedelta(seconds=pause))
        try:
            if (yield sdk.call_activity(FORGET_ACTIVITY, named)):
                return True
        except Exception:  # noqa: BLE001, S112 - whatever it is, the next attempt begins where this one ended
            continue
    return False


async def forget_turn(
    wire: Mapping[str, Any], client: DurableOrchestrationClient, log: TurnLog, keeper: Keeper
) -> bool:
    """Delete the log of an ended turn, and the pieces with what was said in it.

    Guarantee: activity-only; at-least-once; idempotent.

    Args:
        wire: ``agent``, ``session_id``, ``turn_id``.
        client: reads whether the turn has ended.
        log: of the process.
        keeper: has the pieces.

    Returns:
        False for a turn that runs, perhaps again.

    Raises:
        LogError: a store does not answer.
    """
    agent, session_id, turn_id = wire["agent"], wire["session_id"], wire["turn_id"]
    status = await client.get_status(turn_id)
    if status and status.runtime_status not in (*ENDED, None):
        return False
    log_id = turn_log_id(agent, session_id, turn_id)
    reach("forget.before_delete")
    await log.delete(log_id)
    reach("forget.between")
    store, home = keeper.open_store(), raw_home(log_id)
    if names := [piece.name async for piece in store.pieces(home)]:
        await store.delete(home, names)
    reach("forget.after_delete")
    return True
