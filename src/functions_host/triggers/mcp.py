"""The MCP endpoint of apps with tool triggers: stateless streamable HTTP, one answer per request.

Source: azure-functions-mcp-extension.
"""

import json
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from functions_host.app.client_binding import ClientAddresses
from functions_host.app.function import AppFunction
from functions_host.app.invoker import Datum, Invoker, client_inputs
from functions_host.engine.client_input import read_json
from functions_host.engine.task_hub import BadRequestError
from functions_host.host_json import McpSettings
from functions_host.triggers.http import joined_headers

_PROTOCOL_VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")
_PARSE_ERROR = -32700
_INVALID_REQUEST = -32600
_NO_METHOD = -32601
_INVALID_PARAMS = -32602
_SESSION_HEADER = "mcp-session-id"


class _RpcError(Exception):
    """An error with a JSON-RPC code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class McpEndpoint:
    """Serves the app's tools over MCP."""

    def __init__(
        self, functions: Iterable[AppFunction], invoker: Invoker, addresses: ClientAddresses, settings: McpSettings
    ) -> None:
        self._tools = {
            str(function.binding.get("toolName") or function.name): function
            for function in functions
            if function.trigger == "mcpToolTrigger"
        }
        self._invoker = invoker
        self._addresses = addresses
        self._settings = settings

    async def answer(self, request: Request) -> Response:
        """Answer one HTTP request."""
        if request.method != "POST":
            return Response("MCP takes POST here; point an MCP client at this address.", 405, {"allow": "POST"})
        accept_header = request.headers.get("accept", "")
        if "application/json" not in accept_header or "text/event-stream" not in accept_header:
            return Response("Accept has to list application/json and text/event-stream.", 406)
        try:
            message = json.loads(read_json(await request.body()) or "null")
        except BadRequestError as error:
            return _event(_failure(None, _RpcError(_PARSE_ERROR, str(error))), {})
        if not isinstance(message, dict):
            return _event(_failure(None, _RpcError(_INVALID_REQUEST, "One message per request is taken.")), {})
        call = cast("dict[str, Any]", message)
        if "id" not in call or "method" not in call:
            return Response(status_code=202)
        if not _is_id(call["id"]):
            return _event(_failure(None, _RpcError(_INVALID_REQUEST, "The id has to be a text or a number.")), {})
        session = request.headers.get(_SESSION_HEADER)
        if call["method"] == "initialize":
            session = uuid.uuid4().hex
        try:
            result = await self._run(str(call["method"]), _object(call.get("params")), request, session)
        except _RpcError as error:
            return _event(_failure(call["id"], error), {})
        body = {"jsonrpc": "2.0", "id": call["id"], "result": result}
        return _event(body, {_SESSION_HEADER: session} if session else {})

    async def _run(self, method: str, params: Mapping[str, Any], request: Request, session: str | None) -> Any:
        if method == "initialize":
            return self._introduce(str(params.get("protocolVersion")))
        if method == "ping":
            return {}
        if method == "tools/list":
            return {"tools": [_describe_tool(name, function) for name, function in self._tools.items()]}
        if method == "tools/call":
            return await self._call(params, request, session)
        raise _RpcError(_NO_METHOD, f"Method {method!r} is not available.")

    def _introduce(self, requested_version: str) -> dict[str, Any]:
        version = requested_version if requested_version in _PROTOCOL_VERSIONS else _PROTOCOL_VERSIONS[0]
        about: dict[str, Any] = {
            "protocolVersion": version,
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": {"name": self._settings.server_name, "version": self._settings.server_version},
        }
        return about | ({"instructions": self._settings.instructions} if self._settings.instructions else {})

    async def _call(self, params: Mapping[str, Any], request: Request, session: str | None) -> dict[str, Any]:
        name = str(params.get("name"))
        function = self._tools.get(name)
        if function is None:
            raise _RpcError(_INVALID_PARAMS, f"Unknown tool: {name!r}.")
        arguments = _object(params.get("arguments"))
        schema = _input_schema(function)
        missing = [key for key in schema["required"] if arguments.get(key) is None]
        if missing:
            raise _RpcError(_INVALID_PARAMS, f"Tool {name!r} needs a value for {', '.join(missing)}.")
        headers = {key: value for key, value in joined_headers(request).items() if key != "x-functions-key"}
        value = {
            "name": name,
            "arguments": arguments,
            "sessionid": session,
            "clientinfo": None,
            "transport": {"name": "http-streamable", "sessionId": session, "properties": {"headers": headers}},
        }
        clients = client_inputs(function, self._addresses.seen_by(request))
        result = await self._invoker.invoke(
            function, [(function.parameter, Datum(json.dumps(value), "string")), *clients]
        )
        if result.failure is not None:
            return {"content": [_text(f"Tool {name!r} failed: {result.failure.text}")], "isError": True}
        return_value = "" if result.return_value is None else result.return_value.value
        text = return_value.decode(errors="replace") if isinstance(return_value, bytes) else str(return_value)
        return _unpack(text) if function.binding.get("useResultSchema") is True else {"content": [_text(text)]}


def _is_id(request_id: object) -> bool:
    """Tell whether an answer can repeat the id of a request."""
    return isinstance(request_id, str | int | float | None)


def _describe_tool(name: str, function: AppFunction) -> dict[str, Any]:
    description = str(function.binding.get("description") or "")
    return {"name": name, "description": description, "inputSchema": _input_schema(function)}


def _input_schema(function: AppFunction) -> dict[str, Any]:
    tool_properties: Any = function.binding.get("toolProperties") or "[]"
    property_items = cast(
        "list[dict[str, Any]]", json.loads(tool_properties) if isinstance(tool_properties, str) else tool_properties
    )
    properties: dict[str, Any] = {}
    for item in property_items:
        kind = {"type": str(item.get("propertyType", "string"))}
        about = {"description": str(item.get("description") or "")}
        is_array = item.get("isArray") is True
        properties[str(item["propertyName"])] = ({"type": "array", "items": kind} if is_array else kind) | about
    required_names = [str(item["propertyName"]) for item in property_items if item.get("isRequired") is True]
    return {"type": "object", "properties": properties, "required": required_names}


def _unpack(text: str) -> dict[str, Any]:
    """Decode a result that describes its own content blocks."""
    try:
        result_fields = cast("dict[str, Any]", json.loads(text))
        content = result_fields["content"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return {"content": [_text(text)]}
    blocks: Any = json.loads(content) if isinstance(content, str) else content
    result: dict[str, Any] = {"content": blocks if isinstance(blocks, list) else [blocks]}
    structured_content = result_fields.get("structuredContent")
    if structured_content is not None:
        result["structuredContent"] = (
            json.loads(structured_content) if isinstance(structured_content, str) else structured_content
        )
    return result


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _failure(call_id: Any, error: _RpcError) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": call_id, "error": {"code": error.code, "message": str(error)}}


def _event(body: Mapping[str, Any], headers: Mapping[str, str]) -> Response:
    return Response(f"event: message\ndata: {json.dumps(body)}\n\n", 200, headers, media_type="text/event-stream")
