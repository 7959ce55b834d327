"""The composition root: a Functions app that hosts agents durably."""

import math
import os
import re
import threading
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import azure.functions as func
from agent_framework import SupportsAgentRun, Workflow
from agent_framework_azurefunctions import AgentFunctionApp
from agent_framework_durabletask import AgentResponseCallbackProtocol
from azure.functions.decorators.constants import HTTP_TRIGGER

from durable_agent_host.durable.agent_sessions import OrchestrationAgent
from durable_agent_host.durable.client import TurnClient
from durable_agent_host.durable.entity import DurableAgentEntity
from durable_agent_host.durable.listener import TurnListener
from durable_agent_host.durable.mcp import answer_tool_call
from durable_agent_host.durable.register import register_agent_entity, register_route, register_turn_functions
from durable_agent_host.durable.retries import RetryPolicy
from durable_agent_host.durable.run import AgentRunner
from durable_agent_host.durable.tend import TurnStopper
from durable_agent_host.durable.wakeups import Wakeups
from durable_agent_host.durable.work import RunLimits
from durable_agent_host.errors import RegistrationError, SettingError
from durable_agent_host.http.adapter import adapt_http_function
from durable_agent_host.http.handlers import Host
from durable_agent_host.http.routes import ROUTES
from durable_agent_host.log.log import TurnLog
from durable_agent_host.log.retention import sweep_regularly
from durable_agent_host.providers import openai
from durable_agent_host.settings import Settings
from durable_agent_host.turns.plan import PlanTimes

if TYPE_CHECKING:
    from azure.durable_functions import DFApp
    from azure.functions.decorators.function_app import Function

_FUNCTION_NAME = re.compile(r"[A-Za-z0-9_\-]{1,120}")


