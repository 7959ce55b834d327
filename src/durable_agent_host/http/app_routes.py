"""Routes of the app as a whole: the hosted agents and health."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from azurefunctions.extensions.http.fastapi import Response

from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.errors import error_name
from durable_agent_host.http.problem_details import LOG_RETRY_SECONDS, problem_body, problem_response
from durable_agent_host.http.request_handling import HandlerContext, RouteRequest
from durable_agent_host.http.response_types import (
    AgentsWire,
    AgentWire,
    CheckWire,
    HealthChecksWire,
    HealthProblemWire,
    HealthWire,
    HostedAgentWire,
)
from durable_agent_host.http.response_views import json_response


def hosted_agents(metadata: Mapping[str, Any]) -> list[HostedAgentWire]:
    """List all agents, those of workflows among them, as upstream's health route does."""
    return [
        {
            "name": name,
            "type": type(agents.agent).__name__,
            "http_endpoint_enabled": agents.http_endpoint_enabled,
            "mcp_tool_enabled": agents.mcp_tool_enabled,
        }
        for name, agents in metadata.items()
    ]


async def list_agents(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``GET /agents``: the hosted agents."""
    del client
    agents: list[AgentWire] = [
        {
            "name": name,
            "description": description,
            "run_url": f"{call.base_url}/agents/{quote(name)}/run",
        }
        for name, description in sorted(host.descriptions.items())
    ]
    return json_response(HTTPStatus.OK, AgentsWire(agents=agents), {})


async def health(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``GET /health``: whether the stores are writable; names each problem in a word, without secrets."""
    del call
    found = dict(await client.find_problems())
    agents = host.list_hosted_agents()
    checks: dict[str, CheckWire] = {
        name: {"ok": True} if error is None else {"ok": False, "reason": error_name(error)}
        for name, error in found.items()
    }
    view: HealthChecksWire = {"agents": agents, "agent_count": len(agents), "checks": checks}
    wrong = [f"the {name.replace('_', ' ')} cannot be written ({error_name(e)})" for name, e in found.items() if e]
    if not wrong:
        healthy_view: HealthWire = {"status": "healthy", **view}
        return json_response(HTTPStatus.OK, healthy_view, {})
    detail = f"{', and '.join(wrong)}: the host's log says more"
    body: HealthProblemWire = {**problem_body({"type": "LogError", "message": detail}), **view}
    return problem_response(body, {"Retry-After": str(LOG_RETRY_SECONDS)})
