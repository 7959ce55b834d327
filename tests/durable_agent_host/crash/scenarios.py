"""What is asked of the host while it is killed: scenarios, each with the model's steps and its clients.

A scenario is held in a session of its own. Its messages begin with a mark, by which the model knows its steps and by
which requests, effects and transcripts are told apart; a turn that nothing disturbs follows at the end.
"""

import itertools
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tests.durable_agent_host.crash import clients
from tests.durable_agent_host.crash.clients import UNDER_WAY, Stream, TurnRequest, new_request
from tests.durable_agent_host.crash.site import Site

Step = dict[str, Any]
_NUMBERS = itertools.count()
DELAY_MILLISECONDS = 4
ANSWER = "All of it is done, as far as I can tell."
LONG_ANSWER = "This answer takes its time: a host can be killed in its middle, and a client can be cut off. " * 2
AUDITOR = {"x-caller": "eve"}
AGENTS = frozenset({"manager", "clerk", "left", "middle", "right"})
"""Which tools are agents."""
LARGE = "More than an entity holds. " * 700


def say(text: str, **more: Any) -> Step:
    """A model call that answers."""
    return {"text": text, "delay_milliseconds": DELAY_MILLISECONDS} | more


def call(*tools: str, text: str | None = None) -> Step:
    """A model call that asks for tools; ``{}`` in an argument becomes the turn's mark."""
    calls = [{"name": tool, "arguments": {"line": f"{{}}/{number}-{tool}"}} for number, tool in enumerate(tools)]
    return {"calls": calls, "delay_milliseconds": DELAY_MILLISECONDS} | ({"text": text} if text else {})


@dataclass(frozen=True)
class Scenario:
    """What happens in a session.

    Attributes:
        turns: the model's steps, one list for each turn; the calls of step n leave lines named after it.
        play: what the clients do; gives what was asked, in order.
        cancelled_rounds: turns that end cancelled, and in which round of tools.
        agent: with whom; the services of ``Kept`` and ``Threads`` keep the conversation.
        members: of the first turn, the steps of the agents within the agent, by their names.
        features: that the app must have.
        is_ordered: whether the messages of a turn have one order.
        is_posted_once: whether the service goes on by itself when the host dies, so that it is asked for nothing again.
    """

    turns: tuple[tuple[Step, ...], ...]
    play: "Callable[[Case], list[TurnRequest]]"
    cancelled_rounds: Mapping[int, int] = field(default_factory=dict[int, int])
    agent: str = "Worker"
    members: Mapping[str, tuple[Step, ...]] = field(default_factory=dict[str, tuple[Step, ...]])
    features: frozenset[str] = frozenset()
    is_ordered: bool = True
    is_posted_once: bool = False


@dataclass
class Case:
    """A scenario in a session.

    Attributes:
        site: where it takes place.
        name: of the scenario.
        tag: the session's id, and the beginning of every mark.
        requests: what was asked, in order; the last is the undisturbed turn.
        kills: how often the host was killed meanwhile.
        client_kill: when the clients themselves kill the host: at the n-th answer to a pending call, as ``sent:n``.
        pending_calls: the pending calls that the clients have seen, by id.
        number_of_answers: that which is given next.
        followed_events: what a client has got that followed the first turn from its beginning.
    """

    site: Site
    name: str
    tag: str = ""
    requests: list[TurnRequest] = field(default_factory=list)
    kills: int = 0
    client_kill: str = ""
    pending_calls: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    followed_events: list[clients.Event] | None = None
    number_of_answers: int = 1

    def __post_init__(self) -> None:
        self.tag = self.tag or f"{self.name}-{next(_NUMBERS)}"

    @property
    def scenario(self) -> Scenario:
        """What happens in it."""
        return SCENARIOS.get(self.name) or WAITING[self.name]

    @property
    def steps(self) -> list[tuple[Step, ...]]:
        """The model's steps of all turns, the undisturbed one included."""
        return [*self.scenario.turns, (say("Yes, still here."),)]

    def steps_by_agent(self, turn: int) -> dict[str, tuple[Step, ...]]:
        """Give the steps of a turn that are taken, by the agent within the agent; the agent's own name is empty."""
        steps = self.steps[turn]
        own_steps = {"": steps[: self.scenario.cancelled_rounds.get(turn, len(steps) - 1) + 1]} if steps else {}
        return own_steps | (dict(self.scenario.members) if turn == 0 else {})

    def prefix(self, turn: int, agent: str, round_: int) -> str:
        """Begin the lines of a step."""
        return f"{self.mark(turn)}{agent}{round_}"

    def mark(self, turn: int) -> str:
        """Name a turn in texts."""
        return f"[{self.tag}/{turn}]"

    def new_request(self, turn: int, **more: Any) -> TurnRequest:
        """Make the request of a turn."""
        return new_request(self.scenario.agent, self.tag, f"{self.mark(turn)} Do your work.{self.site.canary}", **more)

    @property
    def path(self) -> str:
        """The path of its session."""
        return f"/agents/{self.scenario.agent}/sessions/{self.tag}"

    def run(self) -> "Case":
        """Play it to its end."""
        before = len(self.site.kills)
        for turn, own_steps in enumerate(self.steps):
            members = dict(self.scenario.members) if turn == 0 else {}
            for name, steps in (members | {"": own_steps}).items():
                marked_steps = [
                    _mark_step(step, self.prefix(turn, name, round_), self.site.canary)
                    for round_, step in enumerate(steps)
                ]
                when = {"user_text": self.mark(turn)} | ({"agent": f"You are {name}."} if name else {})
                if marked_steps:
                    self.site.model.plan(*marked_steps, by_round=True, **when)
        self.requests = self.scenario.play(self)
        self.requests.append(clients.retry(self.site, self.new_request(len(self.scenario.turns))))
        self.kills = len(self.site.kills) - before
        return self

    def strike_at(self, moment: str) -> None:
        """Kill the host when this is the planned moment of the answer that is being given."""
        if self.client_kill == f"{moment}:{self.number_of_answers}":
            self.client_kill = ""
            self.site.strike()

    def await_line(self, turn: int, tool: str) -> None:
        """Wait until a tool has left a line in a turn."""
        patience = self.site.patience(f"the line of {tool} in {self.mark(turn)}")
        while not any(self.mark(turn) in effect.line and effect.tool == tool for effect in self.site.effects()):
            patience.wait()


