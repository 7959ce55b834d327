"""A client's connection: uvicorn's two HTTP/1 protocols, limited by `connection_limits`."""

import asyncio
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from functions_host.web.connection_limits import ConnectionLimits, Connections, Stage
from functions_host.web.watched_connection import LingeringTransport, WatchedConnection

_MOST_PIPELINED = 16


class _RefusedError(Exception):
    """Leaves a callback of the parser."""


class HttpConnection(WatchedConnection, HttpToolsProtocol):
    """A connection of any version of HTTP/1. Other arguments are those of uvicorn.

    HTTP/1.0 has no chunks: an answer of unknown length ends with its connection. uvicorn's httptools protocol sends
    chunks regardless, against RFC 9112 (section 6.1); its h11 protocol does not. So a connection whose first line says
    HTTP/1.0 is handed to h11.
    """

    def __init__(self, *, limits: ConnectionLimits, connections: Connections, **more: Any) -> None:
        super().__init__(limits=limits, connections=connections, **more)
        self._make_http10 = lambda: _Http10Connection(limits=limits, connections=connections, **more)
        self._begin: bytes | None = b""
        self._part: Stage | None = None  # of the message that is being read: headers, body, or none
        self._unparsed = 0  # bytes since something came of them
        self._header_bytes = self._header_count = 0
        self._refusal: tuple[HTTPStatus, str] | None = None

    def data_received(self, data: bytes) -> None:
        """Receive bytes; the first line is buffered until complete."""
        self.count(data)
        if self.is_over or self.transport.is_closing():
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

    def _parse(self, data: bytes) -> None:
        self._unparsed += len(data)
        super().data_received(data)
        if self._unparsed > self.limits.line_bytes + self.limits.header_bytes:
            self.refuse(*self._too_large_headers())
        self.look()

    def _hand_over(self, transport: asyncio.Transport, begin: bytes) -> None:
        self.connections.discard(self)
        self.end_watch()
        successor = self._make_http10()
        transport.set_protocol(successor)
        successor.connection_made(transport)
        successor.data_received(begin)

    def find_stage(self) -> Stage:
        """Return the current stage."""
        cycle = self.cycle
        is_answering = cycle is not None and (bool(self.pipeline) or not cycle.response_complete)
        if self.flow.write_paused:
            return Stage.WRITING
        if self._part is Stage.BODY:
            return Stage.BODY if is_answering else Stage.DRAINING
        if is_answering:
            return Stage.ANSWERING
        return Stage.HEADERS if cycle is None or self._part is Stage.HEADERS else Stage.IDLE

    def is_mid_answer(self) -> bool:
        """Return whether an answer has begun or is queued."""
        return bool(self.pipeline) or super().is_mid_answer()

    def has_begun(self) -> bool:
        """Return whether part of a request has been received."""
        return self._part is Stage.HEADERS or bool(self._begin)

    # --- what the parser finds ---------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._part, self._header_bytes, self._header_count = Stage.HEADERS, 0, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Receive part of the URL."""
        super().on_url(url)
        if len(self.url) > self.limits.line_bytes:
            self._refusal = HTTPStatus.REQUEST_URI_TOO_LONG, f"The URL is over {self.limits.line_bytes} bytes."
            raise _RefusedError

    def on_header(self, name: bytes, value: bytes) -> None:
        """Receive a header; trailers are counted and dropped."""
        self._header_bytes += len(name) + len(value) + 4
        self._header_count += 1
        if self._header_bytes > self.limits.header_bytes or self._header_count > self.limits.headers:
            self._refusal = self._too_large_headers()
            raise _RefusedError
        if self._part is Stage.HEADERS:
            super().on_header(name, value)

    def _too_large_headers(self) -> tuple[HTTPStatus, str]:
        most = f"{self.limits.header_bytes} bytes or {self.limits.headers} fields"
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"The headers are over {most}."

    def on_headers_complete(self) -> None:
        """Start the answer."""
        self._part, self._unparsed = Stage.BODY, 0
        super().on_headers_complete()
        self.cycle.transport = LingeringTransport(self)
        if len(self.pipeline) > _MOST_PIPELINED:
            self._refusal = HTTPStatus.TOO_MANY_REQUESTS, "Too many requests at once on one connection."
            raise _RefusedError

    def on_body(self, body: bytes) -> None:
        """Pass on part of the body."""
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._part, self._unparsed = None, 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser rejects, or a callback refused."""
        status, sentence = self._refusal or (HTTPStatus.BAD_REQUEST, msg)
        self.refuse(status, sentence)

    # --- what the server does ----------------------------------------------------------------

    def on_response_complete(self) -> None:
        """Release the body, and answer pipelined requests before reading more."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self.cycle.body = bytearray()
        if self.pipeline:
            self.flow.pause_reading()


class _Http10Connection(WatchedConnection, H11Protocol):
    """A connection of HTTP/1.0; uvicorn limits its headers (``h11_max_incomplete_event_size``)."""

    def data_received(self, data: bytes) -> None:
        self.count(data)
        if self.is_over or self.transport.is_closing():
            return
        super().data_received(data)
        if self.cycle is not None:
            self.cycle.transport = LingeringTransport(self)
        self.look()

    def find_stage(self) -> Stage:
        if self.flow.write_paused:
            return Stage.WRITING
        if self.conn.their_state is h11.SEND_BODY:
            return Stage.DRAINING if self.cycle.response_complete else Stage.BODY
        if self.cycle is None:
            return Stage.HEADERS
        return Stage.IDLE if self.cycle.response_complete else Stage.ANSWERING

    def send_400_response(self, msg: str) -> None:
        self.refuse(HTTPStatus.BAD_REQUEST, msg)
