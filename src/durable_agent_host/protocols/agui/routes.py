"""The routes of AG-UI's clients.

Theory of operation: a thread is a session, and the key of a turn is the run that began it. A run that answers calls
for which a turn waits streams that turn's events from the wait on, which is found in the turn's log.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from azurefunctions.extensions.http.fastapi import Response

from durable_agent_host.agent_client import AgentClient, TurnEvent
from durable_agent_host.codec.log_entry import encode_compact
from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.errors import AgentClientError, TurnRejectedError
from durable_agent_host.http.parse import parse_resume
from durable_agent_host.http.request_handling import HandlerContext, Route, RouteRequest
from durable_agent_host.http.sse import OPENING, STREAM_HEADERS
from durable_agent_host.model.ids import check_session_id
from durable_agent_host.model.turn import Turn
from durable_agent_host.protocols.agui.events import RunEvents, Wire, message_id, run_error
from durable_agent_host.protocols.agui.requests import RunInput, read_input, reply_to, session_messages
from durable_agent_host.protocols.dialect import (
    agent_client,
    change_body,
    event_stream,
    first_event,
    none_if,
    past_events,
)
from durable_agent_host.turn.turn_events import TURN_WAITING
from durable_agent_host.turn.turn_requests import id_of_key

_NEW: Final[Mapping[str, Any]] = {"messages": (), "turns": (), "running_turn_id": None}
_find: Final = partial(none_if, HTTPStatus.NOT_FOUND)
_UNCOVERED: Final = (
    "the thread waits: cover its open interrupts and tool calls, and no others, by 'resume' and messages of tools"
)


async def run(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``POST /agui/{agent}``: run a turn, answer the calls for which it waits, or follow it; stream its events."""
    agent = host.agent(call.path_part("agent"))
    request = read_input(call.body)
    agents = agent_client(host, call, client, "agui")
    session_id = request.thread_id
    session = await _find(agents.session(agent, session_id, limit=1)) or _NEW
    running_id = session["running_turn_id"]
    last_id = next((turn["turn_id"] for turn in session["turns"][-1:]), None)
    known_id = request.turn_id or running_id or last_id
    if request.resume or (request.replies and (known_id == running_id or not request.parts)):
        turn, past = await _read(host, client, agent, session_id, known_id)
        return await _resume(agents, turn, past, request, call)
    if not request.parts:
        return await connect(host, call, client)
    key = request.run_id
    turn_id = id_of_key("turn", agent, session_id, key, context=client.context, secret=await client.claims.id_secret())
    if not _has_end(request, session) and await _find(agents.turn(agent, session_id, turn_id)) is None:
        raise TurnRejectedError(
            "the thread has not ended with the messages that the request has: connect to get them, or fork the "
            f"session {session_id!r}, and use the fork's id as 'threadId'"
        )
    tools = {"client_tools": request.tools} if request.tools else {}
    events = agents.stream(agent, request.parts, session_id=session_id, idempotency_key=key, policy="reject", **tools)
    run_events = request.run_events(turn_id)
    start = run_events.begin([*request.history, _user_message(turn_id, request.content)])
    return _stream(run_events, start, await first_event(events), _last_id(call))


