"""A client of server-sent events that follows the HTML standard, and one that comes back where it was cut off."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import requests

from tests.api_checks import check_event

TERMINAL = {"turn.completed", "turn.failed", "turn.cancelled"}


@dataclass(frozen=True)
class Event:
    """One event as it came."""

    id: int
    name: str
    data: dict[str, Any]


def read_events(response: requests.Response) -> Iterator[Event]:
    """Read the events of a stream as they come; comments and fields without an event are passed over."""
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    name, data, last_id = "", [], ""
    for line in lines_of(response):
        field_name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                event = Event(int(last_id), name or "message", json.loads("\n".join(data)))
                check_event(event.name, event.data)
                yield event
            name, data = "", []
        elif field_name == "id":
            last_id = value
        elif field_name == "event":
            name = value
        elif field_name == "data":
            data.append(value)


def lines_of(response: requests.Response) -> Iterator[str]:
    """Cut the bytes into lines as they arrive, whole characters only."""
    remainder = b""
    for chunk in response.iter_content(chunk_size=None):
        *lines, remainder = (remainder + chunk).split(b"\n")
        yield from (line.decode() for line in lines)


@dataclass
class Reader:
    """What a client has put together: text by the offset of the event that brought it."""

    events: list[Event] = field(default_factory=list)
    deltas: list[Event] = field(default_factory=list)

    def add(self, event: Event) -> None:
        """Add one event, as the contract says."""
        assert not self.events or event.id > self.events[-1].id, "offsets only grow"
        self.events.append(event)
        if event.name == "turn.restarted":
            self.deltas = [delta for delta in self.deltas if delta.id < event.data["discard_from"]]
        elif event.name == "message.delta":
            self.deltas.append(event)

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(delta.data["text"] for delta in self.deltas)

    @property
    def last(self) -> Event | None:
        """The last event, or None."""
        return self.events[-1] if self.events else None

    @property
    def has_ended(self) -> bool:
        """Whether the terminal event has come."""
        return self.last is not None and self.last.name in TERMINAL

    def names(self) -> list[str]:
        """The events' names in order."""
        return [event.name for event in self.events]
