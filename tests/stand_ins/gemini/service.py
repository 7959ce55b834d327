"""Google's Gemini API: `generateContent` and `streamGenerateContent`, below `/gemini` and at the root.

The model in the URL selects the rules: Gemini 3 and the practice model's reasoning models sign their thoughts and
require the signatures back.
"""

import asyncio
import copy
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp

from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import ParsedRequest
from practice_model.exchange import EventStream, Exchange, SharedState, encode_json
from practice_model.play.answer import FakeResponse
from tests.stand_ins.gemini import chunks, rules
from tests.stand_ins.gemini.contents import get_field, is_reasoning, list_objects, parse_generate_request
from tests.stand_ins.gemini.errors import error_body, error_chunk
from tests.stand_ins.gemini.signatures import is_signature, normalize_base64
from tests.stand_ins.recordings import Format, RecordedPlayer, RecordedResponse, load_recordings


class GeminiService:
    """The service and its state: the parts and signatures that it has issued."""

    def __init__(self, shared_state: SharedState, folder: Path | None) -> None:
        self._shared_state = shared_state
        recordings = load_recordings(folder, FORMAT)
        self._player = RecordedPlayer(shared_state.id_generator, shared_state.plans, recordings)
        self._issued_parts: list[Json] = []
        self._signatures: set[str] = set()
        self._record_issued([item["part"] for item in recordings.items if "part" in item])

    def routes(self) -> list[Route]:
        """List the routes."""
        return [
            Route(f"{prefix}/{version}/models/{{model}}:{{method}}", self.generate, methods=["POST"])
            for prefix in ("/gemini", "")
            for version in ("v1beta", "v1", "v1beta1")
        ]

    async def generate(self, request: Request) -> ASGIApp:
        """Respond to a request, streaming or not."""
        exchange = await Exchange.start(request, self._shared_state.request_log, error_body)
        model = str(request.path_params["model"])
        method = request.path_params["method"]
        stream = method == "streamGenerateContent"
        if (refusal := self._check_request(request, model, method, exchange.body)) is not None:
            return exchange.reject(refusal)
        parsed_request = parse_generate_request(model, exchange.body, stream=stream)
        fake_response = self._player.respond(parsed_request)
        if isinstance(fake_response, HttpError):
            return exchange.reject(fake_response)
        events = self._build_events(fake_response, parsed_request, model, exchange)
        exchange.output = [part for event in events for part in _list_parts(event)]
        self._record_issued(exchange.output)
        if stream:
            return EventStream(events, fake_response.delivery, request, exchange.record_end, _encode_event)
        await asyncio.sleep(fake_response.delivery.delay_milliseconds / 1000)
        return (
            exchange.fail(events[-1]["error"]["code"], events[-1])
            if "error" in events[-1]
            else exchange.respond(events[-1])
        )

    def _check_request(self, request: Request, model: str, method: str, body: Any) -> HttpError | None:
        if not (request.headers.get("x-goog-api-key") or request.query_params.get("key")):
            return HttpError(403, rules.MISSING_KEY)
        if method not in {"generateContent", "streamGenerateContent"}:
            return HttpError(404, f"The requested URL {request.url.path} was not found on this server.")
        return rules.check_request(model, body, self._is_signature, self._issued_parts)

    def _is_signature(self, value: str) -> bool:
        return is_signature(value) or normalize_base64(value) in self._signatures

    def _record_issued(self, parts: list[Json]) -> None:
        self._issued_parts += [
            part for part in parts if not part.keys() <= {"text", "functionCall", "thoughtSignature"}
        ]
        self._signatures |= {normalize_base64(part["thoughtSignature"]) for part in parts if "thoughtSignature" in part}

    def _build_events(
        self, fake_response: FakeResponse, parsed_request: ParsedRequest, model: str, exchange: Exchange
    ) -> list[Json]:
        """Return the chunks of a response; a single chunk if the request does not stream."""
        if isinstance(fake_response, RecordedResponse):
            response, events = fake_response.version.response, fake_response.version.events
            exchange.response_id = response.get("responseId")
            return events if events and parsed_request.body.get("stream") else [response]
        exchange.response_id = self._shared_state.id_generator.new_like("resp_" + "0" * 23).removeprefix("resp_")
        chunk_format = _build_chunk_format(fake_response, model, exchange)
        finish_reason = fake_response.incomplete or "stop"
        if not chunks.has_readable_calls(fake_response.items):
            parts = []
            finish_reason = "malformed_function_call"
        else:
            parts = chunks.build_parts(fake_response.items, chunk_format)
        usage = _count_usage(parsed_request, parts) | dict(fake_response.usage or {})
        if not parsed_request.body.get("stream"):
            return [
                error_chunk(fake_response.failure)
                if fake_response.failure
                else chunks.build_response(parts, chunk_format, usage, finish_reason)
            ]
        events = chunks.build_chunks(parts, chunk_format, usage, finish_reason)
        return [*events[:-1], error_chunk(fake_response.failure)] if fake_response.failure else events


def _build_chunk_format(fake_response: FakeResponse, model: str, exchange: Exchange) -> chunks.ChunkFormat:
    config = get_field(exchange.body, "generationConfig")
    return chunks.ChunkFormat(
        model=model,
        response_id=str(exchange.response_id),
        is_reasoning=is_reasoning(model),
        includes_thoughts=bool(get_field(get_field(config, "thinkingConfig"), "includeThoughts")),
        chunk_characters=fake_response.delivery.chunk_characters,
    )


def _count_usage(parsed_request: ParsedRequest, parts: list[Json]) -> Json:
    input_tokens = len(str(parsed_request.transcript)) // 4 + 1
    output_tokens = len(str(parts)) // 4 + 1
    return {
        "promptTokenCount": input_tokens,
        "candidatesTokenCount": output_tokens,
        "totalTokenCount": input_tokens + output_tokens,
    }


def _list_parts(event: Json) -> list[Json]:
    return [
        part
        for candidate in list_objects(event.get("candidates"))
        for part in list_objects(get_field(candidate.get("content"), "parts"))
    ]


def _merge_chunks(events: list[Json]) -> Json:
    response = copy.deepcopy(events[-1])
    candidate = list_objects(response.get("candidates"))[0]
    candidate["content"] = {"role": "model", "parts": [part for event in events for part in _list_parts(event)]}
    return response


def _list_items(response: Json, events: list[Json]) -> list[Json]:
    """Return the calls of a response, by which a recording is matched to a request, and its parts."""
    parts = [part for event in events or [response] for part in _list_parts(event)]
    calls = [part["functionCall"] for part in parts if part.get("functionCall", {}).get("name")]
    return [
        *({"type": "function_call", "name": call["name"], "call_id": str(call.get("id"))} for call in calls),
        *({"type": "part", "part": part} for part in parts),
    ]


FORMAT = Format(
    "gemini",
    _merge_chunks,
    _list_items,
    lambda body: "candidates" in body,
    lambda request, _: parse_generate_request("", request, stream=True).transcript,
)


def _encode_event(event: Json) -> bytes:
    return b"data: " + encode_json(event) + b"\r\n\r\n"
