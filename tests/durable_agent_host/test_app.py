"""What an app refuses when it is put together."""

from inspect import signature
from itertools import pairwise
from typing import Any, cast

import pytest
from agent_framework import (
    Agent,
    Executor,
    FileMemoryProvider,
    InMemoryAgentFileStore,
    SlidingWindowStrategy,
    WorkflowBuilder,
    WorkflowContext,
    handler,
)
from agent_framework.openai import OpenAIChatClient
from agent_framework_azurefunctions import AgentFunctionApp

from durable_agent_host import Budget, Budgets, DurableAgentApp, Price
from durable_agent_host.errors import RegistrationError, SettingError
from durable_agent_host.settings import Settings
from durable_agent_host.turn_log.turn_log_factory import choose_turn_log


class Silent:
    """An agent with a name and nothing else."""

    def __init__(self, name):
        self.name = self.id = name
        self.description = None

    def run(self, *args, **kwargs):
        """Say nothing."""


@pytest.mark.parametrize(("first", "second"), [("Echo", "Echo"), ("Echo", "echo"), ("straße", "Echo")])
def test_two_agents_of_one_name_are_refused(first, second):
    """Names that Durable Functions cannot tell apart keep the app from starting, and both are named."""
    with pytest.raises(RegistrationError, match="name"):
        DurableAgentApp(agents=[Silent(first), Silent(second)])


@pytest.mark.filterwarnings("ignore:.HARNESS.")
def test_files_of_sessions_in_a_store_of_the_app_are_refused():
    """An agent whose files of sessions would outlive them keeps the app from starting; a scope makes them the app's."""
    own = type("OwnStore", (InMemoryAgentFileStore,), {})
    client = OpenAIChatClient(model="none", api_key="none")
    shared, kept = (
        Agent(client, name="Notes", context_providers=[FileMemoryProvider(own(), scope=scope)])
        for scope in ("everybody", None)
    )
    DurableAgentApp(agents=[shared])
    with pytest.raises(RegistrationError, match=r"'Notes'.*OwnStore.*use InMemoryAgentFileStore"):
        DurableAgentApp(agents=[kept])


@pytest.mark.parametrize("name", [None, "", " ", "my agent", "a/b", "größe", "x" * 121, 5])
def test_an_agent_without_a_usable_name_is_refused(name):
    """A name that no function can have is refused, and the sentence says which names can be."""
    with pytest.raises(RegistrationError, match=r"letters, digits, '_' and '-'"):
        DurableAgentApp(agents=[Silent(name)])


async def later(_: Any) -> Any:
    """A function whose answer comes later."""


@pytest.mark.parametrize(
    ("given", "said"),
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
    ],
)
def test_what_the_host_could_not_call_is_refused_at_start(given: dict[str, Any], said: str):
    """Not at the first request: an app with a slip in what protects it does not start."""
    with pytest.raises(RegistrationError, match=said):
        DurableAgentApp(agents=[Agent(OpenAIChatClient(model="m", api_key="k"), name="Echo")], **given)


@pytest.mark.parametrize(("name", "value"), [("ADOPT_SESSIONS", "nobody"), ("SESSION_NAMES", "own")])
def test_settings_of_owners_need_an_app_that_has_owners(name: str, value: str):
    """An app that was to tell its callers apart, and does not, opens its sessions to nobody by mistake."""
    settings = Settings.from_environment({f"DURABLE_AGENT_HOST_{name}": value})
    with pytest.raises(RegistrationError, match=f"{name} is '{value}'.*give identify"):
        DurableAgentApp(agents=[Silent("Echo")], settings=settings)
    assert DurableAgentApp(agents=[Silent("Echo")], settings=settings, identify=later)


@pytest.mark.parametrize(
    ("name", "value", "said"), [("ENCRYPTION_KEYS", ",", "has no key"), ("SEGMENTS", "redis://x", "set ")]
)
def test_stores_and_keys_that_mean_nothing_are_refused_at_start(name: str, value: str, said: str):
    """Not at the first turn."""
    settings = Settings.from_environment({f"DURABLE_AGENT_HOST_{name}": value})
    with pytest.raises(SettingError, match=f"{name}.*{said}"):
        DurableAgentApp(agents=[Silent("Echo")], settings=settings)