def _mark_step(step: Step, mark: str, canary: str) -> Step:
    calls: list[Step] = []
    for planned_call in step.get("calls", []):
        secret = {"secret": canary} if canary and planned_call["name"] not in AGENTS else {}
        calls.append(planned_call | {"arguments": {"line": planned_call["arguments"]["line"].format(mark)} | secret})
    text = {"text": step["text"] + canary} if canary and step.get("text") else {}
    return step | text | ({"calls": calls} if calls else {})


def _retry(case: Case) -> list[TurnRequest]:
    return [clients.retry(case.site, case.new_request(0))]


def _retried_twice(case: Case) -> list[TurnRequest]:
    return [clients.retry(case.site, case.new_request(turn)) for turn in range(2)]


def _post_once(case: Case) -> list[TurnRequest]:
    return [clients.post_once(case.site, case.new_request(0))]


def _stream(case: Case) -> list[TurnRequest]:
    return [Stream(case.site, case.new_request(0)).follow()]


def _answer(case: Case) -> list[TurnRequest]:
    """Answer all that waits, one call after the other, while somebody follows; nothing in doubt is run again."""
    request = clients.post(case.site, case.new_request(0))
    stream = Stream(case.site, TurnRequest(request.body, request.agent, turn_id=request.turn_id))
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(stream.follow, posts=False)
        try:
            _answer_until_end(case, request)
        finally:
            following.result()
    case.followed_events = stream.events
    return [clients.retry(case.site, request)]


def _answer_until_end(case: Case, request: TurnRequest) -> None:
    patience = case.site.patience(f"the end of what waits in {case.tag}")
    answered_ids: set[str] = set()
    while (view := clients.read_turn(case.site, request))["status"] in UNDER_WAY:
        for pending in view.get("pending_calls") or ():
            earlier = case.pending_calls.setdefault(pending["call_id"], pending)
            assert earlier == pending, (earlier, pending)
            if pending["call_id"] not in answered_ids:
                _answer_call(case, request, pending)
                answered_ids.add(pending["call_id"])
        patience.wait(seen=view)


def _answer_call(case: Case, request: TurnRequest, pending: dict[str, Any]) -> None:
    path, answer = clients.turn_path(request, "/answers"), {"call_id": pending["call_id"]}
    arguments = pending["arguments"]
    match pending["kind"]:
        case "client_tool":
            answer["result"] = f"seen {arguments['line']}{case.site.canary}"
        case "callback":
            effect = next(effect for effect in case.site.effects() if effect.line == arguments["line"])
            path, answer = effect.callback.removeprefix("/api"), {"result": f"delivered {arguments['line']}"}
        case "input":
            answer["result"] = {"string": "Twelve.", "integer": 41, "boolean": True}[pending["schema"]["type"]]
        case _:
            answer["approved"] = pending["kind"] == "approval"
    headers = AUDITOR if pending.get("approved_by") else {}
    case.strike_at("before")
    if case.client_kill == f"during:{case.number_of_answers}":
        case.client_kill = ""
        threading.Timer(case.number_of_answers * 0.004, case.site.strike).start()
    response = case.site.ask("POST", path, json=answer, headers=headers)
    assert response.status_code in {200, 202}, (pending, response.text)
    case.strike_at("after")
    case.number_of_answers += 1


