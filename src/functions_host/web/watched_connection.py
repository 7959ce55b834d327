"""The lifecycle of a client connection: its stage, the deadline of each stage, and its end.

`connection` has what depends on the parser, `connection_limits` the limits.
"""

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from functions_host.web.connection_limits import ConnectionLimits, Connections, Stage
from functions_host.web.problems import problem_response

if TYPE_CHECKING:

    class _ServerProtocol(asyncio.Protocol):
        """The members that uvicorn's two HTTP/1 protocols share; `WatchedConnection` is mixed into each."""

        transport: Any
        flow: Any
        cycle: Any
        loop: asyncio.AbstractEventLoop

        def __init__(self, **more: Any) -> None: ...
        def on_response_complete(self) -> None: ...
        def _unset_keepalive_if_required(self) -> None: ...
else:
    _ServerProtocol = asyncio.Protocol


class WatchedConnection(_ServerProtocol):
    """A connection with stages, deadlines and refusals. Other arguments are those of uvicorn.

    Args:
        limits: for the client.
        connections: all open ones.
    """

    def __init__(self, *, limits: ConnectionLimits, connections: Connections, **more: Any) -> None:
        super().__init__(**more)
        self.limits = limits
        self.open_connections = connections
        self.is_over = False
        self._stage: Stage | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._window_bytes = 0

    # --- what happens to the connection ------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Accept the connection if there is room, else refuse it."""
        super().connection_made(transport)
        if self.open_connections.enter(self):
            self.update_stage()
        else:
            self.is_over = True
            transport.write(problem_response(HTTPStatus.SERVICE_UNAVAILABLE, "Too many connections: try again."))
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.end_watch()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self.update_stage()

    def pause_writing(self) -> None:
        """Start the time that the client has to read."""
        super().pause_writing()
        self.update_stage()

    def resume_writing(self) -> None:
        """End the time that the client has to read."""
        super().resume_writing()
        self.update_stage()

    # --- its stage ---------------------------------------------------------------------------

    def find_stage(self) -> Stage:
        """Return the current stage."""
        raise NotImplementedError

    def is_mid_answer(self) -> bool:
        """Return whether an answer has begun and not ended, so a refusal cannot be sent."""
        return self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete

    def has_started(self) -> bool:
        """Return whether part of a request has been received."""
        return bool(self._window_bytes)

    def count(self, data: bytes) -> None:
        """Count received bytes; aborts a connection that exceeds the limit of discarded bytes."""
        self._window_bytes += len(data)
        if self._stage is Stage.DRAINING and self._window_bytes > self.limits.drain_bytes:
            self.transport.abort()

    def update_stage(self) -> None:
        """Update the stage; a new stage starts its own deadline."""
        stage = Stage.DRAINING if self.is_over else self.find_stage()
        if self.transport is None or (self.transport.is_closing() and not self.is_over):
            self.end_watch()
        elif stage is not self._stage:
            self._stage = stage
            self.open_connections.set_stage(self, stage)
            self._set_deadline(stage)

    def end_watch(self) -> None:
        """Forget the connection."""
        self.open_connections.leave(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _set_deadline(self, stage: Stage) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        seconds = {
            Stage.HEADERS: self.limits.read_seconds,
            Stage.BODY: self.limits.read_seconds,
            Stage.WRITING: self.limits.write_seconds,
            Stage.DRAINING: self.limits.drain_seconds,
        }.get(stage)
        self._window_bytes = 0
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self._pass_deadline, stage)

    def _pass_deadline(self, stage: Stage) -> None:
        seconds = self.limits.read_seconds
        if stage is Stage.BODY:
            is_read = not self.flow.read_paused  # else it is the app that is slow
            if is_read and self._window_bytes < self.limits.body_bytes_per_second * seconds:
                self.reject(HTTPStatus.REQUEST_TIMEOUT, f"The body came too slowly: send it within {seconds:g} s.")
            else:
                self._set_deadline(stage)
        elif stage is Stage.HEADERS and self.has_started():
            self.reject(HTTPStatus.REQUEST_TIMEOUT, f"The headers were not whole after {seconds:g} s.")
        else:
            self.transport.abort()

    def close_for_new(self) -> None:
        """Abort the connection to make room for another."""
        self.transport.abort()

    def reject(self, status: HTTPStatus, sentence: str) -> None:
        """Send a problem if no answer has begun, and accept nothing more.

        The client may still be sending: closing the socket with unread bytes could discard the answer.
        """
        if self.is_over or self.transport.is_closing():
            return
        self.is_over = True
        if self.is_mid_answer():
            self.transport.abort()
            return
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(problem_response(status, sentence))
        self.linger()

    def linger(self) -> None:
        """Stop answering, and discard for a while what the client still sends."""
        self.is_over = True
        self.transport.write_eof()
        self.flow.resume_reading()
        self.update_stage()


class LingeringTransport:
    """A connection's transport for its answers: its ``close`` waits while the client sends a body.

    Closing a socket with unread bytes resets the connection, and the client may lose the answer.
    """

    def __init__(self, connection: WatchedConnection) -> None:
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
