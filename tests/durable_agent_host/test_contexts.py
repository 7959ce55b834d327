"""What enters the app without a context does not start; a context is made at the edge, and does not change."""

import json
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import azure.durable_functions as df
import pytest

from durable_agent_host.agent.agent_budgets import NO_BUDGETS
from durable_agent_host.concurrency.thread_safe_waiters import Notifier
from durable_agent_host.durable.app_secret import AppSecret
from durable_agent_host.durable.external_sessions import ExternalSessions
from durable_agent_host.durable.function_registration import register_agent_tool, register_maintenance
from durable_agent_host.durable.maintenance import Maintenance
from durable_agent_host.durable.orchestration_agent import OrchestrationAgent
from durable_agent_host.durable.session_documents import SessionDocuments
from durable_agent_host.durable.session_entity import DurableAgentEntity
from durable_agent_host.durable.session_erasure import BlobReferrers, Eraser
from durable_agent_host.durable.session_queue_activity import TurnStopper
from durable_agent_host.durable.store_health import StoreProbes
from durable_agent_host.durable.task_hub import TaskHub
from durable_agent_host.durable.turn_client import TurnClient, TurnServices
from durable_agent_host.http.gate import Authorizer, IncomingRequest
from durable_agent_host.model.access import MAINTENANCE, AppAccess, CallerAccess
from durable_agent_host.model.principal import Owner, Principal
from durable_agent_host.segments.sqlite_store import SqliteBlobStore
from durable_agent_host.segments.turn_data_storage import NULL_TURN_DATA_STORAGE
from durable_agent_host.settings import Settings
from durable_agent_host.turn_log.protocol import NullTurnLog

NOWHERE = "http://127.0.0.1:9/runtime/webhooks/durabletask/"
URLS = dict.fromkeys(("id", "statusQueryGetUri", "sendEventPostUri", "terminatePostUri"), NOWHERE)
BINDING = {"taskHubName": "hub", "creationUrls": {}, "managementUrls": URLS, "rpcBaseUrl": NOWHERE}
CLIENT: Any = json.dumps(BINDING | {"baseUrl": NOWHERE, "requiredQueryStringParameters": ""})
NO_VALUE: Any = None


@pytest.fixture
def services(tmp_path: Path) -> TurnServices:
    """What the clients of an app share."""
    pieces = SqliteBlobStore(tmp_path / "segments.sqlite")
    return TurnServices(
        Notifier(),
        TurnStopper(NullTurnLog, lambda _: NO_BUDGETS),
        StoreProbes(NullTurnLog, lambda: pieces, {}),
        NULL_TURN_DATA_STORAGE,
        ExternalSessions({}),
        TaskHub(AppSecret(lambda: pieces)),
    )


def register_dialect(services: TurnServices, answer: Any, **arguments: Any) -> Any:
    """Register a tool; gives the function that the worker calls."""
    app = df.DFApp()
    names = {"tool_name": "tool", "description": "A tool.", "properties": ()}
    register_agent_tool(app, "tool", **names, answer=answer, services=services, **arguments)
    (function,) = app.get_functions()
    return function.get_user_function()


async def test_a_dialect_without_a_context_is_not_registered(services: TurnServices):
    """One that identifies its callers gets the caller's client."""
    gate = Authorizer(lambda _: Principal("ada", "contoso"))

    async def answer(call: str, client: Any) -> str:
        return client.documents.access.owner.principal

    async def identify(call: str) -> Any:
        return await gate.identify(IncomingRequest({}, {}), "turn.run")

    with pytest.raises(TypeError, match="identify"):
        register_dialect(services, answer)
    assert await register_dialect(services, answer, identify=identify)(context="{}", client=CLIENT) == "ada"


def test_a_timer_without_an_access_is_not_registered(services: TurnServices):
    """The app does not start; with an access of the app it does."""
    app = df.DFApp()
    with pytest.raises(TypeError, match="access"):
        register_maintenance(
            app,
            Maintenance({}, services.storage, Settings()),  # pyright: ignore[reportCallIssue]
            "0 * * * * *",
            services.hub,
        )
    register_maintenance(app, Maintenance({}, services.storage, Settings(), MAINTENANCE), "0 * * * * *", services.hub)
    assert len(app.get_functions()) == 1


def test_an_orchestration_without_a_context_has_no_agent(services: TurnServices):
    """Its turns would run for nobody in particular."""
    with pytest.raises(TypeError, match="request_context"):
        OrchestrationAgent(context=NO_VALUE, agent=NO_VALUE, storage=services.storage, hub=services.hub)  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    ("kind", "arguments", "missing"),
    [
        (TurnClient, 2, "context"),
        (SessionDocuments, 3, "external_sessions"),
        (Eraser, 3, "access"),
        (BlobReferrers, 1, "access"),
        (DurableAgentEntity, 2, "has_owners"),
        (Authorizer, 0, "identify"),
    ],
)
def test_nothing_that_reads_sessions_is_made_without_an_access(kind: Any, arguments: int, missing: str):
    """There is no default that means everybody."""
    with pytest.raises(TypeError, match=missing):
        kind(*[NO_VALUE] * arguments)


async def test_the_gate_makes_contexts():
    """A caller sees what is theirs; in an app that identifies nobody, and for the app itself, the access says why."""
    ada = Principal("ada", "contoso")
    gate = Authorizer(lambda _: ada, adopters="nobody")
    context = await gate.identify(IncomingRequest({"traceparent": "nonsense"}, {}), "session.read")
    assert (context.principal, context.traceparent) == (ada, None)
    assert isinstance(context.access, CallerAccess)
    for owner, is_seen in ((ada.owner, True), (Owner("bob", "contoso"), False), (Owner("ada"), False), (None, False)):
        assert await context.access.can_access("Echo", "s", owner, exists=True) is is_seen
    with pytest.raises(FrozenInstanceError):
        context.access = MAINTENANCE  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(FrozenInstanceError):
        context.access.principal = Principal("bob")  # pyright: ignore[reportAttributeAccessIssue]

    open_context = await Authorizer(None).identify(IncomingRequest({}, {}), "session.read")
    of_app = gate.context_of_app_code(None, "turn.run", None)
    for access in (open_context.access, of_app.access, MAINTENANCE):
        assert isinstance(access, AppAccess)
        assert access.reason
        assert await access.can_access("Echo", "s", ada.owner, exists=True)
    assert isinstance(gate.context_of_app_code(ada, "turn.run", None).access, CallerAccess)
    assert isinstance(gate.open_context("health.read").access, CallerAccess)