class DurableAgentApp(AgentFunctionApp):
    """A Functions app whose agents have durable sessions.

    A superset of upstream's `AgentFunctionApp`: workflows are upstream's own and work as before, so does ``get_agent``
    in orchestrations, whose sessions have the ids that they are given, MCP tools keep their names and properties, and
    sessions that it stored are read and carried on. The routes, the entity and the waiting are ours.

    Args:
        agents: agents to host; each needs a name of letters, digits, ``_`` and ``-``.
        workflow: one workflow to host.
        workflows: several.
        http_auth_level: who may call the routes; health is always open.
        enable_health_check: whether ``GET /health`` is there.
        enable_http_endpoints: whether agents are reachable by HTTP.
        enable_mcp_tool_trigger: whether agents are MCP tools.
        settings: read from the environment when left out.
        entity_class: a subclass of `DurableAgentEntity`, to add operations or to change what is stored.
        default_callback: told of every update of agents that are added without one.

    Raises:
        RegistrationError: an agent has no usable name, or one that another agent has.
        SettingError: a setting has no meaning.
    """

    def __init__(
        self,
        agents: list[SupportsAgentRun] | None = None,
        workflow: Workflow | None = None,
        workflows: list[Workflow] | Mapping[str, Workflow] | None = None,
        http_auth_level: func.AuthLevel = func.AuthLevel.FUNCTION,
        *,
        enable_health_check: bool = True,
        enable_http_endpoints: bool = True,
        enable_mcp_tool_trigger: bool = False,
        settings: Settings | None = None,
        entity_class: type[DurableAgentEntity] = DurableAgentEntity,
        default_callback: AgentResponseCallbackProtocol | None = None,
    ) -> None:
        self.settings = settings or Settings.from_environment()
        self._entity_class = entity_class
        self._runners: dict[str, AgentRunner] = {}
        self._public: dict[str, str | None] = {}
        self._wakeups = Wakeups()
        if self.settings.turn_log:
            choose_turn_log(self.settings)  # what has no meaning is told at start, and not by the first turn
        self._open_log = _once(partial(open_turn_log, self.settings))
        self._stopper = TurnStopper(self._open_log)
        super().__init__(
            agents=agents,
            workflow=workflow,
            workflows=workflows,
            http_auth_level=http_auth_level,
            enable_health_check=enable_health_check,
            enable_http_endpoints=enable_http_endpoints,
            enable_mcp_tool_trigger=enable_mcp_tool_trigger,
            default_callback=default_callback,
        )
        functions_app = cast("DFApp", self)
        times = PlanTimes(
            lease_seconds=self.settings.lease_seconds,
            approval_seconds=min(self.settings.approval_timeout_seconds, self.settings.turn_log_retention_hours * 3600),
            activity_attempts=self.settings.activity_attempts,
        )
        register_turn_functions(functions_app, self._runners, self._wakeups, stopper=self._stopper, times=times)
        host = Host(agents=self._public, settings=self.settings, open_log=self._open_log)
        for route in ROUTES:
            if enable_health_check if route.is_health else enable_http_endpoints:
                register_route(
                    functions_app,
                    name=route.name,
                    template=route.template,
                    method=route.method,
                    auth=func.AuthLevel.ANONYMOUS if route.is_health else http_auth_level,
                    handler=partial(route.handler, host),
                    wakeups=self._wakeups,
                    stopper=self._stopper,
                )

    def add_agent(
        self,
        agent: SupportsAgentRun,
        callback: AgentResponseCallbackProtocol | None = None,
        enable_http_endpoint: bool | None = None,
        enable_mcp_tool_trigger: bool | None = None,
        *,
        entity_id: str | None = None,
    ) -> None:
        """Host one more agent.

        Args:
            agent: of the framework, or anything with its ``run`` and a ``name``.
            callback: told of every update of this agent.
            enable_http_endpoint: reachable by HTTP; when left out, the app's setting, and not for a workflow's agents.
            enable_mcp_tool_trigger: an MCP tool; the app's setting when left out.
            entity_id: another name than the agent's own, as upstream's workflows use it.

        Raises:
            RegistrationError: the name is missing or unusable, or another agent's, upper and lower case aside.
        """
        name = entity_id or getattr(agent, "name", None)
        if not isinstance(name, str) or not _FUNCTION_NAME.fullmatch(name):
            raise RegistrationError(
                f"the agent's name is {name!r}: give it a name of 1 to 120 letters, digits, '_' and '-', "
                "because its entity becomes a function of that name"
            )
        taken = next((other for other in self._runners if other.casefold() == name.casefold()), None)
        if taken is not None:
            raise RegistrationError(
                f"two agents are named {taken!r} and {name!r}, and Durable Functions does not tell them apart: "
                "rename one"
            )
        if entity_id is not None and enable_http_endpoint is None:
            enable_http_endpoint = False
        super().add_agent(agent, callback, enable_http_endpoint, enable_mcp_tool_trigger, entity_id=entity_id)

    def get_agent(self, context: Any, agent_name: str, workflow_name: str | None = None) -> OrchestrationAgent:
        """Give an agent to an orchestration; as upstream's, and sessions have the ids that they are given.

        Args:
            context: of the orchestration.
            agent_name: as registered.
            workflow_name: the workflow that the agent belongs to, when it does.

        Raises:
            ValueError: there is no such agent.
        """
        return OrchestrationAgent(super().get_agent(context, agent_name, workflow_name))

    def get_functions(self) -> list["Function"]:
        """List the app's functions, as the worker loads them.

        The app streams (`durable_agent_host.http.adapter`), so its HTTP functions are given and give what the
        streaming extension has; those that are written for `azure.functions.HttpRequest` are adapted.
        """
        bounds = {route.name: self.settings.max_request_bytes for route in ROUTES if route.is_bounded}
        functions: list[Function] = cast("Any", super()).get_functions()
        for function in functions:
            trigger = function.get_trigger()
            if trigger is not None and trigger.get_binding_name() == HTTP_TRIGGER:
                name, bound = trigger.name, bounds.get(function.get_function_name() or "")
                adapted = adapt_http_function(function.get_user_function(), name, max_body_bytes=bound)
                cast("Any", function)._func = adapted  # noqa: SLF001 - as the SDK's own decorators replace it
        return functions

    def validate_function_names(self, functions: list["Function"]) -> None:
        """Refuse functions whose names Durable Functions does not tell apart.

        Args:
            functions: of the app, those of agents and workflows among them.

        Raises:
            RegistrationError: two have one name, upper and lower case aside.
        """
        taken: dict[str, str] = {}
        for name in [function.get_function_name() or "" for function in functions]:
            if (other := taken.get(name.casefold())) is not None:
                raise RegistrationError(
                    f"two functions are named {other!r} and {name!r}, and Durable Functions does not tell them apart: "
                    "rename one, or the agent, executor or workflow that it comes from. An agent makes dafx-AGENT, an "
                    "executor dafx-WORKFLOW-EXECUTOR, a workflow dafx-WORKFLOW and that with -start, -status, -respond"
                )
            taken[name.casefold()] = name
        cast("Any", super()).validate_function_names(functions)

    def _setup_agent_functions(
        self,
        agent: SupportsAgentRun,
        agent_name: str,
        callback: AgentResponseCallbackProtocol | None,
        enable_http_endpoint: bool,
        enable_mcp_tool_trigger: bool,
    ) -> None:
        if enable_http_endpoint:
            self._public[agent_name] = getattr(agent, "description", None)
        super()._setup_agent_functions(agent, agent_name, callback, False, enable_mcp_tool_trigger)

    def _setup_agent_entity(
        self, agent: SupportsAgentRun, agent_name: str, callback: AgentResponseCallbackProtocol | None
    ) -> None:
        retry_policy = RetryPolicy(
            retries=self.settings.model_attempts - 1,
            first_seconds=self.settings.model_retry_seconds,
            most_seconds=self.settings.model_retry_most_seconds,
        )
        runner = AgentRunner(
            agent_name,
            agent,
            openai,
            listener=TurnListener(callback),
            open_log=self._open_log,
            limits=RunLimits(self.settings.turn_timeout_seconds, retry_policy),
        )
        self._runners[agent_name] = runner
        register_agent_entity(cast("DFApp", self), agent_name, self._entity_class(runner, self.settings))

    async def _handle_mcp_tool_invocation(self, agent_name: str, context: str, client: Any) -> str:
        turns = TurnClient(client, self._wakeups, self._stopper)
        return await answer_tool_call(agent_name, context, turns, wait_seconds=self.settings.wait_seconds)

    @staticmethod
    def _build_function_name(agent_name: str, prefix: str) -> str:
        """Name the function of an agent's MCP tool; upstream's name has one character for ``-`` and ``_``."""
        return f"{prefix}-{agent_name}"

    def _setup_health_route(self) -> None:
        """Leave upstream's route out: ours checks the store."""


