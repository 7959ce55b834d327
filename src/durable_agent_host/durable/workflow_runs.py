"""Questions of the runs of hosted workflows, which wait in upstream's orchestrations.

A run shows its questions in the custom status of its orchestration; those of a workflow inside it are in the status of
that workflow's own orchestration, which the run's status names. An answer is an event with the question's name.
"""

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from agent_framework_durabletask import workflow_orchestrator_name
from azure.durable_functions import DurableOrchestrationClient

from durable_agent_host.agent.workflow_agents import decode_question, response_schema
from durable_agent_host.durable.instance_status import END_STATUSES
from durable_agent_host.errors import NotFoundError

_NOT_OPEN = (
    "the run does not wait for an answer to this request: it was answered, or never asked, or the run has ended. The "
    "run's status lists what waits, in pendingHumanInputRequests"
)


async def open_request(client: DurableOrchestrationClient, target: tuple[str, str] | None) -> tuple[str, str]:
    """Return a request of a run unless the run's status shows that it does not wait for an answer.

    A run that works shows no requests, and keeps an answer for one that it makes later, as upstream's runs do: a step
    may tell somebody of a request before the run waits for it.

    Raises:
        NotFoundError: the run has ended, or waits for answers to other requests only.
    """
    if target is None:
        raise NotFoundError(_NOT_OPEN)
    run_id, request_id = target
    status: Any = await client.get_status(run_id)
    custom_status = status.custom_status
    pending_requests = (
        cast("dict[str, Any]", custom_status).get("pending_requests") if isinstance(custom_status, dict) else None
    )
    if status.runtime_status in END_STATUSES or (
        isinstance(pending_requests, dict) and request_id not in pending_requests
    ):
        raise NotFoundError(_NOT_OPEN)
    return target


def orchestration_name(workflow: str) -> str:
    """Return the name of a workflow's orchestration, in lower case."""
    return workflow_orchestrator_name(workflow).casefold()


class WorkflowQuestion(NamedTuple):
    """A question for which a run waits.

    Attributes:
        call: the question as a pending call.
        instance_id: of the orchestration that asks.
        event_name: of the event that answers.
    """

    call: Mapping[str, Any]
    instance_id: str
    event_name: str


class WorkflowRuns:
    """The questions of runs, for one request.

    Args:
        client: the SDK's; it does not encrypt, as upstream's orchestrations do not.
    """

    def __init__(self, client: DurableOrchestrationClient) -> None:
        self._client = client

    async def list_questions(self, workflow: str, run_id: str) -> list[WorkflowQuestion]:
        """List the questions for which a run waits; none when there is no such run."""
        status: Any = await self._client.get_status(run_id)
        if not status or str(status.name).casefold() != orchestration_name(workflow):
            return []
        if status.runtime_status in END_STATUSES:
            return []
        return await self._list_questions(run_id, status, "")

    async def _list_questions(self, instance_id: str, status: Any, prefix: str) -> list[WorkflowQuestion]:
        custom_status: Any = status.custom_status if status else None
        if not isinstance(custom_status, dict):
            return []
        fields = cast("dict[str, dict[str, Any]]", custom_status)
        questions = [
            WorkflowQuestion(
                {
                    "call_id": f"{prefix}{request['request_id']}",
                    "kind": "input",
                    "name": request["source_executor_id"],
                    "arguments": {"question": decode_question(request["data"], request["request_type"])},
                    "path": f"{prefix}{request['source_executor_id']}",
                    "schema": response_schema(_find_type(request["response_type"])),
                    "created_at": status.last_updated_time.isoformat(),
                    "expires_at": None,
                },
                instance_id,
                request["request_id"],
            )
            for request in fields.get("pending_requests", {}).values()
        ]
        for executor_id, inner_ids in fields.get("subworkflows", {}).items():
            for index, inner_id in enumerate(inner_ids):
                inner_status = await self._client.get_status(inner_id)
                questions += await self._list_questions(inner_id, inner_status, f"{prefix}{executor_id}~{index}~")
        return questions

    async def answer(self, question: WorkflowQuestion, result: Any) -> None:
        """Answer a question. Of several answers, the run takes the first."""
        await self._client.raise_event(question.instance_id, question.event_name, result)


def _find_type(key: str | None) -> Any:
    """Return the type that upstream calls ``module:name``, whose module the app's workflow has imported."""
    module, _, name = (key or "").partition(":")
    return getattr(sys.modules.get(module), name, None)