@pytest.mark.parametrize("compaction", [SlidingWindowStrategy, "window"])
def test_a_compaction_that_is_no_strategy_is_refused(compaction):
    """A class, or what cannot be called, is told at start."""
    with pytest.raises(RegistrationError, match="give an object of a strategy"):
        DurableAgentApp(agents=[Silent("Echo")], compaction=compaction)


def test_an_agent_whose_calls_are_not_seen_cannot_be_compacted():
    """A strategy for such an agent is refused; the app's own leaves it alone."""
    window = SlidingWindowStrategy(keep_last_groups=2)
    app = DurableAgentApp(agents=[Silent("Echo")], compaction=window)
    with pytest.raises(RegistrationError, match="cannot be compacted: Silent is not an Agent"):
        app.add_agent(Silent("Other"), compaction=window)


def test_a_setting_without_meaning_keeps_the_app_from_starting(monkeypatch):
    """A wrong setting is told at start, and not in the middle of a turn."""
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
    first, *others = [Nothing(id=one) for one in executors]
    builder = WorkflowBuilder(name=name, start_executor=first)
    for before, after in pairwise([first, *others]):
        builder = builder.add_edge(before, after)
    return builder.build()


@pytest.mark.parametrize("names", [("a-b", "a_b"), ("a", "_a"), ("1", "agent_1")])
def test_agents_that_differ_in_punctuation_are_told_apart(names):
    """Each has an entity and an MCP tool of its own."""
    app = DurableAgentApp(agents=[Silent(name) for name in names], enable_mcp_tool_trigger=True, settings=Settings())
    found = functions_of(app)
    for name in names:
        assert {f"dafx-{name}", f"mcptool-{name}"} <= found


@pytest.mark.parametrize(
    ("hosted", "named"),
    [
        ({"workflow": workflow_of("w", "start")}, "'dafx-w-start' and 'dafx-w-start'"),
        ({"workflow": workflow_of("w", "Status")}, "'dafx-w-Status' and 'dafx-w-status'"),
        ({"workflow": workflow_of("w", "respond")}, "'dafx-w-respond' and 'dafx-w-respond'"),
        ({"workflow": workflow_of("w", "x", "X")}, "'dafx-w-x' and 'dafx-w-X'"),
        ({"workflows": [workflow_of("w-a", "b"), workflow_of("w", "a-b")]}, "'dafx-w-a-b' and 'dafx-w-a-b'"),
        ({"agents": [Silent("W")], "workflow": workflow_of("w", "x")}, "'dafx-w' and 'dafx-W'"),
    ],
)
def test_functions_of_one_name_are_refused(hosted, named):
    """Executors, workflows and agents whose functions would have one name keep the app from starting."""
    with pytest.raises(RegistrationError, match=f"{named}.*rename"):
        DurableAgentApp(settings=Settings(), **hosted).get_functions()


@pytest.mark.parametrize("method", ["__init__", "add_agent", "get_agent"])
def test_whatever_upstream_takes_is_taken(method):
    """Every argument of upstream's class is one of ours, by name and by place, with the same default."""
    ours, upstreams = (
        list(signature(getattr(of, method)).parameters.values()) for of in (DurableAgentApp, AgentFunctionApp)
    )
    assert [(one.name, one.default, one.kind) for one in ours[: len(upstreams)]] == [
        (one.name, one.default, one.kind) for one in upstreams
    ]


def test_whatever_upstream_has_is_there():
    """Upstream's public attributes are ours, with the values that were given."""
    app = DurableAgentApp([Silent("Echo")], max_poll_retries=100, poll_interval_seconds=0.5, settings=Settings())
    public = {name for name in vars(AgentFunctionApp(agents=[Silent("Echo")])) if not name.startswith("_")}
    assert public <= set(vars(app))
    assert (app.max_poll_retries, app.poll_interval_seconds) == (100, 0.5)
    assert set(app.agents) == {"Echo"}


def test_the_same_agent_twice_is_one_agent(caplog):
    """An agent that is added again, as upstream lets an app do, is served once, and the log says so."""
    agent = Silent("Echo")
    app = DurableAgentApp(agents=[agent, agent], settings=Settings())
    assert set(app.agents) == {"Echo"}
    assert "'Echo' is added a second time" in caplog.text


