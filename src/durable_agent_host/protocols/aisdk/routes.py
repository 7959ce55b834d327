"""The routes of the AI SDK's clients: a chat's stream, and how a page comes back to it.

Theory of operation: a chat is a session, and an answer a turn. Where a page edits a message or regenerates an answer,
the chat branches: a branch is a fork, named by the chat's id and a number. The id of an answer names its turn and its
branch, so the messages that a page posts say where they belong; a page that comes back without any gets the newest
branch.
"""

import json
import re
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from azurefunctions.extensions.http.fastapi import Response
from pydantic import TypeAdapter

from durable_agent_host.agent_client import TurnEvent
from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.errors import AgentClientError, RequestError, TurnRejectedError
from durable_agent_host.http.event_stream import EventStream
from durable_agent_host.http.parse import parse_object
from durable_agent_host.http.request_handling import HandlerContext, Route, RouteRequest
from durable_agent_host.http.response_views import json_response
from durable_agent_host.model.ids import MAX_SESSION_ID_CHARACTERS, check_idempotency_key
from durable_agent_host.protocols.aisdk.events import Chunk, UIMessageStream, ending_of
from durable_agent_host.protocols.dialect import NEW_SESSION, agent_client, change_body, first_event, none_if
from durable_agent_host.turn.turn_wire import validate

_MAX_CHARACTERS: Final = MAX_SESSION_ID_CHARACTERS - len("~1000000")
"""Maximum length of a chat's id."""
_BRANCH: Final = re.compile(r"~\d+$")
"""Ending of a branch's id."""
_find: Final = partial(none_if, HTTPStatus.NOT_FOUND)


class _Chat:
    """A chat of a caller: its agent, and a client that acts for the caller."""

    def __init__(self, host: HandlerContext, call: RouteRequest, client: TurnClient, chat_id: str = "") -> None:
        self.agent = host.agent(call.path_part("agent"))
        self.id = chat_id or call.path_part("chat")
        if len(self.id) > _MAX_CHARACTERS or _BRANCH.search(self.id):
            raise RequestError(
                f"the chat id {self.id!r} has more than {_MAX_CHARACTERS} characters or ends with '~' and a number, "
                "which is the name of a branch: use another id"
            )
        self.api = agent_client(host, call, client, "ai")

    def turn_names(self, message_id: str) -> tuple[str, str, str]:
        """Return agent, session and turn of an answer."""
        turn_id, mark, number = message_id.partition("~")
        return self.agent, self.id + mark + number, turn_id

    async def branches(self) -> list[str]:
        """List the sessions of the chat, and the id for another one."""
        session_ids = [self.id, f"{self.id}~1"]
        while await _find(self.api.session(self.agent, session_ids[-1], limit=1)):
            session_ids.append(f"{self.id}~{len(session_ids)}")
        return session_ids

    async def newest_branch(self, **query: int) -> Mapping[str, Any]:
        """Read the session that began last; a chat that nobody has begun is empty."""
        *_, session_id, _ = await self.branches()
        return await _find(self.api.session(self.agent, session_id, **query)) or NEW_SESSION

    async def running_turn(self) -> tuple[str, str, str] | None:
        """Return the turn that runs or waits."""
        session = await self.newest_branch(limit=1)
        turn_id = session["running_turn_id"]
        return turn_id and (self.agent, session["session_id"], turn_id)

    async def session_after(self, answer_ids: Sequence[str], *, is_again: bool) -> str:
        """Return the session of the message that follows some answers; a message that is sent again begins a branch."""
        turns = [*map(self.turn_names, answer_ids)]
        if turns and not is_again:
            return turns[-1][1]
        *_, newest_id, new_id = await self.branches()
        if not is_again:
            return newest_id
        for agent, session_id, turn_id in reversed(turns):
            if await _find(self.api.fork(agent, session_id, new_id, at_turn=turn_id)):
                break
            turn = await _find(self.api.turn(agent, session_id, turn_id))
            if turn and "ended_at" not in turn.data:  # one that has failed is not in the conversation
                raise TurnRejectedError("an answer before this message is not complete: wait for it, or stop it")
        return new_id

    async def stream(
        self, turn_events: AsyncGenerator[TurnEvent], steps: int = 0, replied_ids: Collection[str] = ()
    ) -> Response:
        """Stream a turn until it ends or waits, without the steps that the page has."""
        events = await first_event(turn_events)

        async def parts() -> AsyncGenerator[bytes]:
            stream = UIMessageStream()
            try:
                async with aclosing(events):
                    async for event in events:
                        is_alone = event.is_last and not stream.step
                        if not stream.step:
                            message_id = event.turn_id + event.session_id.removeprefix(self.id)
                            yield _encode({"type": "start", "messageId": message_id})
                        chunks = stream.feed(event)
                        if stream.step > steps or is_alone:
                            yield _encode(*chunks)
                        if event.is_last:
                            yield _encode(*ending_of(event))
                        elif await self._is_waiting(event, replied_ids):
                            yield _encode({"type": "finish", "finishReason": "tool-calls"})
                            break
            except AgentClientError as error:
                yield _encode({"type": "error", "errorText": str(error)})
            yield b"data: [DONE]\n\n"

        return EventStream(parts(), {"x-vercel-ai-ui-message-stream": "v1"})

    async def _is_waiting(self, event: TurnEvent, replied_ids: Collection[str]) -> bool:
        """Return whether a turn, or the one before it, waits for an answer of a page: a job elsewhere needs none."""
        pending_ids = {
            call["call_id"] for call in event.data.get("pending_calls", ()) if call["kind"] != "callback"
        }.difference(replied_ids)
        if not pending_ids:
            return False
        data = (await self.api.turn(self.agent, event.session_id, event.turn_id)).data
        return "ended_at" not in data and not pending_ids <= {answer["call_id"] for answer in data.get("answers", ())}


