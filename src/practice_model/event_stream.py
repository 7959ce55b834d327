"""Sends events over HTTP, with configured delays and disconnects."""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from practice_model.dialects.responses.items import Json
from practice_model.json_text import encode_json
from practice_model.play.answer import Delivery

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
