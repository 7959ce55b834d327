"""The routes of clients of the Responses API."""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from http import HTTPStatus
from typing import Any, Final
from uuid import uuid4

from azurefunctions.extensions.http.fastapi import Response

from durable_agent_host.codec.log_entry import encode_compact
from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.errors import (
    NotFoundError,
    RequestError,
    TurnRejectedError,
    TurnTimedOutError,
)
from durable_agent_host.http.event_stream import EventStream, PartStream
from durable_agent_host.http.parse import parse_number, parse_object
from durable_agent_host.http.problem_details import problem_response
from durable_agent_host.http.request_handling import HandlerContext, Route, RouteRequest
from durable_agent_host.http.response_views import json_response, terminal_event
from durable_agent_host.http.turn_routes import read_result
from durable_agent_host.model.access import Action
from durable_agent_host.protocols.dialect import (
    agent_client,
    change_body,
    first_event,
    none_if,
    past_events,
)
from durable_agent_host.protocols.openai.events import ResponseEvents, input_parts
from durable_agent_host.protocols.openai.ids import ItemName, encode_id, read_name
from durable_agent_host.protocols.openai.requests import ResponseRequest, pop_field
from durable_agent_host.turn.turn_requests import id_of_key

_FIELDS_OF_RUN: Final = {"'message'": "input", "client_tools": "tools", "response_format": "text.format"}
"""Field of `run`, as its errors have it → the field of a request for a response."""


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
        return read_name(self.call.path_part("id"), "id")

    async def find(self, name: ItemName) -> ResponseEvents:
        """Find the turn of a response; return what makes the response's events."""
        agent_name = self.host.agent(name.agent)
        turn = await self.client.find(agent_name, *name[1:3])
        if turn is None:
            raise NotFoundError("there is no such response, or its conversation was deleted")
        agent = self.host.agents[agent_name].hosted
        url = f"{self.call.base_url_before('openai')}/openai/v1"
        return ResponseEvents(turn, name, lambda tool: agent.find_parameters(tool) is not None, url)

    async def read(self, name: ItemName) -> ResponseEvents:
        """Read a response as far as it has come."""
        response = await self.find(name)
        turn = response.turn
        async for event in past_events(self.host, turn.request):
            response.feed(event.id, event.name, event.data)
        if turn.outcome is not None:
            response.feed(-1, *terminal_event(turn.request, turn.outcome, ""))
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
                for response_event in response.feed(event.id, event.name, event.data):
                    yield response_event
                if response.is_complete:
                    return
        raise NotFoundError("there is no such response")

    async def stream(self, name: ItemName, after: int | None = None) -> Response:
        """Answer with the events of a response after one of them."""
        events = await first_event(self.translate(await self.find(name)))

        async def lines() -> AsyncGenerator[bytes]:
            async with aclosing(events):
                async for event in events:
                    if after is None or event["sequence_number"] > after:
                        yield f"event: {event['type']}\ndata: {encode_compact(event)}\n\n".encode()

        return EventStream(lines(), {})

    async def collect(self, name: ItemName) -> Response:
        """Answer with a response when it is complete."""
        response = await self.find(name)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.host.settings.wait_seconds), aclosing(self.translate(response)) as events:
                async for _ in events:
                    pass
        if not response.is_complete:
            raise TurnTimedOutError(
                f"the response {response.body['id']} is still in progress: retrieve it later, and do not send the "
                "request again; for long ones use 'stream' or 'background'"
            )
        return _json(response.body) if response.problem is None else problem_response(response.problem)

    async def begin(self, request: ResponseRequest) -> ItemName:
        """Run a turn, or reply to the calls of a response; return the new response."""
        previous = request.previous
        if previous:
            with suppress(NotFoundError):  # this is its first response
                previous = await self.conversation(previous)
            if previous.agent not in ("", request.agent):
                raise RequestError(f"'model' is not that of the conversation: send {previous.agent!r}")
        session_id = previous and previous.session_id
        key = self.call.headers.get("idempotency-key")
        if previous and previous.turn_id:
            response = await self.read(previous)  # the turn itself says later that it waits
            turn = response.turn
            for call in response.waiting_calls:
                if turn.outcome is None and call["call_id"] not in {**request.replies, **turn.replies}:
                    raise RequestError(f"'input' has no output of {call['name']!r}: reply to all calls of the response")
            if request.replies:
                return await self.answer(previous, request.replies, response.waiting_calls)
            if not key and (repeated := await self.find_repeated(previous, request)):
                return repeated
            session_id = await self.session_after(previous, key or uuid4().hex)
        result = await self.app.run(
            request.agent, request.message, session_id=session_id, idempotency_key=key, wait=False, **request.fields
        )
        return ItemName(request.agent, result.session_id, result.turn_id)

    async def answer(self, name: ItemName, replies: Mapping[Any, Any], calls: Sequence[Mapping[str, Any]]) -> ItemName:
        """Reply to the calls of a response, with what their schemas ask for; return the next response."""
        for call in calls:
            reply = replies.get(call["call_id"], {})
            if isinstance(text := reply.get("result"), str):
                reply["result"] = read_result(text, call.get("schema"))
        await self.app.answer(*name[:3], [*replies.values()])
        return name._replace(number=name.number + 1)

    async def id_of(self, *parts: str) -> str:
        """Return the id of what a message begins, by its key, the last part."""
        return id_of_key(*parts, context=self.client.context, secret=await self.client.claims.id_secret())

    async def conversation(self, name: ItemName) -> ItemName:
        """Find the agent of a conversation that was created without one.

        Raises:
            NotFoundError: no agent has it.
        """
        if name.agent:
            return name
        for agent in self.host.descriptions:
            if await none_if(HTTPStatus.NOT_FOUND, self.app.session(agent, name.session_id, limit=1)):
                return name._replace(agent=agent)
        raise NotFoundError("the conversation has no response yet, or was deleted")

    async def find_repeated(self, previous: ItemName, request: ResponseRequest) -> ItemName | None:
        """Find the turn of a request that an SDK repeats by itself, without a key: the one after the same response."""
        if self.call.headers.get("x-stainless-retry-count", "0") == "0":
            return None
        turn_ids = [*await self.turns(previous)]
        name = previous._replace(turn_id=turn_ids[-1], number=0)
        is_next = turn_ids[-2:-1] == [previous.turn_id]
        return name if is_next and input_parts((await self.find(name)).turn.request) == request.message else None

    async def session_after(self, name: ItemName, key: str) -> str:
        """Return the session of a message that follows a response: a fork, unless only failed ones come after that.

        A message that is repeated with its key has begun a turn in the session, or has made its fork.
        """
        turns = await self.turns(name, limit=1)
        if set(turns.values()) == {"failed"}:
            turns = await self.turns(name)
        last_ids = [turn_id for turn_id, status in turns.items() if turn_id == name.turn_id or status != "failed"]
        turn_id = await self.id_of("turn", *name[:2], key)
        if last_ids[-1:] == [name.turn_id] or await self.client.find(*name[:2], turn_id):
            return name.session_id
        fork_id = await self.id_of("fork", name.turn_id, key)
        await none_if(HTTPStatus.CONFLICT, self.app.fork(*name[:2], fork_id, at_turn=name.turn_id))
        return fork_id

    async def turns(self, name: ItemName, **query: int) -> dict[str, str]:
        """List the turns of a session, the newest last, with how they have ended."""
        session = await self.app.session(*name[:2], **query)
        statuses = {turn["turn_id"]: turn["status"] for turn in session["turns"]}
        turn_ids = (session["running_turn_id"], *session["queued_turn_ids"])
        return statuses | {turn_id: "" for turn_id in turn_ids if turn_id}


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
    after = edge.call.query.get("starting_after")
    return await edge.stream(
        edge.name, parse_number("'starting_after'", after, ": send the sequence_number of an event")
    )


