"""Registers the package's functions with a Functions app: triggers, names and durable clients."""

import json
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import azure.durable_functions as df
import azure.functions as func
from azurefunctions.extensions.http.fastapi import Request, Response

from durable_agent_host.agent.agent_runner import AgentRunner
from durable_agent_host.durable import agent_turn_activity, session_erasure, session_queue_activity, turn_orchestrator
from durable_agent_host.durable.app_secret import Orchestrate
from durable_agent_host.durable.maintenance import MAINTENANCE_FUNCTION, Maintenance
from durable_agent_host.durable.run_questions import REPORT_RUN_ACTIVITY
from durable_agent_host.durable.session_entity import DurableAgentEntity, entity_handle, reject_foreign_signal
from durable_agent_host.durable.session_erasure import Eraser
from durable_agent_host.durable.session_queue_activity import Report
from durable_agent_host.durable.task_hub import TaskHub, masked_errors
from durable_agent_host.durable.turn_client import ClientFor, TurnClient, TurnServices
from durable_agent_host.errors import RegistrationError
from durable_agent_host.model.ids import entity_name
from durable_agent_host.turn.plan import PlanTimes
from durable_agent_host.turn.turn_report import ReportEnd

HttpHandler = Callable[[Request, ClientFor], Awaitable[Response]]


@dataclass(frozen=True)
class AppFeature:
    """What a feature adds to the functions of an app.

    Attributes:
        orchestrations: by name; only the app can start them.
        activities: by name; each takes its input and, as ``client``, a durable client.
        report: gets what happens to turns and runs of workflows.
    """

    orchestrations: Mapping[str, Orchestrate] = field(default_factory=dict[str, Orchestrate])
    activities: Mapping[str, Callable[..., Awaitable[Any]]] = field(
        default_factory=dict[str, Callable[..., Awaitable[Any]]]
    )
    report: Report | None = None


def register_turn_functions(
    app: df.DFApp,
    runners: Mapping[str, AgentRunner],
    services: TurnServices,
    *,
    reports: Sequence[Report],
    times: PlanTimes,
    report_end: ReportEnd,
) -> None:
    """Register the orchestration ``agent_turn`` and its activities."""
    hub = services.hub
    run_turn = partial(
        turn_orchestrator.run_turn_orchestration,
        wakeups=services.wakeups,
        times=times,
        report_end=report_end,
        secret=hub.secret,
    )
    run_agent = partial(agent_turn_activity.run_agent_turn, runners=runners, storage=services.storage)
    manage = partial(
        session_queue_activity.manage_queued_turn,
        stopper=services.stopper,
        storage=services.storage,
        reports=reports,
    )
    _register_orchestration(app, turn_orchestrator.TURN_ORCHESTRATION, run_turn, hub)
    _register_activity(app, turn_orchestrator.RUN_ACTIVITY, run_agent, hub)
    _register_activity(app, turn_orchestrator.QUEUE_ACTIVITY, manage, hub)


def register_erasure(app: df.DFApp, eraser: Eraser, hub: TaskHub) -> None:
    """Register the orchestration ``erase_session`` and its activity."""
    _register_orchestration(app, session_erasure.ERASE_ORCHESTRATION, session_erasure.run_erasure, hub)
    _register_activity(app, session_erasure.ERASE_ACTIVITY, eraser.erase, hub)


def register_run_reports(app: df.DFApp, reports: Sequence[Report], hub: TaskHub) -> None:
    """Register the activity that a run of a workflow calls when it begins to wait, whether it is reported or not.

    So a run that waits does not change its steps when the app begins to be notified.
    """

    async def report(wire: Mapping[str, Any], client: df.DurableOrchestrationClient) -> None:
        for each in reports:
            await each(wire, client)

    _register_activity(app, REPORT_RUN_ACTIVITY, report, hub)


def register_feature(app: df.DFApp, feature: AppFeature, hub: TaskHub) -> None:
    """Register the functions of a feature."""
    for name, run in feature.orchestrations.items():
        _register_orchestration(app, name, run, hub)
    for name, operation in feature.activities.items():
        _register_activity(app, name, operation, hub)


def _register_orchestration(app: df.DFApp, name: str, run: Orchestrate, hub: TaskHub) -> None:
    """Register an orchestration of this host, which only the app can start; see `AppSecret.guard`."""
    bind: Any = app
    guarded_run = hub.secret.guard(name, run)

    @bind.function_name(name)
    @bind.orchestration_trigger(context_name="context")
    def orchestrate(context: df.DurableOrchestrationContext) -> Generator[Any, Any, Any]:
        with masked_errors():
            return (yield from hub.orchestrate(context, guarded_run))

    _ = orchestrate


