"""The routes of clients of the Responses API."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from functools import partial, wraps
from http import HTTPStatus
from typing import Any, Final
from uuid import uuid4

from azurefunctions.extensions.http.fastapi import Response

from durable_agent_host.agent_client import TurnEvent
from durable_agent_host.codec.log_entry import encode_compact
from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.errors import NotFoundError, RequestError, TurnTimedOutError
from durable_agent_host.http.event_stream import PartStream
from durable_agent_host.http.parse import parse_object
from durable_agent_host.http.problem_details import problem, problem_response
from durable_agent_host.http.request_handling import HandlerContext, Route, RouteRequest
from durable_agent_host.http.response_views import json_response, terminal_event
from durable_agent_host.model.access import Action
from durable_agent_host.model.ids import check_session_id
from durable_agent_host.protocols.dialect import (
    agent_client,
    change_body,
    event_stream,
    first_event,
    none_if,
    past_events,
)
from durable_agent_host.protocols.openai.events import ResponseEvents, calls_for_client
from durable_agent_host.protocols.openai.ids import ItemName, encode_id, read_name
from durable_agent_host.protocols.openai.requests import ResponseRequest
from durable_agent_host.turn.turn_requests import id_of_key


class _Edge:
    """What the handlers share: a request's host and clients.

    Args:
        host: the app.
        call: the request.
        client: its turn client.
    """

    def __init__(self, host: HandlerContext, call: RouteRequest, client: TurnClient) -> None:
        self.host = host
        self.call = call
        self.client = client
        self.app = agent_client(host, call, client, "openai")

    @property
    def name(self) -> ItemName:
        """What the id on the path names."""
        return read_name(self.call.path_part("id"))

    async def find(self, name: ItemName) -> ResponseEvents:
        """Find the turn of a response; return what makes the response's events."""
        agent_name = self.host.agent(name.agent)
        turn = await self.client.find(agent_name, name.session_id, check_session_id(name.turn_id))
        if turn is None:
            raise NotFoundError("there is no such response, or its conversation was deleted")
        agent = self.host.agents[agent_name].hosted
        url = f"{self.call.base_url_before('openai')}/openai/v1"
        return ResponseEvents(turn, name.number, lambda tool: agent.find_parameters(tool) is not None, url)

    async def read(self, name: ItemName) -> ResponseEvents:
        """Read a response as far as it has come."""
        response = await self.find(name)
        turn = response.turn
        async for event in past_events(self.host, turn.request):
            response.feed(event)
        if turn.outcome is not None:
            response.feed(TurnEvent(-1, *terminal_event(turn.request, turn.outcome, ""), *name[1:3]))
        return response

    async def show(self, name: ItemName) -> Response:
        """Answer with a response as far as it has come."""
        response = await self.read(name)
        if name.number and not response.is_started:
            raise NotFoundError("there is no such response, or its turn's events are no longer kept")
        return _json(response.body)

    async def translate(self, response: ResponseEvents) -> AsyncGenerator[Mapping[str, Any]]:
        """Read the events of a response until it is complete."""
        name = response.name
        async with aclosing(self.app.follow(*name[:3])) as turn_events:
            async for event in turn_events:
                for response_event in response.feed(event):
                    yield response_event
                if response.is_complete:
                    return
        raise NotFoundError("there is no such response")

    async def stream(self, name: ItemName, after: int = -1) -> Response:
        """Answer with the events of a response after one of them."""
        events = await first_event(self.translate(await self.find(name)))

        async def lines() -> AsyncGenerator[bytes]:
            async with aclosing(events):
                async for event in events:
                    if event["sequence_number"] > after:
                        yield f"event: {event['type']}\ndata: {encode_compact(event)}\n\n".encode()

        return event_stream(lines())

    async def collect(self, name: ItemName) -> Response:
        """Answer with a response when it is complete."""
        response = await self.find(name)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.host.settings.wait_seconds), aclosing(self.translate(response)) as events:
                async for _ in events:
                    pass
        if not response.is_complete:
            return problem(
                HTTPStatus.GATEWAY_TIMEOUT,
                f"the response {response.body['id']} is still in progress: retrieve it later, and do not send the "
                "request again; for long ones use 'stream' or 'background'",
            )
        return _json(response.body) if response.problem is None else problem_response(response.problem)

    async def begin(self, request: ResponseRequest) -> ItemName:
        """Run a turn, or reply to the calls of a response; return the new response."""
        previous = request.previous
        session_id = previous and previous.session_id
        key = self.call.headers.get("idempotency-key")
        if previous and previous.turn_id:
            for call in calls_for_client((await self.find(previous)).turn.pending):
                if call["call_id"] not in request.replies:
                    raise RequestError(f"no tool output found for {call['name']!r}: reply to all calls of the response")
            if request.replies and request.message:
                raise RequestError("'input' has replies to calls and a message: send the message after that response")
            if request.replies:
                await self.app.answer(*previous[:3], [*request.replies.values()])
                return previous._replace(number=previous.number + 1)
            session_id = await self.session_after(previous, key)
        if not request.message:
            raise RequestError("'input' has nothing new: send a message, or the outputs of the calls")
        fields: dict[str, Any] = {"session_id": session_id, "idempotency_key": key, **request.fields}
        result = await self.app.run(request.agent, request.message, wait=False, **fields)
        return ItemName(request.agent, result.session_id, result.turn_id)

    async def session_after(self, name: ItemName, key: str | None) -> str:
        """Return the session of a message that follows a response: a fork, unless the response is the last one.

        A message that is repeated with its key has begun a turn in the session, or has made its fork.
        """
        if (await self.turn_ids(name, limit=1))[-1:] == [name.turn_id]:
            return name.session_id
        key = key or uuid4().hex
        ids = partial(id_of_key, context=self.client.context, secret=await self.client.claims.id_secret())
        if await self.client.find(*name[:2], ids("turn", *name[:2], key)):
            return name.session_id
        fork_id = ids("fork", name.turn_id, key)
        await none_if(HTTPStatus.CONFLICT, self.app.fork(*name[:2], fork_id, at_turn=name.turn_id))
        return fork_id

    async def turn_ids(self, name: ItemName, **query: int) -> list[str]:
        """List the turns of a session, the newest last."""
        session = await self.app.session(*name[:2], **query)
        turn_ids = [*(turn["turn_id"] for turn in session["turns"]), session["running_turn_id"]]
        return [turn_id for turn_id in (*turn_ids, *session["queued_turn_ids"]) if turn_id]