async def cancel_response(edge: _Edge) -> Response:
    """``POST /openai/v1/responses/{id}/cancel``: cancel its turn, unless the response is complete."""
    name = edge.name
    if not (await edge.read(name)).is_complete:
        await edge.app.cancel(*name[:3])
        with suppress(TurnTimedOutError):
            await edge.client.wait(name.turn_id, seconds=edge.host.settings.wait_seconds)
    return await edge.show(name)


async def delete_response(edge: _Edge) -> Response:
    """``DELETE /openai/v1/responses/{id}``: erase its conversation."""
    await edge.find(edge.name)
    return await delete(edge)


async def delete(edge: _Edge) -> Response:
    """``DELETE …/{id}``: erase a conversation; by the id of a response only if the conversation has no other turn."""
    name = await edge.conversation(edge.name)
    if name.turn_id and [*await edge.turns(name)] != [name.turn_id]:
        raise TurnRejectedError("the conversation of this response has others: delete it with all of them")
    await edge.app.delete(*name[:2])
    kind = "response" if name.turn_id else "conversation.deleted"
    return _json({"id": edge.call.path_part("id"), "object": kind, "deleted": True})


async def list_items(edge: _Edge) -> Response:
    """``GET …/{id}/items``: what the request for a response had; or all items of a conversation.

    The newest comes first unless the request has another order.
    """
    name = await edge.conversation(edge.name)
    items: list[Mapping[str, Any]] = []
    if name.turn_id:
        items += (await edge.read(name)).input
    for turn_id in () if name.turn_id else await edge.turns(name):
        name = ItemName(*name[:2], turn_id)
        calls: Any = True
        while calls:
            response = await edge.read(name)
            items += [*response.input, *response.body["output"]]
            name = name._replace(number=name.number + 1)
            calls = response.waiting_calls
    if edge.call.query.get("order") != "asc":
        items.reverse()
    ids = [item["id"] for item in items] or [None]
    return _json({"object": "list", "data": items, "first_id": ids[0], "last_id": ids[-1], "has_more": False})


