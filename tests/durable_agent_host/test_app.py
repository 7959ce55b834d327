"""What an app refuses when it is put together."""

from inspect import signature
from itertools import pairwise
from typing import Any, cast

import pytest
from agent_framework import (
    Agent,
    BaseChatClient,
    Executor,
    FileMemoryProvider,
    InMemoryAgentFileStore,
    SlidingWindowStrategy,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    tool,
)
from agent_framework.openai import OpenAIChatClient
from agent_framework_azurefunctions import AgentFunctionApp
from agent_framework_orchestrations import GroupChatBuilder, HandoffBuilder, SequentialBuilder

from durable_agent_host import Budget, Budgets, DurableAgentApp, durable_tool
from durable_agent_host.errors import RegistrationError, SettingError
from durable_agent_host.settings import Settings
from durable_agent_host.store_factory import choose_turn_log
from tests.kit_services import set_environment


class Silent:
    """An agent with a name and nothing else."""

    def __init__(self, name):
        self.name = self.id = name
        self.description = None

    def run(self, *args, **kwargs):
        """Say nothing."""


@pytest.mark.parametrize(("first", "second"), [("Echo", "Echo"), ("Echo", "echo"), ("straße", "Echo")])
def test_agents_with_the_same_name_are_rejected(first, second):
    """Names that Durable Functions cannot tell apart keep the app from starting, and both are named."""
    with pytest.raises(RegistrationError, match="name"):
        DurableAgentApp(agents=[Silent(first), Silent(second)])


@pytest.mark.filterwarnings("ignore:.HARNESS.")
def test_session_files_in_a_store_of_the_app_are_rejected():
    """An agent whose files of sessions would outlive them keeps the app from starting; a scope makes them the app's."""
    store_class = type("OwnStore", (InMemoryAgentFileStore,), {})
    client = OpenAIChatClient(model="none", api_key="none")
    app_agent, session_agent = (
        Agent(client, name="Notes", context_providers=[FileMemoryProvider(store_class(), scope=scope)])
        for scope in ("everybody", None)
    )
    DurableAgentApp(agents=[app_agent])
    with pytest.raises(RegistrationError, match=r"'Notes'.*OwnStore.*use InMemoryAgentFileStore"):
        DurableAgentApp(agents=[session_agent])


@pytest.mark.parametrize("name", [None, "", " ", "my agent", "a/b", "größe", "x" * 121, 5])
def test_an_agent_without_a_valid_name_is_rejected(name):
    """A name that no function can have is refused, and the sentence says which names can be."""
    with pytest.raises(RegistrationError, match=r"letters, digits, '_' and '-'"):
        DurableAgentApp(agents=[Silent(name)])


class OwnClient(BaseChatClient):
    """A chat client without the framework's layers, so that its agents have no journal."""

    async def _inner_get_response(self, **arguments: Any) -> Any:
        raise NotImplementedError


def pay(amount: float) -> str:
    """Pay an amount."""
    return f"paid {amount}"


@pytest.mark.parametrize(
    "paying", [durable_tool(pay, approved_by="another"), tool(pay, approval_mode="always_require")]
)
def test_approvals_of_an_agent_without_a_journal_are_rejected(paying: Any):
    """Nobody would be asked, in the agent or one within it; other declarations only have no effect."""
    payer = Agent(OwnClient(), name="payer", tools=[paying])
    client = OpenAIChatClient(model="none", api_key="none")
    agents = [
        lambda: payer,
        lambda: Agent(client, name="Outer", tools=[payer.as_tool()]),
        lambda: SequentialBuilder(participants=[payer]).build().as_agent("Team"),
    ]
    for agent in agents:
        with pytest.raises(
            RegistrationError, match=r"tool 'pay' of agent 'payer' needs approval.* OwnClient lacks the framework"
        ):
            DurableAgentApp(agents=[agent])
    payer.default_options["tools"] = [durable_tool(pay, in_doubt="ask")]
    DurableAgentApp(agents=agents)


@pytest.mark.parametrize("kind", [SequentialBuilder, HandoffBuilder, GroupChatBuilder])
def test_workflows_that_can_only_be_agents_are_rejected(kind: Any):
    """Upstream gives their agents empty texts, or each agent's answer to all others without end."""
    client = OpenAIChatClient(model="none", api_key="none")
    members = [Agent(client, name=name, require_per_service_call_history_persistence=True) for name in "ab"]
    builder = kind(participants=members, **({"selection_func": max} if kind is GroupChatBuilder else {}))
    team = (builder.with_start_agent(members[0]) if kind is HandoffBuilder else builder).build()
    team.name = "team"
    with pytest.raises(RegistrationError, match=r"host it as an agent, agents=\[make_agent\]"):
        DurableAgentApp(workflows=[team])


