"""Anthropic's Messages API, with its files.

Flow of a request: it is recorded in the request log, checked with `rules.anthropic_messages`, answered by the player in
items of the Responses API, and written as a message and its events with `dialects.anthropic`.
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
from practice_model.dialects.anthropic.reading import issued_values, reading_of
from practice_model.dialects.responses import sealed
from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import PIXEL, Json
from practice_model.event_stream import EventStream
from practice_model.exchange import Exchange, Shared, error_answer
from practice_model.json_text import JsonAnswer
from practice_model.play.answer import Answer
from practice_model.play.anthropic_recordings import genuine_values, load_recordings, recorded_containers
from practice_model.play.plans import PlanError
from practice_model.play.player import Player
from practice_model.rules import anthropic_messages as rules

_FAILED_IN_WHOLE = {"overloaded_error": 529, "rate_limit_error": 429}


def anthropic_routes(shared: Shared) -> list[Route]:
    """Make the routes of the service. Each practice model has its own."""
    return AnthropicService(shared).routes()


class AnthropicService:
    """The routes and their state.

    Args:
        shared: with the other services.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._recordings = load_recordings(shared.recordings_folder)
        self._player = Player(shared.mint, self._recordings, shared.plans)
        self._known = Issued(set(genuine_values(self._recordings)), recorded_containers(self._recordings))

    def routes(self) -> list[Route]:
        """List the routes, below the root and below a prefix of its own."""
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
        call = await Exchange.begin(request, self._shared.request_log)
        refusal = rules.missing_key(request.headers) or rules.check_request(call.body, self._known, now=time.time())
        if refusal is not None:
            return _refused(call, refusal)
        try:
            answer = self._player.answer(reading_of(call.body))
        except PlanError as error:
            return _refused(call, HttpError(400, str(error)))
        if isinstance(answer, HttpError):
            return _refused(call, answer)
        return await self._deliver(answer, request, call)

    async def _deliver(self, answer: Answer, request: Request, call: Exchange) -> ASGIApp:
        body = cast("Json", call.body)
        message = answer.recorded_response or self._compose(answer, body)
        self._known.remember(cast("list[Json]", message["content"]), message.get("container"))
        self._known.files.update(message_object.named_files(answer.items))
        call.response_id, call.output = message["id"], answer.items
        if not body.get("stream"):
            await asyncio.sleep(answer.delivery.delay_milliseconds / 1000)
            if answer.failure:
                told = error_event(answer.failure.get("code"), answer.failure.get("message"))
                return call.refuse(_FAILED_IN_WHOLE.get(told["error"]["type"], 500), told)
            return call.answer(message)
        chunk = answer.delivery.chunk_characters
        exact = message_object.exact_inputs(answer.items)
        events = answer.recorded_events or event_grammar.stream_events(message, chunk, exact)
        if answer.failure:
            events = [*events[:-2], error_event(answer.failure.get("code"), answer.failure.get("message"))]
        return EventStream(events, answer.delivery, request, call.ended)

    def _compose(self, answer: Answer, body: Json) -> Json:
        blocks = message_object.blocks_of_items(answer.items)
        named = [item["container_id"] for item in answer.items if item.get("container_id")]
        given: Any = body.get("container")
        name = message_object.container_id(str(named[0])) if named else given
        usage: Json = {"input_tokens": len(str(body)) // 4, "output_tokens": max(1, len(str(blocks)) // 4)}
        return message_object.message(
            self._shared.mint.new("msg_"),
            body["model"],
            blocks,
            incomplete=answer.incomplete,
            usage=usage | dict(answer.usage or {}),
            container=message_object.container_object(name, time.time()) if isinstance(name, str) else None,
        )

    async def read_file(self, request: Request) -> ASGIApp:
        """Answer `GET /v1/files/{id}/content` for files that code has made."""
        file_id = request.path_params["file_id"]
        name = self._known.files.get(file_id)
        if name is None:
            return _no_file(file_id)
        return Response(_bytes_of(name), media_type="application/octet-stream")

    async def describe_file(self, request: Request) -> ASGIApp:
        """Answer `GET /v1/files/{id}`."""
        file_id = request.path_params["file_id"]
        name = self._known.files.get(file_id)
        if name is None:
            return _no_file(file_id)
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        told = {"type": "file", "id": file_id, "filename": name, "mime_type": media_type, "downloadable": True}
        return JsonAnswer(told | {"size_bytes": len(_bytes_of(name)), "created_at": "2026-01-01T00:00:00Z"})

    async def expire_containers(self, _request: Request) -> JsonAnswer:
        """Expire all containers."""
        return JsonAnswer({"expired": self._known.expire_containers()})


class Issued:
    """What the service has given out.

    Args:
        genuine: signatures of recorded traffic.
        containers: of recorded traffic.

    Attributes:
        files: of the files that code has made, id → name.
    """

    def __init__(self, genuine: set[str], containers: Sequence[str] | Any) -> None:
        self.files: dict[str, str] = {}
        self._genuine = genuine
        self._containers: dict[str, bool] = dict.fromkeys(containers, True)
        self._thoughts: dict[str, str] = {}
        self._before: dict[str, list[str]] = {}
        self._types: set[str] = set()

    def remember(self, blocks: Sequence[Json], container: Any) -> None:
        """Remember an answer."""
        values = list(issued_values(blocks))
        self._genuine |= set(values)
        for block in blocks:
            self._types.add(str(block.get("type")))
            if block.get("type") == "thinking":
                self._thoughts[str(block["signature"])] = str(block["thinking"])
            if block.get("type") == "tool_use":
                self._before[str(block["id"])] = values
            told: Any = block.get("content")
            found: Any = cast("Json", told).get("content") if isinstance(told, dict) else None
            made = cast("list[Json]", found) if isinstance(found, list) else []
            for file_id in (str(one["file_id"]) for one in made if one.get("file_id")):
                self.files.setdefault(file_id, f"{file_id}.png")
        if isinstance(container, dict):
            self._containers[str(cast("Json", container)["id"])] = True

    def is_good_signature(self, value: str) -> bool:
        """Return whether a signature or sealed thoughts are genuine."""
        return value in self._genuine or sealed.is_sealed(value)

    def thought_of(self, signature: str) -> str | None:
        """Return the thinking that was issued with a signature; None when it is not known."""
        return self._thoughts.get(signature)

    def thoughts_before(self, call_id: str) -> Sequence[str]:
        """Return the signatures of the thoughts of the message that issued a call."""
        return self._before.get(call_id, ())

    def issued_type(self, kind: str) -> bool:
        """Return whether a block of this type was issued."""
        return kind in self._types

    def container_trouble(self, container_id: str, now: float) -> str | None:
        """Return why a container cannot be used, or None; one of an earlier run of this server is good."""
        del now
        if self._containers.get(container_id, container_id.startswith("container_")):
            return None
        return f"Container '{container_id}' not found or expired."

    def expire_containers(self) -> int:
        """Expire all containers; return how many."""
        count = sum(self._containers.values())
        self._containers = dict.fromkeys(self._containers, False)
        return count


def _bytes_of(name: str) -> bytes:
    """Give what code has written: an image under a name that ends so, else a text."""
    return base64.b64decode(PIXEL.partition(",")[2]) if name.endswith(".png") else f"written by code: {name}\n".encode()


def _no_file(file_id: str) -> JsonAnswer:
    error = HttpError(404, f"File not found: {file_id}")
    return error_answer(error.status, error_body(error))


def _refused(call: Exchange, error: HttpError) -> JsonAnswer:
    return call.refuse(error.status, error_body(error), error.retry_after)
