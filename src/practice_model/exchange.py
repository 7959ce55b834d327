"""What all services share: the log of requests, JSON and event streams, and one request in progress."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.ids import IdGenerator
from practice_model.dialects.responses.items import Json
from practice_model.play.answer import Delivery
from practice_model.play.plans import Plan


def encode_json(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


class JsonResponse(JSONResponse):
    """A JSON response; strings may contain lone surrogates."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return encode_json(content)


_SECRET_HEADERS = frozenset({"authorization", "api-key", "cookie"})


@dataclass
class RequestLog:
    """Requests in order of arrival; an entry is complete once its response has been sent."""

    entries: list[Json] = field(default_factory=list[Json])
    count: int = 0

    def open_entry(self, request: Request, body: Any) -> Json:
        """Record a request; return its entry."""
        self.count += 1
        entry: Json = {
            "n": self.count,
            "at": datetime.now(UTC).isoformat(),
            "method": request.method,
            "path": request.url.path,
            "headers": {name: value for name, value in request.headers.items() if name not in _SECRET_HEADERS},
            "body": body,
            "status": None,
            "error": None,
            "response_id": None,
            "output": None,
            "events": None,
            "ended": None,
            "milliseconds_streaming": None,
        }
        self.entries.append(entry)
        return entry

    def close_entry(self, entry: Json, *, outcome: str, milliseconds: float, **details: Any) -> None:
        """Complete an entry."""
        entry.update(details, ended=outcome, milliseconds_streaming=round(milliseconds, 3))


HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]


def encode_event(event: Json) -> bytes:
    """Encode an event as bytes; its event line equals the type in the data."""
    return b"event: " + str(event["type"]).encode() + b"\ndata: " + encode_json(event) + b"\n\n"


class EventStream:
    """An ASGI response that streams events, then reports its end and the number of events.

    Args:
        on_end: called once with `complete`, `broken` or `disconnected`, the number of events sent, and the POSIX time
            of each delta (empty unless the delivery enables `clock`).
        encode: encodes an event in the service's format.
        terminator: bytes after the last event of a complete stream.
    """

    def __init__(
        self,
        events: Sequence[Json],
        delivery: Delivery,
        request: Request,
        on_end: Callable[[str, int, Sequence[float]], None],
        encode: Callable[[Json], bytes] = encode_event,
        *,
        terminator: bytes = b"",
    ) -> None:
        self._events = events
        self._delivery = delivery
        self._request = request
        self._on_end = on_end
        self._encode = encode
        self._terminator = terminator

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send the stream; omit the last chunk if a plan interrupts it."""
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        event_limit = self._delivery.break_after_events
        sent_count = 0
        sent_at: list[float] = []
        for event in self._events if event_limit is None else self._events[:event_limit]:
            if self._delivery.delay_milliseconds:
                await asyncio.sleep(self._delivery.delay_milliseconds / 1000)
                if await self._request.is_disconnected():
                    self._on_end("disconnected", sent_count, sent_at)
                    return
            if event is self._events[-1] and not await self._wait_for_file():
                self._on_end("disconnected", sent_count, sent_at)
                return
            if self._delivery.clock and str(event.get("type")).endswith("delta"):
                sent_at.append(time.time())
            await send({"type": "http.response.body", "body": self._encode(event), "more_body": True})
            sent_count += 1
        if event_limit is not None:
            self._on_end("broken", sent_count, sent_at)
            return
        self._on_end("complete", sent_count, sent_at)
        await send({"type": "http.response.body", "body": self._terminator, "more_body": False})

    async def _wait_for_file(self) -> bool:
        """Wait for the delivery's file; return False if the client disconnects in the meantime."""
        while self._delivery.until_file and not Path(self._delivery.until_file).exists():  # noqa: ASYNC240 (quick)
            await asyncio.sleep(0.01)
            if await self._request.is_disconnected():
                return False
        return True


@dataclass(frozen=True)
class SharedState:
    """What all services of one practice model share.

    Attributes:
        id_generator: generates ids.
        plans: posted by tests; each service's player takes its steps from them.
        request_log: requests of all services.
    """

    id_generator: IdGenerator
    plans: list[Plan]
    request_log: RequestLog


@dataclass
class Exchange:
    """One request in progress.

    Attributes:
        body: parsed body of the request; None if it is not JSON.
        response_id: id of the response, set by the service.
        output: final items of the response, set by the service.
        encode_error: encodes an error in the service's format; by default in OpenAI's.
    """

    request_log: RequestLog
    entry: Json
    start_time: float
    body: Any
    response_id: str | None = None
    output: list[Json] | None = None
    encode_error: Callable[[HttpError], Json] = attrgetter("body")

    @classmethod
    async def start(
        cls,
        request: Request,
        request_log: RequestLog,
        encode_error: Callable[[HttpError], Json] = attrgetter("body"),
    ) -> "Exchange":
        """Read a request and record it."""
        start_time = time.perf_counter()
        try:
            body: Any = await request.json()
        except ValueError:
            body = None
        return cls(request_log, request_log.open_entry(request, body), start_time, body, encode_error=encode_error)

    def reject(self, error: HttpError) -> JsonResponse:
        """Respond with an error."""
        headers = {} if error.retry_after is None else {"retry-after": f"{error.retry_after:g}"}
        return self.fail(error.status, self.encode_error(error), headers)

    def fail(self, status: int, body: Json, headers: Mapping[str, str] | None = None) -> JsonResponse:
        """Respond with the body of an error."""
        self._close_entry("refused", status=status, error=body.get("error", body))
        return JsonResponse(body, status, headers)

    def respond(self, body: Any) -> JsonResponse:
        """Respond with JSON."""
        self.record_end("complete", 0, ())
        return JsonResponse(body)

    def record_end(self, outcome: str, event_count: int, sent_at: Sequence[float]) -> None:
        """Record the end of the response; `EventStream` calls it."""
        details: dict[str, Any] = {"events": event_count} | ({"sent_at": list(sent_at)} if sent_at else {})
        self._close_entry(outcome, status=200, response_id=self.response_id, output=self.output, **details)

    def _close_entry(self, outcome: str, **details: Any) -> None:
        elapsed_milliseconds = (time.perf_counter() - self.start_time) * 1000
        self.request_log.close_entry(self.entry, outcome=outcome, milliseconds=elapsed_milliseconds, **details)
