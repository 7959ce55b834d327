"""The routes of clients of the Responses API."""

import asyncio
import base64
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import wraps
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Final
from uuid import uuid4

from azurefunctions.extensions.http.fastapi import Response

from durable_agent_host.agent_client import TurnEvent
from durable_agent_host.codec.log_entry import encode_compact
from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.errors import AgentClientError, NotFoundError, RequestError, TurnTimedOutError
from durable_agent_host.http.event_stream import EventStream, PartStream
from durable_agent_host.http.parse import parse_object
from durable_agent_host.http.problem_details import problem, problem_response
from durable_agent_host.http.request_handling import HandlerContext, Route, RouteRequest, read_log
from durable_agent_host.http.response_views import json_response, terminal_event
from durable_agent_host.model.access import Action
from durable_agent_host.model.ids import check_session_id
from durable_agent_host.model.log_entry import EVENT
from durable_agent_host.model.turn import Turn
from durable_agent_host.protocols.dialect import agent_client, first_event, with_heartbeats
from durable_agent_host.protocols.openai.events import ResponseEvents, calls_for_client
from durable_agent_host.protocols.openai.ids import ItemName, decode_id, encode_id, response_name, session_name
from durable_agent_host.protocols.openai.requests import ResponseRequest, input_items, read_request
from durable_agent_host.turn.message_input import MessageInput
from durable_agent_host.turn.turn_requests import ClientRequest, request_of_client

