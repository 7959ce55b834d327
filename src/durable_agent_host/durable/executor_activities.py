"""Activities of hosted workflows: what an executor does that is no agent, with the bounds of a turn for its agents.

An executor that holds agents, as one that leads a group chat, asks them within its activity. What they are sent is
counted for one execution of the activity, and a bound that is passed fails it.
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
    """Bind the activity of an executor, under upstream's name.

    Args:
        app: the Functions app.
        workflow: whose executor it is; the executor gets bounded copies of its agents.
        executor_id: in the workflow.
        provider_for: finds the provider of a chat client.
        bounds: of what models send in one execution.
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
