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

from durable_agent_host.agent_client import TurnEvent
from durable_agent_host.codec.log_entry import encode_compact
from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.errors import AgentClientError, TurnRejectedError
from durable_agent_host.http.answer_routes import check_form
from durable_agent_host.http.event_stream import EventStream
from durable_agent_host.http.parse import parse_replies, parse_resume
from durable_agent_host.http.request_handling import HandlerContext, Route, RouteRequest
from durable_agent_host.http.sse import OPENING
from durable_agent_host.model.ids import can_be_instance
from durable_agent_host.model.turn import Turn
from durable_agent_host.protocols.agui.events import STATE_SNAPSHOT, RunEvents, Wire, message_id, run_error
from durable_agent_host.protocols.agui.requests import read_input, reply_to, session_messages
from durable_agent_host.protocols.dialect import (
    NEW_SESSION,
    agent_client,
    change_body,
    first_event,
    none_if,
    past_events,
)
from durable_agent_host.turn.turn_events import TURN_WAITING
from durable_agent_host.turn.turn_requests import id_of_key

_Events = AsyncGenerator[TurnEvent]
_Messages = Sequence[Mapping[str, Any]]


class _Thread:
    """A thread, for a request: its session, and a client that acts for the caller."""

    session: Mapping[str, Any] = NEW_SESSION

    def __init__(self, host: HandlerContext, call: RouteRequest, client: TurnClient) -> None:
        self._host = host
        self._client = client
        self._last_id = parse_resume(call.headers.get("last-event-id"))
        self.request = read_input(call.body)
        self._key = (host.agent(call.path_part("agent")), self.request.thread_id)
        self._agents = agent_client(host, call, client, "agui")

    async def load(self, **query: int) -> None:
        """Read the session; an empty one when there is none."""
        session = self._agents.session(*self._key, state="true", **query)
        self.session = await none_if(HTTPStatus.NOT_FOUND, session) or NEW_SESSION

    @property
    def _has_other_state(self) -> bool:
        return self.request.state not in (None, {}, self.session["state"])

    @property
    def _has_other_end(self) -> bool:
        last_ids = {entry["turn_id"] for name in ("turns", "messages") for entry in self.session[name][-1:]}
        last_ids |= {self.session["running_turn_id"]} - {None}
        return self.request.turn_id not in (last_ids or {None})

    async def _turn_id_of(self, key: str) -> str:
        secret = await self._client.claims.id_secret()
        return id_of_key("turn", *self._key, key, context=self._client.context, secret=secret)

    async def has_message_with_replies(self) -> bool:
        """Return whether the thread has got the user's message that comes with results of tools."""
        turn_id = await self._turn_id_of(self.request.message_key)
        return await self._client.find(*self._key, turn_id) is not None

    async def begin(self) -> Response:
        """Run a turn, or read it again."""
        request = self.request
        agent, session_id = self._key
        key = request.run_id
        turn_id = await self._turn_id_of(key)
        if (self._has_other_end or self._has_other_state) and not await self._client.find(*self._key, turn_id):
            raise TurnRejectedError(
                "the thread has not ended with the messages of the request, was deleted, or has another 'state', which "
                "only tools change: connect to get what it has, or fork the session "
                f"{session_id!r}, and use the fork's id as 'threadId'"
            )
        tools = {"client_tools": request.tools} if request.tools else {}
        events = self._agents.stream(
            agent, request.parts, session_id=session_id, idempotency_key=key, policy="reject", **tools
        )
        messages = [*request.messages]
        user_message = next(message for message in reversed(messages) if message["role"] == "user")
        messages[messages.index(user_message)] = {**user_message, "id": message_id(turn_id, "user")}
        return self._stream(request.run_events(turn_id), messages, await first_event(events))

    async def resume(self, turn_id: str | None) -> Response:
        """Answer the calls for which a turn waits, and stream what follows."""
        request = self.request
        turn, past = await self._read(turn_id)
        key = (*self._key, turn.request.turn_id)
        run_events = request.run_events(turn.request.turn_id)
        for event in past:
            list(run_events.add(event))
            calls = run_events.waiting_calls()
            if event.name == TURN_WAITING and calls.keys() & request.replies.keys():
                break
        else:
            raise TurnRejectedError(
                f"no turn waits for {', '.join(request.replies)}: connect to see what the thread has"
            )
        if calls.keys() != request.replies.keys() or (self._has_other_state and turn.outcome is None):
            names = ", ".join(f"{call['name']} ({id_})" for id_, call in calls.items())
            raise TurnRejectedError(
                f"the thread waits for {names}: cover them all, and no others, in one run by 'resume' and messages of "
                "tools, and leave its state as it is"
            )
        replies = [reply_to(call, request.replies[id_]) for id_, call in calls.items()]
        if request.parts and not await self.has_message_with_replies():
            if turn.outcome or calls.keys() & turn.replies.keys():
                raise TurnRejectedError("the calls have been answered: connect, and send the message alone")
            for reply in replies:  # a message stays, so it is sent only with replies that are accepted
                ((id_, fields),) = parse_replies(encode_compact(reply).encode()).items()
                check_form(calls[id_], fields, self._host)
            await self._agents.steer(*self._key, request.parts, idempotency_key=request.message_key)
        await self._agents.answer(*key, replies)
        return self._stream(run_events, request.messages, self._agents.follow(*key, after=event.id))

    async def connect(self) -> Response:
        """Stream what the thread has, and then the events of a turn that runs or waits."""
        await self.load()
        self._last_id = None
        messages = session_messages(self.session)
        if (running := self.session.get("running_turn")) is None:
            return self._stream(self.request.run_events(""), messages, _no_events())
        turn_id = running["turn_id"]
        turn, past = await self._read(turn_id)
        last_id = past[-1].id if past else 0
        run_events = self.request.run_events(turn_id)

        async def current_events() -> _Events:
            async with aclosing(self._agents.follow(*self._key, turn_id)) as events:
                async for event in events:
                    is_past = event.id < last_id or run_events.waiting_calls().keys() <= turn.replies.keys()
                    if event.name != TURN_WAITING or not is_past:
                        yield event

        messages.append({"id": message_id(turn_id, "user"), "role": "user", "content": running["message"]})
        return self._stream(run_events, messages, await first_event(current_events()))

    async def _read(self, turn_id: str | None) -> tuple[Turn, list[TurnEvent]]:
        """Read a turn of the thread, and its events as far as it has come."""
        turn = await self._client.find(*self._key, turn_id) if turn_id and can_be_instance(turn_id) else None
        if turn is None:
            raise TurnRejectedError("nothing in the thread waits: send a message of the user")
        return turn, [event async for event in past_events(self._host, turn.request)]

    def _stream(self, run_events: RunEvents, messages: _Messages, events: _Events) -> Response:
        """Stream the events of a run, after those that the client has; those of the state have no id."""

        async def lines() -> AsyncGenerator[bytes]:
            yield OPENING
            number = 0
            try:
                async with aclosing(events):
                    async for wire in self._wires(run_events, messages, events):
                        if wire["type"] == STATE_SNAPSHOT:
                            yield _encode(wire)
                            continue
                        if self._last_id is None or number > self._last_id:
                            yield f"id: {number}\n".encode() + _encode(wire)
                        number += 1
            except AgentClientError as error:
                yield _encode(run_error(str(error), error.status or "disconnected"))

        return EventStream(lines(), {})

    async def _wires(self, run_events: RunEvents, messages: _Messages, events: _Events) -> AsyncGenerator[Wire]:
        for wire in run_events.begin(messages, self.session["state"]):
            yield wire
        async for event in events:
            if event.is_last:
                await self.load(limit=1)
                for wire in run_events.show_state(self.session["state"]):
                    yield wire
            for wire in run_events.add(event):
                yield wire
            if run_events.is_finished:
                return
        for wire in run_events.finish({"type": "success"}):
            yield wire


async def run(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``POST /agui/{agent}``: run a turn, answer the calls for which it waits, or follow it; stream its events."""
    thread = _Thread(host, call, client)
    await thread.load(limit=1)
    request = thread.request
    running_id = thread.session["running_turn_id"]
    last_id = next((turn["turn_id"] for turn in thread.session["turns"][-1:]), None)
    turn_id = request.turn_id or running_id or last_id
    is_resumption = request.resume or (request.replies and (turn_id == running_id or not request.parts))
    if is_resumption or (request.replies and await thread.has_message_with_replies()):
        return await thread.resume(turn_id)
    return await (thread.begin() if request.parts else thread.connect())


async def connect(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``POST /agui/{agent}/connect``: stream what a thread has, and then the events of a turn that runs or waits."""
    return await _Thread(host, call, client).connect()


async def _no_events() -> _Events:
    for event in ():
        yield event


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