_Events = AsyncGenerator[tuple[ResponseEvents, Mapping[str, Any]]]
"""The events of a response, each with what it is so far."""


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

    async def find_turn(self, name: ItemName) -> Turn:
        """Read the turn of a response."""
        agent = self.host.agent(name.agent)
        turn = await self.client.find(agent, name.session_id, check_session_id(name.turn_id))
        if turn is None:
            raise NotFoundError("there is no such response, or its conversation was deleted")
        return turn

    async def named_response(self) -> tuple[ItemName, Turn]:
        """Read the id on the path, and the turn."""
        name = response_name(self.call.path_part("response"))
        return name, await self.find_turn(name)

    def events_of(self, turn: Turn, number: int) -> ResponseEvents:
        """Return what makes the events of a response."""
        agent = self.host.agents[turn.request.agent].hosted
        files_url = f"{self.call.base_url_before('openai')}/openai/v1/files"
        return ResponseEvents(turn.request, number, lambda name: agent.find_parameters(name) is not None, files_url)

    async def feed(self, response_events: ResponseEvents, event: TurnEvent) -> Sequence[Mapping[str, Any]]:
        """Feed an event, with the bytes of its image."""
        files = event.data.get("files")
        if files and event.name == "tool.completed" and response_events.is_image(event.data["call_id"]):
            content = self.app.file(response_events.response["model"], event.session_id, files[0]["id"])
            with suppress(AgentClientError):  # it was deleted
                image = base64.b64encode(b"".join([part async for part in content])).decode()
                event = replace(event, data={**event.data, "image": image})
        return response_events.feed(event)

    async def response_so_far(self, turn: Turn, number: int, events: Iterable[TurnEvent]) -> ResponseEvents:
        """Return a response as far as it has come."""
        response_events = self.events_of(turn, number)
        for event in events:
            await self.feed(response_events, event)
        return response_events

    async def past_events(self, turn: Turn) -> list[TurnEvent]:
        """Read the events that a turn has so far."""
        names = turn.request.session_id, turn.request.turn_id
        events: list[TurnEvent] = []
        async for records in read_log(self.host, turn.request):
            entries = [(record.offset, record.entry.data) for record in records if record.entry.kind == EVENT]
            events += [TurnEvent(offset, data["event"], data["data"], *names) for offset, data in entries]
        if turn.outcome is not None:
            events.append(TurnEvent(-1, *terminal_event(turn.request, turn.outcome, ""), *names))
        return events

    async def answer_with_response(self, name: ItemName, turn: Turn | None = None) -> Response:
        """Answer with a response as far as it has come."""
        turn = turn or await self.find_turn(name)
        response_events = await self.response_so_far(turn, name.number, await self.past_events(turn))
        if name.number and not response_events.is_started:
            raise NotFoundError("there is no such response, or its turn's events are no longer kept")
        return _json(response_events.response | {"output": response_events.output})

    async def translate(self, agent: str, number: int, turn_events: AsyncGenerator[TurnEvent]) -> _Events:
        """Read the events of one of a turn's responses."""
        response_events: ResponseEvents | None = None
        async with aclosing(turn_events):
            async for event in turn_events:
                if response_events is None:
                    turn = await self.find_turn(ItemName(agent, event.session_id, event.turn_id, 0))
                    response_events = self.events_of(turn, number)
                for response_event in await self.feed(response_events, event):
                    yield response_events, response_event
                if response_events.is_complete:
                    return
        raise NotFoundError("there is no such response")

    async def stream(self, response: _Events, after: int = -1) -> Response:
        """Answer with the events of a response after one of them."""
        events = await first_event(response)

        async def lines() -> AsyncGenerator[bytes]:
            async with aclosing(events):
                async for _, event in events:
                    if event["sequence_number"] > after:
                        yield f"event: {event['type']}\ndata: {encode_compact(event)}\n\n".encode()

        return EventStream(with_heartbeats(lines()), {})

    async def collect(self, response: _Events) -> Response:
        """Answer with a response when it is complete."""
        response_events = None
        with suppress(TimeoutError):
            async with asyncio.timeout(self.host.settings.wait_seconds):
                async for response_events, _ in response:  # noqa: B007
                    pass
        if response_events is None or not response_events.is_complete:
            name = response_events.response["id"] if response_events else "of the conversation"
            return problem(
                HTTPStatus.GATEWAY_TIMEOUT,
                f"the response {name} is still in progress: retrieve it later, and do not send the request again; for "
                "long ones use 'stream' or 'background'",
            )
        if response_events.problem is not None:
            return problem_response(response_events.problem)
        return _json(response_events.response)

    async def answer_calls(self, request: ResponseRequest, name: ItemName) -> ItemName:
        """Answer the calls of a response; return the next one."""
        turn = await self.find_turn(name)
        _check_calls(turn, request)
        if request.parts:
            raise RequestError("'input' has replies to calls and a message: send the message after that response")
        await self.app.answer(*name[:3], [*request.replies.values()])
        return name._replace(number=name.number + 1)

    async def continue_session(
        self, request: ResponseRequest, name: ItemName, key: str | None
    ) -> tuple[str, ItemName | None]:
        """Find where a message goes that follows a response.

        Returns:
            The session, which is a fork unless the response's turn is the last one; and the response, if the turn
            after that is an earlier attempt of the same request, which the client repeats without a key. One with a
            key has begun in the session, too.
        """
        _check_calls(await self.find_turn(name), request)
        if (await self.turn_ids(*name[:2], limit=1))[-1:] == [name.turn_id]:
            return name.session_id, None
        turn_ids = await self.turn_ids(*name[:2])
        if key and await self._keyed_turn_id(name, key) in turn_ids:
            return name.session_id, None
        if key is None and self.call.headers.get("x-stainless-retry-count", "0") != "0":
            for turn_id in turn_ids[turn_ids.index(name.turn_id) + 1 :][:1]:
                repeated = ItemName(*name[:2], turn_id, 0)
                if (await self.find_turn(repeated)).request.message == request.message:
                    return name.session_id, repeated
        new_id = sha256(f"{key} {name.turn_id}".encode()).hexdigest()[:32] if key else uuid4().hex
        try:
            await self.app.fork(*name[:2], new_id, at_turn=name.turn_id)
        except AgentClientError as error:
            if key is None or error.status != HTTPStatus.CONFLICT:  # an earlier attempt has made it
                raise
        return new_id, None

    async def _keyed_turn_id(self, name: ItemName, key: str) -> str:
        """Return the id of the turn that a request with the key begins in the session."""
        keyed = ClientRequest(MessageInput(""), "", name.session_id, key)
        secret = await self.client.claims.id_secret()
        context = self.client.context
        return request_of_client(name.agent, keyed, context, secret=secret, new_id=str, created_at="").turn_id

    async def turn_ids(self, agent: str, session_id: str, **query: int) -> list[str]:
        """List the turns of a session, the newest last."""
        session = await self.app.session(agent, session_id, **query)
        turn_ids = [*(turn["turn_id"] for turn in session["turns"]), session["running_turn_id"]]
        return [turn_id for turn_id in (*turn_ids, *session["queued_turn_ids"]) if turn_id]


def _check_calls(turn: Turn, request: ResponseRequest) -> None:
    for call in calls_for_client(turn.pending):
        if call["call_id"] not in request.replies:
            raise RequestError(f"no tool output found for {call['name']!r}: reply to all calls of the response")


