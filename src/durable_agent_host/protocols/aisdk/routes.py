"""The routes of the AI SDK's clients: a chat's stream, and how a page comes back to it."""

import json
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from azurefunctions.extensions.http.fastapi import Response
from pydantic import TypeAdapter

from durable_agent_host.agent_client import TurnEvent
from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.errors import AgentClientError, RequestError
from durable_agent_host.http.parse import parse_object
from durable_agent_host.http.request_handling import HandlerContext, Route, RouteRequest
from durable_agent_host.model.ids import check_idempotency_key
from durable_agent_host.protocols.aisdk.events import Chunk, UIMessageStream, ending_of
from durable_agent_host.protocols.dialect import agent_client, change_body, event_stream, first_event, none_if
from durable_agent_host.turn.turn_wire import validate


class _Chat:
    """A chat of a caller: its agent, and a client that acts for the caller."""

    def __init__(self, host: HandlerContext, call: RouteRequest, client: TurnClient) -> None:
        self.agent = host.agent(call.path_part("agent"))
        self.id = call.path_part("chat")
        self.api = agent_client(host, call, client, "ai")

    async def running_turn(self) -> str | None:
        """Return the turn that runs or waits."""
        session = await none_if(HTTPStatus.NOT_FOUND, self.api.session(self.agent, self.id, limit=1))
        return None if session is None else session["running_turn_id"]

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
                        if not stream.step:
                            yield _encode({"type": "start", "messageId": event.turn_id})
                        chunks = stream.feed(event)
                        if stream.step > steps:
                            yield _encode(*chunks)
                        if event.is_last:
                            yield _encode(*ending_of(event))
                        elif await self._is_waiting(event, replied_ids):
                            yield _encode({"type": "finish", "finishReason": "tool-calls"})
                            break
            except AgentClientError as error:
                yield _encode({"type": "error", "errorText": str(error)})
            yield b"data: [DONE]\n\n"

        return event_stream(parts(), {"x-vercel-ai-ui-message-stream": "v1"})

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
    if "messages" not in fields and "message" in fields:
        fields["messages"] = [fields.pop("message")]
    post = validate(TypeAdapter(Post), fields)
    more = post.model_extra or {}
    if unknown := more.keys() - RUN_FIELDS:
        raise RequestError(
            f"the body has {min(unknown)!r}, which a chat does not take: it takes id, messages or message, trigger, "
            f"messageId, {', '.join(RUN_FIELDS)}"
        )
    message = next((item for item in post.messages if item.id == post.message_id), post.messages[-1])
    chat = _Chat(host, call, client)
    chat.id = post.id
    if message.role == "user":
        if post.message_id is not None or post.trigger != "submit-message":
            raise RequestError(
                "an edited or regenerated message is a fork: fork the session, and use its id as the chat's"
            )
        check_idempotency_key(message.id, "'id' of the message")
        return await chat.stream(
            chat.api.stream(chat.agent, message.content, session_id=chat.id, idempotency_key=message.id, **more)
        )
    if replies := message.replies((await chat.api.turn(chat.agent, chat.id, message.id)).pending_calls):
        await chat.api.answer(chat.agent, chat.id, message.id, replies)
    return await chat.stream(
        chat.api.follow(chat.agent, chat.id, message.id),
        sum(part.get("type") == "step-start" for part in message.parts),
        {reply["call_id"] for reply in replies},
    )


async def resume(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``GET /ai/{agent}/{chat}/stream``: the answer that is written or waits, from its beginning; 204 without one."""
    chat = _Chat(host, call, client)
    if turn_id := await chat.running_turn():
        return await chat.stream(chat.api.follow(chat.agent, chat.id, turn_id))
    return Response(status_code=HTTPStatus.NO_CONTENT)


async def stop(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``POST /ai/{agent}/{chat}/stop``: cancel the turn that runs or waits, if any."""
    chat = _Chat(host, call, client)
    if turn_id := await chat.running_turn():
        await chat.api.cancel(chat.agent, chat.id, turn_id)
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _show_problem(problem: Mapping[str, Any], response: Response) -> Response:
    """Answer with the text that a page shows."""
    return change_body(
        response, problem["detail"].replace("Idempotency-Key", "message id"), "text/plain; charset=utf-8"
    )


_route = partial(Route, replies={}, part="aisdk", show_problem=_show_problem)
ROUTES: Final = (
    _route("ai-send", "POST", "ai/{agent}", "turn.run", send),
    _route("ai-resume", "GET", "ai/{agent}/{chat}/stream", "turn.follow", resume),
    _route("ai-stop", "POST", "ai/{agent}/{chat}/stop", "turn.cancel", stop),
)
