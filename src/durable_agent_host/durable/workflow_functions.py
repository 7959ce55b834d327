"""Orchestrations of hosted workflows, and activities of their executors that are not agents.

What a workflow calls is given objects of Python, which upstream pickles into the input of the workflow inside. Such an
input counts only where a workflow has called it; elsewhere it is data, and no part of it is unpickled. From outside, a
workflow is started by its route alone: what has no mark of the app is refused before it is parsed.

An executor that holds agents calls them within its activity, without the host's limits.
"""

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Generator
from typing import Any, Final

import azure.durable_functions as df
from agent_framework import Workflow
from agent_framework_durabletask import execute_workflow_activity, workflow_orchestrator_name
from agent_framework_durabletask._workflows.naming import workflow_executor_activity_name
from agent_framework_durabletask._workflows.serialization import (
    SUBWORKFLOW_ADDRESS_KEY,
    deserialize_value,
    serialize_value,
    strip_pickle_markers,
    strip_subworkflow_markers,
)

from durable_agent_host.codec.strict_json import CLASS_FIELDS, names_python_class
from durable_agent_host.durable.app_secret import AppSecret, start_purpose
from durable_agent_host.durable.run_questions import run_asking
from durable_agent_host.durable.task_hub import masked_errors
from durable_agent_host.errors import RegistrationError

type RunWorkflow = Callable[[df.DurableOrchestrationContext, Workflow, Any, dict[str, Any]], Generator[Any, Any, Any]]

_INPUT_JSON: Final = "input_json"
"""In the input of a marked start: what the run gets, as text, of which the SDK makes no object."""
_AGENT_ONLY: Final = re.compile(r"agent_framework_orchestrations\.(?!_concurrent)")
"""Modules of executors whose requests upstream gives to agents as empty texts, or to all agents again and again."""


def mark_workflow_input(secret: AppSecret, workflow: str, run_id: str, value: Any) -> dict[str, Any]:
    """Return the input of an orchestration that the app starts; the secret must be `ready`."""
    text = json.dumps(strip_pickle_markers(strip_subworkflow_markers(value)))
    return secret.mark(start_purpose(workflow_orchestrator_name(workflow), run_id), {_INPUT_JSON: text})


def register_workflow_orchestration(app: df.DFApp, workflow: Workflow, run: RunWorkflow, secret: AppSecret) -> None:
    """Register the orchestration of a workflow, under upstream's name.

    Raises:
        RegistrationError: it is a builder's whose messages upstream does not deliver.
    """
    for executor in workflow.executors.values():
        if _AGENT_ONLY.match(type(executor).__module__):
            raise RegistrationError(
                f"workflow {workflow.name!r} has a {type(executor).__name__}, which workflows= cannot run: host it as "
                "an agent, agents=[make_agent], where make_agent() calls the workflow's builder, build() and as_agent()"
            )
    bind: Any = app
    name = workflow_orchestrator_name(workflow.name)

    def run_workflow(context: df.DurableOrchestrationContext) -> Generator[Any, Any, Any]:
        value: Any = context.get_input()
        if _is_called_by_workflow(context):
            root = value[SUBWORKFLOW_ADDRESS_KEY]
            address = {"workflow": root["root_workflow_name"], "run_id": root["root_instance_id"]}
        else:
            if context.parent_instance_id:
                value = strip_pickle_markers(strip_subworkflow_markers(value))
            else:
                value = json.loads(value[_INPUT_JSON])
            address = {"workflow": workflow.name, "run_id": context.instance_id}
        return (yield from run_asking(context, workflow, address, lambda asking: run(asking, workflow, value, {})))

    guarded_run = secret.guard(name, run_workflow)

    @bind.function_name(name)
    @bind.orchestration_trigger(context_name="context")
    def workflow_orchestrator(context: df.DurableOrchestrationContext) -> Generator[Any, Any, Any]:
        with masked_errors():
            return (yield from guarded_run(context))

    _ = workflow_orchestrator


def _is_called_by_workflow(context: df.DurableOrchestrationContext) -> bool:
    """Return whether a workflow called the orchestration: upstream names the child after its parent."""
    parent_id = context.parent_instance_id
    return bool(parent_id) and context.instance_id.startswith(f"{parent_id}::")


def strip_pickled_reason(status: Any) -> None:
    """Remove from the status of a run that has not completed what upstream's route would unpickle.

    Whoever terminates a run chooses its output, the reason, and the platform parses one that is JSON.
    """
    if status and status.runtime_status is not df.OrchestrationRuntimeStatus.Completed:
        status._output = strip_pickle_markers(status.output)  # noqa: SLF001 - the SDK has no other way


def _without_classes(result: str) -> str:
    """Keep the dictionaries in an executor's messages and outputs of which the SDK would make objects of Python.

    A workflow inside another gets and returns these as JSON, unless upstream pickles them, as it does with types that
    are not JSON's.
    """
    if not names_python_class(result):
        return result

    def pickle_named(fields: dict[str, Any]) -> dict[str, Any]:
        return serialize_value(OrderedDict(deserialize_value(fields))) if fields.keys() >= CLASS_FIELDS else fields

    fields = json.loads(result)
    for name in ("sent_messages", "outputs"):
        fields[name] = json.loads(json.dumps(fields[name]), object_hook=pickle_named)
    return json.dumps(fields)


def register_executor_activity(app: df.DFApp, workflow: Workflow, executor_id: str) -> None:
    """Register the activity of an executor, under upstream's name."""
    bind: Any = app
    executor = workflow.executors[executor_id]

    @bind.function_name(workflow_executor_activity_name(workflow.name, executor_id))
    @bind.activity_trigger(input_name="inputData")
    def executor_activity(inputData: str) -> str:  # noqa: N803 - upstream's name
        with masked_errors():
            return _without_classes(execute_workflow_activity(executor, inputData, workflow))

    _ = executor_activity
