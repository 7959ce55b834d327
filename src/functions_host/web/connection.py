"""A client's connection: uvicorn's h11 protocol with limits, and a deadline for each stage.

Theory of operation. h11 parses one request at a time: what a client sends ahead of an answer waits, unread, until that
answer is complete. So the state of h11 and of uvicorn's current cycle says in which `Stage` the connection is. The
stage is updated after every event, and a new stage starts its own deadline. A refused request ends its connection;
`connection_limits` has the limits.
"""

import asyncio
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from functions_host.web.connection_limits import ConnectionLimits, Connections, Stage
from functions_host.web.problems import problem_response

_SEPARATORS = 4  # bytes of a header besides its name and value: colon, space, end of line


class _RequestParser(h11.Connection):
    """h11's parser, which by itself limits only heads that have not ended; ``refusal`` is set when it raises."""

    def __init__(self, limits: ConnectionLimits) -> None:
        super().__init__(h11.SERVER, limits.line_bytes + limits.header_bytes)
        self._limits = limits
        self.refusal: tuple[HTTPStatus, str] | None = None

    @property
    def has_unparsed_data(self) -> bool:
        """Return whether part of a request has been received."""
        return bool(self.trailing_data[0])

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            self.refusal = self._explain(error)
            raise
        if isinstance(event, h11.Request):
            self.refusal = self._find_violation(event)
            if self.refusal is not None:
                raise h11.RemoteProtocolError(self.refusal[1])
        return event

    def _find_violation(self, request: h11.Request) -> tuple[HTTPStatus, str] | None:
        size = sum(len(name) + len(value) + _SEPARATORS for name, value in request.headers)
        if len(request.target) > self._limits.line_bytes:
            return self._too_long_url()
        if size > self._limits.header_bytes or len(request.headers) > self._limits.headers:
            return self._too_large_headers()
        if not request.target.startswith(b"/"):
            return HTTPStatus.BAD_REQUEST, "The request's target has to be a path that starts with a slash."
        return None

    def _explain(self, error: h11.RemoteProtocolError) -> tuple[HTTPStatus, str]:
        if error.error_status_hint != HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            return HTTPStatus.BAD_REQUEST, f"The request is not valid HTTP: {error}."
        return self._too_large_headers() if b"\n" in self.trailing_data[0] else self._too_long_url()

    def _too_long_url(self) -> tuple[HTTPStatus, str]:
        return HTTPStatus.REQUEST_URI_TOO_LONG, f"The URL is over {self._limits.line_bytes} bytes."

    def _too_large_headers(self) -> tuple[HTTPStatus, str]:
        sentence = f"The headers are over {self._limits.header_bytes} bytes or {self._limits.headers} fields."
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, sentence


