"""Activities of hosted workflows: executors that are not agents, with a turn's limits for the agents inside.

An executor that holds agents, such as the leader of a group chat, calls them within its activity. Their traffic is
counted per execution of the activity, and exceeding a limit fails it.
"""

from typing import Any

import azure.durable_functions as df
from agent_framework import Workflow
from agent_framework_durabletask import execute_workflow_activity
from agent_framework_durabletask._workflows.naming import workflow_executor_activity_name

from durable_agent_host.agent.bounds import RECEIVED, Received
from durable_agent_host.agent.ending import Failed, RunStoppedError
from durable_agent_host.agent.inner_agents import InnerAgents
from durable_agent_host.agent.provider import ProviderFor
from durable_agent_host.errors import TurnError
from durable_agent_host.model.turn_bounds import ModelBounds


def register_executor_activity(
    app: df.DFApp, workflow: Workflow, executor_id: str, provider_for: ProviderFor, bounds: ModelBounds
) -> None:
    """Register the activity of an executor, under upstream's name.

    Args:
        app: the Functions app.
        workflow: the executor's; the executor gets bounded copies of its agents.
        executor_id: in the workflow.
        provider_for: returns the provider of a chat client.
        bounds: limits on what models send in one execution.
    """
    bind: Any = app
    executor = workflow.executors[executor_id]
    InnerAgents(provider_for).bound_executor(executor)

    @bind.function_name(workflow_executor_activity_name(workflow.name, executor_id))
    @bind.activity_trigger(input_name="inputData")
    def executor_activity(inputData: str) -> str:  # noqa: N803 - upstream's name
        received = Received(bounds)
        before = RECEIVED.set(received)
        try:
            return execute_workflow_activity(executor, inputData, workflow)
        except RunStoppedError as stopped:
            match stopped.stop:
                case Failed(error):
                    raise error from stopped
                case _:
                    raise TurnError(f"the executor {executor_id!r} was stopped") from stopped
        finally:
            RECEIVED.reset(before)

    _ = executor_activity
