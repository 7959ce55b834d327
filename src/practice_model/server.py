"""The HTTP server: the Responses API's routes, and `/practice/...` for tests to control and read it.

Flow of a request: `create_response` records it in the request log, checks it with `rules`, gets the answer from
`play`, builds the response object and its events with `dialects`, stores it and sends it.

For tests: `/practice/plans` (POST a plan, GET, DELETE), `/practice/requests` (GET, DELETE), `/practice/recordings`
(GET), `/practice/containers/expire` and `/practice/encrypted/expire` (POST). They need no key.
"""

import asyncio
import base64
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from practice_model.dialects.responses import event_grammar, response_object
from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.ids import IdMint
from practice_model.dialects.responses.items import PIXEL, Json
from practice_model.dialects.responses.reading import Reading, input_items
from practice_model.event_stream import EventStream
from practice_model.json_text import JsonAnswer
from practice_model.play.answer import Answer, Delivery
from practice_model.play.plans import Plan, PlanError
from practice_model.play.player import Player
from practice_model.play.recordings import Recordings
from practice_model.request_log import RequestLog
from practice_model.rules import requests
from practice_model.rules.requests import Rules
from practice_model.store import Store

MISSING_KEY = (
    "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth "
    "(i.e. Authorization: Bearer YOUR_KEY). You can obtain an API key from "
    "https://platform.openai.com/account/api-keys."
)


@dataclass
class PracticeModel:
    """The practice model's state and its request handlers; `app` is the ASGI application.

    Args:
        recordings: recorded traffic to play; None for built-in conversations only.
        rules: enforced on requests.
        requests_file: receives each finished request as a JSON line.
        seed: of the generated ids; random by default, so two runs never share an id.
    """

    recordings: Recordings | None = None
    rules: Rules = field(default_factory=Rules)
    requests_file: Path | None = None
    seed: str = field(default_factory=lambda: secrets.token_hex(8))

    def __post_init__(self) -> None:
        self.store = Store()
        self.request_log = RequestLog(self.requests_file)
        self.mint = IdMint(self.seed)
        self.player = Player(self.mint, self.recordings)
        if self.recordings:
            self.store.know_encrypted(self.recordings.encrypted_values)
        self.app = Starlette(routes=self._routes(), exception_handlers={Exception: _failed})

    def _routes(self) -> list[Route]:
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
            Route("/practice/plans", self.plans, methods=["GET", "POST", "DELETE"]),
            Route("/practice/requests", self.requests, methods=["GET", "DELETE"]),
            Route("/practice/recordings", self.list_recordings, methods=["GET"]),
            Route("/practice/containers/expire", self.expire_containers, methods=["POST"]),
            Route("/practice/encrypted/expire", self.expire_encrypted, methods=["POST"]),
        ]

    async def create_response(self, request: Request) -> ASGIApp:
        """Answer `POST /responses`, streaming or not."""
        began = time.perf_counter()
        try:
            body: Any = await request.json()
        except ValueError:
            body = None
        entry = self.request_log.open(
            at=datetime.now(UTC).isoformat(),
            method=request.method,
            path=request.url.path,
            headers=dict(request.headers),
            body=body,
        )
        call = _Call(self.request_log, entry, began)
        refusal = self._refuse(request, body)
        if refusal:
            return call.refuse(refusal)
        reading = Reading(body, self._transcript(body))
        try:
            answer = self.player.answer(reading)
        except PlanError as error:
            return call.refuse(HttpError(400, str(error), "practice_plan"))
        if isinstance(answer, HttpError):
            return call.refuse(answer)
        return await self._deliver(answer, reading, request, call)

    def _refuse(self, request: Request, body: Any) -> HttpError | None:
        if not (request.headers.get("authorization") or request.headers.get("api-key")):
            return HttpError(401, MISSING_KEY, "invalid_api_key")
        return requests.check_request(body, self.store, self.rules, now=time.time())

    def _transcript(self, body: Json) -> list[Json]:
        """Return all that the model reads: stored items, then the input."""
        sent = (requests.resolve(item, self.store) for item in input_items(body))
        return [*requests.kept_items(body, self.store), *sent]

    async def _deliver(self, answer: Answer, reading: Reading, request: Request, call: "_Call") -> ASGIApp:
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
        call.ended("complete", 0, ())
        return JsonAnswer(response)

    def _compose(self, answer: Answer, reading: Reading) -> tuple[Json, list[Json]]:
        """Return the final response object and its events."""
        if answer.recorded_response:
            events = answer.recorded_events or event_grammar.stream_events(answer.recorded_response)
            return answer.recorded_response, events
        response = response_object.completed(
            reading.body,
            response_id=self.mint.new("resp_"),
            created_at=int(time.time()),
            output=answer.items,
            transcript=reading.transcript,
        )
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
        conversation_id = self.mint.new("conv_")
        self.store.conversations[conversation_id] = []
        created = int(time.time())
        return JsonAnswer({"id": conversation_id, "object": "conversation", "created_at": created, "metadata": {}})

    async def plans(self, request: Request) -> JsonAnswer:
        """Add a plan, list the plans, or clear them."""
        if request.method == "DELETE":
            self.player.plans.clear()
        if request.method == "POST":
            try:
                self.player.plans.append(Plan.parse(await request.json()))
            except (PlanError, ValueError) as error:
                return _error(HttpError(400, str(error), "practice_plan"))
        shown = [plan.shown() for plan in self.player.plans]
        return JsonAnswer({"plans": shown}, 201 if request.method == "POST" else 200)

    async def requests(self, request: Request) -> JsonAnswer:
        """List or clear the received requests."""
        if request.method == "DELETE":
            self.request_log.entries.clear()
        return JsonAnswer(self.request_log.entries)

    async def list_recordings(self, _request: Request) -> JsonAnswer:
        """List the recordings: name, model, number of events, the request's user text."""
        found = list(self.recordings.by_name.values()) if self.recordings else []
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


