"""What a durable client binding carries: the URLs of the management API.

Source: spec section 6.1.
"""

import json
from urllib.parse import quote

WEBHOOK_PATH = "/runtime/webhooks/durabletask"
_PLACEHOLDER = "INSTANCEID"
_SAFE_IN_PATHS = "@:!$&'()*+,;="


def management_urls(base: str, instance_id: str, query: str) -> dict[str, str]:
    """List the URLs that manage one instance."""
    instance = f"{base}/instances/{quote(instance_id, safe=_SAFE_IN_PATHS)}"
    return {
        "id": instance_id,
        "statusQueryGetUri": f"{instance}?{query}",
        "sendEventPostUri": f"{instance}/raiseEvent/{{eventName}}?{query}",
        "terminatePostUri": f"{instance}/terminate?reason={{text}}&{query}",
        "rewindPostUri": f"{instance}/rewind?reason={{text}}&{query}",
        "purgeHistoryDeleteUri": f"{instance}?{query}",
        "restartPostUri": f"{instance}/restart?{query}",
        "suspendPostUri": f"{instance}/suspend?reason={{text}}&{query}",
        "resumePostUri": f"{instance}/resume?reason={{text}}&{query}",
    }


def management_query(hub_name: str, connection: str | None = None) -> str:
    """Write the query that management URLs carry; there are no keys to check on one machine."""
    return f"taskHub={hub_name}&connection={connection or 'Storage'}&code=local"


def encode_client_binding(origin: str, rpc_origin: str, hub_name: str, connection: str | None) -> str:
    """Write the JSON text that ``DurableOrchestrationClient`` is made from.

    Args:
        origin: scheme and authority under which callers see the host.
        rpc_origin: the same for the app's own calls.
        hub_name: name of the task hub, as the binding or ``host.json`` gives it.
        connection: name of the connection setting, as the binding gives it.
    """
    base = origin + WEBHOOK_PATH
    query = management_query(hub_name, connection)
    start = f"{base}/orchestrators/{{functionName}}[/{{instanceId}}]"
    wait = "timeout={timeoutInSeconds}&pollingInterval={intervalInSeconds}"
    return json.dumps(
        {
            "taskHubName": hub_name,
            "connectionName": connection,
            "creationUrls": {
                "createNewInstancePostUri": f"{start}?code=local",
                "createAndWaitOnNewInstancePostUri": f"{start}?{wait}&code=local",
            },
            "managementUrls": management_urls(base, _PLACEHOLDER, query),
            "baseUrl": base,
            "requiredQueryStringParameters": "code=local",
            "rpcBaseUrl": f"{rpc_origin}{WEBHOOK_PATH}/",
            "httpBaseUrl": base,
        }
    )