def agent_with(*tools: Any) -> Agent:
    """Make an agent with tools."""
    return Agent(OpenAIChatClient(model="m", api_key="k"), name="Echo", tools=list(tools))


async def later(_: Any) -> Any:
    """A function whose answer comes later."""


REDACT = "agent 'Echo' cannot have its 'redact': .*"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"identify": "x-who"}, r"identify is str: .*identify\(request\)"),
        ({"identify": lambda: None}, r"cannot be called as identify\(request\)"),
        ({"identify": later, "authorize": lambda principal, action: True}, r"authorize\(principal, action, session\)"),
        ({"redact": True}, r"redact is bool: .*redact\(content\)"),
        ({"redact": lambda: None}, r"cannot be called as redact\(content\)"),
        ({"redact": later}, "redact is async"),
        ({"budgets": Budget(tokens=5)}, r"give Budgets\(turn="),
        ({"budgets": {"turn": {"tokens": 5}}}, r"give Budgets\(turn="),
        ({"budgets": {}}, r"give Budgets\(turn="),
        ({"budgets": Budgets(turn=cast("Any", {"tokens": 5}))}, r"give Budgets\(turn="),
        ({"budgets": Budgets(turn=Budget(tokens=True))}, "tokens=True"),
        ({"http_auth_level": None}, "http_auth_level is None: give one of func.AuthLevel.FUNCTION"),
        ({"http_auth_level": "everybody"}, "http_auth_level is 'everybody'"),
        ({"redact": lambda _: None}, REDACT + "it returned NoneType"),
        ({"redact": lambda _: 1 / 0}, REDACT + "it raised ZeroDivisionError"),
        ({"compaction": SlidingWindowStrategy}, "give an object of a strategy"),
        ({"compaction": "window"}, "give an object of a strategy"),
        ({"session_ttl": "1d"}, "session_ttl is '1d': give seconds or a timedelta"),
        ({"session_ttl": True}, "session_ttl is True"),
        ({"allowed_options": ["temperature"]}, "allowed_options is .*give a mapping"),
        ({"response_retries": -1}, "response_retries is -1: give a whole number"),
        ({"response_retries": "2"}, "response_retries is '2': give a whole number"),
        (
            {"fallbacks": OpenAIChatClient(model="m", api_key="k")},
            r"fallbacks is a OpenAIChatClient: give a list, fallbacks=\[…\]",
        ),
        ({"fallbacks": [1]}, "fallback"),
        ({"agents": Silent("Other")}, r"agents is a Silent: give a list, agents=\[…\]"),
        (
            {"agents": [OpenAIChatClient(model="m", api_key="k")]},
            r"a chat client: write Agent\(client, name=",
        ),
        ({"agents": ["Helper"]}, "agents has a str, which is no agent"),
        ({"agents": [Agent]}, "agents has a type, which is no agent: write Agent"),
        ({"agents": [agent_with(agent_with())]}, r"as a tool: write the function, or AGENT.as_tool\(\)"),
        ({"agents": [agent_with(None)]}, "None as a tool: write the function"),
        ({"agents": [Agent(OpenAIChatClient(model="m", api_key="k"))]}, "an agent has no name"),
        ({"agents": [Agent(OpenAIChatClient(model="m", api_key="k"), name="A", tools=["x"])]}, "'x' as a tool"),
    ],
)
def test_invalid_arguments_are_rejected_at_start(arguments: dict[str, Any], message: str):
    """Not at the first request; the error names the argument and what to pass."""
    with pytest.raises(RegistrationError, match=message):
        DurableAgentApp(
            **{"agents": [Agent(OpenAIChatClient(model="m", api_key="k"), name="Echo")]} | cast("Any", arguments)
        )


def test_who_adopts_sessions_requires_identify():
    """A setting about owners without `identify` is rejected: no caller could use the sessions."""
    settings = Settings.from_environment({"DURABLE_AGENT_HOST_ADOPT_SESSIONS": "nobody"})
    with pytest.raises(RegistrationError, match=r"ADOPT_SESSIONS is 'nobody'.*give identify"):
        DurableAgentApp(agents=[Silent("Echo")], settings=settings)
    assert DurableAgentApp(agents=[Silent("Echo")], settings=settings, identify=later)