async def connect(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``POST /agui/{agent}/connect``: stream what a thread has, and then the events of a turn that runs or waits."""
    agent = host.agent(call.path_part("agent"))
    request = read_input(call.body)
    session_id = request.thread_id
    agents = agent_client(host, call, client, "agui")
    session = await _find(agents.session(agent, session_id)) or _NEW
    messages = session_messages(session)
    if (running := session.get("running_turn")) is None:
        run_events = request.run_events("")
        wires = [*run_events.begin(messages), *run_events.finish({"type": "success"})]
        return Response(b"".join(map(_encode, wires)), headers=STREAM_HEADERS)
    turn_id = running["turn_id"]
    turn, past = await _read(host, client, agent, session_id, turn_id)
    last_id = past[-1].id if past else 0
    run_events = request.run_events(turn_id)

    async def without_past_waits() -> AsyncGenerator[TurnEvent]:
        async with aclosing(agents.follow(agent, session_id, turn_id)) as events:
            async for event in events:
                is_past = event.id < last_id or run_events.waiting_calls().keys() <= turn.replies.keys()
                if event.name != TURN_WAITING or not is_past:
                    yield event

    start = run_events.begin([*messages, _user_message(turn_id, running["message"])])
    return _stream(run_events, start, await first_event(without_past_waits()))


async def _read(
    host: HandlerContext, client: TurnClient, agent: str, session_id: str, turn_id: str | None
) -> tuple[Turn, list[TurnEvent]]:
    """Read a turn of a thread, and its events as far as it has come."""
    turn = await client.find(agent, session_id, check_session_id(turn_id)) if turn_id else None
    if turn is None:
        raise TurnRejectedError("nothing in the thread waits: send a message of the user")
    return turn, [event async for event in past_events(host, turn.request)]


async def _resume(
    agents: AgentClient, turn: Turn, past: Sequence[TurnEvent], request: RunInput, call: RouteRequest
) -> Response:
    """Answer the calls for which a turn waits, and stream what follows."""
    key = (turn.request.agent, turn.request.session_id, turn.request.turn_id)
    run_events = request.run_events(turn.request.turn_id)
    for event in past:
        list(run_events.add(event))
        calls = run_events.waiting_calls()
        if event.name == TURN_WAITING and calls.keys() & request.replies.keys():
            break
    else:
        raise TurnRejectedError(f"no turn waits for {', '.join(request.replies)}: connect to see what the thread has")
    if calls.keys() != request.replies.keys():
        raise TurnRejectedError(_UNCOVERED)
    if request.parts:
        await agents.steer(*key[:2], request.parts, idempotency_key=request.run_id)
    await agents.answer(*key, [reply_to(call, request.replies[id_]) for id_, call in calls.items()])
    start = run_events.begin(request.messages, calls)
    return _stream(run_events, start, agents.follow(*key, after=event.id), _last_id(call))


def _last_id(call: RouteRequest) -> int | None:
    return parse_resume(call.headers.get("last-event-id"))


def _user_message(turn_id: str, content: Any) -> Wire:
    return {"id": message_id(turn_id, "user"), "role": "user", "content": content}


def _has_end(request: RunInput, session: Mapping[str, Any]) -> bool:
    """Return whether the client has the end of the thread."""
    last_ids = {entry["turn_id"] for name in ("turns", "messages") for entry in session[name][-1:]}
    last_ids |= {session["running_turn_id"]} - {None}
    return request.turn_id in last_ids or not last_ids


def _stream(
    run_events: RunEvents, start: Sequence[Wire], events: AsyncGenerator[TurnEvent], last_id: int | None = None
) -> Response:
    """Stream the events of a run, after the last one that the client has."""

    async def wires() -> AsyncGenerator[Wire]:
        for wire in start:
            yield wire
        async for event in events:
            for wire in run_events.add(event):
                yield wire
            if run_events.is_finished:
                return

    async def lines() -> AsyncGenerator[bytes]:
        yield OPENING
        number = 0
        try:
            async with aclosing(events):
                async for wire in wires():
                    if last_id is None or number > last_id:
                        yield f"id: {number}\n".encode() + _encode(wire)
                    number += 1
        except AgentClientError as error:
            yield _encode(run_error(str(error), error.status or "disconnected"))

    return event_stream(lines())


def _encode(wire: Wire) -> bytes:
    return f"data: {encode_compact(wire)}\n\n".encode()


def _show_problem(problem: Mapping[str, Any], response: Response) -> Response:
    """Give a refusal the form of the protocol's error."""
    error = run_error(problem["detail"], problem["status"])
    return change_body(response, encode_compact(error), "application/json")


_route = partial(Route, replies={}, part="agui", show_problem=_show_problem)
ROUTES: Final = (
    _route("agui-run", "POST", "agui/{agent}", "turn.run", run),
    _route("agui-connect", "POST", "agui/{agent}/connect", "session.read", connect),
)
