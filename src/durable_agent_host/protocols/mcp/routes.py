"""The routes of MCP: one endpoint, without state.

Theory of operation: a tool is an agent, and a call of it a turn, whose name is the id of the call's task and the state
of a call that waits for a person. A modern client that closes the stream of a call cancels the turn, unless the call
is a task.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from itertools import starmap
from typing import Any, Final

from azurefunctions.extensions.http.fastapi import JSONResponse, Response
from starlette.background import BackgroundTask

from durable_agent_host.agent_client import AgentClient, TurnEvent
from durable_agent_host.codec.log_entry import encode_compact
from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.errors import DurableAgentHostError
from durable_agent_host.http.event_stream import EventStream
from durable_agent_host.http.parse import parse_object
from durable_agent_host.http.request_handling import HandlerContext, Route, RouteRequest
from durable_agent_host.protocols.dialect import change_body, client_of_caller, none_if
from durable_agent_host.protocols.mcp import messages as rpc
from durable_agent_host.protocols.mcp import results
from durable_agent_host.protocols.mcp.messages import RpcError, RpcRequest, Wire
from durable_agent_host.protocols.mcp.tool_call import ToolArguments, begin_turn, join_parts, read_parts, waiting_text

_SCHEME: Final = "session://"
_SESSIONS: Final = 100
"""The newest ones of each agent are listed."""
_JSON: Final = "application/json"
_ABOUT: Final[Wire] = {
    "capabilities": {"tools": {}, "resources": {}, "extensions": {rpc.TASKS: {}}},
    "instructions": (
        "Each tool is an agent. A result names its sessionId: call with it to continue the conversation. "
        "Conversations are resources."
    ),
}
_TEMPLATE: Final = {"uriTemplate": f"{_SCHEME}{{agent}}/{{session}}", "name": "session", "mimeType": _JSON}


@dataclass
class McpCall:
    """A request, and a client that acts for its caller.

    Attributes:
        running_turn: of the call whose stream is not complete.
    """

    host: HandlerContext
    api: AgentClient
    request: RpcRequest
    running_turn: Sequence[str] | None = None

    async def answer(self) -> Wire | AsyncGenerator[Wire]:
        """Return the result, or the messages of a stream."""
        params = self.request.params
        match self.request.is_modern, self.request.method:
            case True, "server/discover":
                return {"supportedVersions": rpc.VERSIONS, **_ABOUT}
            case False, "initialize":
                requested = params.get("protocolVersion")
                revision = requested if requested in rpc.LEGACY else rpc.LEGACY[0]
                return {"protocolVersion": revision, "serverInfo": rpc.server_info(), **_ABOUT}
            case False, "ping":
                return {}
            case _, "tools/list":
                return {"tools": [*starmap(_tool, self.host.descriptions.items())]}
            case _, "tools/call":
                return await self._call_agent(str(params.get("name")))
            case True, "tasks/get" | "tasks/update" | "tasks/cancel" as method:
                return await self._handle_task(method)
            case _, method:
                return await self._read_sessions(method)

    async def _call_agent(self, agent: str) -> Wire | AsyncGenerator[Wire]:
        if agent not in self.host.descriptions:
            raise RpcError(rpc.INVALID_PARAMS, f"there is no tool {agent[:100]!r} here")
        if not self.request.has_tasks:
            return self.messages(agent)
        turn = await self._begin(agent)
        return results.task_of(await self.api.turn(*turn)) | {"resultType": "task"}

    async def _begin(self, agent: str) -> Sequence[str]:
        """Begin a turn, or continue the call of one that has waited."""
        if (state := self.request.params.get("requestState")) is None:
            return await begin_turn(self.api, agent, object_at(self.request.params, "arguments"))
        await _reply(self.api, self.request.responses)
        return read_parts(state, 3)

    async def messages(self, agent: str) -> AsyncGenerator[Wire]:
        """Run a turn; yield its progress, and then the result."""
        try:
            turn = self.running_turn = await self._begin(agent)
            async with aclosing(self.api.follow(*turn)) as events:
                async for event in events:
                    async for message in self._messages_of(event, turn):
                        if is_last := "result" in message:
                            self.running_turn = None
                        yield message
                        if is_last:
                            return
        except DurableAgentHostError as error:
            yield self.request.response(results.failed_result(str(error)))
            self.running_turn = None

    async def _messages_of(self, event: TurnEvent, turn: Sequence[str]) -> AsyncGenerator[Wire]:
        request = self.request
        if event.is_last:
            yield request.response(results.tool_result(event.data))
            return
        if (token := object_at(request.params, "_meta").get("progressToken")) is not None:
            text = event.data.get("text") or event.data.get("name") or event.name
            progress = {"progressToken": token, "progress": event.id, "message": text}
            yield {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}
        if "pending_calls" not in event.data:
            return
        questions = results.questions_of(await self.api.turn(*turn), event.data, request.responses)
        if not questions:
            return
        if not request.can_ask:
            yield request.response(results.failed_result(waiting_text(turn)))
        elif request.is_modern:
            state = join_parts(*turn)
            yield request.response({"resultType": "input_required", "inputRequests": questions, "requestState": state})
        else:
            for name, question in questions.items():
                yield {"jsonrpc": "2.0", "id": name, **question}

    async def _handle_task(self, method: str) -> Wire:
        self.request.require_tasks()
        turn = read_parts(self.request.params.get("taskId"), 3)
        match method:
            case "tasks/get":
                return results.task_of(await self.api.turn(*turn))
            case "tasks/update":
                await _reply(self.api, self.request.responses)
            case _:
                await self._cancel(turn)
        return {}

    async def end(self) -> None:
        """Cancel the turn of a modern client that closes the stream before its end."""
        if self.running_turn is not None and self.request.is_modern:
            await self._cancel(self.running_turn)

    async def _cancel(self, turn: Sequence[str]) -> None:
        """Cancel a turn, unless it has ended."""
        await none_if(HTTPStatus.CONFLICT, self.api.cancel(*turn))

    async def _read_sessions(self, method: str) -> Wire:
        match method:
            case "resources/list":
                resources = [
                    {
                        "uri": _SCHEME + join_parts(agent, session["session_id"]),
                        "name": session["session_id"],
                        "mimeType": _JSON,
                    }
                    for agent in self.host.descriptions
                    async for session in self.api.sessions(agent, limit=_SESSIONS)
                ]
                return {"resources": resources}
            case "resources/templates/list":
                return {"resourceTemplates": [_TEMPLATE]}
            case "resources/read":
                uri = str(self.request.params.get("uri"))
                session = await self.api.session(*read_parts(uri.removeprefix(_SCHEME), 2))
                return {"contents": [{"uri": uri, "mimeType": _JSON, "text": encode_compact(session)}]}
            case _:
                raise RpcError(rpc.NO_METHOD, f"there is no method {method[:100]!r} here")


def _tool(agent: str, description: str | None) -> Wire:
    return {
        "name": agent,
        "description": description or f"Ask {agent}.",
        "inputSchema": ToolArguments.model_json_schema(),
    }


async def _reply(api: AgentClient, responses: Mapping[str, Any]) -> None:
    """Answer calls for which a turn waits, or the turn before it."""
    for name, response in responses.items():
        agent, session_id, turn_id, kind, call_id = read_parts(name, 5)
        await api.answer(agent, session_id, turn_id, results.reply_to(kind, call_id, response))


async def answer(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``POST /mcp``: answer a message of MCP: find the agents, call one as a tool, read its sessions."""
    message = parse_object(call.body)
    api = client_of_caller(host, client, call.base_url.removesuffix("/mcp"))
    if "method" not in message and "id" in message:  # the answer to a question to a legacy client
        await _reply(api, {message["id"]: message.get("result")})
    if "method" not in message or "id" not in message:
        return Response(status_code=HTTPStatus.ACCEPTED)
    is_modern = True
    try:
        request = rpc.read_request(message, call.headers)
        is_modern = request.is_modern
        mcp_call = McpCall(host, api, request)
        found = await mcp_call.answer()
    except DurableAgentHostError as error:
        if not isinstance(error, RpcError):
            has_failed = getattr(error, "status", 0) >= HTTPStatus.INTERNAL_SERVER_ERROR
            error = RpcError(rpc.FAILED if has_failed else rpc.INVALID_PARAMS, str(error))
        status = error.status if is_modern else HTTPStatus.OK
        return JSONResponse(error.response(message["id"]), status)
    if not isinstance(found, dict):
        stream = EventStream(_encode(found), {})
        stream.background = BackgroundTask(mcp_call.end)  # not when the host stops: then the turn goes on
        return stream
    return JSONResponse(request.response(found), headers=request.session_headers())


async def _encode(messages: AsyncGenerator[Wire]) -> AsyncGenerator[bytes]:
    async with aclosing(messages):
        async for message in messages:
            yield f"event: message\ndata: {encode_compact(message)}\n\n".encode()


async def reject(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``GET /mcp``: refused with 405, which says to clients that there is no stream besides the answers."""
    del host, call, client
    return Response(status_code=HTTPStatus.METHOD_NOT_ALLOWED, headers={"allow": "POST"})


def _show_problem(problem: Mapping[str, Any], response: Response) -> Response:
    """Give a refusal the form of JSON-RPC."""
    code = rpc.PARSE_ERROR if problem["status"] == HTTPStatus.BAD_REQUEST else rpc.FAILED
    return change_body(response, encode_compact(RpcError(code, problem["detail"]).response(None)), _JSON)


_route = partial(Route, template="mcp", action="turn.run", replies={}, part="mcp", show_problem=_show_problem)
ROUTES: Final = (
    _route("mcp", "POST", handler=answer),
    _route("mcp-get", "GET", handler=reject),
    _route("mcp-delete", "DELETE", handler=reject),
)
