"""A client's connection: uvicorn's two HTTP/1 protocols, limited by `connection_limits`."""

import asyncio
from collections import deque
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from functions_host.web.connection_limits import ConnectionLimits, Connections, Stage
from functions_host.web.watched_connection import LingeringTransport, WatchedConnection

MOST_PIPELINED = 16
"""So many requests wait for the answers before theirs; what a client sends beyond them is read when they are fewer."""

_PARSED_BYTES = 4096  # at once: one piece can hold a hundred requests more


_SEPARATORS = 4  # bytes of a header besides its name and value: colon, space, end of line


def _too_long_url(limits: ConnectionLimits) -> str:
    return f"The URL is over {limits.line_bytes} bytes."


def _too_large_headers(limits: ConnectionLimits) -> str:
    return f"The headers are over {limits.header_bytes} bytes or {limits.headers} fields."


class _RejectedError(Exception):
    """Leaves a callback of the parser."""


class HttpConnection(WatchedConnection, HttpToolsProtocol):
    """A connection of any version of HTTP/1. Other arguments are those of uvicorn.

    HTTP/1.0 has no chunks: an answer of unknown length ends with its connection. uvicorn's httptools protocol sends
    chunks regardless, against RFC 9112 (section 6.1); its h11 protocol does not. So a connection whose first line says
    HTTP/1.0 is handed to h11.

    Requests that are sent ahead of their answers are answered in their order. One that is refused ends the connection
    after the answers to those before it.
    """

    def __init__(self, *, limits: ConnectionLimits, connections: Connections, **more: Any) -> None:
        super().__init__(limits=limits, connections=connections, **more)
        self._make_http10 = lambda: _Http10Connection(limits=limits, connections=connections, **more)
        self._begin: bytes | None = b""
        self._part: Stage | None = None  # of the message that is being read: headers, body, or none
        self._unparsed_bytes = 0  # bytes since something came of them
        self._header_bytes = self._header_count = 0
        self._refusal: tuple[HTTPStatus, str] | None = None
        self._last_word: tuple[HTTPStatus, str] | None = None  # sent when all requests before it are answered
        self._pending_cycles: deque[Any] = deque()  # uvicorn's cycles, the oldest first
        self._unparsed_data = b""

    def data_received(self, data: bytes) -> None:
        """Receive bytes; the first line is buffered until complete."""
        self.count(data)
        if self._takes_no_more():
            return
        if self._begin is None:
            self._parse(data)
            return
        begin = self._begin + data
        line, end, _ = begin.partition(b"\n")
        if not end and len(begin) <= self.limits.line_bytes:
            self._begin = begin
            return
        self._begin = None
        if line.rstrip().endswith(b" HTTP/1.0"):
            self._hand_over(self.transport, begin)
        else:
            self._parse(begin)

    def _takes_no_more(self) -> bool:
        return self.is_over or self._last_word is not None or self.transport.is_closing()

    def _parse(self, data: bytes) -> None:
        """Parse what has come until enough requests wait; the rest is held, and no more is read meanwhile."""
        remaining_data = memoryview(self._unparsed_data + data)
        while remaining_data and len(self.pipeline) < MOST_PIPELINED and not self._takes_no_more():
            chunk = remaining_data[:_PARSED_BYTES]
            remaining_data = remaining_data[_PARSED_BYTES:]
            self._unparsed_bytes += len(chunk)
            super().data_received(chunk)  # pyright: ignore[reportArgumentType] - the parser takes any buffer
            if self._unparsed_bytes > self.limits.line_bytes + self.limits.header_bytes:
                self.reject(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, _too_large_headers(self.limits))
        self._unparsed_data = b"" if self._takes_no_more() else bytes(remaining_data)
        if self._unparsed_data:
            self.flow.pause_reading()
        self.update_stage()

    def _hand_over(self, transport: asyncio.Transport, begin: bytes) -> None:
        self.connections.discard(self)
        self.end_watch()
        successor = self._make_http10()
        transport.set_protocol(successor)
        successor.connection_made(transport)
        successor.data_received(begin)

    def find_stage(self) -> Stage:
        """Return the current stage."""
        if self.flow.write_paused:
            return Stage.WRITING
        if self._part is Stage.BODY:
            return Stage.BODY if self._pending_cycles else Stage.DRAINING
        if self._pending_cycles:
            return Stage.ANSWERING
        return Stage.HEADERS if self.cycle is None or self._part is Stage.HEADERS else Stage.IDLE

    def is_mid_answer(self) -> bool:
        """Return whether an answer has begun or is queued."""
        return bool(self.pipeline) or super().is_mid_answer()

    def has_started(self) -> bool:
        """Return whether part of a request has been received."""
        return self._part is Stage.HEADERS or bool(self._begin)

    # --- what the parser finds ---------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._part = Stage.HEADERS
        self._header_bytes = 0
        self._header_count = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Receive part of the URL."""
        super().on_url(url)
        if len(self.url) > self.limits.line_bytes:
            self._refusal = HTTPStatus.REQUEST_URI_TOO_LONG, _too_long_url(self.limits)
            raise _RejectedError

    def on_header(self, name: bytes, value: bytes) -> None:
        """Receive a header; trailers are counted and dropped."""
        self._header_bytes += len(name) + len(value) + _SEPARATORS
        self._header_count += 1
        if self._header_bytes > self.limits.header_bytes or self._header_count > self.limits.headers:
            self._refusal = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, _too_large_headers(self.limits)
            raise _RejectedError
        if self._part is Stage.HEADERS:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the answer."""
        super().on_headers_complete()
        self._part = Stage.BODY
        self._unparsed_bytes = 0
        self.cycle.transport = LingeringTransport(self)
        self._pending_cycles.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        """Pass on part of the body."""
        self._unparsed_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._part = None
        self._unparsed_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser rejects, or a callback refused."""
        status, sentence = self._refusal or (HTTPStatus.BAD_REQUEST, msg)
        self.reject(status, sentence)

    def reject(self, status: HTTPStatus, sentence: str) -> None:
        """Refuse the message that is being received, after the answers to those before it."""
        if self._takes_no_more():
            return
        if len(self._pending_cycles) <= (self._part is Stage.BODY):
            super().reject(status, sentence)
            return
        if self._part is Stage.BODY:  # it is the last in the queue
            self.pipeline.popleft()
            self._pending_cycles.pop()
        self._last_word = (status, sentence)
        self._part = None
        self.flow.pause_reading()
        self.update_stage()

    # --- what the server does ----------------------------------------------------------------

    def on_response_complete(self) -> None:
        """Release the body, and answer pipelined requests before reading more."""
        self._pending_cycles.popleft().body = bytearray()
        super().on_response_complete()
        if self._unparsed_data and len(self.pipeline) < MOST_PIPELINED:
            self._parse(b"")
        if self._last_word is not None and not self._pending_cycles:
            last_word = self._last_word
            self._last_word = None
            self.reject(*last_word)
        elif self.pipeline:
            self.flow.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the requests that are not answered that nobody waits for them."""
        for cycle in self._pending_cycles:
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)


