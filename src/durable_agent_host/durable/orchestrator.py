"""The orchestration ``agent_turn``: carries out the steps of `durable_agent_host.turns.plan`."""

from collections.abc import Generator
from typing import Any, Final, cast

from azure.durable_functions import DurableOrchestrationContext, EntityId

from durable_agent_host.codec.turn import decode_turn_request
from durable_agent_host.durable.wakeups import Wakeups
from durable_agent_host.model.ids import entity_name
from durable_agent_host.turns.plan import AskSession, RunAgent, Step, WakeTurn, plan_turn

TURN_ORCHESTRATION: Final = "agent_turn"
RUN_ACTIVITY: Final = "run_agent_turn"
WAKE_ACTIVITY: Final = "wake_agent_turn"
GRANT_EVENT: Final = "granted"


def run_turn_orchestration(
    context: DurableOrchestrationContext, wakeups: Wakeups
) -> Generator[Any, Any, dict[str, Any]]:
    """Run one turn, as an orchestration whose instance id is the turn's id.

    Guarantee: replay-safe; the hint at the end is in-process and may be given more than once.

    Args:
        context: the SDK's.
        wakeups: told just before the outcome is committed.

    Returns:
        The outcome as JSON: the orchestration's output.
    """
    wire: Any = context.get_input()
    request = decode_turn_request(wire)
    entity = EntityId(entity_name(request.agent), request.session_id)
    plan = plan_turn(request)
    step = next(plan)
    while True:
        try:
            result: Any = yield _task(context, entity, wire, step)
        except Exception as error:  # noqa: BLE001 - the plan decides what a failed step means
            advance, value = plan.throw, error
        else:
            advance, value = plan.send, result
        try:
            step = advance(value)
        except StopIteration as end:
            wakeups.notify(request.turn_id)
            return end.value


def _task(context: DurableOrchestrationContext, entity: EntityId, wire: Any, step: Step) -> Any:
    call_activity = cast("Any", context).call_activity
    match step:
        case AskSession(operation, payload):
            return context.call_entity(entity, operation, payload)
        case RunAgent():
            return call_activity(RUN_ACTIVITY, wire)
        case WakeTurn(turn_id):
            return call_activity(WAKE_ACTIVITY, turn_id)
        case _:
            return context.wait_for_external_event(GRANT_EVENT)