def _register_activity(app: df.DFApp, name: str, operation: Callable[..., Awaitable[Any]], hub: TaskHub) -> None:
    """Register an activity of this host: an operation on the input, with ``client``, which marks what it starts."""
    bind: Any = app

    @bind.function_name(name)
    @bind.activity_trigger(input_name="wire")
    @bind.durable_client_input(client_name="client")
    async def act(wire: dict, client: df.DurableOrchestrationClient) -> Any:  # pyright: ignore[reportMissingTypeArgument, reportUnknownParameterType] - the worker refuses dict[str, Any]
        with masked_errors():
            return await hub.run_activity(name, wire, partial(operation, client=hub.client(client)))

    _ = act


def register_maintenance(app: df.DFApp, maintenance: Maintenance, schedule: str, hub: TaskHub) -> None:
    """Register the timer function that deletes expired data."""
    bind: Any = app

    @bind.function_name(MAINTENANCE_FUNCTION)
    @bind.timer_trigger(arg_name="timer", schedule=schedule)
    @bind.durable_client_input(client_name="client")
    async def agent_maintenance(timer: func.TimerRequest, client: df.DurableOrchestrationClient) -> None:
        del timer
        await maintenance.run(hub.client(client))

    _ = agent_maintenance


def register_agent_entity(app: df.DFApp, name: str, entity: DurableAgentEntity, hub: TaskHub) -> None:
    """Register the entity that holds an agent's sessions."""

    def handle(context: df.DurableEntityContext) -> None:
        with masked_errors():
            context = hub.entity(context)
            reject_foreign_signal(context, hub.secret)
            entity.handle(context)

    handle.__name__ = entity_name(name)
    bind: Any = app
    bound = bind.entity_trigger(context_name="context", entity_name=entity_name(name))(handle)
    bound._function._func = entity_handle(handle)  # noqa: SLF001 - as the SDK's own decorators replace it


def client_for_binding(services: TurnServices, binding: str) -> ClientFor:
    """Return what makes the turn client of a call of a function that is not ours.

    Args:
        services: of the app.
        binding: the value of the function's durable client.
    """
    return partial(TurnClient, df.DurableOrchestrationClient(binding), services)


def register_agent_tool(
    app: df.DFApp,
    function_name: str,
    *,
    tool_name: str,
    description: str,
    properties: Sequence[Mapping[str, Any]],
    answer: Callable[[str, ClientFor], Awaitable[str]],
    services: TurnServices,
) -> None:
    """Register an agent as an MCP tool.

    Args:
        app: gets the function.
        function_name: its name.
        tool_name: the tool's name.
        description: of the tool.
        properties: the tool's arguments.
        answer: answers a call, with what makes the turn client of its context.
        services: of the app.
    """
    bind: Any = app

    @bind.function_name(function_name)
    @bind.mcp_tool_trigger(
        arg_name="context",
        tool_name=tool_name,
        description=description,
        tool_properties=json.dumps(properties),
        data_type=func.DataType.UNDEFINED,
        useResultSchema=True,
    )
    @bind.durable_client_input(client_name="client")
    async def answer_call(context: str, client: df.DurableOrchestrationClient) -> str:
        return await answer(context, partial(TurnClient, client, services))

    _ = answer_call


def register_route(
    app: df.DFApp,
    *,
    name: str,
    template: str,
    method: str,
    auth: func.AuthLevel,
    handler: HttpHandler,
    services: TurnServices,
) -> None:
    """Register one HTTP route."""
    bind: Any = app

    @bind.function_name(name)
    @bind.route(route=template, methods=[method], auth_level=auth)
    @bind.durable_client_input(client_name="client")
    async def answer(req: Request, client: df.DurableOrchestrationClient) -> Response:
        return await handler(req, partial(TurnClient, client, services))

    _ = answer


def register_page(
    app: df.DFApp, name: str, template: str, *, page: Callable[[str], str], media_type: str, headers: Mapping[str, str]
) -> None:
    """Register a page that is the same for everybody, made from the URL of the request."""
    bind: Any = app

    @bind.function_name(name)
    @bind.route(route=template, methods=["GET"], auth_level=func.AuthLevel.ANONYMOUS)
    async def show(req: func.HttpRequest) -> func.HttpResponse:
        return func.HttpResponse(page(str(req.url)), mimetype=media_type, headers=dict(headers))

    _ = show


def check_duplicate_names(names: Iterable[str]) -> None:
    """Refuse function names that Durable Functions cannot distinguish.

    Raises:
        RegistrationError: two names differ only in case.
    """
    names_by_folded_name: dict[str, str] = {}
    for name in names:
        if (existing := names_by_folded_name.get(name.casefold())) is not None:
            raise RegistrationError(
                f"two functions are named {existing!r} and {name!r}, and Durable Functions does not tell them "
                "apart: rename one, or the agent, executor or workflow that it comes from. An agent makes "
                "dafx-AGENT, an executor dafx-WORKFLOW-EXECUTOR, a workflow dafx-WORKFLOW and that with -start, "
                "-status, -respond"
            )
        names_by_folded_name[name.casefold()] = name