@pytest.mark.parametrize("flag", [True, "true"])
def test_one_agent_can_be_served_by_http(flag):
    """Without HTTP endpoints for all, an agent that asks for one has it, whenever it is added."""
    app = DurableAgentApp(enable_http_endpoints=False, settings=Settings())
    app.add_agent(Silent("Hidden"))
    assert "http-run" not in functions_of(app)
    app = DurableAgentApp(agents=[Silent("Hidden")], enable_http_endpoints=False, settings=Settings())
    app.add_agent(Silent("Open"), enable_http_endpoint=flag)
    app.add_agent(Silent("Other"), enable_http_endpoint=flag)
    assert {"http-run", "http-session", "http-health"} <= functions_of(app)


def test_without_http_only_health_is_left():
    """An app without HTTP endpoints has no route to an agent."""
    app = DurableAgentApp(agents=[Silent("Echo")], enable_http_endpoints=False, settings=Settings())
    assert {name for name in functions_of(app) if name.startswith("http-")} == {"http-health"}


def test_without_health_there_is_no_health_route():
    """The health route can be left out."""
    app = DurableAgentApp(agents=[Silent("Echo")], enable_health_check=False, settings=Settings())
    assert "http-health" not in functions_of(app)


def test_the_inspector_can_be_left_out():
    """The page is there with the agents' routes, unless the app says otherwise."""
    assert "http-inspector" in functions_of(DurableAgentApp(agents=[Silent("Echo")], settings=Settings()))
    app = DurableAgentApp(agents=[Silent("Echo")], enable_inspector=False, settings=Settings())
    assert "http-inspector" not in functions_of(app)


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
def test_the_turn_log_is_chosen_without_touching_its_store(setting, environment, kind):
    """The setting names the store; by default it is a file beside the embedded host's own, else the app's storage."""
    assert type(choose_turn_log(Settings(turn_log=setting), environment)).__name__ == kind


@pytest.mark.parametrize(
    "setting", ["sqlite", "sqlite:", "blob:x", "redis", "redis:x", "redis://zz:zz", "redis://[::1", "file:/x", "/x"]
)
def test_a_turn_log_without_meaning_is_refused(setting):
    """What can be set is in the sentence."""
    with pytest.raises(SettingError, match="TURN_LOG"):
        choose_turn_log(Settings(turn_log=setting), {})


def test_a_turn_log_without_a_storage_account_says_what_to_set():
    """Without the embedded host and without storage there is no place, and the sentence says what to set."""
    with pytest.raises(SettingError, match="AzureWebJobsStorage"):
        choose_turn_log(Settings(), {})


def _held(characters):
    def hide(content):
        return content

    hide.held_characters = characters
    return hide


@pytest.mark.parametrize(
    ("redact", "said"),
    [
        (lambda _: None, "it returned NoneType"),
        (lambda _: 1 / 0, "it raised ZeroDivisionError"),
        (_held("32"), "held_characters is '32'"),
        (_held(-1), "held_characters is -1"),
        (_held(True), "held_characters is True"),
    ],
)
def test_a_redaction_that_cannot_work_is_refused(redact, said):
    """The app does not start with a function that would fail every turn, or hold back the wrong length."""
    with pytest.raises(RegistrationError, match=f"agent 'Echo' cannot have its 'redact': .*{said}"):
        DurableAgentApp(agents=[Silent("Echo")], redact=redact, settings=Settings())


@pytest.mark.parametrize(
    ("argument", "value", "said"),
    [
        ("session_ttl", "1d", "session_ttl is '1d': give seconds or a timedelta"),
        ("session_ttl", True, "session_ttl is True"),
        ("allowed_options", ["temperature"], "allowed_options is .*give a mapping"),
        ("budgets", Budgets(prices={"*": 3}), r"the price of model '\*' is 3: give Price"),
        ("budgets", Budgets(prices={"*": Price("1", 1)}), "give numbers of 0 or more"),
    ],
)
def test_arguments_of_other_types_are_refused_with_what_to_give(argument, value, said):
    """The sentence names the argument, and not a part of ours that stumbled over it."""
    with pytest.raises(RegistrationError, match=said):
        DurableAgentApp(agents=[Silent("Echo")], settings=Settings(), **{argument: value})
