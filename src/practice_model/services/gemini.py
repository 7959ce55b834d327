"""Google's Gemini API: `generateContent` and `streamGenerateContent`, below `/gemini` and at the root.

The model of the URL decides the rules: names of Gemini 3 and of the practice model's reasoning models sign their
thoughts and require the signatures back.
"""

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp

from practice_model.dialects.gemini import chunks
from practice_model.dialects.gemini.contents import field, is_reasoning, objects, read_request
from practice_model.dialects.gemini.errors import error_body, error_chunk
from practice_model.dialects.gemini.signatures import is_signature, plain_base64
from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import Reading
from practice_model.event_stream import EventStream
from practice_model.exchange import Exchange, Shared
from practice_model.json_text import encode_json
from practice_model.play.answer import Answer
from practice_model.play.gemini_recordings import load_recordings
from practice_model.play.plans import PlanError
from practice_model.play.player import Player
from practice_model.rules import gemini_contents as rules


def gemini_routes(shared: Shared) -> list[Route]:
    """List the routes of the service.

    Args:
        shared: with the other services.
    """
    service = _GeminiService(shared)
    return [
        Route(f"{prefix}/{version}/models/{{model}}:{{method}}", service.generate, methods=["POST"])
        for prefix in ("/gemini", "")
        for version in ("v1beta", "v1", "v1beta1")
    ]


class _GeminiService:
    """The service and its state: the parts and signatures that it has given out."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        recordings = load_recordings(shared.recordings_folder)
        self._player = Player(shared.mint, recordings, shared.plans)
        self._issued: list[Json] = []
        self._signatures: set[str] = set()
        for one in recordings.by_name.values() if recordings else ():
            self._issue([item["part"] for item in (*one.streamed.output, *one.whole.output) if "part" in item])
            self._issue([item["part"] for item in one.transcript or () if "part" in item])

    async def generate(self, request: Request) -> ASGIApp:
        """Answer a request, in chunks or whole."""
        call = await Exchange.begin(request, self._shared.request_log)
        model, method = str(request.path_params["model"]), request.path_params["method"]
        stream = method == "streamGenerateContent"
        if (refusal := self._refuse(request, model, method, call.body)) is not None:
            return _refused(call, refusal)
        reading = read_request(model, call.body, stream=stream)
        try:
            answer = self._player.answer(reading)
        except PlanError as error:
            return _refused(call, HttpError(400, str(error), "PRACTICE_PLAN"))
        if isinstance(answer, HttpError):
            return _refused(call, answer)
        events = self._events(answer, reading, model, call)
        call.output = [part for event in events for part in _parts(event)]
        self._issue(call.output)
        if stream:
            return EventStream(events, answer.delivery, request, call.ended, _encode)
        await asyncio.sleep(answer.delivery.delay_milliseconds / 1000)
        return (
            call.refuse(events[-1]["error"]["code"], events[-1]) if "error" in events[-1] else call.answer(events[-1])
        )

    def _refuse(self, request: Request, model: str, method: str, body: Any) -> HttpError | None:
        if not (request.headers.get("x-goog-api-key") or request.query_params.get("key")):
            return HttpError(403, rules.MISSING_KEY)
        if method not in {"generateContent", "streamGenerateContent"}:
            return HttpError(404, f"The requested URL {request.url.path} was not found on this server.")
        return rules.check_request(model, body, self._is_signature, self._issued)

    def _is_signature(self, value: str) -> bool:
        return is_signature(value) or plain_base64(value) in self._signatures

    def _issue(self, parts: list[Json]) -> None:
        self._issued += [part for part in parts if not part.keys() <= {"text", "functionCall", "thoughtSignature"}]
        self._signatures |= {plain_base64(part["thoughtSignature"]) for part in parts if "thoughtSignature" in part}

    def _events(self, answer: Answer, reading: Reading, model: str, call: Exchange) -> list[Json]:
        """Return the chunks of an answer, or one when it is asked for whole."""
        if answer.recorded_events is not None:
            call.response_id = answer.recorded_events[-1].get("responseId")
            return answer.recorded_events
        call.response_id = self._shared.mint.like("resp_" + "0" * 23).removeprefix("resp_")
        form = _form(answer, model, call)
        finish = answer.incomplete or "stop"
        if not chunks.has_readable_calls(answer.items):
            parts, finish = [], "malformed_function_call"
        else:
            parts = chunks.parts_of(answer.items, form)
        usage = _usage(reading, parts) | dict(answer.usage or {})
        if not reading.body.get("stream"):
            return [error_chunk(answer.failure) if answer.failure else chunks.response(parts, form, usage, finish)]
        events = chunks.chunks(parts, form, usage, finish)
        return [*events[:-1], error_chunk(answer.failure)] if answer.failure else events


def _form(answer: Answer, model: str, call: Exchange) -> chunks.Form:
    config = field(call.body, "generationConfig")
    calling = field(field(call.body, "toolConfig"), "functionCallingConfig")
    return chunks.Form(
        model=model,
        response_id=str(call.response_id),
        is_reasoning=is_reasoning(model),
        tells_thoughts=bool(field(field(config, "thinkingConfig"), "includeThoughts")),
        streams_arguments=bool(field(calling, "streamFunctionCallArguments")),
        chunk_characters=answer.delivery.chunk_characters,
    )


def _usage(reading: Reading, parts: list[Json]) -> Json:
    read, written = len(str(reading.transcript)) // 4 + 1, len(str(parts)) // 4 + 1
    return {"promptTokenCount": read, "candidatesTokenCount": written, "totalTokenCount": read + written}


def _parts(event: Json) -> list[Json]:
    return [part for one in objects(event.get("candidates")) for part in objects(field(one.get("content"), "parts"))]


def _encode(event: Json) -> bytes:
    return b"data: " + encode_json(event) + b"\r\n\r\n"


def _refused(call: Exchange, error: HttpError) -> ASGIApp:
    return call.refuse(error.status, error_body(error), error.retry_after)