@pytest.mark.parametrize(
    ("name", "value", "message"), [("ENCRYPTION_KEYS", ",", "has no key"), ("SEGMENTS", "redis://x", "set ")]
)
def test_invalid_stores_and_keys_are_rejected_at_start(name: str, value: str, message: str):
    """Not at the first turn."""
    settings = Settings.from_environment({f"DURABLE_AGENT_HOST_{name}": value})
    with pytest.raises(SettingError, match=f"{name}.*{message}"):
        DurableAgentApp(agents=[Silent("Echo")], settings=settings)


def test_an_agent_without_visible_model_calls_cannot_be_compacted():
    """A strategy for such an agent is refused; the app's own leaves it alone."""
    window = SlidingWindowStrategy(keep_last_groups=2)
    app = DurableAgentApp(agents=[Silent("Echo")], compaction=window)
    with pytest.raises(RegistrationError, match="cannot be compacted: Silent is not an Agent"):
        app.add_agent(Silent("Other"), compaction=window)


def test_an_invalid_setting_is_rejected_at_start(monkeypatch):
    """An invalid setting is reported at start, not during a turn."""
    monkeypatch.setenv("DURABLE_AGENT_HOST_WAIT_SECONDS", "soon")
    with pytest.raises(SettingError, match="WAIT_SECONDS"):
        DurableAgentApp(agents=[Silent("Echo")])


def functions_of(app):
    """Name the functions of an app."""
    return {function.get_function_name() for function in app.get_functions()}


def test_the_functions_of_an_app():
    """An app has the turn's functions, an entity for each agent under upstream's name, and the routes."""
    names = functions_of(DurableAgentApp(agents=[Silent("Echo"), Silent("Other")], settings=Settings()))
    assert {"agent_turn", "run_agent_turn", "tend_agent_turn", "dafx-Echo", "dafx-Other"} <= names
    assert {"http-run", "http-agents", "http-session", "http-turn", "http-health"} <= names


class Nothing(Executor):
    """An executor that does nothing."""

    @handler
    async def do(self, text: str, ctx: WorkflowContext) -> None:
        """Do nothing."""


def workflow_of(name, *executors):
    """Make a workflow of executors that do nothing, one after the other."""
    first, *remaining = [Nothing(id=executor_id) for executor_id in executors]
    builder = WorkflowBuilder(name=name, start_executor=first)
    for before, after in pairwise([first, *remaining]):
        builder = builder.add_edge(before, after)
    return builder.build()


@pytest.mark.parametrize("names", [("a-b", "a_b"), ("a", "_a"), ("1", "agent_1")])
def test_agents_that_differ_in_punctuation_have_separate_functions(names):
    """Each has an entity and an MCP tool of its own."""
    app = DurableAgentApp(agents=[Silent(name) for name in names], enable_mcp_tool_trigger=True, settings=Settings())
    functions = functions_of(app)
    for name in names:
        assert {f"dafx-{name}", f"mcptool-{name}"} <= functions


@pytest.mark.parametrize(
    ("arguments", "function_names"),
    [
        ({"workflow": workflow_of("w", "start")}, "'dafx-w-start' and 'dafx-w-start'"),
        ({"workflow": workflow_of("w", "Status")}, "'dafx-w-Status' and 'dafx-w-status'"),
        ({"workflow": workflow_of("w", "respond")}, "'dafx-w-respond' and 'dafx-w-respond'"),
        ({"workflow": workflow_of("w", "x", "X")}, "'dafx-w-x' and 'dafx-w-X'"),
        ({"workflows": [workflow_of("w-a", "b"), workflow_of("w", "a-b")]}, "'dafx-w-a-b' and 'dafx-w-a-b'"),
        ({"agents": [Silent("W")], "workflow": workflow_of("w", "x")}, "'dafx-w' and 'dafx-W'"),
    ],
)
def test_functions_with_the_same_name_are_rejected(arguments, function_names):
    """Executors, workflows and agents whose functions would have one name keep the app from starting."""
    with pytest.raises(RegistrationError, match=f"{function_names}.*rename"):
        DurableAgentApp(settings=Settings(), **arguments).get_functions()


@pytest.mark.parametrize("method", ["__init__", "add_agent", "get_agent"])
def test_all_upstream_parameters_are_supported(method):
    """Every argument of upstream's class is one of ours, by name and by place, with the same default."""
    host_parameters, upstream_parameters = (
        list(signature(getattr(app_class, method)).parameters.values())
        for app_class in (DurableAgentApp, AgentFunctionApp)
    )
    assert [
        (parameter.name, parameter.default, parameter.kind) for parameter in host_parameters[: len(upstream_parameters)]
    ] == [(parameter.name, parameter.default, parameter.kind) for parameter in upstream_parameters]


