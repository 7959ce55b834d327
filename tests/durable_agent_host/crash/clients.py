"""Clients of the host, as others write them: they retry with a key, look afterwards, or follow a stream."""

import itertools
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import requests

from tests.durable_agent_host.crash.site import LOST, PATIENCE_SECONDS, Site

ENDED = ("turn.completed", "turn.failed", "turn.cancelled")
UNDER_WAY = ("running", "waiting_for_approval")
_NUMBERS = itertools.count()


@dataclass
class Asked:
    """One request to run a turn, and what came of it.

    Attributes:
        body: what was sent.
        agent: to whom.
        key: of the request; None for a client that does not retry.
        status: of HTTP.
        answer: the JSON answer.
        turn_id: the turn's.
        streamed: the text that a streaming client put together, or None.
    """

    body: dict[str, Any]
    agent: str
    key: str | None = None
    status: int = 0
    answer: dict[str, Any] = field(default_factory=dict)
    turn_id: str = ""
    streamed: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the request."""
        return {"Idempotency-Key": self.key} if self.key else {}


def run_path(asked: Asked) -> str:
    """Give the path at which turns are run."""
    return f"/agents/{asked.agent}/run"


def turn_path(asked: Asked, rest: str = "") -> str:
    """Give the path of a turn."""
    return f"/agents/{asked.agent}/sessions/{asked.body['session_id']}/turns/{asked.turn_id}{rest}"


def new_asked(agent: str, session: str, message: str, **more: Any) -> Asked:
    """Make a request with a key of its own."""
    return Asked({"session_id": session, "message": message} | more, agent, f"key-{next(_NUMBERS)}-{session}")


def retry(site: Site, asked: Asked) -> Asked:
    """Send a request until its answer comes, always with the same key."""
    answer = site.ask("POST", run_path(asked), json=asked.body, headers=asked.headers)
    asked.status, asked.answer = answer.status_code, answer.json()
    asked.turn_id = answer.headers.get("x-ms-turn-id", "")
    return asked


def post(site: Site, asked: Asked) -> Asked:
    """Have a turn accepted, without waiting for its answer."""
    headers = asked.headers | {"x-ms-wait-for-response": "false"}
    answer = site.ask("POST", run_path(asked), json=asked.body, headers=headers)
    assert answer.status_code == 202, answer.text
    asked.turn_id = answer.headers["x-ms-turn-id"]
    return asked


def look_afterwards(site: Site, asked: Asked) -> Asked:
    """Send a request once; when the connection is lost, find the turn by its session and wait for its end.

    A request that never arrived has left nothing, and the user sends it once more.
    """
    asked.key = None
    while not asked.turn_id:
        try:
            answer = requests.post(
                site.api(run_path(asked)), json=asked.body, headers=site.headers, timeout=PATIENCE_SECONDS
            )
            asked.turn_id = answer.headers["x-ms-turn-id"]
        except LOST:
            asked.turn_id = _turn_of(site, asked.body)
    return await_end(site, asked)


def _turn_of(site: Site, body: dict[str, Any]) -> str:
    found = [
        one["instanceId"]
        for one in site.instances(showInput="true")
        if body["message"] in json.dumps(one.get("input"), ensure_ascii=False) and one["name"] == "agent_turn"
    ]
    assert len(found) <= 1, found
    return found[0] if found else ""


def await_end(site: Site, asked: Asked) -> Asked:
    """Look at a turn until it has ended; its view is the answer."""
    patience = site.patience(f"the end of turn {asked.turn_id}")
    while True:
        view = read_turn(site, asked)
        if view["status"] not in UNDER_WAY:
            asked.status, asked.answer = 200, view
            return asked
        patience.wait(seen=view)


def read_turn(site: Site, asked: Asked) -> dict[str, Any]:
    """Read a turn."""
    answer = site.ask("GET", turn_path(asked))
    assert answer.status_code == 200, answer.text
    return answer.json()


@dataclass
class Stream:
    """A client that follows a turn and resumes where it was cut off.

    Attributes:
        pieces: texts by offset.
        last_id: of the newest event.
        end: the terminal event.
        events: all events in order.
    """

    site: Site
    asked: Asked
    pieces: dict[int, str] = field(default_factory=dict)
    last_id: int = -1
    end: tuple[str, dict[str, Any]] | None = None
    events: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)

    def follow(self, *, posts: bool = True) -> Asked:
        """Follow until the terminal event."""
        patience = self.site.patience(f"the end of a stream of {self.asked.body['message']}")
        while self.end is None:
            with suppress(*LOST), self._open(posts=posts) as answer:
                assert answer.status_code == 200, answer.text
                self.asked.turn_id = answer.headers["x-ms-turn-id"]
                for event in parse_events(answer):
                    self.take(*event)
            if self.end is None:
                patience.wait(0.03, self.events[-3:])
        name, data = self.end
        if posts:
            self.asked.status, self.asked.answer = 200, data
            self.asked.streamed = self.text
            if name == "turn.failed":
                self.asked.status = data.get("status", 500)
        return self.asked

    def _open(self, *, posts: bool) -> requests.Response:
        headers = self.site.headers | {"Accept": "text/event-stream"}
        more: dict[str, Any] = {"stream": True, "timeout": PATIENCE_SECONDS}
        if self.last_id >= 0:
            headers["Last-Event-ID"] = str(self.last_id)
        if self.asked.turn_id or not posts:
            return requests.get(self.site.api(turn_path(self.asked, "/events")), headers=headers, **more)
        headers |= self.asked.headers
        return requests.post(self.site.api(run_path(self.asked)), json=self.asked.body, headers=headers, **more)

    def take(self, offset: int, name: str, data: dict[str, Any]) -> None:
        """Take an event; ids only grow, and text that is void is dropped."""
        assert offset > self.last_id, (offset, name, self.events[-3:])
        assert self.end is None, f"{name} after {self.end}"
        self.last_id = offset
        self.events.append((offset, name, data))
        if name == "message.delta":
            self.pieces[offset] = data["text"]
        elif name == "turn.restarted":
            self.pieces = {at: text for at, text in self.pieces.items() if at < data["discard_from"]}
        elif name in ENDED:
            self.end = (name, data)

    @property
    def text(self) -> str:
        """What has been told and is not void."""
        return "".join(text for _, text in sorted(self.pieces.items()))


def parse_events(answer: requests.Response) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Read whole events from a stream; what is cut off is left out."""
    rest = b""
    for chunk in answer.iter_content(None):
        *blocks, rest = (rest + chunk).split(b"\n\n")
        for block in blocks:
            fields = dict(line.split(": ", 1) for line in block.decode().splitlines() if not line.startswith(":"))
            if "data" in fields:
                yield int(fields["id"]), fields["event"], json.loads(fields["data"])