async def create_response(edge: _Edge) -> Response:
    """``POST /openai/v1/responses``: run a turn, or continue one with the replies to its calls."""
    request = ResponseRequest(parse_object(edge.call.body), edge.host)
    name = await edge.begin(request)
    if request.is_streamed:
        return await edge.stream(name)
    return await (edge.show if request.is_background else edge.collect)(name)


async def read_response(edge: _Edge) -> Response:
    """``GET /openai/v1/responses/{id}``: as far as it has come; with ``stream`` its past and future events."""
    if edge.call.query.get("stream", "").lower() != "true":
        return await edge.show(edge.name)
    after = edge.call.query.get("starting_after", "-1")
    if not after.removeprefix("-").isdecimal():
        raise RequestError(f"'starting_after' is {after[:40]!r}: send the sequence_number of an event")
    return await edge.stream(edge.name, int(after))


async def cancel_response(edge: _Edge) -> Response:
    """``POST /openai/v1/responses/{id}/cancel``: cancel its turn, unless that has ended."""
    name = edge.name
    if (await edge.find(name)).turn.outcome is None:
        await edge.app.cancel(*name[:3])
        with suppress(TurnTimedOutError):
            await edge.client.wait(name.turn_id, seconds=edge.host.settings.wait_seconds)
    return await edge.show(name)


async def delete(edge: _Edge) -> Response:
    """``DELETE …/{id}``: erase a conversation; by the id of a response only if the conversation has no other turn."""
    name = edge.name
    if name.turn_id and await edge.turn_ids(name) != [name.turn_id]:
        conversation_id = encode_id("conv", *name[:2])
        detail = f"the conversation of this response has others: delete {conversation_id} with all of them"
        return problem(HTTPStatus.CONFLICT, detail)
    await edge.app.delete(*name[:2])
    kind = "response" if name.turn_id else "conversation.deleted"
    return _json({"id": edge.call.path_part("id"), "object": kind, "deleted": True})