def _cancel(case: Case) -> list[TurnRequest]:
    request = clients.post(case.site, case.new_request(0))
    case.await_line(0, "linger")
    response = case.site.ask("POST", clients.turn_path(request, "/cancel"))
    assert response.status_code in {200, 202, 409}, response.text
    return [clients.retry(case.site, request)]


def _interrupt(case: Case) -> list[TurnRequest]:
    first = clients.post(case.site, case.new_request(0))
    case.await_line(0, "brood")
    second = clients.retry(case.site, case.new_request(1, policy="interrupt"))
    return [clients.retry(case.site, first), second]


def _queue(case: Case) -> list[TurnRequest]:
    requests: list[TurnRequest] = []
    for turn in range(3):
        requests.append(clients.post(case.site, case.new_request(turn)))
        _await_admission(case, requests[-1])
    with ThreadPoolExecutor(3) as pool:
        return list(pool.map(lambda request: clients.retry(case.site, request), requests))


def _await_admission(case: Case, request: TurnRequest) -> None:
    """Wait until the session knows a turn, so that the turns' order is settled."""
    patience = case.site.patience(f"the admission of turn {request.turn_id}")
    while True:
        answer = case.site.ask("GET", case.path)
        if answer.ok and request.turn_id in answer.text:
            return
        patience.wait(seen=answer.text)


_SEQUENCE = (call("note", text="First. "), call("again"), call("note"), say(ANSWER))

SCENARIOS = {
    "plain": Scenario(((say(LONG_ANSWER),),), _retry),
    "sequence": Scenario((_SEQUENCE,), _retry),
    "parallel": Scenario(((call("note", "again", "note"), say(ANSWER)),), _retry),
    "approval": Scenario(((call("pay", "note"), call("careful", "pay"), say(ANSWER)),), _answer),
    "client": Scenario(((call("browse", "note", "browse"), call("browse", "pay"), say(ANSWER)),), _answer),
    "cancel": Scenario(((call("note"), call("linger", text="I am at it. "), say(ANSWER)),), _cancel, {0: 1}),
    "queue": Scenario(((call("note"), say(ANSWER)),) * 3, _queue),
    "stream": Scenario(((*_SEQUENCE[:3], say(LONG_ANSWER)),), _stream),
    "interrupt": Scenario(((call("brood"), say(ANSWER)), (call("note"), say(ANSWER))), _interrupt, {0: 0}),
    "look": Scenario((_SEQUENCE,), _post_once),
    "large": Scenario(((say(LONG_ANSWER + LARGE),), (call("note"), say(ANSWER + LARGE))), _retried_twice),
    "kept": Scenario((_SEQUENCE, (call("note", "again", "note"), say(ANSWER))), _retried_twice, agent="Kept"),
    "gemini": Scenario((_SEQUENCE, (call("note", "again", "note"), say(ANSWER))), _retried_twice, agent="Gemini"),
    "chat": Scenario((_SEQUENCE, (call("note", "again"), say(ANSWER))), _retried_twice, agent="Chatter"),
    "threads": Scenario(
        (_SEQUENCE, (call("note", "again"), say(ANSWER))), _retried_twice, agent="Threads", is_posted_once=True
    ),
    "background": Scenario(((*_SEQUENCE[:3], say(LONG_ANSWER)),), _stream, agent="Background"),
    "claude": Scenario((_SEQUENCE, (call("note", "again", "note"), say(ANSWER))), _retried_twice, agent="Claude"),
}

_CROWD = {
    "left": (call("pay"), say("Left.")),
    "middle": (call("browse", "note"), say("Middle.")),
    "right": (call("order", "again"), call("pay"), say("Right.")),
}

WAITING = {
    "client": SCENARIOS["client"],
    "callback": Scenario(((call("order", "note", "reorder"), call("reorder"), say(ANSWER)),), _answer),
    "question": Scenario(
        ((),),
        _answer,
        agent="Survey",
        members={"asker": (call("note"), say("Let us ask. ")), "closer": (call("note", "pay"), say(ANSWER))},
    ),
    "deep": Scenario(
        ((call("manager", "note"), say(ANSWER)),),
        _answer,
        agent="Deep",
        members={
            "manager": (call("clerk", "pay"), say("Managed.")),
            "clerk": (call("pay", "note", "pay"), call("careful"), say("Written.")),
        },
    ),
    "eyes": Scenario(
        ((),),
        _answer,
        agent="Pair",
        members={
            "first": (say("First. "),),
            "second": (call("transfer", "note"), call("transfer"), say(ANSWER)),
        },
        features=frozenset({"owners"}),
    ),
    "fan": Scenario(((call(*_CROWD), say(ANSWER)),), _answer, agent="Fan", members=_CROWD),
    "crowd": Scenario(((),), _answer, agent="Crowd", members=_CROWD, is_ordered=False),
}
"""Turns in which something waits for an answer from outside; `test_waits` kills the host at each pass of each point."""