class HttpConnection(H11Protocol):
    """A connection with stages, deadlines and refusals. Other arguments are those of uvicorn.

    Args:
        limits: for the client.
        connections: all open ones.
    """

    cycle: Any  # None before the first request
    conn: _RequestParser

    def __init__(self, *, limits: ConnectionLimits, connections: Connections, **more: Any) -> None:
        super().__init__(**more)
        self.conn = _RequestParser(limits)
        self._limits = limits
        self._open_connections = connections
        self._is_over = False
        self._stage: Stage | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._window_bytes = 0

    # --- what happens to the connection ------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Accept the connection if there is room, else refuse it."""
        super().connection_made(transport)
        if self._open_connections.enter(self):
            self._update_stage()
        else:
            self._is_over = True
            transport.write(problem_response(HTTPStatus.SERVICE_UNAVAILABLE, "Too many connections: try again."))
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._end_watch()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive bytes; aborts a connection that exceeds the limit of discarded bytes."""
        self._window_bytes += len(data)
        if self._stage is Stage.DRAINING and self._window_bytes > self._limits.drain_bytes:
            self.transport.abort()
        if self._is_over or self.transport.is_closing():
            return
        super().data_received(data)
        self._update_stage()

    def handle_events(self) -> None:
        """Start the answer to a request that is complete enough."""
        super().handle_events()
        if self.cycle is not None:
            self.cycle.transport = _LingeringTransport(self)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._update_stage()

    def pause_writing(self) -> None:
        """Start the time that the client has to read."""
        super().pause_writing()
        self._update_stage()

    def resume_writing(self) -> None:
        """End the time that the client has to read."""
        super().resume_writing()
        self._update_stage()

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser rejects."""
        self._reject(*(self.conn.refusal or (HTTPStatus.BAD_REQUEST, msg)))

    # --- its stage ---------------------------------------------------------------------------

    def find_stage(self) -> Stage:
        """Return the current stage."""
        if self.flow.write_paused:
            return Stage.WRITING
        if self.conn.their_state is h11.SEND_BODY:
            return Stage.DRAINING if self.cycle.response_complete else Stage.BODY
        if self.cycle is None:
            return Stage.HEADERS
        if not self.cycle.response_complete:
            return Stage.ANSWERING
        return Stage.HEADERS if self.conn.has_unparsed_data else Stage.IDLE

    def is_mid_answer(self) -> bool:
        """Return whether an answer has begun and not ended, so a refusal cannot be sent."""
        return self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete

    def _update_stage(self) -> None:
        stage = Stage.DRAINING if self._is_over else self.find_stage()
        if self.transport.is_closing() and not self._is_over:
            self._end_watch()
        elif stage is not self._stage:
            self._stage = stage
            self._open_connections.set_stage(self, stage)
            self._set_deadline(stage)

    def _end_watch(self) -> None:
        self._open_connections.leave(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _set_deadline(self, stage: Stage) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        seconds = {
            Stage.HEADERS: self._limits.read_seconds,
            Stage.BODY: self._limits.read_seconds,
            Stage.WRITING: self._limits.write_seconds,
            Stage.DRAINING: self._limits.drain_seconds,
        }.get(stage)
        self._window_bytes = 0
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self._pass_deadline, stage)

    def _pass_deadline(self, stage: Stage) -> None:
        seconds = self._limits.read_seconds
        if stage is Stage.BODY:
            is_read = not self.flow.read_paused  # else it is the app that is slow
            if is_read and self._window_bytes < self._limits.body_bytes_per_second * seconds:
                self._reject(HTTPStatus.REQUEST_TIMEOUT, f"The body came too slowly: send it within {seconds:g} s.")
            else:
                self._set_deadline(stage)
        elif stage is Stage.HEADERS and self.conn.has_unparsed_data:
            self._reject(HTTPStatus.REQUEST_TIMEOUT, f"The headers were not whole after {seconds:g} s.")
        else:
            self.transport.abort()

    # --- its end -----------------------------------------------------------------------------

    def close_for_new(self) -> None:
        """Abort the connection to make room for another."""
        self.transport.abort()

    def _reject(self, status: HTTPStatus, sentence: str) -> None:
        """Send a problem if no answer has begun, and accept nothing more."""
        if self._is_over or self.transport.is_closing():
            return
        self._is_over = True
        if self.is_mid_answer():
            self.transport.abort()
            return
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(problem_response(status, sentence))
        self.linger()

    def linger(self) -> None:
        """Stop answering, and discard for a while what the client still sends.

        Closing a socket with unread bytes resets the connection, and the client may lose the answer.
        """
        self._is_over = True
        self.transport.write_eof()
        self.flow.resume_reading()
        self._update_stage()


class _LingeringTransport:
    """A connection's transport for its answers: its ``close`` waits while the client sends a body."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection.transport, name)

    def close(self) -> None:
        """Close it, at once or after the client has sent its body."""
        connection = self._connection
        is_sending = connection.find_stage() in {Stage.BODY, Stage.DRAINING}
        if is_sending and not connection.is_mid_answer() and not connection.transport.is_closing():
            connection.linger()
        else:
            connection.transport.close()
