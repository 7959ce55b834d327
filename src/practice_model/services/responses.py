"""OpenAI's Responses API, with its containers, files and conversations.

Flow of a request: `ResponsesService.create_response` records it in the request log, checks it with `rules`, gets the
answer from `play`, builds the response object and its events with `dialects`, stores it and sends it.
"""

import asyncio
import base64
import time
from collections.abc import Sequence
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from practice_model.dialects.responses import event_grammar, response_object
from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import PIXEL, Json
from practice_model.dialects.responses.reading import Reading, input_items
from practice_model.dialects.responses.transcript import Transcript
from practice_model.event_stream import EventStream
from practice_model.exchange import Exchange, Shared, error_answer
from practice_model.json_text import JsonAnswer
from practice_model.play.answer import Answer, Delivery
from practice_model.play.plans import PlanError
from practice_model.play.player import Player
from practice_model.play.recordings import Recordings
from practice_model.rules import requests
from practice_model.rules.requests import Rules
from practice_model.store import Store

MISSING_KEY = (
    "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth "
    "(i.e. Authorization: Bearer YOUR_KEY). You can obtain an API key from "
    "https://platform.openai.com/account/api-keys."
)


class ResponsesService:
    """The routes and their state.

    Args:
        shared: with the other services.
        recordings: recorded traffic to play; None for built-in conversations only.
        rules: enforced on requests.
    """

    def __init__(self, shared: Shared, recordings: Recordings | None, rules: Rules) -> None:
        self._shared = shared
        self._mint = shared.mint
        self.rules = rules
        self.store = Store()
        self._player = Player(shared.mint, recordings, shared.plans)
        self._recordings = recordings
        if recordings:
            self.store.know_encrypted(recordings.encrypted_values)

    def routes(self) -> list[Route]:
        """List the routes, below each of the prefixes that OpenAI's and Azure's clients use."""
        routes: list[Route] = []
        for prefix in ("/v1", "/openai/v1", "/openai"):
            routes += [
                Route(f"{prefix}/responses", self.create_response, methods=["POST"]),
                Route(f"{prefix}/responses/{{response_id}}", self.get_response, methods=["GET"]),
                Route(f"{prefix}/responses/{{response_id}}", self.delete_response, methods=["DELETE"]),
                Route(f"{prefix}/containers/{{container_id}}/files/{{file_id}}/content", self.read_container_file),
                Route(f"{prefix}/files/{{file_id}}/content", self.read_file),
                Route(f"{prefix}/conversations", self.create_conversation, methods=["POST"]),
            ]
        return [
            *routes,
            Route("/practice/recordings", self.list_recordings, methods=["GET"]),
            Route("/practice/containers/expire", self.expire_containers, methods=["POST"]),
            Route("/practice/encrypted/expire", self.expire_encrypted, methods=["POST"]),
        ]

    async def create_response(self, request: Request) -> ASGIApp:
        """Answer `POST /responses`, streaming or not."""
        call = await Exchange.begin(request, self._shared.request_log)
        call.body = _with_model(call.body)
        if refusal := self._refuse(request, call.body):
            return _refused(call, refusal)
        reading = Reading(call.body, self._transcript(call.body))
        try:
            answer = self._player.answer(reading)
        except PlanError as error:
            return _refused(call, HttpError(400, str(error), "practice_plan"))
        if isinstance(answer, HttpError):
            return _refused(call, answer)
        return await self._deliver(answer, reading, request, call)

    def _refuse(self, request: Request, body: Any) -> HttpError | None:
        if not (request.headers.get("authorization") or request.headers.get("api-key")):
            return HttpError(401, MISSING_KEY, "invalid_api_key")
        return requests.check_request(body, self.store, self.rules, now=time.time())

    def _transcript(self, body: Json) -> Sequence[Json]:
        """Return all that the model reads: stored items, then the input."""
        sent = [requests.resolve(item, self.store) for item in input_items(body)]
        kept = requests.kept_items(body, self.store)
        return [*kept, *sent] if body.get("store") is False else kept.continued(sent)

    async def _deliver(self, answer: Answer, reading: Reading, request: Request, call: Exchange) -> ASGIApp:
        response, events = self._compose(answer, reading)
        self.store.remember(
            response | {"output": answer.items} if answer.recorded_response else response,
            stored=reading.body.get("store") is not False,
            transcript=reading.transcript,
            events=events,
            now=time.time(),
        )
        call.response_id, call.output = response["id"], answer.items
        if reading.body.get("stream"):
            return EventStream(events, answer.delivery, request, call.ended)
        await asyncio.sleep(answer.delivery.delay_milliseconds / 1000)
        return call.answer(response)

    def _compose(self, answer: Answer, reading: Reading) -> tuple[Json, list[Json]]:
        """Return the final response object and its events."""
        if answer.recorded_response:
            events = answer.recorded_events or event_grammar.stream_events(answer.recorded_response)
            return answer.recorded_response, events
        response = response_object.completed(
            reading.body,
            response_id=self._mint.new("resp_"),
            created_at=int(time.time()),
            output=answer.items,
            transcript=reading.transcript,
        )
        if "agent_reference" in reading.body:
            response["agent_session_id"] = reading.body.get("agent_session_id") or self._mint.new("conv_")
        if answer.usage:
            response["usage"] = {**response["usage"], **answer.usage}
        if answer.failure:
            response = response_object.failed(response, answer.failure)
        elif answer.incomplete:
            response = response_object.incomplete(response, answer.incomplete)
        return response, event_grammar.stream_events(response, answer.delivery.chunk_characters)

    async def get_response(self, request: Request) -> ASGIApp:
        """Answer `GET /responses/{id}`; with `stream=true` the events after `starting_after`."""
        response_id = request.path_params["response_id"]
        found = self.store.responses.get(response_id)
        if found is None:
            return _error(_not_found(response_id))
        if request.query_params.get("stream") != "true":
            return JsonAnswer(found.response)
        after = int(request.query_params.get("starting_after", "-1"))
        later = [event for event in found.events if event.get("sequence_number", 0) > after]
        return EventStream(later, Delivery(), request, lambda _how, _events, _sent_at: None)

    async def delete_response(self, request: Request) -> JsonAnswer:
        """Answer `DELETE /responses/{id}`."""
        response_id = request.path_params["response_id"]
        if not self.store.forget(response_id):
            return _error(_not_found(response_id))
        return JsonAnswer({"id": response_id, "object": "response", "deleted": True})

    async def read_container_file(self, request: Request) -> ASGIApp:
        """Answer `GET /containers/{id}/files/{id}/content`: an image for a name that ends so, else a text."""
        container_id, file_id = request.path_params["container_id"], request.path_params["file_id"]
        name = self.store.file_of_container(container_id, file_id, time.time())
        if name is None:
            return _error(HttpError(404, f"Container file with id '{file_id}' not found."))
        if name.endswith(".png"):
            return Response(base64.b64decode(PIXEL.partition(",")[2]), media_type="application/octet-stream")
        return Response(f"written by code: {name}\n", media_type="application/octet-stream")

    async def read_file(self, request: Request) -> ASGIApp:
        """Answer `GET /files/{id}/content`: what a caller uploaded is not given out, as on the live service."""
        del request
        return _error(HttpError(400, "Not allowed to download files of purpose: user_data"))

    async def create_conversation(self, _request: Request) -> JsonAnswer:
        """Answer `POST /conversations` with an empty conversation."""
        conversation_id = self._mint.new("conv_")
        self.store.conversations[conversation_id] = Transcript()
        created = int(time.time())
        return JsonAnswer({"id": conversation_id, "object": "conversation", "created_at": created, "metadata": {}})

    async def list_recordings(self, _request: Request) -> JsonAnswer:
        """List the recordings: name, model, number of events, the request's user text."""
        found = list(self._recordings.by_name.values()) if self._recordings else []
        return JsonAnswer(
            [
                {
                    "name": one.name,
                    "model": one.streamed.response.get("model"),
                    "events": len(one.events or []),
                    "user_text": one.user_text,
                }
                for one in found
            ]
        )

    async def expire_containers(self, _request: Request) -> JsonAnswer:
        """Expire all containers, as after twenty idle minutes."""
        return JsonAnswer({"expired": self.store.expire_containers()})

    async def expire_encrypted(self, _request: Request) -> JsonAnswer:
        """Reject all earlier encrypted reasoning, as a service with another key does."""
        return JsonAnswer({"expired": self.store.expire_encrypted()})


def _with_model(body: Any) -> Any:
    """An agent of Foundry's has its model there: a request names the agent instead."""
    given = cast("Json", body if isinstance(body, dict) else {})
    reference = cast("Json | None", given.get("agent_reference"))
    return {"model": reference.get("name"), **given} if reference else cast("Any", body)


def _refused(call: Exchange, error: HttpError) -> JsonAnswer:
    return call.refuse(error.status, error.body, error.retry_after)


def _not_found(response_id: str) -> HttpError:
    return HttpError(404, f"Response with id '{response_id}' not found.")


def _error(error: HttpError) -> JsonAnswer:
    return error_answer(error.status, error.body, error.retry_after)
