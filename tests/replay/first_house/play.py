"""What was done with the sessions of the first house, and what is done with them again.

`make.py` plays the first part, is killed, and plays the second part once to record what the old code does; the tests
play the second part on a copy and compare. Both talk HTTP alone.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

Json = dict[str, Any]
Steps = tuple[Json, ...]
Named = tuple[str, str]
"""An agent, and a session of it."""

SETTINGS = {
    "DURABLE_AGENT_HOST_TURN_LOG_RETENTION_HOURS": "1000000",
    "DURABLE_AGENT_HOST_APPROVAL_TIMEOUT_SECONDS": "3000000000",
    "DURABLE_AGENT_HOST_RECEIPT_SECONDS": "3000000000",
}
"""The fixture only grows older: logs, receipts and the wait for a person last a hundred years."""

SLOW = {"text": "This answer is cut off. " * 100, "chunk_characters": 4, "delay_milliseconds": 100}
FILES = "sessions"
"""Folder of the app's own files, beside the host's data."""
ENDED = {"completed", "failed", "cancelled"}
_MARK = re.compile(r"\[([a-z-]+)/(\d+)\]")
_ID = re.compile(r"(?:resp|msg|rs|fc|ci|cntr|cfile|call)_[0-9a-f]{20,}|gAAA[\w=-]{20,}|af-call-[0-9a-f-]{20,}")


def call(name: str, text: str) -> Json:
    """One call of a tool."""
    return {"name": name, "arguments": {"text": text}}


def one_after_the_other(name: str) -> Steps:
    """A call, two parallel calls, and words between them."""
    return (
        {"text": "First. ", "calls": [call("note", f"{name} a")]},
        {"calls": [call("note", f"{name} b"), call("note", f"{name} größer 😀")]},
        {"text": "All of it is noted."},
    )


CODE = {"code": "print(6 * 7)\nprint('größer')", "logs": "42\ngrößer\n", "image": True}
TABLE = {"text": "Here is the table, and größer 😀", "files": ["table.csv"]}
THOUGHT = {"reasoning": "I have to note two things. Then I answer."}


@dataclass(frozen=True)
class Play:
    """Sessions, each by its agent and its id.

    Attributes:
        settled: turns that end; their steps, one tuple for each turn.
        cut: the steps of the turn in which the host is killed: in its last model call, or in tools that wait.
        with_a_person: the steps of a turn that waits for a person when the host is killed.
        queued: how many turns wait behind the one that is under way.
        forks: of which session, and at the end of which of its turns, counted from 1.
        others: sessions that something else stored.
    """

    settled: dict[Named, tuple[Steps, ...]]
    cut: dict[Named, Steps]
    with_a_person: dict[Named, Steps] = field(default_factory=dict[Named, Steps])
    queued: dict[Named, int] = field(default_factory=dict[Named, int])
    forks: dict[Named, tuple[str, int | None]] = field(default_factory=dict[Named, tuple[str, int | None]])
    others: tuple[Named, ...] = ()

    @property
    def under_way(self) -> dict[Named, Steps]:
        """The turns that have not ended when the host is killed."""
        return self.cut | self.with_a_person

    @property
    def all(self) -> list[Named]:
        """All sessions."""
        return [*self.settled, *self.cut, *self.with_a_person, *self.forks, *self.others]


UPSTREAM: Named = ("Worker", "upstream")
"""A session that upstream's own host class stored."""

