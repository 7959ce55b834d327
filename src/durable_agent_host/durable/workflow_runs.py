"""Questions of the runs of hosted workflows, which wait in upstream's orchestrations.

A run shows its questions in the custom status of its orchestration; those of a workflow inside it are in the status of
that workflow's own orchestration, which the run's status names. An answer is an event with the question's name.
"""

import asyncio
import sys
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from agent_framework_durabletask import workflow_orchestrator_name
from azure.durable_functions import DurableOrchestrationClient

from durable_agent_host.agent.workflow_agents import decode_question, response_schema
from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.durable.instance_status import END_STATUSES
from durable_agent_host.durable.run_questions import REPLIES, reply_digest
from durable_agent_host.errors import NotFoundError

_PAUSES: Final = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
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
    pending_requests = _public_fields(status).get("pending_requests")
    if status.runtime_status in END_STATUSES or (pending_requests is not None and request_id not in pending_requests):
        raise NotFoundError(_NOT_OPEN)
    return target


def orchestration_name(workflow: str) -> str:
    """Return the name of a workflow's orchestration, in lower case."""
    return workflow_orchestrator_name(workflow).casefold()


class WorkflowQuestion(NamedTuple):
    """A question of a run.

    Attributes:
        call: the question as a pending call; of an answered one, only its `call_id`.
        instance_id: of the orchestration that asks.
        event_name: of the event that answers.
        reply_digest: of its answer; None while the run waits for it.
    """

    call: Mapping[str, Any]
    instance_id: str
    event_name: str
    reply_digest: str | None = None


class WorkflowRuns:
    """The questions of runs, for one request.

    Args:
        client: the SDK's; it does not encrypt, as upstream's orchestrations do not.
    """

    def __init__(self, client: DurableOrchestrationClient) -> None:
        self._client = client

    async def list_questions(self, workflow: str, run_id: str) -> list[WorkflowQuestion]:
        """List the questions for which a run waits or that it has answers to; none when there is no such run."""
        status: Any = await self._client.get_status(run_id)
        if not status or str(status.name).casefold() != orchestration_name(workflow):
            return []
        questions = await self._list_questions(run_id, status, "")
        has_ended = status.runtime_status in END_STATUSES
        return [question for question in questions if question.reply_digest is not None or not has_ended]

    async def _list_questions(self, instance_id: str, status: Any, prefix: str) -> list[WorkflowQuestion]:
        fields = _public_fields(status)
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
        questions += [
            WorkflowQuestion({"call_id": f"{prefix}{name}"}, instance_id, name, digest)
            for name, digest in fields.get(REPLIES, {}).items()
        ]
        for executor_id, inner_ids in fields.get("subworkflows", {}).items():
            for index, inner_id in enumerate(inner_ids):
                inner_status = await self._client.get_status(inner_id)
                questions += await self._list_questions(inner_id, inner_status, f"{prefix}{executor_id}~{index}~")
        return questions

    async def answer(self, workflow: str, run_id: str, results: Mapping[str, Any]) -> list[str]:
        """Answer questions of a run, and wait a while until it shows that. Of several answers, it takes the first.

        Returns:
            The questions that have another answer; if one had it before, none of the results was sent.
        """
        for pause in _PAUSES:
            await asyncio.sleep(pause)
            all_questions = await self.list_questions(workflow, run_id)
            questions = {call_id: q for q in all_questions if (call_id := q.call["call_id"]) in results}
            open_questions = {call_id: q for call_id, q in questions.items() if q.reply_digest is None}
            closed_ids = questions.keys() - open_questions.keys()
            other_ids = [i for i in closed_ids if questions[i].reply_digest != reply_digest(results[i])]
            if other_ids or not open_questions:
                return sorted(other_ids)
            if not pause:
                for call_id, question in open_questions.items():
                    await self._client.raise_event(question.instance_id, question.event_name, results[call_id])
        return []


def _public_fields(status: Any) -> dict[str, dict[str, Any]]:
    """Return what a run shows in its custom status, if upstream set it."""
    return object_at(status and status.custom_status)


def _find_type(key: str | None) -> Any:
    """Return the type that upstream calls ``module:name``, whose module the app's workflow has imported."""
    module, _, name = (key or "").partition(":")
    return getattr(sys.modules.get(module), name, None)
