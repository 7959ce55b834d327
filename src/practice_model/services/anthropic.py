"""Anthropic's Messages API, with its files.

Flow of a request: it is recorded in the request log and checked with `rules.anthropic_messages`; the player returns
items of the Responses API, which `dialects.anthropic` converts to a message and its events.
"""

import asyncio
import base64
import mimetypes
import time
from collections.abc import Sequence
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from practice_model.dialects.anthropic import event_grammar, message_object
from practice_model.dialects.anthropic.errors import error_body, error_event
from practice_model.dialects.anthropic.reading import find_issued_values, parse_request
from practice_model.dialects.responses import sealed
from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import PIXEL, Json
from practice_model.exchange import EventStream, Exchange, JsonResponse, SharedState
from practice_model.play.answer import FakeResponse
from practice_model.play.anthropic_recordings import find_genuine_values, list_containers, load_recordings
from practice_model.play.player import Player
from practice_model.rules import anthropic_messages as rules

_FAILURE_STATUSES = {"overloaded_error": 529, "rate_limit_error": 429}


class AnthropicService:
    """The routes and their state.

    Args:
        shared_state: common to all services.
    """

    def __init__(self, shared_state: SharedState) -> None:
        self._shared_state = shared_state
        self._recordings = load_recordings(shared_state.recordings_folder)
        self._player = Player(shared_state.id_generator, self._recordings, shared_state.plans)
        self._issued_blocks = IssuedBlocks(
            set(find_genuine_values(self._recordings)), list_containers(self._recordings)
        )

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
        message = fake_response.recorded_response or self._compose(fake_response, body)
        self._issued_blocks.record_response(cast("list[Json]", message["content"]), message.get("container"))
        self._issued_blocks.files.update(message_object.list_cited_files(fake_response.items))
        exchange.response_id = message["id"]
        exchange.output = fake_response.items
        if not body.get("stream"):
            await asyncio.sleep(fake_response.delivery.delay_milliseconds / 1000)
            if fake_response.failure:
                error = error_event(fake_response.failure.get("code"), fake_response.failure.get("message"))
                return exchange.fail(_FAILURE_STATUSES.get(error["error"]["type"], 500), error)
            return exchange.respond(message)
        chunk_characters = fake_response.delivery.chunk_characters
        exact_inputs = message_object.get_exact_inputs(fake_response.items)
        events = fake_response.recorded_events or event_grammar.stream_events(message, chunk_characters, exact_inputs)
        if fake_response.failure:
            events = [
                *events[:-2],
                error_event(fake_response.failure.get("code"), fake_response.failure.get("message")),
            ]
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
        return Response(_generate_file_bytes(name), media_type="application/octet-stream")

    async def describe_file(self, request: Request) -> ASGIApp:
        """Answer `GET /v1/files/{id}`."""
        file_id = request.path_params["file_id"]
        name = self._issued_blocks.files.get(file_id)
        if name is None:
            return _file_not_found(file_id)
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        file_fields = {"type": "file", "id": file_id, "filename": name, "mime_type": media_type, "downloadable": True}
        return JsonResponse(
            file_fields | {"size_bytes": len(_generate_file_bytes(name)), "created_at": "2026-01-01T00:00:00Z"}
        )

    async def expire_containers(self, _request: Request) -> JsonResponse:
        """Expire all containers."""
        return JsonResponse({"expired": self._issued_blocks.expire_containers()})


class IssuedBlocks:
    """Blocks, files and containers that the service has issued.

    Args:
        genuine_values: signatures of recorded traffic.
        containers: containers of recorded traffic.

    Attributes:
        files: names of the files that code has generated, by id.
    """

    def __init__(self, genuine_values: set[str], containers: Sequence[str] | Any) -> None:
        self.files: dict[str, str] = {}
        self._genuine_values = genuine_values
        self._is_usable_by_container: dict[str, bool] = dict.fromkeys(containers, True)
        self._thinking_by_signature: dict[str, str] = {}
        self._signatures_by_call: dict[str, list[str]] = {}
        self._block_types: set[str] = set()

    def record_response(self, blocks: Sequence[Json], container: Any) -> None:
        """Record the blocks of a response."""
        values = list(find_issued_values(blocks))
        self._genuine_values |= set(values)
        for block in blocks:
            self._block_types.add(str(block.get("type")))
            if block.get("type") == "thinking":
                self._thinking_by_signature[str(block["signature"])] = str(block["thinking"])
            if block.get("type") == "tool_use":
                self._signatures_by_call[str(block["id"])] = values
            content: Any = block.get("content")
            nested_content: Any = cast("Json", content).get("content") if isinstance(content, dict) else None
            file_outputs = cast("list[Json]", nested_content) if isinstance(nested_content, list) else []
            for file_id in (str(file_output["file_id"]) for file_output in file_outputs if file_output.get("file_id")):
                self.files.setdefault(file_id, f"{file_id}.png")
        if isinstance(container, dict):
            self._is_usable_by_container[str(cast("Json", container)["id"])] = True

    def is_genuine_signature(self, value: str) -> bool:
        """Return whether a signature or redacted thinking is genuine."""
        return value in self._genuine_values or sealed.is_genuine(value)

    def find_thought(self, signature: str) -> str | None:
        """Return the thinking that was issued with a signature; None if it is unknown."""
        return self._thinking_by_signature.get(signature)

    def find_thought_signatures(self, call_id: str) -> Sequence[str]:
        """Return the thinking signatures of the message that issued a call."""
        return self._signatures_by_call.get(call_id, ())

    def has_issued_type(self, kind: str) -> bool:
        """Return whether a block of this type was issued."""
        return kind in self._block_types

    def container_error(self, container_id: str) -> str | None:
        """Return why a container cannot be used, or None; containers of earlier server runs are accepted."""
        if self._is_usable_by_container.get(container_id, container_id.startswith("container_")):
            return None
        return f"Container '{container_id}' not found or expired."

    def expire_containers(self) -> int:
        """Expire all containers; return their number."""
        count = sum(self._is_usable_by_container.values())
        self._is_usable_by_container = dict.fromkeys(self._is_usable_by_container, False)
        return count


def _generate_file_bytes(name: str) -> bytes:
    """Return the content of a generated file: an image if the name ends in `.png`, else text."""
    return base64.b64decode(PIXEL.partition(",")[2]) if name.endswith(".png") else f"written by code: {name}\n".encode()


def _file_not_found(file_id: str) -> JsonResponse:
    return JsonResponse(error_body(HttpError(404, f"File not found: {file_id}")), 404)