EMBEDDED = Play(
    settled={
        ("Worker", "talk"): (
            ({"text": "Hello."},),
            one_after_the_other("talk"),
            ({"items": [CODE, TABLE]},),
            ({"calls": [{"name": "note", "arguments": '{"text": 7, "text": "talk twice" }'}]}, {"text": "Noted."}),
        ),
        ("Thinker", "thought"): (
            (
                THOUGHT | {"calls": [call("note", "thought a"), call("note", "thought b")]},
                {"items": [THOUGHT, CODE, THOUGHT, TABLE]},
            ),
            (THOUGHT | {"text": "I thought again."},),
        ),
        ("Kept", "kept"): (one_after_the_other("kept"), ({"items": [CODE, TABLE]},)),
        ("Noted", "noted"): (one_after_the_other("noted"), ({"text": "Still here."},)),
        ("Folded", "folded"): (one_after_the_other("folded"), ({"text": "Still here."},)),
        ("Team", "team"): (({"text": "A draft."}, {"text": "A review."}),) * 2,
        ("Worker", "fails"): (({"text": "Fine."},), ({"error": {"status": 400, "message": "no such thing"}},)),
    },
    cut={
        ("Worker", "cut"): one_after_the_other("cut"),
        ("Kept", "cut-kept"): one_after_the_other("cut-kept"),
        ("Thinker", "cut-thought"): (
            THOUGHT | {"calls": [call("note", "cut-thought a")]},
            THOUGHT | {"calls": [call("note", "cut-thought b")], "text": "On. "},
            THOUGHT | {"text": "I have thought it over."},
        ),
        ("Noted", "cut-noted"): one_after_the_other("cut-noted"),
        ("Team", "cut-team"): ({"text": "A draft."}, {"text": "A review that takes its time."}),
        ("Thinker", "cut-tool"): (
            THOUGHT
            | {
                "calls": [
                    call("note", "cut-tool beside"),
                    call("linger", "cut-tool in doubt"),
                    call("linger_again", "cut-tool again"),
                ]
            },
            {"text": "One of them is in doubt."},
        ),
        ("Worker", "cut-asked"): (
            {"calls": [call("note", "cut-asked beside"), call("linger_asked", "cut-asked")]},
            {"text": "You decided."},
        ),
    },
    with_a_person={
        ("Worker", "pay"): ({"calls": [call("note", "pay beside"), call("pay", "pay")]}, {"text": "It is paid."}),
        ("Kept", "pay-kept"): ({"calls": [call("pay", "pay-kept")]}, {"text": "It is paid."}),
    },
    queued={("Worker", "cut"): 2, ("Worker", "pay"): 1},
    forks={("Worker", "talk-fork"): ("talk", 2), ("Worker", "talk-whole"): ("talk", None)},
    others=(UPSTREAM,),
)
"""With all stores in files beside the embedded host."""

ELSEWHERE = Play(
    settled={("Worker", "talk"): (one_after_the_other("talk"), ({"items": [CODE, TABLE]},))},
    cut={("Worker", "cut"): one_after_the_other("cut")},
    with_a_person={("Worker", "pay"): ({"calls": [call("pay", "pay")]}, {"text": "It is paid."})},
    queued={("Worker", "cut"): 1},
)
"""With the turn log in a server."""

QUEUED_STEPS: Steps = ({"text": "It was my turn."},)
NEXT: Steps = ({"calls": [call("note", "next")]}, {"text": "And on it goes."})
"""What every session is asked next; a team has no tools, and gets the text alone."""


@dataclass
class Site:
    """A host and its practice model.

    Args:
        url: of the host.
        model: of the practice model, as an app's setting has it.
    """

    url: str
    model: str

    @property
    def control(self) -> str:
        """Where the practice model is scripted."""
        return self.model.removesuffix("/v1") + "/practice"

    def path(self, agent: str, session: str, rest: str = "") -> str:
        """Give the URL of a session."""
        return f"{self.url}/api/agents/{agent}/sessions/{session}{rest}"

    def get(self, url: str) -> Any:
        """Read JSON, without the port."""
        answer = requests.get(url, timeout=60)
        assert answer.ok, answer.text
        return self.bare(answer.json())

    def bare(self, value: Any) -> Any:
        """Take the host's address out of an answer."""
        return json.loads(json.dumps(value).replace(self.url, "http://host"))

    def plan(self, mark: str, steps: Steps) -> None:
        """Script the turn whose message has this mark."""
        plan = {"when": {"user_text": mark}, "by_round": True, "steps": list(steps)}
        answer = requests.post(f"{self.control}/plans", json=plan, timeout=60)
        assert answer.ok, answer.text

    def plan_team(self, mark: str, steps: Steps) -> None:
        """Script the members of a team, who answer one after the other without tools."""
        for member, step in zip(("writer", "reviewer"), steps, strict=True):
            plan = {"when": {"user_text": mark, "agent": f"You are {member}."}, "times": None, "steps": [step]}
            assert requests.post(f"{self.control}/plans", json=plan, timeout=60).ok

    def run(self, agent: str, session: str, message: str, *, waits: bool = True) -> requests.Response:
        """Run a turn under a key that names it."""
        headers = {"Idempotency-Key": message} | ({} if waits else {"x-ms-wait-for-response": "false"})
        body = {"message": message, "session_id": session}
        return requests.post(f"{self.url}/api/agents/{agent}/run", json=body, headers=headers, timeout=120)

    def turn(self, agent: str, session: str, turn_id: str) -> Json:
        """Read a turn."""
        return self.get(self.path(agent, session, f"/turns/{turn_id}"))

    def events(self, agent: str, session: str, turn_id: str, after: int | None = None) -> list[list[Any]]:
        """Read the events of a turn that has ended, after an offset."""
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        url = self.path(agent, session, f"/turns/{turn_id}/events")
        text = requests.get(url, headers=headers, timeout=60).content.decode()
        blocks = [dict(re.findall(r"^(\w+): (.*)$", block, re.MULTILINE)) for block in text.split("\n\n")]
        return [[int(one["id"]), one["event"], self.bare(json.loads(one["data"]))] for one in blocks if one.get("data")]

    def received(self) -> list[Json]:
        """Give the requests that the practice model received, oldest first."""
        found = requests.get(f"{self.control}/requests", timeout=60).json()
        return found["requests"] if isinstance(found, dict) else found


