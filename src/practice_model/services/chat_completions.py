"""OpenAI's Chat Completions API, as OpenAI, DeepSeek, OpenRouter, vLLM and others serve it."""

import asyncio
import time
from typing import Any, Final

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp

from practice_model.dialects.chat_completions.completion import completion, stream_events
from practice_model.dialects.chat_completions.messages import tools_of, transcript_of
from practice_model.dialects.responses import response_object
from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import Reading
from practice_model.event_stream import EventStream
from practice_model.exchange import Exchange, Shared
from practice_model.json_text import encode_json
from practice_model.play.answer import Answer
from practice_model.play.plans import PlanError
from practice_model.play.player import Player
from practice_model.rules.chat_requests import check_request
from practice_model.services.responses import MISSING_KEY

_DONE: Final = b"data: [DONE]\n\n"


class ChatCompletionsService:
    """The route of chat completions.

    Args:
        shared: with the other services.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._player = Player(shared.mint, None, shared.plans)

    async def create(self, request: Request) -> ASGIApp:
        """Answer `POST /chat/completions`, streaming or not."""
        call = await Exchange.begin(request, self._shared.request_log)
        answer = self._refuse(request, call.body)
        if answer is None:
            body: Json = {**call.body, "tools": tools_of(call.body)}
            reading = Reading(body, transcript_of(call.body["messages"]))
            try:
                answer = self._player.answer(reading)
            except PlanError as error:
                answer = HttpError(400, str(error), "practice_plan")
            if isinstance(answer, Answer):
                return await self._deliver(answer, reading, request, call)
        return call.refuse(answer.status, answer.body, answer.retry_after)

    def _refuse(self, request: Request, body: Any) -> HttpError | None:
        if not (request.headers.get("authorization") or request.headers.get("api-key")):
            return HttpError(401, MISSING_KEY, "invalid_api_key")
        return check_request(body)

    async def _deliver(self, answer: Answer, reading: Reading, request: Request, call: Exchange) -> ASGIApp:
        usage = response_object.usage(reading.body, reading.transcript, answer.items)
        whole = completion(
            answer.items,
            completion_id="chatcmpl-" + self._shared.mint.new("resp_").removeprefix("resp_")[:29],
            created=int(time.time()),
            model=reading.model,
            usage=usage | dict(answer.usage or {}),
            incomplete=answer.incomplete,
        )
        call.response_id, call.output = whole["id"], answer.items
        if reading.body.get("stream"):
            asked: Json = reading.body.get("stream_options") or {}
            with_usage = bool(asked.get("include_usage"))
            characters = answer.delivery.chunk_characters
            events = stream_events(whole, answer.items, characters, answer.failure, with_usage=with_usage)
            last = b"" if answer.failure else _DONE
            return EventStream(events, answer.delivery, request, call.ended, _encode_event, last=last)
        await asyncio.sleep(answer.delivery.delay_milliseconds / 1000)
        if answer.failure:
            error = HttpError(500, str(answer.failure.get("message")), answer.failure.get("code"), kind="server_error")
            return call.refuse(error.status, error.body)
        return call.answer(whole)


def _encode_event(event: Json) -> bytes:
    return b"data: " + encode_json(event) + b"\n\n"


def chat_completions_routes(shared: Shared) -> list[Route]:
    """List the routes, below the prefixes that the clients of OpenAI and Azure use."""
    service = ChatCompletionsService(shared)
    paths = ("/v1", "/openai/v1", "/openai/deployments/{deployment}")
    return [Route(f"{prefix}/chat/completions", service.create, methods=["POST"]) for prefix in paths]
