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
        ended: called once with `complete`, `broken` or `disconnected`, the number of events sent, and the POSIX time of
            each delta, empty without the delivery's clock.
        encode: writes an event as the service does.
        last: what follows the last event of a whole stream.
    """

    def __init__(
        self,
        events: Sequence[Json],
        delivery: Delivery,
        request: Request,
        ended: Callable[[str, int, Sequence[float]], None],
        encode: Callable[[Json], bytes] = encode_event,
        *,
        last: bytes = b"",
    ) -> None:
        self._events = events
        self._delivery = delivery
        self._request = request
        self._ended = ended
        self._encode = encode
        self._last = last

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send the stream; omits the last chunk when it breaks off."""
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        stop = self._delivery.break_after_events
        sent = 0
        sent_at: list[float] = []
        for event in self._events if stop is None else self._events[:stop]:
            if self._delivery.delay_milliseconds:
                await asyncio.sleep(self._delivery.delay_milliseconds / 1000)
                if await self._request.is_disconnected():
                    self._ended("disconnected", sent, sent_at)
                    return
            if event is self._events[-1] and not await self._may_end():
                self._ended("disconnected", sent, sent_at)
                return
            if self._delivery.clock and str(event.get("type")).endswith("delta"):
                sent_at.append(time.time())
            await send({"type": "http.response.body", "body": self._encode(event), "more_body": True})
            sent += 1
        if stop is not None:
            self._ended("broken", sent, sent_at)
            return
        self._ended("complete", sent, sent_at)
        await send({"type": "http.response.body", "body": self._last, "more_body": False})

    async def _may_end(self) -> bool:
        """Wait for the delivery's file; return False if the client has left meanwhile."""
        while self._delivery.until_file and not Path(self._delivery.until_file).exists():  # noqa: ASYNC240 (quick)
            await asyncio.sleep(0.01)
            if await self._request.is_disconnected():
                return False
        return True
