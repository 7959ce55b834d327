"""Whether health says what it has found."""

import json

import azure.functions as func
from azure.durable_functions import DurableOrchestrationClient

from durable_agent_host.durable.client import TurnClient
from durable_agent_host.durable.tend import TurnStopper
from durable_agent_host.durable.wakeups import Wakeups
from durable_agent_host.http.handlers import Host, health
from durable_agent_host.log.nothing import NoTurnLog
from durable_agent_host.settings import Settings

NOWHERE = "http://127.0.0.1:9/runtime/webhooks/durabletask/"


async def test_a_store_that_does_not_answer_is_told(caplog):
    """Health is a 503 then, which tells a load balancer to send nobody here; the log has the reason."""
    urls = dict.fromkeys(("id", "statusQueryGetUri", "sendEventPostUri", "terminatePostUri"), NOWHERE)
    binding = {"taskHubName": "hub", "creationUrls": {}, "managementUrls": urls, "rpcBaseUrl": NOWHERE}
    client = DurableOrchestrationClient(json.dumps(binding | {"baseUrl": NOWHERE, "requiredQueryStringParameters": ""}))
    turns = TurnClient(client, Wakeups(), TurnStopper(NoTurnLog))
    host = Host(agents={}, settings=Settings(), open_log=NoTurnLog)
    answer = await health(host, func.HttpRequest("GET", "http://here/api/health", body=b""), turns)
    assert answer.status_code == 503
    assert "store does not answer" in json.loads(answer.get_body())["detail"]
    assert "the durable store does not answer" in caplog.text