def open_turn_log(settings: Settings, environment: Mapping[str, str] = os.environ) -> TurnLog:
    """Make the process's turn log, and have old logs swept from its store.

    Args:
        settings: which store, and how long logs are kept.
        environment: as in `choose_turn_log`.

    Returns:
        The log; its store is opened at its first use.

    Raises:
        SettingError: the setting has no meaning, or what it needs is not there.
    """
    log = choose_turn_log(settings, environment)
    sweep_regularly(log, older_than_seconds=settings.turn_log_retention_hours * 3600)
    return log


def choose_turn_log(settings: Settings, environment: Mapping[str, str] = os.environ) -> TurnLog:
    """Make the turn log that the settings ask for.

    Args:
        settings: which store; a database that forgets by itself is told how long logs are kept.
        environment: says whether the app runs in the embedded host, and names the app's storage account.

    Returns:
        The log; without a setting, a SQLite file beside the embedded host's own, else the app's storage account.

    Raises:
        SettingError: the setting has no meaning, or what it needs is not there.
    """
    data = environment.get("FUNCTIONS_HOST_DATA")
    setting = settings.turn_log
    if not setting:
        setting = f"sqlite:{Path(data, 'turn-log.sqlite')}" if data else "blob"
    kind, _, place = setting.partition(":")
    match kind:
        case "sqlite" if place:
            from durable_agent_host.stores.sqlite import SqliteTurnLog  # noqa: PLC0415 - only the store that is used

            return SqliteTurnLog(place)
        case "blob" if not place:
            from durable_agent_host.stores.blob import BlobTurnLog  # noqa: PLC0415

            return BlobTurnLog.from_environment(environment)
        case "redis" | "rediss" if place:
            from durable_agent_host.stores.redis import RedisTurnLog  # noqa: PLC0415

            return RedisTurnLog(setting, kept_seconds=math.ceil(settings.turn_log_retention_hours * 3600))
        case _:
            raise SettingError(
                f"DURABLE_AGENT_HOST_TURN_LOG is {setting!r}: set it to 'sqlite:PATH', 'blob' or 'redis://HOST:PORT', "
                "or leave it out"
            )


def _once[T](make: Callable[[], T]) -> Callable[[], T]:
    """Make a thing when it is asked for first, from whatever thread, and the same one from then on."""
    lock = threading.Lock()
    made = cache(make)

    def get() -> T:
        with lock:
            return made()

    return get
