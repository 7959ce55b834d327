"""Limits on bytes, time and connections of clients, before an app sees a request.

Theory of operation: a connection is in one stage at a time (`Stage`), updated after each of its events. Stages that
wait for the client have a deadline. When there are too many connections, the longest-waiting ones are closed; those
with a request in progress stay. Limits are those of Kestrel, the server of the real host, where it has them.

Bodies are streamed through; `body_limit` limits their size.
"""

import resource
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

MOST_CONNECTIONS = 2000
_OWN_FILES = 384


class Stage(Enum):
    """What a connection waits for."""

    HEADERS = auto()
    """The first request, or the rest of its headers."""
    BODY = auto()
    """The rest of a body."""
    ANSWERING = auto()
    """The app's answer."""
    WRITING = auto()
    """The client, to read its answer."""
    DRAINING = auto()
    """The client, to stop sending: the answer is complete, and further bytes are discarded."""
    IDLE = auto()
    """Another request, within the server's keep-alive timeout."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Maximum sizes and times of what a client sends and reads.

    ``read_seconds`` is the timeout of the headers, and the length of the windows in which the average rate of a body
    must be at least ``body_bytes_per_second``. Source: Kestrel's limits; its timeout of headers is 30 s.
    """

    line_bytes: int = 16 * 1024
    header_bytes: int = 32 * 1024
    headers: int = 100
    read_seconds: float = 30.0
    body_bytes_per_second: int = 240
    write_seconds: float = 240.0
    drain_seconds: float = 5.0
    drain_bytes: int = 64 * 1024 * 1024


def read_connection_limits(environment: Mapping[str, str]) -> ConnectionLimits:
    """Read the limits; ``FUNCTIONS_HOST_READ_SECONDS`` overrides the read timeout."""
    text = environment.get("FUNCTIONS_HOST_READ_SECONDS", "")
    return ConnectionLimits(read_seconds=float(text)) if text.isascii() and text.isdecimal() else ConnectionLimits()


class _Closable(Protocol):
    def close_for_new(self) -> None: ...


class Connections:
    """The open connections of a server; closes waiting ones when there are too many.

    Args:
        max_connections: maximum number; by default the limit of open files less those that the process needs.
    """

    def __init__(self, max_connections: int | None = None) -> None:
        self._max_connections = max_connections or _affordable_connections()
        self._open: set[_Closable] = set()
        self._idle: dict[_Closable, None] = {}
        self._sending: dict[_Closable, None] = {}

    def enter(self, connection: _Closable) -> bool:
        """Add a connection; returns False when there is no room and none waits for its client."""
        if len(self._open) >= self._max_connections:
            oldest = next(iter(self._idle), None) or next(iter(self._sending), None)
            if oldest is None:
                return False
            self.leave(oldest)
            oldest.close_for_new()
        self._open.add(connection)
        return True

    def set_stage(self, connection: _Closable, stage: Stage) -> None:
        """Record the stage of a connection."""
        self._idle.pop(connection, None)
        self._sending.pop(connection, None)
        if connection in self._open and stage in {Stage.HEADERS, Stage.IDLE, Stage.DRAINING}:
            self._idle[connection] = None
        elif connection in self._open and stage is Stage.BODY:
            self._sending[connection] = None

    def leave(self, connection: _Closable) -> None:
        """Remove a connection."""
        self._open.discard(connection)
        self._idle.pop(connection, None)
        self._sending.pop(connection, None)


def _affordable_connections() -> int:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(16, min(MOST_CONNECTIONS, files - max(_OWN_FILES, files // 4)))
