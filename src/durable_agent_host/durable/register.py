"""Binding our functions to a Functions app: the triggers, their names and their durable clients."""

from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any

import azure.durable_functions as df
import azure.functions as func

from durable_agent_host.durable import activity, orchestrator, tend
from durable_agent_host.durable.client import TurnClient
from durable_agent_host.durable.entity import DurableAgentEntity
from durable_agent_host.durable.run import AgentRunner
from durable_agent_host.durable.signals import entity_handle
from durable_agent_host.durable.tend import TurnStopper
from durable_agent_host.durable.wakeups import Wakeups
from durable_agent_host.model.ids import entity_name
from durable_agent_host.turns.plan import PlanTimes

HttpHandler = Callable[[func.HttpRequest, TurnClient], Awaitable[Any]]


def register_turn_functions(
    app: df.DFApp,
    runners: Mapping[str, AgentRunner],
    wakeups: Wakeups,
    *,
    stopper: TurnStopper,
    times: PlanTimes,
) -> None:
    """Bind the orchestration ``agent_turn`` and its activities.

    Args:
        app: the Functions app.
        runners: agents by name, a live view: agents may be added later.
        wakeups: told when a turn is about to end.
        stopper: tells turns to stop.
        times: how long turns wait for what.
    """
    bind: Any = app

    @bind.function_name(orchestrator.TURN_ORCHESTRATION)
    @bind.orchestration_trigger(context_name="context")
    def agent_turn(context: df.DurableOrchestrationContext) -> Generator[Any, Any, dict[str, Any]]:
        return (yield from orchestrator.run_turn_orchestration(context, wakeups, times))

    @bind.function_name(orchestrator.RUN_ACTIVITY)
    @bind.activity_trigger(input_name="turn")
    @bind.durable_client_input(client_name="client")
    async def run_agent_turn(turn: dict, client: df.DurableOrchestrationClient) -> dict[str, Any]:  # pyright: ignore[reportMissingTypeArgument, reportUnknownParameterType] - the worker refuses dict[str, Any]
        return await activity.run_agent_turn(turn, client, runners)  # pyright: ignore[reportUnknownArgumentType]

    @bind.function_name(orchestrator.TEND_ACTIVITY)
    @bind.activity_trigger(input_name="turn")
    @bind.durable_client_input(client_name="client")
    async def tend_agent_turn(turn: dict, client: df.DurableOrchestrationClient) -> bool:  # pyright: ignore[reportMissingTypeArgument, reportUnknownParameterType] - the worker refuses dict[str, Any]
        return await tend.tend_agent_turn(turn, client, stopper)  # pyright: ignore[reportUnknownArgumentType]

    _ = (agent_turn, run_agent_turn, tend_agent_turn)


def register_agent_entity(app: df.DFApp, name: str, entity: DurableAgentEntity) -> None:
    """Bind the entity that holds an agent's sessions.

    Args:
        app: the Functions app.
        name: the agent's registered name.
        entity: carries out the operations.
    """

    def handle(context: df.DurableEntityContext) -> None:
        entity.handle(context)

    handle.__name__ = entity_name(name)
    bind: Any = app
    bound = bind.entity_trigger(context_name="context", entity_name=entity_name(name))(handle)
    bound._function._func = entity_handle(handle)  # noqa: SLF001 - as the SDK's own decorators replace it


def register_route(
    app: df.DFApp,
    *,
    name: str,
    template: str,
    method: str,
    auth: func.AuthLevel,
    handler: HttpHandler,
    wakeups: Wakeups,
    stopper: TurnStopper,
) -> None:
    """Bind one HTTP route.

    Args:
        app: the Functions app.
        name: the function's name.
        template: the route after the prefix.
        method: HTTP method.
        auth: who may call it.
        handler: answers the request, with turns and sessions at hand.
        wakeups: for the waiters among the handlers.
        stopper: for those that cancel.
    """
    bind: Any = app

    @bind.function_name(name)
    @bind.route(route=template, methods=[method], auth_level=auth)
    @bind.durable_client_input(client_name="client")
    async def answer(req: func.HttpRequest, client: df.DurableOrchestrationClient) -> Any:
        return await handler(req, TurnClient(client, wakeups, stopper))

    _ = answer