async def create_response(edge: _Edge) -> Response:
    """``POST /openai/v1/responses``: run a turn, or continue one with the replies to its calls."""
    body = parse_object(edge.call.body)
    request = read_request(body, edge.host)
    name = None
    session_id = request.session_id
    is_stream = body.get("stream") is True
    is_detached = body.get("background") is True and not is_stream
    turn_events: Any = None
    if request.replies and request.previous:
        name = await edge.answer_calls(request, request.previous)
    elif not request.parts:
        raise RequestError("'input' has nothing new: send a message, or the outputs of the calls")
    else:
        key = edge.call.headers.get("idempotency-key")
        if request.previous:
            session_id, name = await edge.continue_session(request, request.previous, key)
        arguments: dict[str, Any] = {"session_id": session_id, "idempotency_key": key, **request.fields}
        if name is None and is_detached:
            result = await edge.app.run(request.agent, request.message, wait=False, **arguments)
            name = ItemName(request.agent, result.session_id, result.turn_id, 0)
        elif name is None:
            turn_events = edge.app.stream(request.agent, request.message, **arguments)
    if name is not None:
        if is_detached:
            return await edge.answer_with_response(name)
        turn_events = edge.app.follow(*name[:3])
    response = edge.translate(request.agent, name.number if name else 0, turn_events)
    return await (edge.stream if is_stream else edge.collect)(response)


async def read_response(edge: _Edge) -> Response:
    """``GET /openai/v1/responses/{response}``: as far as it has come; with ``stream`` its past and future events."""
    name, turn = await edge.named_response()
    if edge.call.query.get("stream", "").lower() != "true":
        return await edge.answer_with_response(name, turn)
    after = edge.call.query.get("starting_after", "-1")
    if not after.removeprefix("-").isdecimal():
        raise RequestError(f"'starting_after' is {after[:40]!r}: send the sequence_number of an event")
    return await edge.stream(edge.translate(name.agent, name.number, edge.app.follow(*name[:3])), int(after))


async def cancel_response(edge: _Edge) -> Response:
    """``POST /openai/v1/responses/{response}/cancel``: cancel its turn, unless that has ended."""
    name, turn = await edge.named_response()
    if turn.outcome is None:
        await edge.app.cancel(*name[:3])
        with suppress(TurnTimedOutError):
            await edge.client.wait(name.turn_id, seconds=edge.host.settings.wait_seconds)
    return await edge.answer_with_response(name)


async def delete_response(edge: _Edge) -> Response:
    """``DELETE /openai/v1/responses/{response}``: erase its conversation, if that has no other turn."""
    name, _ = await edge.named_response()
    if len(await edge.turn_ids(*name[:2])) > 1:
        conversation_id = encode_id("conv", *name[:2])
        detail = f"the conversation of this response has others: delete {conversation_id} with all of them"
        return problem(HTTPStatus.CONFLICT, detail)
    await edge.app.delete(*name[:2])
    return _deleted(edge.call.path_part("response"), "response")


def _deleted(client_id: str, kind: str) -> Response:
    return _json({"id": client_id, "object": kind, "deleted": True})


async def list_input_items(edge: _Edge) -> Response:
    """``GET /openai/v1/responses/{response}/input_items``: what the request for it had."""
    name, turn = await edge.named_response()
    return _list(edge, input_items(turn, name.number, await edge.past_events(turn)))


def _list(edge: _Edge, items: Sequence[Mapping[str, Any]]) -> Response:
    """Answer with all items, the newest first unless the request has another order."""
    data = [*items] if edge.call.query.get("order") == "asc" else [*reversed(items)]
    ids = [item["id"] for item in data] or [None]
    return _json({"object": "list", "data": data, "first_id": ids[0], "last_id": ids[-1], "has_more": False})


async def create_conversation(edge: _Edge) -> Response:
    """``POST /openai/v1/conversations``: name a new conversation of the agent ``model``."""
    body = parse_object(edge.call.body or b"{}")
    if fields := sorted(name for name, value in body.items() if value and name != "model"):
        raise RequestError(f"{fields[0]!r} of a conversation cannot be set: leave it out")
    if "model" not in body and len(edge.host.descriptions) > 1:
        raise RequestError("the app has several agents: name that of the conversation as 'model'")
    agent = edge.host.agent(body.get("model", next(iter(edge.host.descriptions))))
    return _conversation(encode_id("conv", agent, uuid4().hex))