@dataclass
class _Call:
    """One request in progress."""

    request_log: RequestLog
    entry: Json
    began: float
    response_id: str | None = None
    output: list[Json] | None = None

    def refuse(self, error: HttpError) -> JsonAnswer:
        self._close("refused", status=error.status, error=error.body["error"])
        return _error(error)

    def ended(self, how: str, events: int, sent_at: Sequence[float]) -> None:
        seen: dict[str, Any] = {"events": events} | ({"sent_at": list(sent_at)} if sent_at else {})
        self._close(how, status=200, response_id=self.response_id, output=self.output, **seen)

    def _close(self, how: str, **seen: Any) -> None:
        spent = (time.perf_counter() - self.began) * 1000
        self.request_log.close(self.entry, ended=how, milliseconds=spent, **seen)


async def _failed(_request: Request, error: Exception) -> JsonAnswer:
    return _error(HttpError(500, f"The practice model itself failed: {error!r}", kind="server_error"))


def _not_found(response_id: str) -> HttpError:
    return HttpError(404, f"Response with id '{response_id}' not found.")


def _error(error: HttpError) -> JsonAnswer:
    headers = {} if error.retry_after is None else {"retry-after": f"{error.retry_after:g}"}
    return JsonAnswer(error.body, error.status, headers)


def create_app(
    recordings: Path | None = None,
    *,
    rules: Rules | None = None,
    requests_file: Path | None = None,
    seed: str | None = None,
) -> Starlette:
    """Return the practice model as an ASGI application, for a server or a test client.

    Args:
        recordings: folder of recorded traffic.
        rules: by default those observed on the live API.
        requests_file: receives finished requests as JSON lines.
        seed: for reproducible ids; random by default.

    Raises:
        RecordingsError: the folder is missing or empty.
    """
    loaded = Recordings.load(recordings) if recordings else None
    given = {} if seed is None else {"seed": seed}
    return PracticeModel(loaded, rules or Rules(), requests_file, **given).app
