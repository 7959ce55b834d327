"""Anthropic's Messages API, with its files.

Flow of a request: it is recorded in the request log and checked with `rules.anthropic_messages`; the player returns
items of the Responses API, which `dialects.anthropic` converts to a message and its events.
"""

import asyncio
import mimetypes
import time
from pathlib import Path
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import Json, file_bytes
from practice_model.exchange import EventStream, Exchange, JsonResponse, SharedState
from practice_model.play.answer import FakeResponse
from tests.stand_ins.anthropic import event_grammar, message_object, rules
from tests.stand_ins.anthropic.errors import error_body, error_event
from tests.stand_ins.anthropic.issued_blocks import IssuedBlocks
from tests.stand_ins.anthropic.reading import items_from_message, parse_request
from tests.stand_ins.recordings import Format, RecordedPlayer, RecordedResponse, load_recordings

FORMAT = Format(
    "anthropic",
    event_grammar.message_from_events,
    lambda message, _: list(items_from_message({"role": "assistant", "content": message.get("content") or []})),
    lambda body: body.get("type") == "message",
    lambda request, _: parse_request(request).transcript if "messages" in request else None,
)
_FAILURE_STATUSES = {"overloaded_error": 529, "rate_limit_error": 429}


class AnthropicService:
    """The routes and their state.

    Args:
        shared_state: common to all services.
        folder: of recorded traffic.
    """

    def __init__(self, shared_state: SharedState, folder: Path | None) -> None:
        self._shared_state = shared_state
        recordings = load_recordings(folder, FORMAT)
        self._player = RecordedPlayer(shared_state.id_generator, shared_state.plans, recordings)
        containers = [recording.stream_version.response.get("container") for recording in recordings.by_name.values()]
        container_ids = [container["id"] for container in containers if isinstance(container, dict)]
        self._issued_blocks = IssuedBlocks(set(recordings.encrypted_values), container_ids)

    def routes(self) -> list[Route]:
        """List the routes, at the root and below `/anthropic`."""
        routes = [Route("/practice/anthropic/containers/expire", self.expire_containers, methods=["POST"])]
        for prefix in ("", "/anthropic"):
            routes += [
                Route(f"{prefix}/v1/messages", self.create_message, methods=["POST"]),
                Route(f"{prefix}/v1/files/{{file_id}}/content", self.read_file, methods=["GET"]),
                Route(f"{prefix}/v1/files/{{file_id}}", self.describe_file, methods=["GET"]),
            ]
        return routes

    async def create_message(self, request: Request) -> ASGIApp:
        """Answer `POST /v1/messages`, streaming or not."""
        exchange = await Exchange.start(request, self._shared_state.request_log, error_body)
        refusal = rules.check_key(request.headers) or rules.check_request(exchange.body, self._issued_blocks)
        if refusal is not None:
            return exchange.reject(refusal)
        fake_response = self._player.respond(parse_request(exchange.body))
        if isinstance(fake_response, HttpError):
            return exchange.reject(fake_response)
        return await self._deliver(fake_response, request, exchange)

    async def _deliver(self, fake_response: FakeResponse, request: Request, exchange: Exchange) -> ASGIApp:
        body = cast("Json", exchange.body)
        version = fake_response.version if isinstance(fake_response, RecordedResponse) else None
        message = version.response if version else self._compose(fake_response, body)
        self._issued_blocks.record_response(cast("list[Json]", message["content"]), message.get("container"))
        self._issued_blocks.files.update(message_object.list_cited_files(fake_response.items))
        exchange.response_id = message["id"]
        exchange.output = fake_response.items
        failure = fake_response.failure
        error = error_event(failure.get("code"), failure.get("message")) if failure else None
        if not body.get("stream"):
            await asyncio.sleep(fake_response.delivery.delay_milliseconds / 1000)
            if error:
                return exchange.fail(_FAILURE_STATUSES.get(error["error"]["type"], 500), error)
            return exchange.respond(message)
        chunk_characters = fake_response.delivery.chunk_characters
        exact_inputs = message_object.get_exact_inputs(fake_response.items)
        recorded_events = version.events if version else None
        events = recorded_events or event_grammar.stream_events(message, chunk_characters, exact_inputs)
        events = [*events[:-2], error] if error else events
        return EventStream(events, fake_response.delivery, request, exchange.record_end)

    def _compose(self, fake_response: FakeResponse, body: Json) -> Json:
        blocks = message_object.blocks_from_items(fake_response.items)
        container_ids = [item["container_id"] for item in fake_response.items if item.get("container_id")]
        requested_container: Any = body.get("container")
        container_id = message_object.to_container_id(str(container_ids[0])) if container_ids else requested_container
        usage: Json = {"input_tokens": len(str(body)) // 4, "output_tokens": max(1, len(str(blocks)) // 4)}
        return message_object.build_message(
            self._shared_state.id_generator.new("msg_"),
            body["model"],
            blocks,
            incomplete=fake_response.incomplete,
            usage=usage | dict(fake_response.usage or {}),
            container=message_object.build_container(container_id, time.time())
            if isinstance(container_id, str)
            else None,
        )

    async def read_file(self, request: Request) -> ASGIApp:
        """Answer `GET /v1/files/{id}/content` for files that code has generated."""
        file_id = request.path_params["file_id"]
        name = self._issued_blocks.files.get(file_id)
        if name is None:
            return _file_not_found(file_id)
        return Response(file_bytes(name), media_type="application/octet-stream")

    async def describe_file(self, request: Request) -> ASGIApp:
        """Answer `GET /v1/files/{id}`."""
        file_id = request.path_params["file_id"]
        name = self._issued_blocks.files.get(file_id)
        if name is None:
            return _file_not_found(file_id)
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        file_fields = {"type": "file", "id": file_id, "filename": name, "mime_type": media_type, "downloadable": True}
        return JsonResponse(file_fields | {"size_bytes": len(file_bytes(name)), "created_at": "2026-01-01T00:00:00Z"})

    async def expire_containers(self, _request: Request) -> JsonResponse:
        """Expire all containers."""
        return JsonResponse({"expired": self._issued_blocks.expire_containers()})


def _file_not_found(file_id: str) -> JsonResponse:
    return JsonResponse(error_body(HttpError(404, f"File not found: {file_id}")), 404)