class _LimitedConnection(h11.Connection):
    """h11's parser, which by itself limits only heads that have not ended."""

    def __init__(self, limits: ConnectionLimits) -> None:
        super().__init__(h11.SERVER, limits.line_bytes + limits.header_bytes)
        self._limits = limits
        self.refusal: str | None = None

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request):
            size = sum(len(name) + len(value) + _SEPARATORS for name, value in event.headers)
            if len(event.target) > self._limits.line_bytes:
                self.refusal = _too_long_url(self._limits)
            elif size > self._limits.header_bytes or len(event.headers) > self._limits.headers:
                self.refusal = _too_large_headers(self._limits)
            if self.refusal is not None:
                raise h11.RemoteProtocolError(self.refusal)
        return event


class _Http10Connection(WatchedConnection, H11Protocol):
    """A connection of HTTP/1.0."""

    def __init__(self, *, limits: ConnectionLimits, connections: Connections, **more: Any) -> None:
        super().__init__(limits=limits, connections=connections, **more)
        self.conn = _LimitedConnection(limits)

    def data_received(self, data: bytes) -> None:
        self.count(data)
        if self.is_over or self.transport.is_closing():
            return
        super().data_received(data)
        if self.cycle is not None:
            self.cycle.transport = LingeringTransport(self)
        self.update_stage()

    def find_stage(self) -> Stage:
        if self.flow.write_paused:
            return Stage.WRITING
        if self.conn.their_state is h11.SEND_BODY:
            return Stage.DRAINING if self.cycle.response_complete else Stage.BODY
        if self.cycle is None:
            return Stage.HEADERS
        return Stage.IDLE if self.cycle.response_complete else Stage.ANSWERING

    def send_400_response(self, msg: str) -> None:
        self.reject(HTTPStatus.BAD_REQUEST, self.conn.refusal or msg)
