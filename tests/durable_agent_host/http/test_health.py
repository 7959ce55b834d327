"""Whether health says what it has found."""

import json

from azure.durable_functions import DurableOrchestrationClient
from azurefunctions.extensions.http.fastapi import Request

from durable_agent_host.agent.feature import HistoryLocation
from durable_agent_host.concurrency.thread_safe_waiters import Notifier
from durable_agent_host.durable.app_secret import AppSecret
from durable_agent_host.durable.session_queue_activity import TurnStopper
from durable_agent_host.durable.store_health import StoreProbes
from durable_agent_host.durable.task_hub import TaskHub
from durable_agent_host.durable.turn_client import TurnClient, TurnServices
from durable_agent_host.encryption.key_check import KeyCheck
from durable_agent_host.http.app_routes import health
from durable_agent_host.http.gate import Authorizer
from durable_agent_host.http.request_handling import HandlerContext, RouteRequest
from durable_agent_host.segments.sqlite_store import SqliteBlobStore
from durable_agent_host.segments.turn_data_storage import NULL_TURN_DATA_STORAGE
from durable_agent_host.settings import Settings
from tests.null_turn_log import NullTurnLog

NOWHERE = "http://127.0.0.1:9/runtime/webhooks/durabletask/?code=the-system-key"


async def test_an_unavailable_store_is_reported(caplog, tmp_path):
    """Health is a 503 then, which tells a load balancer to send nobody here; the log has the reason, once, no key."""
    urls = dict.fromkeys(("id", "statusQueryGetUri", "sendEventPostUri", "terminatePostUri"), NOWHERE)
    binding = {"taskHubName": "hub", "creationUrls": {}, "managementUrls": urls, "rpcBaseUrl": NOWHERE}
    blobs = SqliteBlobStore(tmp_path / "segments.sqlite")
    client = DurableOrchestrationClient(json.dumps(binding | {"baseUrl": NOWHERE, "requiredQueryStringParameters": ""}))
    hub = TaskHub(KeyCheck(lambda: blobs, None), AppSecret(lambda: blobs))
    services = TurnServices(
        Notifier(),
        TurnStopper(NullTurnLog, {}),
        StoreProbes(NullTurnLog, lambda: blobs, {"Helper": None}),
        NULL_TURN_DATA_STORAGE,
        lambda _: HistoryLocation(),
        hub,
    )
    gate = Authorizer(None)
    turns = TurnClient(client, services, gate.open_context("health.read"))
    agents = [{"name": "Helper"}]
    host = HandlerContext(
        descriptions={"Helper": None},
        agents={},
        settings=Settings(),
        open_log=NullTurnLog,
        gate=gate,
        options={},
        allows_client_tools=True,
        list_hosted_agents=lambda: agents,
        workflows=(),
        feature_views={},
    )
    for _ in range(3):
        answer = await health(host, RouteRequest(Request({"type": "http"})), turns)
        assert answer.status_code == 503
        body = json.loads(bytes(answer.body))
        assert "the session store cannot be written" in body["detail"]
        assert body["agent_count"] == 1
        assert body["agents"] == agents
        assert body["checks"]["turn_log"] == {"ok": True}
        assert body["checks"]["piece_store"] == {"ok": True}
        assert "the-system-key" not in bytes(answer.body).decode()
    assert caplog.text.count("the durable store cannot be written") == 1
    assert "the-system-key" not in caplog.text