async def create_conversation(edge: _Edge) -> Response:
    """``POST /openai/v1/conversations``: name a conversation of the agent ``model``, or of the first that replies."""
    body = parse_object(edge.call.body or b"{}")
    model = pop_field(body, "model", "")
    agent = model and edge.host.agent(model)
    if fields := [name for name, value in body.items() if value]:
        raise RequestError(f"{fields[0]!r} of a conversation cannot be set: leave it out")
    return _conversation(encode_id("conv", agent, uuid4().hex))


async def read_conversation(edge: _Edge) -> Response:
    """``GET /openai/v1/conversations/{id}``: the id of a conversation that there is."""
    await edge.app.session(*(await edge.conversation(edge.name))[:2], limit=1)
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
    if not name.suffix:
        raise NotFoundError("there is no such file")
    content = await first_event(edge.app.file(*name[:2], str(name.suffix)))
    return PartStream(content, {"content-type": "application/octet-stream"})


def _json(body: Any) -> Response:
    return json_response(HTTPStatus.OK, body, {})


def show_problem(body: Mapping[str, Any], response: Response) -> Response:
    """Make the answer for a problem: clients repeat a request only when nothing has begun."""
    status = body["status"]
    message: str = body["detail"]
    is_later = status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
    if not is_later or "retry-after" not in response.headers or "may have begun" in message:
        response.headers["x-should-retry"] = "false"
    error_type = "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error"
    match = re.match(r"'([\w.\[\]]+)'", message)
    param = match and match[1]
    for name, field in _FIELDS_OF_RUN.items():
        if name in message and "cannot be set" not in message:
            message = message.replace(name, field)
            param = field
    error = {"message": message, "type": error_type, "code": None, "param": param}
    return change_body(response, encode_compact({"error": error}), "application/json")


def _route(name: str, method: str, path: str, action: Action, handler: Callable[[_Edge], Awaitable[Response]]) -> Route:
    async def handle(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
        return await handler(_Edge(host, call, client))

    url = f"openai/v1/{path}"
    return Route(f"openai-{name}", method, url, action, handle, {}, part="openai", show_problem=show_problem)


_RESPONSE: Final = "responses/{id}"
_CONVERSATION: Final = "conversations/{id}"
ROUTES: Final = (
    _route("create-response", "POST", "responses", "turn.run", create_response),
    _route("read-response", "GET", _RESPONSE, "turn.follow", read_response),
    _route("cancel-response", "POST", f"{_RESPONSE}/cancel", "turn.cancel", cancel_response),
    _route("delete-response", "DELETE", _RESPONSE, "session.delete", delete_response),
    _route("input-items", "GET", f"{_RESPONSE}/input_items", "turn.read", list_items),
    _route("create-conversation", "POST", "conversations", "turn.run", create_conversation),
    _route("read-conversation", "GET", _CONVERSATION, "session.read", read_conversation),
    _route("delete-conversation", "DELETE", _CONVERSATION, "session.delete", delete),
    _route("items", "GET", f"{_CONVERSATION}/items", "session.read", list_items),
    _route("models", "GET", "models", "agents.list", list_models),
    _route("file", "GET", "files/{id}/content", "files.read", read_file),
    _route("container-file", "GET", "containers/{container}/files/{id}/content", "files.read", read_file),
)