def wait_until[T](look: Callable[[], T], seconds: float = 90) -> T:
    """Look until something true is seen."""
    deadline = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain; last seen: {seen!r}"
        time.sleep(0.05)
    return seen


def script(site: Site, agent: str, mark: str, steps: Steps) -> None:
    """Script a turn, of a team or of one agent."""
    (site.plan_team if agent == "Team" else site.plan)(mark, steps)


def mark(session: str, turn: int) -> str:
    """Give the message of a turn: its session and its number."""
    return f"[{session}/{turn}] Go on."


def settle(site: Site, play: Play) -> Iterator[tuple[Named, str]]:
    """Run all turns that end; gives each turn's session and id."""
    for (agent, session), turns in play.settled.items():
        for number, steps in enumerate(turns):
            script(site, agent, mark(session, number), steps)
            answer = site.run(agent, session, mark(session, number))
            assert answer.status_code == (502 if "error" in steps[0] else 200), answer.text
            yield (agent, session), answer.headers["x-ms-turn-id"]


def break_off(site: Site, play: Play) -> dict[str, str]:
    """Begin what is under way when the host is killed; gives the turns' ids by their messages."""
    ids: dict[str, str] = {}
    for (agent, session), steps in play.under_way.items():
        slow = steps if (agent, session) in play.with_a_person else (*steps[:-1], steps[-1] | SLOW)
        for number in range(play.queued.get((agent, session), 0) + 1):
            message = mark(session, number)
            script(site, agent, message, QUEUED_STEPS if number else slow)
            ids[message] = site.run(agent, session, message, waits=False).headers["x-ms-turn-id"]
            await_admission(site, agent, session, ids[message])
    return ids


def await_admission(site: Site, agent: str, session: str, turn_id: str) -> None:
    """Wait until a session knows a turn, which settles the order of turns."""
    wait_until(lambda: turn_id in json.dumps(site.get(site.path(agent, session))))


def prepare(site: Site, play: Play) -> None:
    """Script what the model says from now on; before the host starts, as it carries on at once."""
    for (agent, session), steps in play.under_way.items():
        script(site, agent, mark(session, 0), steps)
        for number in range(1, play.queued.get((agent, session), 0) + 1):
            script(site, agent, mark(session, number), QUEUED_STEPS)
    for agent, session in play.all:
        script(site, agent, mark(session, 9), ({"text": "A draft."}, NEXT[1]) if agent == "Team" else NEXT)


def carry_on(site: Site, play: Play, ids: dict[str, str]) -> Json:
    """Answer who waits, let everything end, and go on with every session; gives what came of it.

    Args:
        site: the model has received nothing but from this host, which may be at work already.
        play: what was played.
        ids: of `break_off`.
    """
    agents = {session: agent for agent, session in play.under_way}
    for message, turn_id in ids.items():
        _, session, number = _read_mark(message)
        if number == 0 and ((agents[session], session) in play.with_a_person or session == "cut-asked"):
            answer(site, agents[session], session, turn_id)
    turns: Json = {}
    for message, turn_id in ids.items():
        tag, session, _ = _read_mark(message)
        turns[tag] = end_of(site, agents[session], session, turn_id)
    for agent, session in play.all:
        run = site.run(agent, session, mark(session, 9))
        turns[f"[{session}/9]"] = site.bare(run.json()) | {"http": run.status_code}
    received = site.received()
    minted = set(_ID.findall(json.dumps([[one["response_id"], one["output"]] for one in received])))
    said = {f"{agent}/{session}": site.get(site.path(agent, session))["messages"] for agent, session in play.all}
    return {
        "requests": {name: _masked(found, minted) for name, found in by_mark(received).items()},
        "turns": {name: _masked(_without_times(turn), minted) for name, turn in turns.items()},
        "said": {name: _masked(_without_times(messages), minted) for name, messages in said.items()},
    }


