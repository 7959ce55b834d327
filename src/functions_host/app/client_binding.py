"""The value of a durable client binding: the URLs of the management API.

Source: ``DurableOrchestrationClient`` of azure-functions-durable 1.7; ``HttpApiHandler.cs`` of
azure-functions-durable-extension 2.13.
"""

import json
from dataclasses import dataclass, replace
from urllib.parse import quote

from starlette.requests import Request

from functions_host.host_names import HostNames

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
    """The host's addresses for durable clients.

    Args:
        origin: scheme and authority for callers.
        own_origin: scheme and authority for the app's own calls.
        hub_name: the default task hub of bindings.
        names: host names accepted from callers.
        code: the key in URLs for callers.
        own_prefix: path prefix of the app's own calls, which need no key.
    """

    origin: str
    own_origin: str
    hub_name: str
    names: HostNames
    code: str = "local"
    own_prefix: str = ""

    def seen_by(self, request: Request) -> "ClientAddresses":
        """Replace ``origin`` with the one that a caller used, if accepted."""
        return replace(self, origin=self.names.origin_for(request))

    def query(self, task_hub: str | None = None, connection: str | None = None) -> str:
        """Return the query of management URLs."""
        return f"taskHub={task_hub or self.hub_name}&connection={connection or 'Storage'}&code={self.code}"


def encode_client_binding(addresses: ClientAddresses, task_hub: str | None, connection: str | None) -> str:
    """Encode the JSON text for ``DurableOrchestrationClient``."""
    base = addresses.origin + WEBHOOK_PATH
    code = f"code={addresses.code}"
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
