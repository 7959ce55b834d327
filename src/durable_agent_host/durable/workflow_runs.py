"""Questions of the runs of hosted workflows, which wait in upstream's orchestrations.

A run shows its questions in the custom status of its orchestration; those of a workflow inside it are in the status of
that workflow's own orchestration, which the run's status names. An answer is an event with the question's name.

Upstream's orchestration waits for one answer after the other, and shows all questions until the last one is answered.
`run_asking` gives it a context that waits for all at once, and removes an answered question from the status.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, cast

from agent_framework_durabletask import workflow_orchestrator_name
from azure.durable_functions import DurableOrchestrationClient, DurableOrchestrationContext

from durable_agent_host.agent.workflow_agents import decode_question, response_schema
from durable_agent_host.durable.instance_status import END_STATUSES
from durable_agent_host.errors import NotFoundError
from durable_agent_host.model.ids import derived_id

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


NOTIFY_RUN_ACTIVITY: Final = "notify_workflow_run"
_REPLIES: Final = "reply_digests"
"""In the custom status of a run: by question, the digest of its answer."""
_MOST_REPLIES: Final = 25
_PAUSES: Final = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)


def reply_digest(result: Any) -> str:
    """Return what tells an answer to a question from another one; the SDK and upstream parse a text that is JSON."""
    with suppress(ValueError):
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
    """

    is_replaying = False

    def __init__(self, context: DurableOrchestrationContext, address: Mapping[str, str]) -> None:
        self._context: Any = context
        self._address = address
        self._status: dict[str, Any] = {}
        self._digests: dict[str, str] = {}
        self._events: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def set_custom_status(self, status: dict[str, Any]) -> None:
        """Show a status, without the questions that have been answered."""
        self._status = status
        visible_status = dict(status)
        if requests := status.get("pending_requests"):
            visible_status["pending_requests"] = {
                name: request for name, request in requests.items() if name not in self._digests
            }
        if self._digests:
            visible_status[_REPLIES] = dict(list(self._digests.items())[-_MOST_REPLIES:])
        self._context.set_custom_status(visible_status)

    def wait_for_external_event(self, name: str) -> str:
        """Return what upstream yields to wait for an answer."""
        return name

    def wait_for_answer(self, name: str) -> Generator[Any, Any, Any]:
        """Wait for the answer to a question; notify first when the run begins to wait."""
        tasks: list[Any] = []
        if not self._events:
            timestamp = self._context.current_utc_datetime.isoformat()
            wire = {**self._address, "question": f"{self._context.instance_id} {name}", "timestamp": timestamp}
            tasks = [self._context.call_activity(NOTIFY_RUN_ACTIVITY, wire)]
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
    context: DurableOrchestrationContext, address: Mapping[str, str], run: Callable[[Any], Generator[Any, Any, Any]]
) -> Generator[Any, Any, Any]:
    """Run upstream's orchestration of a workflow.

    Args:
        context: of the SDK.
        address: ``workflow`` and ``run_id`` of the run as a whole.
        run: makes the orchestration with a context.
    """
    asking = _AskingContext(context, address)
    steps = run(asking)
    advance: Callable[[Any], Any] = steps.send
    value: Any = None
    while True:
        try:
            task = advance(value)
        except StopIteration as end:
            return end.value
        try:
            value = (yield from asking.wait_for_answer(task)) if isinstance(task, str) else (yield task)
        except Exception as error:  # noqa: BLE001 - the orchestration decides what a failed step means
            advance = steps.throw
            value = error
        else:
            advance = steps.send


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
        questions += [
            WorkflowQuestion({"call_id": f"{prefix}{name}"}, instance_id, name, digest)
            for name, digest in fields.get(_REPLIES, {}).items()
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


def _find_type(key: str | None) -> Any:
    """Return the type that upstream calls ``module:name``, whose module the app's workflow has imported."""
    module, _, name = (key or "").partition(":")
    return getattr(sys.modules.get(module), name, None)