def test_all_upstream_attributes_exist():
    """Upstream's public attributes are ours, with the values that were given."""
    app = DurableAgentApp([Silent("Echo")], max_poll_retries=100, poll_interval_seconds=0.5, settings=Settings())
    public = {name for name in vars(AgentFunctionApp(agents=[Silent("Echo")])) if not name.startswith("_")}
    assert public <= set(vars(app))
    assert (app.max_poll_retries, app.poll_interval_seconds) == (100, 0.5)
    assert set(app.agents) == {"Echo"}


def test_the_same_agent_twice_is_one_agent(caplog):
    """An agent that is added twice, as upstream allows, is served once, with a log line."""
    agent = Silent("Echo")
    app = DurableAgentApp(agents=[agent, agent], settings=Settings())
    assert set(app.agents) == {"Echo"}
    assert "'Echo' is added a second time" in caplog.text


@pytest.mark.parametrize("flag", [True, "true"])
def test_a_single_agent_can_be_exposed_over_http(flag):
    """Without HTTP endpoints for all, an agent that asks for one has it, whenever it is added."""
    app = DurableAgentApp(enable_http_endpoints=False, settings=Settings())
    app.add_agent(Silent("Hidden"))
    assert "http-run" not in functions_of(app)
    app = DurableAgentApp(agents=[Silent("Hidden")], enable_http_endpoints=False, settings=Settings())
    app.add_agent(Silent("Open"), enable_http_endpoint=flag)
    app.add_agent(Silent("Other"), enable_http_endpoint=flag)
    assert {"http-run", "http-session", "http-health"} <= functions_of(app)


def test_without_http_only_the_health_route_remains():
    """An app without HTTP endpoints has no route to an agent."""
    app = DurableAgentApp(agents=[Silent("Echo")], enable_http_endpoints=False, settings=Settings())
    assert {name for name in functions_of(app) if name.startswith("http-")} == {"http-health"}


@pytest.mark.parametrize(
    ("option", "function"), [("enable_health_check", "http-health"), ("enable_inspector", "http-inspector")]
)
def test_a_route_can_be_disabled(option, function):
    """The health check and the inspector have a route unless the app disables them."""
    assert function in functions_of(DurableAgentApp(agents=[Silent("Echo")], settings=Settings()))
    app = DurableAgentApp(agents=[Silent("Echo")], settings=Settings(), **{option: False})
    assert function not in functions_of(app)


@pytest.mark.parametrize(
    ("setting", "environment", "kind"),
    [
        ("", {"FUNCTIONS_HOST_DATA": "/data", "AzureWebJobsStorage": "UseDevelopmentStorage=true"}, "SqliteTurnLog"),
        ("", {"AzureWebJobsStorage": "UseDevelopmentStorage=true"}, "BlobTurnLog"),
        ("", {"AzureWebJobsStorage__accountName": "account"}, "BlobTurnLog"),
        ("blob", {"FUNCTIONS_HOST_DATA": "/data", "AzureWebJobsStorage": "UseDevelopmentStorage=true"}, "BlobTurnLog"),
        ("sqlite:/nowhere/log.sqlite", {}, "SqliteTurnLog"),
        ("redis://127.0.0.1:1", {}, "RedisTurnLog"),
        ("rediss://user:pass@127.0.0.1:1/2", {}, "RedisTurnLog"),
    ],
)
def test_the_turn_log_is_chosen_without_touching_its_store(monkeypatch, setting, environment, kind):
    """The setting selects the store; the default is the embedded host's data directory, else the app's storage."""
    set_environment(monkeypatch, environment)
    assert type(choose_turn_log(Settings(turn_log=setting))).__name__ == kind


@pytest.mark.parametrize(
    "setting",
    ["sqlite", "sqlite:", "blob:x", "redis", "redis:x", "redis://", "redis://zz:zz", "redis://[::1", "file:/x", "/x"],
)
def test_an_invalid_turn_log_is_rejected(setting):
    """What can be set is in the sentence."""
    with pytest.raises(SettingError, match="TURN_LOG"):
        choose_turn_log(Settings(turn_log=setting))


def test_a_turn_log_without_a_storage_account_is_rejected_with_a_hint(monkeypatch):
    """Without the embedded host and without storage, the error names the setting."""
    set_environment(monkeypatch, {})
    with pytest.raises(SettingError, match="AzureWebJobsStorage"):
        choose_turn_log(Settings())
