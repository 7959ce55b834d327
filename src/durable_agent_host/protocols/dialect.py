"""What a dialect of the HTTP edge needs: it translates requests into calls of `AgentClient`, and events into its own.

Theory of operation: a dialect has no state and decides nothing. Its handler gets a client that calls the code of the
host's own routes on behalf of the same caller (`durable_agent_host.http.route_transport`), so admission, owners, limits
and errors are theirs. A refusal is an `AgentClientError`, which a handler lets pass: it becomes the problem with which
the route has answered, and `Route.show_problem` gives that the dialect's form.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import aclosing
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

from azurefunctions.extensions.http.fastapi import Response

from durable_agent_host.agent_client import AgentClient, TurnEvent
from durable_agent_host.codec.log_entry import encode_compact
from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.errors import AgentClientError
from durable_agent_host.http.event_stream import HEARTBEAT_SECONDS
from durable_agent_host.http.request_handling import HandlerContext, RouteRequest, read_log
from durable_agent_host.http.route_transport import client_of_routes
from durable_agent_host.model.access import Action, CallerAccess, RequestContext
from durable_agent_host.model.log_entry import EVENT
from durable_agent_host.model.turn import TurnRequest


def agent_client(host: HandlerContext, call: RouteRequest, client: TurnClient, first_path: str) -> AgentClient:
    """Return a client that acts for the caller of a dialect's route.

    Args:
        host: the app.
        call: the request.
        client: the turn client of the request.
        first_path: the first part of the route's path, such as ``openai``: before it are the host's own routes.
    """
    return client_of_caller(host, client, call.base_url_before(first_path))


def client_of_caller(host: HandlerContext, client: TurnClient, base_url: str) -> AgentClient:
    """Return a client that acts for the caller whose context the turn client has."""

    def context_for(action: Action, traceparent: str | None) -> RequestContext:
        del traceparent
        access = client.context.access
        is_caller = isinstance(access, CallerAccess)
        return replace(client.context, access=replace(access, action=action) if is_caller else access)

    return client_of_routes(host, client.in_context, context_for, base_url=base_url, patience_seconds=0.0)


async def first_event[Event](events: AsyncGenerator[Event]) -> AsyncGenerator[Event]:
    """Wait for the first event for as long as an answer may be silent, so that a refusal is its status.

    Returns:
        All events, also the first one.

    Raises:
        AgentClientError: the turn was refused.
    """
    first = asyncio.ensure_future(anext(events, None))
    await asyncio.wait({first}, timeout=HEARTBEAT_SECONDS)
    if first.done():
        first.result()

    async def all_events() -> AsyncGenerator[Event]:
        async with aclosing(events):
            if (event := await first) is not None:
                yield event
            async for event in events:
                yield event

    return all_events()


async def past_events(host: HandlerContext, request: TurnRequest) -> AsyncGenerator[TurnEvent]:
    """Read the events of a turn as far as it has come, without its end."""
    async for records in read_log(host, request):
        for record in records:
            if record.entry.kind == EVENT:
                name, data = record.entry.data["event"], record.entry.data["data"]
                yield TurnEvent(record.offset, name, data, request.session_id, request.turn_id)


NEW_SESSION: Final[Mapping[str, Any]] = {
    "session_id": "",
    "messages": (),
    "turns": (),
    "running_turn_id": None,
    "state": {},
}
"""What a session has that nobody has begun."""


async def none_if[T](status: HTTPStatus, answer: Awaitable[T]) -> T | None:
    """Wait for an answer; None if it is a refusal with this status."""
    try:
        return await answer
    except AgentClientError as error:
        if error.status != status:
            raise
        return None


def text_of(arguments: Any) -> str:
    """Return the arguments of a call as JSON."""
    return arguments if isinstance(arguments, str) else encode_compact(arguments or {})


def change_body(response: Response, body: str, media_type: str) -> Response:
    """Give a problem the form of a dialect."""
    response.body = body.encode()
    response.headers.update({"content-type": media_type, "content-length": str(len(response.body))})
    return response