async def list_items(edge: _Edge) -> Response:
    """``GET …/{id}/items``: what the request for a response had; or all items of a conversation.

    The newest comes first unless the request has another order.
    """
    name = edge.name
    items: list[Mapping[str, Any]] = []
    if name.turn_id:
        items += (await edge.read(name)).input
    for turn_id in () if name.turn_id else await edge.turn_ids(name):
        name = ItemName(*name[:2], turn_id)
        while (response := await edge.read(name)).is_started:
            items += [*response.input, *response.output]
            name = name._replace(number=name.number + 1)
    if edge.call.query.get("order") != "asc":
        items.reverse()
    ids = [item["id"] for item in items] or [None]
    return _json({"object": "list", "data": items, "first_id": ids[0], "last_id": ids[-1], "has_more": False})


async def create_conversation(edge: _Edge) -> Response:
    """``POST /openai/v1/conversations``: name a new conversation of the agent ``model``."""
    body = parse_object(edge.call.body or b"{}")
    model = body.pop("model", None)
    if fields := [name for name, value in body.items() if value]:
        raise RequestError(f"{fields[0]!r} of a conversation cannot be set: leave it out")
    if not isinstance(model, str):
        raise RequestError("name the agent of the conversation as 'model'")
    return _conversation(encode_id("conv", edge.host.agent(model), uuid4().hex))


async def read_conversation(edge: _Edge) -> Response:
    """``GET /openai/v1/conversations/{id}``: the id of a conversation that there is."""
    await edge.app.session(*edge.name[:2], limit=1)
    return _conversation(edge.call.path_part("id"))


def _conversation(conversation_id: str) -> Response:
    return _json({"id": conversation_id, "object": "conversation", "created_at": 0, "metadata": None})


async def list_models(edge: _Edge) -> Response:
    """``GET /openai/v1/models``: the agents."""
    fields = {"object": "model", "created": 0, "owned_by": "app"}
    data = [{"id": agent, **fields} for agent in edge.host.descriptions]
    return _json({"object": "list", "data": data})


async def read_file(edge: _Edge) -> Response:
    """``GET …/files/{id}/content``: the bytes of a file that an annotation names."""
    name = edge.name
    content = await first_event(edge.app.file(*name[:2], str(name.suffix)))
    return PartStream(content, {"content-type": "application/octet-stream"})


def _json(body: Any) -> Response:
    return json_response(HTTPStatus.OK, body, {})


def show_problem(body: Mapping[str, Any], response: Response) -> Response:
    """Make the answer for a problem: clients repeat a request only when nothing has begun."""
    status = body["status"]
    is_later = status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
    if not is_later or "retry-after" not in response.headers:
        response.headers["x-should-retry"] = "false"
    error_type = "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"
    error = {"message": body["detail"], "type": error_type, "code": None, "param": None}
    return change_body(response, encode_compact({"error": error}), "application/json")


def _route(name: str, method: str, path: str, action: Action, handler: Callable[[_Edge], Awaitable[Response]]) -> Route:
    @wraps(handler)
    async def handle(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
        return await handler(_Edge(host, call, client))

    template = f"openai/v1/{path}"
    return Route(f"openai-{name}", method, template, action, handle, {}, part="openai", show_problem=show_problem)


_RESPONSE: Final = "responses/{id}"
_CONVERSATION: Final = "conversations/{id}"
ROUTES: Final[tuple[Route, ...]] = (
    _route("create-response", "POST", "responses", "turn.run", create_response),
    _route("read-response", "GET", _RESPONSE, "turn.follow", read_response),
    _route("cancel-response", "POST", f"{_RESPONSE}/cancel", "turn.cancel", cancel_response),
    _route("delete-response", "DELETE", _RESPONSE, "session.delete", delete),
    _route("input-items", "GET", f"{_RESPONSE}/input_items", "turn.read", list_items),
    _route("create-conversation", "POST", "conversations", "turn.run", create_conversation),
    _route("read-conversation", "GET", _CONVERSATION, "session.read", read_conversation),
    _route("delete-conversation", "DELETE", _CONVERSATION, "session.delete", delete),
    _route("items", "GET", f"{_CONVERSATION}/items", "session.read", list_items),
    _route("models", "GET", "models", "agents.list", list_models),
    _route("file", "GET", "files/{id}/content", "files.read", read_file),
    _route("container-file", "GET", "containers/{container}/files/{id}/content", "files.read", read_file),
)
