"""The questions and the end of a hosted workflow's run, in its orchestration.

Upstream's orchestration waits for one answer after the other, and shows all questions until the last one is answered.
`run_asking` gives it a context that waits for all at once, and removes an answered question from the status. Upstream's
also returns nothing of what agents answer, and shows at its end that it is running.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from agent_framework import Workflow
from agent_framework_durabletask import AgentSessionId, load_agent_response
from agent_framework_durabletask._workflows.naming import workflow_scoped_executor_id
from azure.durable_functions import DurableOrchestrationContext, EntityId

from durable_agent_host.durable.task_hub import Steps, run_steps
from durable_agent_host.model.ids import derived_id
from durable_agent_host.turn.plan import WAITING

REPORT_RUN_ACTIVITY: Final = "report_workflow_run"
REPLIES: Final = "reply_digests"
"""In the custom status of a run: by question, the digest of its answer."""
_MOST_REPLIES: Final = 25


def reply_digest(result: Any) -> str:
    """Return what tells an answer to a question from another one; the SDK and upstream parse a text that is JSON."""
    with suppress(ValueError, RecursionError):
        while isinstance(result, str):
            result = json.loads(result)
    return derived_id("workflow-reply", json.dumps(result, sort_keys=True))[:16]


class _AskingContext:
    """The context of upstream's orchestration of a workflow.

    Args:
        context: of the SDK.
        address: ``workflow`` and ``run_id`` of the run as a whole.

    Attributes:
        is_replaying: false, because upstream shows its status only when it is not replayed.
        agent_tasks: calls of agents, with the names of their entities.
    """

    is_replaying = False

    def __init__(self, context: DurableOrchestrationContext, address: Mapping[str, str]) -> None:
        self._context: Any = context
        self._address = address
        self._status: dict[str, Any] = {}
        self._digests: dict[str, str] = {}
        self._events: dict[str, Any] = {}
        self.agent_tasks: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def call_entity(self, entity_id: EntityId, operation: str, request: Any) -> Any:
        """Call an agent."""
        task = self._context.call_entity(entity_id, operation, request)
        self.agent_tasks.append((entity_id.name, task))
        return task

    def set_custom_status(self, status: dict[str, Any]) -> None:
        """Show a status, without the questions that have been answered."""
        self._status = status
        visible_status = dict(status)
        if requests := status.get("pending_requests"):
            visible_status["pending_requests"] = {
                name: request for name, request in requests.items() if name not in self._digests
            }
        if self._digests:
            visible_status[REPLIES] = dict(list(self._digests.items())[-_MOST_REPLIES:])
        self._context.set_custom_status(visible_status)

    def wait_for_external_event(self, name: str) -> str:
        """Return what upstream yields to wait for an answer."""
        return name

    def wait_for_answer(self, name: str) -> Steps:
        """Wait for the answer to a question; notify first when the run begins to wait."""
        tasks: list[Any] = []
        if not self._events:
            timestamp = self._context.current_utc_datetime.isoformat()
            question = f"{self._context.instance_id} {name}"
            wire = {**self._address, "question": question, "timestamp": timestamp, "status": WAITING}
            tasks = [self._context.call_activity(REPORT_RUN_ACTIVITY, wire)]
        for request_id in (name, *self._status["pending_requests"]):
            if request_id not in self._events and (request_id == name or request_id not in self._digests):
                self._events[request_id] = self._context.wait_for_external_event(request_id)
                self._digests.pop(request_id, None)  # upstream asks again when it cannot use the answer
        self.set_custom_status(self._status)
        while not self._events[name].is_completed:
            tasks = [task for task in (*tasks, *self._events.values()) if not task.is_completed]
            yield self._context.task_any(tasks)
            self._digests |= {
                request_id: reply_digest(event.result)
                for request_id, event in self._events.items()
                if event.is_completed and request_id not in self._digests
            }
            self.set_custom_status(self._status)
        return self._events.pop(name).result


def run_asking(
    context: DurableOrchestrationContext, workflow: Workflow, address: Mapping[str, str], run: Callable[[Any], Steps]
) -> Steps:
    """Run upstream's orchestration of a workflow.

    Args:
        context: of the SDK.
        workflow: the run's.
        address: ``workflow`` and ``run_id`` of the run as a whole.
        run: makes the orchestration with a context.

    Returns:
        The outputs of the executors; without any, the texts of the agents whose answers are outputs.
    """
    asking = _AskingContext(context, address)

    def run_step(task: Any) -> Steps:
        return (yield from asking.wait_for_answer(task)) if isinstance(task, str) else (yield task)

    try:
        outputs = yield from run_steps(run(asking), run_step)
    except Exception:
        asking.set_custom_status({"state": "failed"})
        raise
    asking.set_custom_status({"state": "completed"})
    output_agents = {
        AgentSessionId.to_entity_name(workflow_scoped_executor_id(workflow.name, executor_id))
        for executor_id in workflow.executors
        if workflow.is_terminal_executor(executor_id)
    }
    texts = [load_agent_response(task.result).text for name, task in asking.agent_tasks if name in output_agents]
    return outputs or texts
