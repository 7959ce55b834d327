"""OpenAI's Chat Completions API, as OpenAI, DeepSeek, OpenRouter, vLLM and others serve it."""

import asyncio
import time
from typing import Final

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp

from practice_model.dialects.chat_completions.completion import build_completion, stream_events
from practice_model.dialects.chat_completions.messages import items_from_messages, parse_tools
from practice_model.dialects.responses import response_object
from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import ParsedRequest
from practice_model.exchange import EventStream, Exchange, SharedState, encode_json
from practice_model.play.answer import FakeResponse
from practice_model.play.player import Player
from practice_model.rules.chat_requests import check_request
from practice_model.services.responses import check_key

_DONE: Final = b"data: [DONE]\n\n"


class ChatCompletionsService:
    """The route of chat completions.

    Args:
        shared_state: common to all services.
    """

    def __init__(self, shared_state: SharedState) -> None:
        self._shared_state = shared_state
        self._player = Player(shared_state.id_generator, shared_state.plans)

    def routes(self) -> list[Route]:
        """List the routes, with each of the prefixes that OpenAI's and Azure's clients use."""
        paths = ("/v1", "/openai/v1", "/openai/deployments/{deployment}")
        return [Route(f"{prefix}/chat/completions", self.create, methods=["POST"]) for prefix in paths]

    async def create(self, request: Request) -> ASGIApp:
        """Answer `POST /chat/completions`, streaming or not."""
        exchange = await Exchange.start(request, self._shared_state.request_log)
        if refusal := check_key(request) or check_request(exchange.body):
            return exchange.reject(refusal)
        body: Json = {**exchange.body, "tools": parse_tools(exchange.body)}
        parsed_request = ParsedRequest(body, items_from_messages(exchange.body["messages"]))
        fake_response = self._player.respond(parsed_request)
        if isinstance(fake_response, HttpError):
            return exchange.reject(fake_response)
        return await self._deliver(fake_response, parsed_request, request, exchange)

    async def _deliver(
        self, fake_response: FakeResponse, parsed_request: ParsedRequest, request: Request, exchange: Exchange
    ) -> ASGIApp:
        usage = response_object.count_usage(parsed_request.body, parsed_request.transcript, fake_response.items)
        completion_object = build_completion(
            fake_response.items,
            completion_id="chatcmpl-" + self._shared_state.id_generator.new("resp_").removeprefix("resp_")[:29],
            created_at=int(time.time()),
            model=parsed_request.model,
            usage=usage | dict(fake_response.usage or {}),
            incomplete=fake_response.incomplete,
        )
        exchange.response_id = completion_object["id"]
        exchange.output = fake_response.items
        if parsed_request.body.get("stream"):
            stream_options: Json = parsed_request.body.get("stream_options") or {}
            with_usage = bool(stream_options.get("include_usage"))
            chunk_characters = fake_response.delivery.chunk_characters
            events = stream_events(
                completion_object, fake_response.items, chunk_characters, fake_response.failure, with_usage=with_usage
            )
            terminator = b"" if fake_response.failure else _DONE
            return EventStream(
                events, fake_response.delivery, request, exchange.record_end, _encode_event, terminator=terminator
            )
        await asyncio.sleep(fake_response.delivery.delay_milliseconds / 1000)
        if fake_response.failure:
            error = HttpError(
                500, str(fake_response.failure.get("message")), fake_response.failure.get("code"), kind="server_error"
            )
            return exchange.reject(error)
        return exchange.respond(completion_object)


def _encode_event(event: Json) -> bytes:
    return b"data: " + encode_json(event) + b"\n\n"
