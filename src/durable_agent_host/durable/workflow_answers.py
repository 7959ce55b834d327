"""Answers of people to the runs of workflows."""

from typing import Any, cast

from azure.durable_functions import DurableOrchestrationClient

from durable_agent_host.durable.holders import ENDED
from durable_agent_host.errors import NotFoundError

_NOT_OPEN = (
    "the run does not wait for an answer to this request: it was answered, or never asked, or the run has ended. The "
    "run's status lists what waits, in pendingHumanInputRequests"
)


async def open_request(client: DurableOrchestrationClient, target: tuple[str, str] | None) -> tuple[str, str]:
    """Return a request of a run unless the run's status shows that it does not wait for an answer.

    A run that works shows no requests, and keeps an answer for one that it makes later, as upstream's runs do: a step
    may tell somebody of a request before the run waits for it.

    Args:
        client: the SDK's.
        target: instance id of the run, or of the workflow within it that asks, and id of the request; None when there
            is no such workflow.

    Raises:
        NotFoundError: the run has ended, or waits for answers to other requests only.
    """
    if target is None:
        raise NotFoundError(_NOT_OPEN)
    run_id, request_id = target
    status: Any = await client.get_status(run_id)
    shown = status.custom_status
    awaited = cast("dict[str, Any]", shown).get("pending_requests") if isinstance(shown, dict) else None
    if status.runtime_status in ENDED or (isinstance(awaited, dict) and request_id not in awaited):
        raise NotFoundError(_NOT_OPEN)
    return target
