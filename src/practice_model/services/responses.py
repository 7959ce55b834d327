"""OpenAI's Responses API, with its containers, files and conversations.

Flow of a request: `ResponsesService.create_response` records it in the request log, checks it with `rules`, gets the
response from `play`, builds the response object and its events with `dialects`, stores it and sends it.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from practice_model.dialects.responses import event_grammar, response_object
from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import Json, file_bytes
from practice_model.dialects.responses.reading import ParsedRequest, input_items
from practice_model.dialects.responses.transcript import Transcript
from practice_model.exchange import EventStream, Exchange, JsonResponse, SharedState
from practice_model.play.answer import Delivery, FakeResponse
from practice_model.play.player import Player
from practice_model.rules import requests
from practice_model.rules.requests import Rules
from practice_model.store import Store

_MISSING_KEY = (
    "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth "
    "(i.e. Authorization: Bearer YOUR_KEY). You can obtain an API key from "
    "https://platform.openai.com/account/api-keys."
)


class ResponsesService:
    """The routes and their state.

    Args:
        shared_state: common to all services.
        rules: rules enforced on requests.
        player: responds to them.
    """

    def __init__(self, shared_state: SharedState, rules: Rules, player: Player) -> None:
        self._shared_state = shared_state
        self._id_generator = shared_state.id_generator
        self.rules = rules
        self.store = Store()
        self._player = player

    def routes(self) -> list[Route]:
        """List the routes, with each of the prefixes that OpenAI's and Azure's clients use."""
        routes: list[Route] = []
        for prefix in ("/v1", "/openai/v1", "/openai"):
            routes += [
                Route(f"{prefix}/responses", self.create_response, methods=["POST"]),
                Route(f"{prefix}/responses/{{response_id}}", self.get_response, methods=["GET"]),
                Route(f"{prefix}/responses/{{response_id}}/cancel", self.cancel_response, methods=["POST"]),
                Route(f"{prefix}/containers/{{container_id}}/files/{{file_id}}/content", self.read_container_file),
                Route(f"{prefix}/files/{{file_id}}/content", self.read_file),
                Route(f"{prefix}/conversations", self.create_conversation, methods=["POST"]),
            ]
        return [
            *routes,
            Route("/practice/containers/expire", self.expire_containers, methods=["POST"]),
        ]

    async def create_response(self, request: Request) -> ASGIApp:
        """Answer `POST /responses`, streaming or not."""
        exchange = await Exchange.start(request, self._shared_state.request_log)
        exchange.body = _with_model(exchange.body)
        refusal = check_key(request) or requests.check_request(exchange.body, self.store, self.rules, now=time.time())
        if refusal:
            return exchange.reject(refusal)
        parsed_request = ParsedRequest(exchange.body, self._build_transcript(exchange.body))
        fake_response = self._player.respond(parsed_request)
        if isinstance(fake_response, HttpError):
            return exchange.reject(fake_response)
        return await self._deliver(fake_response, parsed_request, request, exchange)

    def _build_transcript(self, body: Json) -> Sequence[Json]:
        """Return the items that the model reads: stored items, then the input."""
        new_items = [requests.resolve_reference(item, self.store) for item in input_items(body)]
        previous_items = requests.get_previous_items(body, self.store)
        return [*previous_items, *new_items] if body.get("store") is False else previous_items.with_items(new_items)

    async def _deliver(
        self, fake_response: FakeResponse, parsed_request: ParsedRequest, request: Request, exchange: Exchange
    ) -> ASGIApp:
        response, events = self.compose(fake_response, parsed_request)
        self.store.record_response(
            response,
            is_stored=parsed_request.body.get("store") is not False,
            transcript=parsed_request.transcript,
            events=events,
            now=time.time(),
        )
        exchange.response_id = response["id"]
        exchange.output = fake_response.items
        if parsed_request.body.get("stream"):
            return EventStream(events, fake_response.delivery, request, exchange.record_end)
        await asyncio.sleep(fake_response.delivery.delay_milliseconds / 1000)
        return exchange.respond(response)

    def compose(self, fake_response: FakeResponse, parsed_request: ParsedRequest) -> tuple[Json, list[Json]]:
        """Return the final response object and its events."""
        response = response_object.build_completed(
            parsed_request.body,
            response_id=self._id_generator.new("resp_"),
            created_at=int(time.time()),
            output=fake_response.items,
            transcript=parsed_request.transcript,
        )
        if "agent_reference" in parsed_request.body:
            response["agent_session_id"] = parsed_request.body.get("agent_session_id") or self._id_generator.new(
                "conv_"
            )
        if fake_response.usage:
            response["usage"] = {**response["usage"], **fake_response.usage}
        if fake_response.failure:
            response = response_object.build_failed(response, fake_response.failure)
        elif fake_response.incomplete:
            response = response_object.build_incomplete(response, fake_response.incomplete)
        return response, event_grammar.stream_events(response, fake_response.delivery.chunk_characters)

    async def get_response(self, request: Request) -> ASGIApp:
        """Answer `GET /responses/{id}`, streaming or not."""
        response_id = request.path_params["response_id"]
        stored_response = self.store.responses.get(response_id)
        if stored_response is None:
            return _build_error_response(HttpError(404, f"Response with id '{response_id}' not found."))
        if request.query_params.get("stream") != "true":
            return JsonResponse(stored_response.response)
        after = int(request.query_params.get("starting_after", -1))
        events = [event for event in stored_response.events if event["sequence_number"] > after]
        return EventStream(events, Delivery(), request, lambda _outcome, _events, _sent_at: None)

    async def cancel_response(self, request: Request) -> ASGIApp:
        """Answer `POST /responses/{id}/cancel`."""
        exchange = await Exchange.start(request, self._shared_state.request_log)
        response_id = request.path_params["response_id"]
        stored_response = self.store.responses.get(response_id)
        if stored_response is None:
            return exchange.reject(HttpError(404, f"Response with id '{response_id}' not found."))
        if not stored_response.response.get("background"):
            return exchange.reject(HttpError(400, "Only background responses can be cancelled."))
        return exchange.respond(stored_response.response | {"status": "cancelled", "output": []})

    async def read_container_file(self, request: Request) -> ASGIApp:
        """Answer `GET /containers/{id}/files/{id}/content`."""
        container_id = request.path_params["container_id"]
        file_id = request.path_params["file_id"]
        name = self.store.find_container_file(container_id, file_id, time.time())
        if name is None:
            return _build_error_response(HttpError(404, f"Container file with id '{file_id}' not found."))
        return Response(file_bytes(name), media_type="application/octet-stream")

    async def read_file(self, request: Request) -> ASGIApp:
        """Answer `GET /files/{id}/content`: uploads cannot be downloaded, as on the live service."""
        del request
        return _build_error_response(HttpError(400, "Not allowed to download files of purpose: user_data"))

    async def create_conversation(self, _request: Request) -> JsonResponse:
        """Answer `POST /conversations` with an empty conversation."""
        conversation_id = self._id_generator.new("conv_")
        self.store.conversations[conversation_id] = Transcript()
        created_at = int(time.time())
        return JsonResponse({"id": conversation_id, "object": "conversation", "created_at": created_at, "metadata": {}})

    async def expire_containers(self, _request: Request) -> JsonResponse:
        """Expire all containers, as after twenty idle minutes."""
        return JsonResponse({"expired": self.store.expire_containers()})


def check_key(request: Request) -> HttpError | None:
    """Return the error for a request without a key, as OpenAI's APIs respond; None if it has one."""
    has_key = request.headers.get("authorization") or request.headers.get("api-key")
    return None if has_key else HttpError(401, _MISSING_KEY, "invalid_api_key")


def _with_model(body: Any) -> Any:
    """Add the missing model of a request that names a Foundry agent instead."""
    request = cast("Json", body if isinstance(body, dict) else {})
    reference = cast("Json | None", request.get("agent_reference"))
    return {"model": reference.get("name"), **request} if reference else cast("Any", body)


def _build_error_response(error: HttpError) -> JsonResponse:
    return JsonResponse(error.body, error.status)
