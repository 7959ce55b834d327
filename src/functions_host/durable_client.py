"""What a durable client binding carries: the URLs of the management API.

Source: spec section 6.1.
"""

import json
from dataclasses import dataclass, replace
from urllib.parse import quote

from starlette.requests import Request

WEBHOOK_PATH = "/runtime/webhooks/durabletask"
MCP_PATH = "/runtime/webhooks/mcp"
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


@dataclass(frozen=True, slots=True)
class ClientAddresses:
    """Where durable clients find the host.

    Args:
        origin: scheme and authority under which callers see it.
        own_origin: the same for the app's own calls.
        hub_name: the task hub of bindings that name none.
        code: the key in URLs that are given to callers.
        own_prefix: a path that stands before the API's in the app's own calls, which so need no key.
    """

    origin: str
    own_origin: str
    hub_name: str
    code: str = "local"
    own_prefix: str = ""

    def seen_by(self, request: Request) -> "ClientAddresses":
        """Put the origin that a caller used in the place of ``origin``."""
        return replace(self, origin=f"{request.url.scheme}://{request.url.netloc}")

    def query(self, task_hub: str | None = None, connection: str | None = None) -> str:
        """Write the query that management URLs carry."""
        return f"taskHub={task_hub or self.hub_name}&connection={connection or 'Storage'}&code={self.code}"


def encode_client_binding(addresses: ClientAddresses, task_hub: str | None, connection: str | None) -> str:
    """Write the JSON text that ``DurableOrchestrationClient`` is made from.

    Args:
        addresses: where it finds the host.
        task_hub: as the binding gives it.
        connection: name of the connection setting, as the binding gives it.
    """
    base, code = addresses.origin + WEBHOOK_PATH, f"code={addresses.code}"
    query = addresses.query(task_hub, connection)
    start = f"{base}/orchestrators/{{functionName}}[/{{instanceId}}]"
    wait = "timeout={timeoutInSeconds}&pollingInterval={intervalInSeconds}"
    return json.dumps(
        {
            "taskHubName": task_hub or addresses.hub_name,
            "connectionName": connection,
            "creationUrls": {
                "createNewInstancePostUri": f"{start}?{code}",
                "createAndWaitOnNewInstancePostUri": f"{start}?{wait}&{code}",
            },
            "managementUrls": management_urls(base, _PLACEHOLDER, query),
            "baseUrl": base,
            "requiredQueryStringParameters": code,
            "rpcBaseUrl": f"{addresses.own_origin}{addresses.own_prefix}{WEBHOOK_PATH}/",
            "httpBaseUrl": base,
        }
    )