def _read_mark(message: str) -> tuple[str, str, int]:
    found = _MARK.search(message)
    assert found is not None, message
    return found[0], found[1], int(found[2])


def answer(site: Site, agent: str, session: str, turn_id: str) -> None:
    """Approve the calls that a turn waits with."""
    pending = wait_until(lambda: site.turn(agent, session, turn_id).get("pending_approvals"))
    answers = [{"call_id": one["call_id"], "approved": True} for one in pending]
    url = site.path(agent, session, f"/turns/{turn_id}/approvals")
    told = requests.post(url, json=answers, timeout=60)
    assert told.ok, told.text


def end_of(site: Site, agent: str, session: str, turn_id: str) -> Json:
    """Wait for the end of a turn."""

    def ended() -> Json | None:
        seen = site.turn(agent, session, turn_id)
        return seen if seen["status"] in ENDED else None

    return wait_until(ended)


def by_mark(received: list[Json]) -> dict[str, list[Json]]:
    """Sort requests by the turn that made them: their last mark, or the one of the response that they go on from."""
    found: dict[str, list[Json]] = {}
    answered: dict[str, str] = {}
    for entry in received:
        body = entry["body"] or {}
        marks = [f"[{name}/{number}]" for name, number in _MARK.findall(json.dumps(body.get("input")))]
        name = marks[-1] if marks else answered.get(body.get("previous_response_id") or "", "")
        answered[entry["response_id"] or ""] = name
        found.setdefault(name, []).append({"path": entry["path"], "status": entry["status"], "body": body})
    found.get("", []).sort(key=lambda one: one["body"]["previous_response_id"])  # what the model has forgotten
    return found


def _masked(value: Any, minted: set[str]) -> Any:
    """Number the ids that are new in every run; older ones, which the fixture stored, stay as they are."""
    numbers: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        is_new = found[0] in minted or found[0].startswith("af-call-")
        return numbers.setdefault(found[0], f"new-{len(numbers)}") if is_new else found[0]

    return json.loads(_ID.sub(number, json.dumps(value)))


def _without_times(value: Any) -> Any:
    """Leave out what differs from run to run: times, ids of new turns, usage of time."""
    left_out = {"createdAt", "created_at", "started_at", "ended_at", "turn_id", "turn_url", "events_url", "stats"}
    left_out |= {"correlation_id", "session_url", "cancel_url", "approvals_url"}
    if isinstance(value, dict):
        return {name: _without_times(one) for name, one in value.items() if name not in left_out}
    return [_without_times(one) for one in value] if isinstance(value, list) else value


def fork(site: Site, agent: str, origin: str, session: str, **body: str) -> None:
    """Fork a session."""
    answer = requests.post(site.path(agent, origin, "/fork"), json={"session_id": session} | body, timeout=60)
    assert answer.status_code == 201, answer.text


def is_waiting(site: Site, agent: str, session: str) -> bool:
    """Tell whether the running turn of a session waits for a person."""
    turn_id = site.get(site.path(agent, session))["running_turn_id"]
    return turn_id is not None and site.turn(agent, session, turn_id)["status"] == "waiting_for_approval"


def look(site: Site, play: Play, turns: dict[str, list[str]]) -> Json:
    """Read the sessions in which no agent is at work, their turns, and their events.

    Args:
        site: whose host is asked.
        play: what was played.
        turns: that have ended, by agent and session.
    """
    sessions = [named for named in play.all if named not in play.cut]
    paths = {f"{agent}/{session}": site.path(agent, session) for agent, session in sessions}
    ended = [(*name.split("/"), turn_id) for name, ids in turns.items() for turn_id in ids]
    return {
        "sessions": {name: site.get(path) for name, path in paths.items()},
        "exports": {name: site.get(f"{path}/export") for name, path in paths.items()},
        "views": {turn_id: site.turn(agent, session, turn_id) for agent, session, turn_id in ended},
        "events": {turn_id: site.events(agent, session, turn_id) for agent, session, turn_id in ended},
    }


def ledger(folder: Path) -> list[str]:
    """Read what tools have left; the order of parallel tools is chance."""
    return sorted((folder / "ledger.txt").read_text().splitlines())
