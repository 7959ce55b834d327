"""Clients of the host, as others write them: they retry with a key, look afterwards, or follow a stream."""

import itertools
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import requests

from durable_agent_host.turn.turn_events import EVENTS
from tests.durable_agent_host.crash.site import LOST, PATIENCE_SECONDS, Site

TERMINAL_EVENTS = ("turn.completed", "turn.failed", "turn.cancelled")
UNDER_WAY = ("running", "waiting")
Event = tuple[int, str, dict[str, Any]]
"""Its id, its name and its data."""
_NUMBERS = itertools.count()


@dataclass
class TurnRequest:
    """One request to run a turn, and what came of it.

    Attributes:
        body: what was sent.
        agent: to whom.
        key: of the request; None for a client that does not retry.
        status: of HTTP.
        answer: the JSON answer.
        turn_id: the turn's.
        streamed_text: the text that a streaming client put together, or None.
    """

    body: dict[str, Any]
    agent: str
    key: str | None = None
    status: int = 0
    answer: dict[str, Any] = field(default_factory=dict)
    turn_id: str = ""
    streamed_text: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the request."""
        return {"Idempotency-Key": self.key} if self.key else {}


def run_path(request: TurnRequest) -> str:
    """Give the path at which turns are run."""
    return f"/agents/{request.agent}/run"


def turn_path(request: TurnRequest, suffix: str = "") -> str:
    """Give the path of a turn."""
    return f"/agents/{request.agent}/sessions/{request.body['session_id']}/turns/{request.turn_id}{suffix}"


def new_request(agent: str, session: str, message: str, **more: Any) -> TurnRequest:
    """Make a request with a key of its own."""
    return TurnRequest({"session_id": session, "message": message} | more, agent, f"key-{next(_NUMBERS)}-{session}")


def retry(site: Site, request: TurnRequest) -> TurnRequest:
    """Send a request until its answer comes, always with the same key."""
    answer = site.ask("POST", run_path(request), json=request.body, headers=request.headers)
    request.status, request.answer = answer.status_code, answer.json()
    request.turn_id = answer.headers.get("x-ms-turn-id", "")
    return request


def post(site: Site, request: TurnRequest) -> TurnRequest:
    """Have a turn accepted, without waiting for its answer."""
    headers = request.headers | {"x-ms-wait-for-response": "false"}
    answer = site.ask("POST", run_path(request), json=request.body, headers=headers)
    assert answer.status_code == 202, answer.text
    request.turn_id = answer.headers["x-ms-turn-id"]
    return request


def post_once(site: Site, request: TurnRequest) -> TurnRequest:
    """Send a request once; when the connection is lost, find the turn by its session and wait for its end.

    A request that never arrived has left nothing, and the user sends it once more.
    """
    request.key = None
    while not request.turn_id:
        try:
            answer = requests.post(
                site.api(run_path(request)), json=request.body, headers=site.headers, timeout=PATIENCE_SECONDS
            )
            request.turn_id = answer.headers["x-ms-turn-id"]
        except LOST:
            request.turn_id = _turn_of(site, request.body)
    return await_end(site, request)


def _turn_of(site: Site, body: dict[str, Any]) -> str:
    found = [
        instance["instanceId"]
        for instance in site.instances(showInput="true")
        if body["message"] in json.dumps(instance.get("input"), ensure_ascii=False) and instance["name"] == "agent_turn"
    ]
    assert len(found) <= 1, found
    return found[0] if found else ""


def await_end(site: Site, request: TurnRequest) -> TurnRequest:
    """Look at a turn until it has ended; its view is the answer."""
    patience = site.patience(f"the end of turn {request.turn_id}")
    while True:
        view = read_turn(site, request)
        if view["status"] not in UNDER_WAY:
            request.status, request.answer = 200, view
            return request
        patience.wait(seen=view)


def read_turn(site: Site, request: TurnRequest) -> dict[str, Any]:
    """Read a turn."""
    answer = site.ask("GET", turn_path(request))
    assert answer.status_code == 200, answer.text
    return answer.json()


@dataclass
class Stream:
    """A client that follows a turn and resumes where it was cut off.

    Attributes:
        blobs: texts by offset.
        last_id: of the newest event.
        end: the terminal event.
        events: all events in order.
    """

    site: Site
    request: TurnRequest
    blobs: dict[int, str] = field(default_factory=dict)
    last_id: int = -1
    end: tuple[str, dict[str, Any]] | None = None
    events: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)

    def follow(self, *, posts: bool = True) -> TurnRequest:
        """Follow until the terminal event."""
        patience = self.site.patience(f"the end of a stream of {self.request.body['message']}")
        while self.end is None:
            with suppress(*LOST), self._open(posts=posts) as answer:
                assert answer.status_code == 200, answer.text
                self.request.turn_id = answer.headers["x-ms-turn-id"]
                for event in parse_events(answer):
                    self.add_event(*event)
            if self.end is None:
                patience.wait(0.03, self.events[-3:])
        name, data = self.end
        if posts:
            self.request.status, self.request.answer = 200, data
            self.request.streamed_text = self.text
            if name == "turn.failed":
                self.request.status = data.get("status", 500)
        return self.request

    def _open(self, *, posts: bool) -> requests.Response:
        headers = self.site.headers | {"Accept": "text/event-stream"}
        more: dict[str, Any] = {"stream": True, "timeout": PATIENCE_SECONDS}
        if self.last_id >= 0:
            headers["Last-Event-ID"] = str(self.last_id)
        if self.request.turn_id or not posts:
            return requests.get(self.site.api(turn_path(self.request, "/events")), headers=headers, **more)
        headers |= self.request.headers
        return requests.post(self.site.api(run_path(self.request)), json=self.request.body, headers=headers, **more)

    def add_event(self, offset: int, name: str, data: dict[str, Any]) -> None:
        """Take an event; ids only grow, and text that is void is dropped."""
        assert offset > self.last_id, (offset, name, self.events[-3:])
        assert self.end is None, f"{name} after {self.end}"
        self.last_id = offset
        self.events.append((offset, name, data))
        if name == "message.delta":
            self.blobs[offset] = data["text"]
        elif name == "turn.restarted":
            self.blobs = {at: text for at, text in self.blobs.items() if at < data["discard_from"]}
        elif name in TERMINAL_EVENTS:
            self.end = (name, data)

    @property
    def valid_events(self) -> list[Event]:
        """The events that are not void, without texts and the last one."""
        void_offsets: set[int] = set()
        for restarted_at, _, data in (event for event in self.events if event[1] == "turn.restarted"):
            void_offsets |= set(range(data["discard_from"], restarted_at))
        return [
            event
            for event in self.events
            if event[1] not in {*TERMINAL_EVENTS, "message.delta", "turn.restarted"}
            and not (event[0] in void_offsets and EVENTS[event[1]].is_discardable)
        ]

    @property
    def text(self) -> str:
        """What has been told and is not void."""
        return "".join(text for _, text in sorted(self.blobs.items()))


def parse_events(answer: requests.Response) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Read whole events from a stream; what is cut off is left out."""
    tail = b""
    for chunk in answer.iter_content(None):
        *blocks, tail = (tail + chunk).split(b"\n\n")
        for block in blocks:
            fields = dict(line.split(": ", 1) for line in block.decode().splitlines() if not line.startswith(":"))
            if "data" in fields:
                yield int(fields["id"]), fields["event"], json.loads(fields["data"])