def _encode(*chunks: Chunk) -> bytes:
    return b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks)


async def send(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``POST /ai/{agent}``: run a turn for the last message of a chat, or continue one that waits; streams it."""
    from durable_agent_host.protocols.aisdk.requests import (  # noqa: PLC0415 - its types take milliseconds to make
        RUN_FIELDS,
        Post,
    )

    fields = parse_object(call.body)
    if is_alone := "messages" not in fields and "message" in fields:
        fields["messages"] = [fields.pop("message")]
    post = validate(TypeAdapter(Post), fields)
    more = post.model_extra or {}
    if unknown := more.keys() - RUN_FIELDS:
        raise RequestError(
            f"the body has {min(unknown)!r}, which a chat does not take: it takes id, messages or message, trigger, "
            f"messageId, {', '.join(RUN_FIELDS)}"
        )
    message = next((item for item in post.messages if item.id == post.message_id), post.messages[-1])
    chat = _Chat(host, call, client, post.id)
    if message.role == "user":
        is_again = post.message_id is not None or post.trigger != "submit-message"
        if is_again and is_alone:
            raise RequestError("post 'messages' to edit or regenerate: they say where the chat branches")
        check_idempotency_key(message.id, "'id' of the message")
        answer_ids = [item.id for item in post.messages if item.role == "assistant"]
        more["session_id"] = await chat.session_after(answer_ids, is_again=is_again)
        return await chat.stream(chat.api.stream(chat.agent, message.content, idempotency_key=message.id, **more))
    names = chat.turn_names(message.id)
    if replies := message.replies((await chat.api.turn(*names)).pending_calls):
        await chat.api.answer(*names, replies)
    return await chat.stream(
        chat.api.follow(*names),
        sum(part.get("type") == "step-start" for part in message.parts),
        {reply["call_id"] for reply in replies},
    )


async def resume(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``GET /ai/{agent}/{chat}/stream``: the answer that is written or waits, from its beginning; 204 without one."""
    chat = _Chat(host, call, client)
    if names := await chat.running_turn():
        return await chat.stream(chat.api.follow(*names))
    return Response(status_code=HTTPStatus.NO_CONTENT)


async def stop(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``POST /ai/{agent}/{chat}/stop``: cancel the turn that runs or waits, if any."""
    chat = _Chat(host, call, client)
    if names := await chat.running_turn():
        await chat.api.cancel(*names)
    return Response(status_code=HTTPStatus.NO_CONTENT)


async def read_chat(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``GET /ai/{agent}/{chat}``: the messages of a chat, for a page to begin with."""
    from durable_agent_host.protocols.aisdk.requests import messages_of  # noqa: PLC0415 - as above

    chat = _Chat(host, call, client)
    session = await chat.newest_branch()
    return json_response(
        HTTPStatus.OK, {"messages": messages_of(session, session["session_id"].removeprefix(chat.id))}, {}
    )


def _show_problem(problem: Mapping[str, Any], response: Response) -> Response:
    """Answer with the text that a page shows."""
    return change_body(
        response, problem["detail"].replace("Idempotency-Key", "message id"), "text/plain; charset=utf-8"
    )


_route = partial(Route, replies={}, part="aisdk", show_problem=_show_problem)
ROUTES: Final = (
    _route("ai-send", "POST", "ai/{agent}", "turn.run", send),
    _route("ai-chat", "GET", "ai/{agent}/{chat}", "session.read", read_chat),
    _route("ai-resume", "GET", "ai/{agent}/{chat}/stream", "turn.follow", resume),
    _route("ai-stop", "POST", "ai/{agent}/{chat}/stop", "turn.cancel", stop),
)