async def read_conversation(edge: _Edge) -> Response:
    """``GET /openai/v1/conversations/{conversation}``: the id of a conversation that there is."""
    conversation_id = edge.call.path_part("conversation")
    await edge.app.session(*session_name(conversation_id), limit=1)
    return _conversation(conversation_id)


def _conversation(conversation_id: str) -> Response:
    fields = {"object": "conversation", "created_at": 0, "metadata": None}
    return _json({"id": conversation_id, **fields})


async def delete_conversation(edge: _Edge) -> Response:
    """``DELETE /openai/v1/conversations/{conversation}``: erase its session."""
    conversation_id = edge.call.path_part("conversation")
    await edge.app.delete(*session_name(conversation_id))
    return _deleted(conversation_id, "conversation.deleted")


async def list_conversation_items(edge: _Edge) -> Response:
    """``GET /openai/v1/conversations/{conversation}/items``: the items of its responses and of their requests."""
    name = session_name(edge.call.path_part("conversation"))
    items: list[Mapping[str, Any]] = []
    for turn_id in await edge.turn_ids(*name):
        turn = await edge.find_turn(ItemName(*name, turn_id, 0))
        events = await edge.past_events(turn)
        number = 0
        while output := (await edge.response_so_far(turn, number, events)).output:
            items += [*input_items(turn, number, events), *output]
            number += 1
    return _list(edge, items)


async def list_models(edge: _Edge) -> Response:
    """``GET /openai/v1/models``: the agents."""
    fields = {"object": "model", "created": 0, "owned_by": "app"}
    data = [{"id": agent, **fields} for agent in edge.host.descriptions]
    return _json({"object": "list", "data": data})


async def read_file(edge: _Edge) -> Response:
    """``GET …/files/{file}/content``: the bytes of a file that an annotation names."""
    match decode_id(edge.call.path_part("file")):
        case [str(agent), str(session_id), str(file_id)]:
            content = await first_event(edge.app.file(agent, session_id, file_id))
            return PartStream(content, {"content-type": "application/octet-stream"})
        case _:
            raise NotFoundError(f"there is no file {edge.call.path_part('file')[:200]!r}")


def _json(body: Any) -> Response:
    return json_response(HTTPStatus.OK, body, {})


def show_problem(body: Mapping[str, Any], response: Response) -> Response:
    """Make the answer for a problem: clients repeat a request only when nothing has begun."""
    status = HTTPStatus(body["status"])
    retry_after = response.headers.get("retry-after")
    is_repeatable = retry_after and status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
    headers = {"retry-after": retry_after} if is_repeatable and retry_after else {"x-should-retry": "false"}
    error_type = "invalid_request_error" if status.is_client_error else "server_error"
    error = {"message": body["detail"], "type": error_type, "code": None, "param": None}
    return json_response(status, {"error": error}, headers)


def _route(name: str, method: str, path: str, action: Action, handler: Callable[[_Edge], Awaitable[Response]]) -> Route:
    @wraps(handler)
    async def handle(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
        return await handler(_Edge(host, call, client))

    template = f"openai/v1/{path}"
    return Route(f"openai-{name}", method, template, action, handle, {}, part="openai", show_problem=show_problem)


_RESPONSE: Final = "responses/{response}"
_CONVERSATION: Final = "conversations/{conversation}"
ROUTES: Final[tuple[Route, ...]] = (
    _route("create-response", "POST", "responses", "turn.run", create_response),
    _route("read-response", "GET", _RESPONSE, "turn.follow", read_response),
    _route("cancel-response", "POST", f"{_RESPONSE}/cancel", "turn.cancel", cancel_response),
    _route("delete-response", "DELETE", _RESPONSE, "session.delete", delete_response),
    _route("input-items", "GET", f"{_RESPONSE}/input_items", "turn.read", list_input_items),
    _route("create-conversation", "POST", "conversations", "turn.run", create_conversation),
    _route("read-conversation", "GET", _CONVERSATION, "session.read", read_conversation),
    _route("delete-conversation", "DELETE", _CONVERSATION, "session.delete", delete_conversation),
    _route("items", "GET", f"{_CONVERSATION}/items", "session.read", list_conversation_items),
    _route("models", "GET", "models", "agents.list", list_models),
    _route("file", "GET", "files/{file}/content", "files.read", read_file),
    _route("container-file", "GET", "containers/{container}/files/{file}/content", "files.read", read_file),
)
