"""The composition root: a Functions app that hosts agents durably."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import azure.functions as func
from agent_framework import CompactionStrategy, RawAgent, SupportsAgentRun, Workflow
from agent_framework_azurefunctions import AgentFunctionApp
from agent_framework_azurefunctions._workflow import run_workflow_orchestrator
from agent_framework_durabletask import (
    DEFAULT_MAX_POLL_RETRIES,
    DEFAULT_POLL_INTERVAL_SECONDS,
    AgentResponseCallbackProtocol,
)

from durable_agent_host.activities import plan_times, run_limits
from durable_agent_host.agent.agent_options import (
    AgentOptions,
    check_tools,
    choose_redactor,
)
from durable_agent_host.agent.agent_runner import AgentRunner
from durable_agent_host.agent.context_stores import reject_external_stores
from durable_agent_host.agent.feature import HistoryLocation
from durable_agent_host.agent.hosted_agent import duplicate_name_error, validate_agent_name, why_no_journal
from durable_agent_host.agent.observer import CallbackObserver, TurnObserver
from durable_agent_host.agent.warm_up import warm_up_in_background
from durable_agent_host.agent.workflow_agents import AgentSource, build_agent, factory_of
from durable_agent_host.app_functions import as_list
from durable_agent_host.concurrency.thread_safe_waiters import Notifier
from durable_agent_host.durable.app_secret import AppSecret, make_token
from durable_agent_host.durable.function_registration import (
    check_duplicate_names,
    client_for_binding,
    register_agent_entity,
    register_agent_tool,
    register_erasure,
    register_feature,
    register_maintenance,
    register_page,
    register_route,
    register_run_reports,
    register_turn_functions,
)
from durable_agent_host.durable.maintenance import Maintenance, ttl_seconds
from durable_agent_host.durable.orchestration_agent import OrchestrationAgent
from durable_agent_host.durable.session_entity import DurableAgentEntity
from durable_agent_host.durable.session_erasure import Eraser
from durable_agent_host.durable.session_queue_activity import TurnStopper
from durable_agent_host.durable.store_health import StoreProbes
from durable_agent_host.durable.task_hub import TaskHub
from durable_agent_host.durable.turn_client import TurnClient, TurnServices
from durable_agent_host.durable.workflow_functions import (
    register_executor_activity,
    register_workflow_orchestration,
    strip_pickled_reason,
)
from durable_agent_host.durable.workflow_runs import open_request
from durable_agent_host.encryption.key_check import KeyCheck
from durable_agent_host.features.notifications.notification import Notify
from durable_agent_host.features.registry import (
    FEATURE_ORCHESTRATIONS,
    FEATURE_VIEWS,
    Choices,
    FeatureChoices,
    app_features,
)
from durable_agent_host.http.app_routes import hosted_agents
from durable_agent_host.http.functions_http_adapter import adapt_http_functions, check_auth_level
from durable_agent_host.http.gate import Authorize, Authorizer, Identify
from durable_agent_host.http.request_handling import HandlerContext, RoutePart
from durable_agent_host.http.routes import ROUTES
from durable_agent_host.inspector.page import PAGE, PAGE_HEADERS
from durable_agent_host.log_redaction import redact_log_records
from durable_agent_host.model.budget import Budgets
from durable_agent_host.model.conversation_file import ServiceFilesOf, no_files
from durable_agent_host.model.principal import THE_APP, Owner, Principal
from durable_agent_host.protocols.dialects import DIALECT_ROUTES, DIALECTS
from durable_agent_host.protocols.mcp.tool_trigger import TOOL_PROPERTIES, answer_tool_call
from durable_agent_host.providers.registry import provider_for
from durable_agent_host.redaction import add_known_secrets, find_secrets
from durable_agent_host.segments.turn_data_storage import TurnDataStorage
from durable_agent_host.settings import NO_MAINTENANCE, ON, Settings
from durable_agent_host.store_factory import StoreFactory, choose_turn_log, stores_of
from durable_agent_host.telemetry import DEV
from durable_agent_host.telemetry.telemetry_observers import report_end, turn_observers
from durable_agent_host.turn.request_options import AllowedOptions, check_allowed
from durable_agent_host.turn.turn_redactor import Redact, Redactor

if TYPE_CHECKING:
    from azure.durable_functions import DFApp, DurableOrchestrationClient
    from azure.functions.decorators.function_app import Function

    from durable_agent_host.agent_client import AgentClient

_LOGGER = logging.getLogger(__name__)


class DurableAgentApp(AgentFunctionApp):
    """A Functions app whose agents have durable sessions.

    A superset of upstream's `AgentFunctionApp`, whose workflows, MCP tools and stored sessions continue here; sessions
    of orchestrations have the given ids. The routes of agents, the entity and the waiting are ours.

    Args:
        agents: agents to host: an ``Agent``, any object with a ``name`` and a ``run``, or a function that builds the
            agent, as a workflow needs. Names have letters, digits, ``_`` and ``-``.
        workflow, workflows: one workflow to host, or several, with the routes of ``AgentFunctionApp``.
        http_auth_level: who may call the routes, by default holders of a function key; ``GET /api/health`` is open.
        enable_health_check: whether to serve ``GET /api/health``, by default True.
        enable_http_endpoints: whether agents are reachable by HTTP, by default True.
        max_poll_retries, poll_interval_seconds: accepted for compatibility, without effect.
        enable_mcp_tool_trigger: whether agents are MCP tools, by default False.
        default_callback: receives every update of agents that were added without a callback.
        settings: a ``Settings``, by default read from the environment.
        entity_class: a subclass of ``DurableAgentEntity``, to add operations or change what is stored.
        identify: identifies the caller, who then owns the sessions that they begin. By default nobody is known.
        authorize: lets callers other than the owner into a session; by default nobody.
        allowed_options: which ``options`` clients may set for a turn: name → True for any value, or a list of values;
            by default none.
        allow_client_tools: whether requests may bring tools that the client runs, by default True.
        observers: see every moment of every turn; provisional.
        compaction: the framework's strategy for agents without a compaction of their own.
        session_ttl: how long a session is kept after its last use: seconds or a ``timedelta``, 0 for ever; by default
            the setting.
        budgets: what agents without budgets of their own may spend, a ``Budgets``; by default without limits.
        fallbacks: chat clients that answer, in order, when an agent's service does not; for agents without their own.
        enable_inspector: whether to serve the page ``GET /api/inspector``, by default True.
        redact: returns a content without what must not be kept or shown; for agents without a function of their own.
        notify: a function that gets a ``Notification`` when a turn waits or has ended; or a URL, which gets it signed.
        response_retries: how often a model is asked again for an answer that does not fit its ``response_format``, by
            default 1.

    Raises:
        RegistrationError: an agent's name is missing, unusable or taken, or a time to live is invalid.
        SettingError: a setting is invalid.
    """

    def __init__(  # noqa: PLR0917 - upstream's arguments, in upstream's order
        self,
        agents: Sequence[AgentSource] | None = None,
        workflow: Workflow | None = None,
        workflows: list[Workflow] | Mapping[str, Workflow] | None = None,
        http_auth_level: func.AuthLevel = func.AuthLevel.FUNCTION,
        enable_health_check: bool = True,
        enable_http_endpoints: bool = True,
        max_poll_retries: int = DEFAULT_MAX_POLL_RETRIES,
        poll_interval_seconds: float = DEFAULT_POLL_INTERVAL_SECONDS,
        enable_mcp_tool_trigger: bool = False,
        default_callback: AgentResponseCallbackProtocol | None = None,
        *,
        settings: Settings | None = None,
        entity_class: type[DurableAgentEntity] = DurableAgentEntity,
        identify: Identify | None = None,
        authorize: Authorize | None = None,
        allowed_options: AllowedOptions | None = None,
        allow_client_tools: bool = True,
        observers: Sequence[TurnObserver] = (),
        compaction: CompactionStrategy | None = None,
        session_ttl: timedelta | float | None = None,
        budgets: Budgets | None = None,
        fallbacks: Sequence[Any] = (),
        enable_inspector: bool = True,
        redact: Redact | None = None,
        notify: Notify | str | None = None,
        response_retries: int = 1,
    ) -> None:
        _prepare_process()
        self.settings = valid_settings = settings or Settings.from_environment()
        self._app_features = app_features(notify, valid_settings)
        self._reports = [feature.report for feature in self._app_features if feature.report is not None]
        self._entity_class = entity_class
        self._gate = Authorizer(
            identify, authorize, valid_settings.adopt_sessions, max_arriving_bytes=valid_settings.max_arriving_bytes
        )
        self._observers = observers
        self._default_redact = redact
        self._allowed = check_allowed(allowed_options or {})
        self._allows_client_tools = allow_client_tools
        self._choices = FeatureChoices(Choices(budgets, compaction, fallbacks, response_retries))
        self._options: dict[str, AgentOptions] = {}
        self._runners: dict[str, AgentRunner] = {}
        self._public: dict[str, str | None] = {}
        self._has_agent_routes: bool | None = None
        self._agents_auth_level = check_auth_level(http_auth_level)
        self._has_inspector = enable_inspector
        self._default_ttl = ttl_seconds(session_ttl, self.settings.session_ttl_seconds)
        self._open_stores()
        super().__init__(
            agents=cast("Any", as_list("agents", agents)),
            workflow=workflow,
            workflows=workflows if isinstance(workflows, Mapping) else as_list("workflows", workflows),
            http_auth_level=self._agents_auth_level,
            enable_health_check=enable_health_check,
            enable_http_endpoints=enable_http_endpoints,
            max_poll_retries=max_poll_retries,
            poll_interval_seconds=poll_interval_seconds,
            enable_mcp_tool_trigger=enable_mcp_tool_trigger,
            default_callback=default_callback,
        )
        self._register_turns()
        self._has_agent_routes = False
        if enable_http_endpoints or self._public:
            self._register_routes("agents", "workflows", *DIALECTS)
        if enable_health_check:
            self._register_routes("health")

    def _open_stores(self) -> None:
        """Prepare the resources that turns share; stores are opened on first use."""
        if self.settings.turn_log:
            choose_turn_log(self.settings)  # reports an invalid setting at start, not in the first turn
        stores = stores_of(self.settings)
        self._open_log = stores.open_log
        storage = TurnDataStorage(
            stores.open_blobs,
            seen=self.settings.max_receipts,
            grace_seconds=self.settings.piece_grace_seconds,
            find_redactor=self._find_redactor,
            service_files=self._service_files_of,
        )
        self._services = TurnServices(
            wakeups=Notifier(),
            stopper=TurnStopper(self._open_log, self._runners),
            probes=StoreProbes(self._open_log, storage.open_store, self._runners),
            storage=storage,
            find_history=self._find_history,
            hub=hub_of(stores),
        )

    def _find_redactor(self, agent: str) -> Redactor | None:
        return options.redactor if (options := self._options.get(agent)) is not None else None

    def _find_history(self, agent: str) -> HistoryLocation:
        return runner.history if (runner := self._runners.get(agent)) is not None else HistoryLocation()

    def _service_files_of(self, agent: str) -> ServiceFilesOf:
        return runner.hosted.provider.service_files if (runner := self._runners.get(agent)) is not None else no_files

    def add_agent(
        self,
        agent: AgentSource,
        callback: AgentResponseCallbackProtocol | None = None,
        enable_http_endpoint: bool | None = None,
        enable_mcp_tool_trigger: bool | None = None,
        *,
        entity_id: str | None = None,
        allowed_options: AllowedOptions | None = None,
        compaction: CompactionStrategy | None = None,
        session_ttl: timedelta | float | None = None,
        budgets: Budgets | None = None,
        fallbacks: Sequence[Any] | None = None,
        redact: Redact | None = None,
        response_retries: int | None = None,
    ) -> None:
        """Host one more agent.

        Args:
            agent: of the framework, any object with a ``run`` and a ``name``, or a function that builds a new one.
            callback: receives every update of this agent.
            enable_http_endpoint: reachable by HTTP; by default the app's setting, but not for a workflow's agents.
            enable_mcp_tool_trigger: an MCP tool; by default the app's setting, but not for a workflow's agents.
            entity_id: another name than the agent's own, as upstream's workflows use it.
            allowed_options: options that clients may set for a turn; by default the app's.
            compaction: how this agent's context is compacted; by default the agent's own strategy, then the app's.
            session_ttl: how long sessions are kept after their last use; by default the app's setting.
            budgets: what the agent may spend; by default the app's.
            fallbacks: chat clients that answer, in order, when the agent's service does not; by default the app's.
            redact: removes from its turns what must not be kept or shown; by default the app's.
            response_retries: how often its model is asked again for an answer that does not fit ``response_format``;
                by default the app's.

        Raises:
            RegistrationError: the name is taken or unusable, or the agent cannot be hosted with these arguments.
        """
        source = agent
        agent = build_agent(source)
        name = validate_agent_name(entity_id or getattr(agent, "name", None))
        if self._is_hosted(name, agent):
            return
        if entity_id is not None and not enable_http_endpoint:
            enable_http_endpoint = False
            enable_mcp_tool_trigger = enable_mcp_tool_trigger or False
        choices = Choices(budgets, compaction, fallbacks, response_retries)
        features = self._choices.features(name, agent, choices, provider_for)
        self._options[name] = AgentOptions(
            new_agent=factory_of(source),
            allowed_options=check_allowed(self._allowed if allowed_options is None else allowed_options),
            ttl_seconds=ttl_seconds(session_ttl, self._default_ttl),
            features=features,
            redactor=choose_redactor(name, features, redact or self._default_redact),
        )
        check_tools(agent)
        reject_external_stores(name, agent)
        super().add_agent(agent, callback, enable_http_endpoint, enable_mcp_tool_trigger, entity_id=entity_id)

    def _is_hosted(self, name: str, agent: SupportsAgentRun) -> bool:
        """Return whether an agent is hosted already; refuse another one of its name."""
        existing_name = next((other for other in self._runners if other.casefold() == name.casefold()), None)
        if existing_name is None:
            return False
        if existing_name != name or self._runners[name].agent is not agent:
            raise duplicate_name_error(existing_name, name)
        _LOGGER.warning("agent %r is added a second time: the first one applies", name)
        return True

    def get_agent(
        self,
        context: Any,
        agent_name: str,
        workflow_name: str | None = None,
        *,
        principal: Principal | str | None = None,
        traceparent: str | None = None,
    ) -> OrchestrationAgent:
        """Return an agent for an orchestration: each run is a turn, and sessions have the ids they are given.

        Args:
            context: the orchestration's.
            agent_name: as registered.
            workflow_name: the workflow that the agent belongs to, if any.
            principal: on whose behalf its turns run; None for the app itself, which may act in every session.
            traceparent: the trace of its turns, a W3C header value; a malformed one is ignored.

        Raises:
            ValueError: there is no such agent.
        """
        principal = Principal(principal) if isinstance(principal, str) and principal else principal
        request_context = self._gate.context_of_app_code(principal or None, "turn.run", traceparent)
        hub = self._services.hub
        agent = super().get_agent(cast("Any", hub.caller(context)), agent_name, workflow_name)
        return OrchestrationAgent(context, agent, request_context, self._services.storage, hub)

    def client(self, durable_client: "DurableOrchestrationClient", *, principal: Principal | Owner) -> "AgentClient":
        """Return a client of the app's agents for one of its functions: it calls the routes without a connection.

        Args:
            durable_client: of the function, by ``durable_client_input``.
            principal: on whose behalf it acts; `THE_APP` for the app itself, which may act in every session.

        Raises:
            TypeError: the principal is something else.
        """
        from durable_agent_host.http.route_transport import client_of_routes  # noqa: PLC0415 - few functions need httpx

        if not isinstance(principal, Principal) and principal != THE_APP:
            raise TypeError(f"principal is {principal!r}: give a Principal, or THE_APP for the app itself")
        actor = principal if isinstance(principal, Principal) else None
        host = replace(self._handler_context(), descriptions=dict.fromkeys(self._runners))
        client_for = partial(TurnClient, durable_client, self._services)
        return client_of_routes(host, client_for, partial(self._gate.context_of_app_code, actor))

    def get_functions(self) -> list["Function"]:
        """List the functions as the worker loads them; those that take `azure.functions.HttpRequest` are adapted."""
        functions: list[Function] = cast("Any", super()).get_functions()
        client_for = partial(client_for_binding, self._services)
        adapt_http_functions(functions, self._gate, client_for, self.settings.max_request_bytes)
        providers = (runner.hosted.provider for runner in self._runners.values())
        warm_up_in_background([*providers], self._open_log)
        return functions

    def validate_function_names(self, functions: list["Function"]) -> None:
        """Refuse functions whose names Durable Functions cannot distinguish.

        Args:
            functions: the app's, including those of agents and workflows.

        Raises:
            RegistrationError: two names differ only in case.
        """
        check_duplicate_names(function.get_function_name() or "" for function in functions)
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
            if self._has_agent_routes is False:
                self._register_routes("agents", "workflows", *DIALECTS)
        super()._setup_agent_functions(agent, agent_name, callback, False, enable_mcp_tool_trigger)

    def _handler_context(self) -> HandlerContext:
        return HandlerContext(
            descriptions=self._public,
            agents=self._runners,
            settings=self.settings,
            open_log=self._open_log,
            gate=self._gate,
            options=self._options,
            allows_client_tools=self._allows_client_tools,
            list_hosted_agents=partial(hosted_agents, self._agent_metadata),
            workflows=self.workflows,
            feature_views=FEATURE_VIEWS,
        )

    def _list_parts(self) -> frozenset[RoutePart]:
        parts: dict[RoutePart, bool] = {
            "agents": True,
            "health": self.enable_health_check,
            "workflows": bool(self.workflows),
            **{name: getattr(self.settings, name) == ON for name in DIALECTS},
        }
        return frozenset(part for part, is_served in parts.items() if is_served)

    def _register_routes(self, *parts: RoutePart) -> None:
        """Register the routes of those parts that the app has, once."""
        host = self._handler_context()
        is_health = "health" in parts
        parts_here = self._list_parts().intersection(parts)
        for route in (candidate for candidate in (*ROUTES, *DIALECT_ROUTES) if candidate.part in parts_here):
            register_route(
                cast("DFApp", self),
                name=route.name,
                template=route.template,
                method=route.method,
                auth=func.AuthLevel.ANONYMOUS if route.is_open else self._agents_auth_level,
                handler=partial(route.serve, host),
                services=self._services,
            )
        if not is_health:
            self._register_pages(cast("DFApp", self))
        self._has_agent_routes = self._has_agent_routes or not is_health

    def _register_pages(self, app: "DFApp") -> None:
        """Register what is the same for everybody, and contains no data."""

        def document(url: str) -> str:
            from durable_agent_host.http.api_document import format_api_document  # noqa: PLC0415 - few apps show it

            return format_api_document(url, self._list_parts())

        register_page(
            app,
            "http-openapi",
            "openapi.json",
            page=document,
            media_type="application/json",
            headers={"cache-control": "no-cache"},
        )
        if self._has_inspector:
            register_page(
                app, "http-inspector", "inspector", page=lambda _: PAGE, media_type="text/html", headers=PAGE_HEADERS
            )

    def _register_turns(self) -> None:
        """Register what runs turns, and what deletes expired sessions and turns."""
        app = cast("DFApp", self)
        services = self._services
        times = plan_times(self.settings)
        register_turn_functions(app, self._runners, services, reports=self._reports, times=times, report_end=report_end)
        eraser = Eraser(self._open_log, services.storage, services.find_history)
        register_erasure(app, eraser, services.hub)
        if self.workflows:
            register_run_reports(app, self._reports, services.hub)
        for feature in self._app_features:
            register_feature(app, feature, services.hub)
        if self.settings.maintenance_schedule != NO_MAINTENANCE:
            maintenance = Maintenance(self._options, services.storage, self.settings, FEATURE_ORCHESTRATIONS)
            register_maintenance(app, maintenance, self.settings.maintenance_schedule, services.hub)

    def _setup_mcp_tool_trigger(self, agent_name: str, agent_description: str | None) -> None:
        register_agent_tool(
            cast("DFApp", self),
            self._build_function_name(agent_name, "mcptool"),
            tool_name=agent_name,
            description=agent_description or f"Interact with {agent_name} agent",
            properties=TOOL_PROPERTIES,
            answer=partial(answer_tool_call, self._handler_context(), agent_name),
            services=self._services,
        )

    def _setup_agent_entity(
        self, agent: SupportsAgentRun, agent_name: str, callback: AgentResponseCallbackProtocol | None
    ) -> None:
        if isinstance(agent, RawAgent) and (reason := why_no_journal(cast("Any", agent))):
            _LOGGER.warning("agent %r has no journal, so a crash fails its turn: %s", agent_name, reason)
        options = self._options[agent_name]
        self._runners[agent_name] = runner = AgentRunner(
            agent_name,
            cast("Any", agent),
            provider_for,
            observers=[*turn_observers(), *([CallbackObserver(callback)] if callback else ()), *self._observers],
            open_log=self._open_log,
            limits=run_limits(self.settings),
            storage=self._services.storage,
            features=options.features,
            notify_end=report_end,
            redactor=options.redactor,
            new_token=partial(make_token, self._services.hub.secret),
            new_agent=options.new_agent,
        )
        entity = self._entity_class(
            runner, self.settings, has_owners=self._gate.identifies, reports=bool(self._reports)
        )
        register_agent_entity(cast("DFApp", self), agent_name, entity, self._services.hub)

    def _setup_executor_activity(self, workflow: Workflow, executor_id: str) -> None:
        register_executor_activity(cast("DFApp", self), workflow, executor_id)

    def _setup_workflow_orchestration(self, workflow: Workflow) -> None:
        register_workflow_orchestration(
            cast("DFApp", self), workflow, run_workflow_orchestrator, self._services.hub.secret
        )

    def _is_owned_orchestration(self, status: Any, workflow_name: str) -> bool:
        strip_pickled_reason(status)
        return super()._is_owned_orchestration(status, workflow_name)

    async def _resolve_hitl_target(self, client: Any, instance_id: str, request_id: str) -> tuple[str, str]:
        return await open_request(client, await super()._resolve_hitl_target(client, instance_id, request_id))

    @staticmethod
    def _build_function_name(agent_name: str, prefix: str) -> str:
        """Name the function of an agent's MCP tool; upstream maps ``-`` and ``_`` to the same character."""
        return f"{prefix}-{agent_name}"

    def _setup_health_route(self) -> None:
        """Omit upstream's route: ours checks the stores."""


def _is_sent(record: logging.LogRecord) -> bool:
    """Return whether the request of a log line is sent; see `durable_agent_host.http.route_transport`."""
    return "http://app/" not in record.getMessage()


def _prepare_process() -> None:
    """Keep secrets out of the process's logs, and requests that are not sent."""
    add_known_secrets(find_secrets(os.environ))
    redact_log_records()
    logging.getLogger("httpx2").addFilter(_is_sent)
    if os.environ.get(DEV):
        from durable_agent_host.telemetry.dev_lines import shorten_log  # noqa: PLC0415 - for a developer's terminal

        shorten_log()


def hub_of(stores: StoreFactory) -> TaskHub:
    """Return the hub of an app: encrypting if its stores are encrypted."""
    secret = AppSecret(stores.open_plain_blobs)
    keys = KeyCheck(stores.open_plain_blobs, stores.cipher)
    if stores.cipher is None:
        return TaskHub(keys, secret)
    from durable_agent_host.durable.encrypted_task_hub import EncryptedHub  # noqa: PLC0415 - needs a package of its own

    return EncryptedHub(stores.cipher, keys, secret)
