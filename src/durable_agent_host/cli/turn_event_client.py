"""The events of a turn as they arrive, across lost connections and restarts of the host."""

import json
import math
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import quote, unquote
from uuid import uuid4

from durable_agent_host.cli.host_client import CommandError, HostRoutes, HostUnreachableError
from durable_agent_host.turn.turn_events import rule_of_stored

PATIENCE_SECONDS: Final = 300.0
"""How long a host may be unreachable before the command gives up; its turns continue without this command."""
_SILENCE_SECONDS: Final = 90.0
_FIRST_PAUSE_SECONDS: Final = 0.2
_MAX_PAUSE_SECONDS: Final = 2.0


@dataclass(frozen=True)
class Event:
    """One event.

    Attributes:
        id: its offset in the turn's log.
        name: such as ``message.delta``.
        data: see "Events" in ``docs/reference/http.md``.
    """

    id: int
    name: str
    data: dict[str, Any]

    @property
    def is_terminal(self) -> bool:
        """Whether it is the last one."""
        return rule_of_stored(self.name).is_terminal


class TurnEvents:
    """Follows one turn from its first event, or from where it stopped; each event comes once.

    Args:
        host: the running host.
        agent: the agent's name.
        on_remark: called with a sentence when the connection is lost, and when it is back.

    Attributes:
        session_id, turn_id: of the turn, empty until the host has sent them.
    """

    def __init__(
        self,
        host: HostRoutes,
        agent: str,
        *,
        session_id: str = "",
        turn_id: str = "",
        on_remark: Callable[[str], None],
    ) -> None:
        self._host = host
        self._agent = agent
        self.session_id = session_id
        self.turn_id = turn_id
        self._on_remark = on_remark
        self._last: int | None = None
        self._message: str | None = None
        self._key = ""

    @property
    def path(self) -> str:
        """The path of the turn's routes, after ``/api``."""
        return self._host.session_path(self._agent, self.session_id, f"turns/{quote(self.turn_id, safe='')}")

    def say(self, message: str) -> None:
        """Begin the turn with a message, once it is followed; resending it starts no second turn."""
        self._message = message
        self._key = uuid4().hex

    def __iter__(self) -> Iterator[Event]:
        """Yield the events not yet returned, until the turn's last.

        Raises:
            CommandError: the host refuses, or is unreachable for longer than `PATIENCE_SECONDS`.
        """
        lost_at: float | None = None
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                with self._open_stream() as answer:
                    if lost_at is not None:
                        self._on_remark("the host is back")
                    lost_at = None
                    pause = _FIRST_PAUSE_SECONDS
                    for event in _events(answer):
                        self._last = event.id
                        yield event
                        if event.is_terminal:
                            return
            except HostUnreachableError as error:
                if not (self.turn_id or self.session_id) or time.monotonic() - (lost_at or math.inf) > PATIENCE_SECONDS:
                    raise CommandError(str(error)) from None
            if lost_at is None:
                lost_at = time.monotonic()
                self._on_remark("the connection to the host is lost; waiting for it")
            time.sleep(pause)
            pause = min(pause * 1.5, _MAX_PAUSE_SECONDS)

    @contextmanager
    def _open_stream(self) -> Generator[Any]:
        last = {} if self._last is None else {"last-event-id": str(self._last)}
        if self.turn_id:
            with self._host.stream(f"{self.path}/events", headers=last, silence_seconds=_SILENCE_SECONDS) as answer:
                if answer.status == HTTPStatus.NO_CONTENT:
                    raise CommandError(
                        f"turn {self.turn_id!r} has ended, and the host no longer has its events after {self._last}: "
                        "see 'durable-agent-host turns show'"
                    )
                yield answer
            return
        body = {"message": self._message} | ({"session_id": self.session_id} if self.session_id else {})
        headers = {"accept": "text/event-stream", "idempotency-key": self._key}
        path = f"/agents/{quote(self._agent, safe='')}/run"
        with self._host.stream(path, body, method="POST", headers=headers, silence_seconds=_SILENCE_SECONDS) as answer:
            self.session_id = unquote(answer.headers["x-ms-session-id"])
            self.turn_id = unquote(answer.headers["x-ms-turn-id"])
            yield answer


def _events(answer: Any) -> Generator[Event]:
    """Read server-sent events; an event that was cut off is sent again."""
    fields: dict[str, str] = {}
    while True:
        try:
            line = answer.readline().decode().rstrip("\r\n")
            if not line and answer.isclosed():
                return
        except (HTTPException, OSError) as error:
            raise HostUnreachableError(f"the connection to the host is lost ({error})") from None
        if not line:
            if "data" in fields:
                yield Event(int(fields["id"]), fields.get("event", ""), json.loads(fields["data"]))
            fields.clear()
            continue
        name, _, value = line.partition(":")
        if name:
            fields[name] = value.removeprefix(" ")
