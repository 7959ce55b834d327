"""An agent as a tool of the MCP extension of Azure Functions: one call of the tool is one turn."""

import asyncio
import json
import logging
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from pydantic.alias_generators import to_camel

from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.durable.turn_client import ClientFor
from durable_agent_host.errors import HOST_FAILED, DurableAgentHostError, TurnError
from durable_agent_host.http.gate import IncomingRequest
from durable_agent_host.http.request_handling import HandlerContext
from durable_agent_host.protocols.dialect import client_of_caller
from durable_agent_host.protocols.mcp.messages import RpcRequest
from durable_agent_host.protocols.mcp.routes import McpCall
from durable_agent_host.protocols.mcp.tool_call import ToolArguments
from durable_agent_host.turn.error_texts import format_problem

_LOGGER = logging.getLogger(__name__)
TOOL_PROPERTIES: Final = tuple(
    {
        "propertyName": to_camel(name),
        "propertyType": "string",
        "description": field.description,
        "isRequired": field.is_required(),
        "isArray": False,
    }
    for name, field in ToolArguments.model_fields.items()
)


async def answer_tool_call(host: HandlerContext, agent: str, call: str, client_for: ClientFor) -> str:
    """Run a turn for an MCP tool call.

    Returns:
        A result of the MCP trigger with ``useResultSchema``.

    Raises:
        TurnError: the call is refused, or the turn has no answer; says why, for the caller: the trigger shows callers
            the text of any exception. When the host has failed, its log says why.

    Source: upstream's tool properties, agent-framework-azurefunctions 1.0.0b260922.
    """
    try:
        result = await _run_turn(host, agent, json.loads(call), client_for)
    except TimeoutError:
        raise TurnError(
            "the turn is still running: call again with the same idempotencyKey for its answer, or GET "
            f"/api/agents/{agent}/sessions for its session"
        ) from None
    except DurableAgentHostError as error:
        raise TurnError(format_problem(error)) from None
    except Exception as error:
        _LOGGER.exception("the MCP tool %s failed", agent)
        raise TurnError(HOST_FAILED) from error
    if "isError" in result:
        raise TurnError(result["content"][0]["text"])
    # the trigger's result has JSON texts in its fields
    texts = {name: json.dumps(result[name]) for name in ("content", "structuredContent")}
    return json.dumps({"type": "multi_content_result", **texts})


async def _run_turn(host: HandlerContext, agent: str, call: Any, client_for: ClientFor) -> Any:
    headers = object_at(call, "transport", "properties", "headers")  # only the HTTP transports of MCP have any
    incoming = IncomingRequest({name.lower(): str(text) for name, text in headers.items()}, {})
    client = client_for(await host.gate.identify(incoming, "turn.run"))
    host = replace(host, descriptions={agent: None})
    request = RpcRequest(None, "tools/call", {"arguments": object_at(call, "arguments")}, {})
    messages = McpCall(host, client_of_caller(host, client, ""), request).messages(agent)
    async with asyncio.timeout(host.settings.wait_seconds), aclosing(messages):
        return (await anext(messages))["result"]
