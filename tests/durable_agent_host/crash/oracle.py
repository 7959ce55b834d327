"""What must be true of a case whatever was killed meanwhile, next to the same scenario undisturbed.

Three witnesses are heard: what the clients got, the lines that tools left in a file, and the model's log of requests.
A kill excuses three things: a model call that was in flight is made again, a tool that may be run again is run again,
and a tool that was running is reported in doubt. Each must have a kill of its own to blame.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from http.client import OK
from itertools import pairwise
from typing import Any

from practice_model.dialects.chat_completions.messages import items_from_messages
from tests.durable_agent_host.crash import clients
from tests.durable_agent_host.crash.clients import Stream, TurnRequest
from tests.durable_agent_host.crash.scenarios import AGENTS, Case
from tests.durable_agent_host.crash.site import Effect, Site
from tests.stand_ins.anthropic.reading import parse_request
from tests.stand_ins.gemini.contents import parse_generate_request

MAY_RUN_AGAIN = frozenset({"again", "reorder", "linger", "brood"})
RUN_BY_CLIENT = frozenset({"browse"})
YOU_ARE = "You are "
IN_DOUBT = "outcome of this call is not known"
_ID = re.compile(r"\b(call|fc|msg|resp|rs|toolu|af-call|chatcmpl|step|run|thread|asst)([_-])[0-9a-f-]{16,}")
_TIME = re.compile(r'(?<=_at": )\d+')
_REQUEST_ID = re.compile(r"\b([0-9a-f]{8})((?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b")
_SIGNATURE = re.compile(r'(?<="thoughtSignature": )"[^"]*"|(?<="fingerprint": )"[^"]*"')
_LEFT_OUT = frozenset({"createdAt", "turn_id"})


@dataclass
class Figures:
    """What a proof has seen, for the report."""

    counts: Counter[str] = field(default_factory=Counter[str])
    late: list[float] = field(default_factory=list[float])

    def add_repeat(self, before: "ModelCall", witnesses: "Witnesses") -> None:
        """Note a call that was made again, and how long the host had had its whole stream when it died."""
        if before.outcome == "complete":
            completed_at = before.started_at + (before.milliseconds or 0) / 1000
            death = min((kill for kill in witnesses.kills if kill >= before.started_at), default=completed_at)
            self.late.append(death - completed_at)

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in self.counts.items())
        late = sorted(self.late) or [0.0]
        spread = f"{late[len(late) // 2] * 1000:.0f} ms in the middle, {late[-1] * 1000:.0f} ms at the most"
        return f"{counts}; of these had sent all when the host died: {len(self.late)}, {spread} before"


@dataclass(frozen=True)
class ModelCall:
    """A request that the model received.

    Attributes:
        mark: of the turn.
        agent: the name of the agent that sent it, if the model knows it by its name.
        pid: of the host's process that sent it.
    """

    mark: str
    agent: str
    round: int
    started_at: float
    outcome: str | None
    milliseconds: float | None
    pid: int


@dataclass
class Witnesses:
    """What is read once for all cases of a site.

    Attributes:
        kills: times at which the host died.
        effects: lines by the mark of their turn.
        calls: model calls by the mark of their turn, oldest first.
        post_counts: how many messages of each mark a thread has got.
    """

    kills: Sequence[float]
    effects: dict[str, list[Effect]]
    calls: dict[str, list[ModelCall]]
    post_counts: Counter[str]

    @classmethod
    def read(cls, site: Site) -> "Witnesses":
        """Read the file, and the log of the model."""
        effects: dict[str, list[Effect]] = {}
        for effect in site.effects():
            effects.setdefault(_mark_of(effect.line), []).append(effect)
        calls: dict[str, list[ModelCall]] = {}
        calls_by_response: dict[str, ModelCall] = {}
        threads = _Threads()
        for entry in site.model.requests():
            is_thread = entry["path"].startswith("/agents/")
            call = threads.read_call(entry) if is_thread else _read_call(entry, calls_by_response)
            if call is None:
                continue
            calls.setdefault(call.mark, []).append(call)
            if entry["response_id"]:
                calls_by_response[entry["response_id"]] = call
        return cls(list(site.kills), effects, calls, threads.post_counts)


def _mark_of(text: str) -> str:
    return text[: text.index("]") + 1]


def _read_call(entry: dict[str, Any], calls_by_response: dict[str, ModelCall]) -> ModelCall:
    """Read a request: its turn's mark, and how many rounds of tools came after the user's message.

    Args:
        entry: of the model's log.
        calls_by_response: earlier calls by the id of their response, for requests that go on from one.
    """
    before = calls_by_response.get(entry["body"].get("previous_response_id") or "")
    mark, rounds, kind = (before.mark, before.round, "") if before else ("", 0, "")
    for item in _items_of(entry):
        last, kind = kind, item.get("type") or "message"
        if kind == "message" and item["role"] == "user":
            content = item["content"]
            mark = _mark_of(content if isinstance(content, str) else "".join(part["text"] for part in content))
            rounds = 0
        rounds += kind == "function_call_output" != last
    return _build_call(entry, mark, rounds)


def _build_call(entry: dict[str, Any], mark: str, rounds: int) -> ModelCall:
    started_at = datetime.fromisoformat(entry["at"]).timestamp()
    instructions = str(entry["body"].get("instructions"))
    agent = instructions[len(YOU_ARE) : -1] if instructions.startswith(YOU_ARE) else ""
    return ModelCall(
        mark,
        agent,
        rounds,
        started_at,
        entry["ended"],
        entry["milliseconds_streaming"],
        int(entry["headers"]["x-process"]),
    )


class _Threads:
    """Reads requests to a service that keeps conversations in threads; a run is the model's first call of a turn.

    Attributes:
        post_counts: how many messages of each mark there are.
    """

    def __init__(self) -> None:
        self.post_counts: Counter[str] = Counter()
        self._turns: dict[str, tuple[str, int]] = {}

    def read_call(self, entry: dict[str, Any]) -> ModelCall | None:
        """Read a request; None when it asks the model for nothing."""
        if (entry["method"], entry["status"]) != ("POST", OK) or not entry["path"].startswith("/agents/threads/"):
            return None
        _, _, _, thread, *_, action = entry["path"].split("/")
        if action == "messages":
            mark = _mark_of(entry["body"]["content"])
            self.post_counts[mark] += 1
            self._turns[thread] = mark, 0
            return None
        mark, rounds = self._turns[thread]
        rounds += action == "submit_tool_outputs"
        self._turns[thread] = mark, rounds
        return _build_call(entry, mark, rounds)


def _items_of(entry: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """Read what was sent as items of the Responses API."""
    body = entry["body"]
    if "input" in body:
        return body["input"]
    if entry["path"].startswith("/anthropic"):
        return parse_request(body).transcript
    return (
        items_from_messages(body["messages"])
        if "messages" in body
        else parse_generate_request("", body, stream=True).transcript
    )


@dataclass(frozen=True)
class CaseResult:
    """What a case has told, without what differs from run to run: ids, times, usage.

    Attributes:
        messages: of the session.
        responses: status of HTTP, status and text, of each request.
        texts: of each turn, as they are stored.
        inputs: what the agents within the agent have sent last in the first turn, by their names.
        events: of calls in the first turn; some are about a line.
    """

    messages: list[Any]
    responses: list[tuple[int, str, str]]
    texts: list[str]
    inputs: dict[str, list[Any]]
    events: list[str]


def read_result(case: Case) -> CaseResult:
    """Read the transcript and the answers of a case."""
    session = case.site.ask("GET", case.path)
    assert session.ok, session.text
    body = session.json()
    assert (body["running_turn_id"], body["queued_turn_ids"]) == (None, []), body
    order = [request.turn_id for request in case.requests]
    transcript = [{"turn": order.index(message["turn_id"])} | message for message in body["messages"]]
    bare = [{name: value for name, value in message.items() if name not in _LEFT_OUT} for message in transcript]
    ordered = bare if case.scenario.is_ordered else sorted(bare, key=_author_of)
    messages = _without_ids(ordered if case.scenario.turns[0] else _without_live_fields(ordered), case)
    responses = [
        (request.status, _read_status(request.answer), request.answer.get("response") or "")
        for request in case.requests
    ]
    if not case.scenario.is_ordered:
        responses = [(status, word, "".join(sorted(text))) for status, word, text in responses]
    texts = [_text_of(transcript, turn) for turn in range(len(order))]
    return CaseResult(messages, responses, texts, _read_inputs(case), _read_events(case))


def _author_of(message: dict[str, Any]) -> tuple[int, str]:
    return message["turn"], "" if message["role"] == "user" else message["authorName"]


_LIVE_FIELDS = frozenset({"id", "status", "logprobs", "annotations", "extensionData"})
"""The live answer of a workflow's agent has other fields in the session than a recorded one."""


def _without_live_fields(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_live_fields(item) for item in value]
    if isinstance(value, dict):
        return {name: _without_live_fields(field) for name, field in value.items() if name not in _LIVE_FIELDS}
    return value


def _without_ids(value: Any, case: Case) -> Any:
    ids: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        return ids.setdefault(found[0], f"{found[1] if found.re is _ID else 'request'}-{len(ids)}")

    text = _ID.sub(number, _TIME.sub("0", _SIGNATURE.sub('"signed"', json.dumps(value)))).replace(case.tag, "TAG")
    return json.loads(_REQUEST_ID.sub(number, text))


def _read_inputs(case: Case) -> dict[str, list[Any]]:
    inputs: dict[str, list[Any]] = {}
    for entry in case.site.model.requests() if case.scenario.members else ():
        agent = str(entry["body"].get("instructions"))[len(YOU_ARE) : -1]
        if agent in case.scenario.members and case.mark(0) in json.dumps(entry["body"]["input"]):
            inputs[agent] = entry["body"]["input"]
    return {agent: _without_ids(items, case) for agent, items in inputs.items() if agent}


def _read_events(case: Case) -> list[str]:
    """Read the events of calls that a client has that comes late, with what each call is about in place of its id."""
    if case.followed_events is None:
        return []
    request = case.requests[0]
    stream = Stream(case.site, TurnRequest(request.body, request.agent, turn_id=request.turn_id))
    stream.follow(posts=False)
    assert _story_of(stream.events) == _story_of(case.followed_events), (stream.events, case.followed_events)
    lines: dict[str, str] = {}
    texts: list[str] = []
    for _, name, data in stream.valid_events:
        if (event := data.get("data", data)).get("arguments"):
            call_id = event.get("path", event["call_id"]).rpartition("t:")[2]
            lines[call_id] = next(iter(event["arguments"].values()))
        if name == "turn.postponed":
            assert case.kills > 1  # a turn whose process has died twice in a row lets others go first
            continue
        if name == "call.answered":
            principal = "eve" if event["name"] == "transfer" else "ann"  # a transfer needs four eyes
            who = event.pop("answered_by", None)
            assert who == ({"principal": principal} if "owners" in case.site.features else None)
        parts = [pending["call_id"] for pending in data["pending_calls"]] if name == "turn.waiting" else [data]
        texts += [json.dumps([name, _without_times(part)]) for part in parts]
    for call_id, line in lines.items():
        texts = [text.replace(call_id, line) for text in texts]
    return sorted(text.replace(request.turn_id, "TURN").replace(case.tag, "TAG") for text in texts)


def _story_of(events: Sequence[clients.Event]) -> list[clients.Event]:
    """Leave out texts, which come in larger blobs to those who come late."""
    return [event for event in events if event[1] not in {"message.delta", "reasoning.delta"}]


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(field) for name, field in value.items() if not name.endswith("_at")}
    return value


def _read_status(answer: dict[str, Any]) -> str:
    """Read how a turn ended: an answer of `run`, a problem and the turn's route say it each in its place."""
    status = str(answer.get("turn_status") or answer["status"])
    return {"completed": "success"}.get(status, status)


def _text_of(messages: list[Any], turn: int) -> str:
    """Put together what the agent said in a turn, as it is stored: a blank line is between two texts."""
    return "\n\n".join(
        content["text"]
        for message in messages
        if message["turn"] == turn and message["role"] == "assistant"
        for content in message["contents"]
        if content["$type"] == "text" and content.get("text")
    )


def check_case(case: Case, baseline: CaseResult, witnesses: Witnesses, figures: Figures) -> None:
    """Hold a case against the same scenario undisturbed."""
    result = read_result(case)
    assert result.responses == baseline.responses, (result.responses, baseline.responses)
    doubts = _excuse_doubts(result.messages, baseline.messages)
    assert result.messages == baseline.messages
    assert result.inputs.keys() == baseline.inputs.keys()
    for agent, items in result.inputs.items():
        doubts |= (inner_doubts := _doubts_in(items))
        assert _without_results(items, inner_doubts) == _without_results(baseline.inputs[agent], inner_doubts)
    assert _without_doubts(result.events, doubts) == _without_doubts(baseline.events, doubts)
    figures.counts["turns"] += len(case.requests)
    figures.counts["tool calls in doubt"] += len(doubts)
    for turn in range(len(case.steps)):
        mark = case.mark(turn)
        turn_doubts = {
            line.replace("TAG", case.tag) for line in doubts if line.replace("TAG", case.tag).startswith(mark)
        }
        check_effects(case, turn, turn_doubts, witnesses, figures)
        rounds = {agent: len(steps) for agent, steps in case.steps_by_agent(turn).items()}
        check_calls(mark, rounds, witnesses, figures)
        if case.scenario.is_posted_once:
            assert witnesses.post_counts[mark] == 1, mark
            assert len(witnesses.calls[mark]) == sum(rounds.values()), witnesses.calls[mark]
    for request, text in zip(case.requests, result.texts, strict=True):
        check_client(case.site, request, text)


def _excuse_doubts(messages: list[Any], baseline_messages: list[Any]) -> set[str]:
    """Find the calls that are reported in doubt, and take the undisturbed results in their place."""
    lines: dict[str, str] = {}
    doubts: set[str] = set()
    for content, baseline_content in zip(_contents(messages), _contents(baseline_messages), strict=False):
        if content["$type"] == "functionCall":
            lines[content["callId"]] = content["arguments"].get("line")
        elif content["$type"] == "functionResult" and IN_DOUBT in json.dumps(content):
            doubts.add(lines[content["callId"]])
            content.clear()
            content.update(baseline_content)
    return doubts


def _doubts_in(items: list[Any]) -> set[str]:
    """Find the calls of an agent within the agent that are reported in doubt to its model."""
    lines = _lines_by_call(items)
    return {lines[item["call_id"]] for item in items if IN_DOUBT in str(item.get("output"))}


def _without_results(items: list[Any], doubts: set[str]) -> list[Any]:
    lines = _lines_by_call(items)
    return [
        {name: value for name, value in item.items() if name != "output" or lines[item["call_id"]] not in doubts}
        for item in items
    ]


def _lines_by_call(items: list[Any]) -> dict[str, str]:
    return {
        item["call_id"]: json.loads(item["arguments"]).get("line")
        for item in items
        if item.get("type") == "function_call"
    }


def _without_doubts(events: list[str], doubts: set[str]) -> list[str]:
    return [
        event
        for event in events
        if not any(line in event for line in doubts) and not (doubts and event.startswith('["turn.waiting'))
    ]


def _contents(messages: list[Any]) -> Iterator[Any]:
    return (content for message in messages for content in message["contents"])


def check_effects(case: Case, turn: int, doubts: set[str], witnesses: Witnesses, figures: Figures) -> None:
    """Every tool took effect once; or it was in doubt; or it may be run again, and a kill made it do so."""
    mark = case.mark(turn)
    expected_calls = {
        (call["name"], call["arguments"]["line"].format(case.prefix(turn, agent, round_))): (agent, round_)
        for agent, steps in case.steps_by_agent(turn).items()
        for round_, step in enumerate(steps)
        for call in step.get("calls", [])
        if call["name"] not in RUN_BY_CLIENT | AGENTS
    }
    left: dict[tuple[str, str], list[Effect]] = {}
    for effect in witnesses.effects.get(mark, []):
        left.setdefault((effect.tool, effect.line), []).append(effect)
    assert set(left) <= set(expected_calls), left
    assert doubts <= {line for tool, line in expected_calls if tool not in MAY_RUN_AGAIN}, doubts
    assert not doubts or witnesses.kills
    figures.counts["tool calls"] += len(expected_calls)
    for (tool, line), (agent, round_) in expected_calls.items():
        effects = left.get((tool, line), [])
        others = case.scenario.members.keys() - {agent}
        calls = [call for call in witnesses.calls[mark] if call.agent not in others]
        used = [call.started_at for call in calls if call.round > round_]
        assert all(effect.at < min(used, default=effect.at + 1) for effect in effects), (
            f"{line} after its result was used"
        )
        figures.counts["lines"] += len(effects)
        if tool not in MAY_RUN_AGAIN:
            assert len(effects) == 1 or (not effects and line in doubts), (tool, line, effects, doubts)
            continue
        assert effects, (tool, line)
        assert len({effect.key for effect in effects}) == 1, effects
        figures.counts["lines of tools that were run again"] += len(effects) - 1
        for before, after in pairwise(effects):
            assert before.pid != after.pid, (before, after)
            assert (before.attempt or 0) < (after.attempt or 0), (before, after)


def check_calls(mark: str, rounds: Mapping[str, int], witnesses: Witnesses, figures: Figures) -> None:
    """Each round was asked of the model once, and once more for each kill that cut it off; never after it was used.

    Args:
        mark: of the turn.
        rounds: how many each agent takes, by the names of the agents within the agent.
        witnesses: what was seen.
        figures: are added to.
    """
    calls_by_agent: dict[str, list[ModelCall]] = {}
    for call in witnesses.calls.get(mark, []):
        calls_by_agent.setdefault(call.agent, []).append(call)
    assert rounds.keys() - {""} <= calls_by_agent.keys(), (mark, calls_by_agent)
    for agent, calls in calls_by_agent.items():
        assert {call.round for call in calls} == set(range(rounds[agent if agent in rounds else ""])), (mark, calls)
        newest = -1
        last: dict[int, ModelCall] = {}
        for call in calls:
            assert call.round >= newest, f"{mark}: round {call.round} was asked for again, after {newest}: {calls}"
            newest = call.round
            if before := last.get(call.round):
                assert before.pid != call.pid, f"{mark}: no kill between {before} and {call}"
                figures.counts["model calls made again"] += 1
                figures.add_repeat(before, witnesses)
            last[call.round] = call
        figures.counts["model calls needed"] += len(last)
        figures.counts["model calls made"] += len(calls)


def check_client(site: Site, request: TurnRequest, text: str) -> None:
    """The answer stays: for the same key, at the turn's route, and as a stream from the beginning.

    Args:
        site: where.
        request: with the answer that the client has.
        text: what is stored of the turn.
    """
    view = clients.read_turn(site, request)
    assert _read_status(view) == _read_status(request.answer)
    assert (view["response"] or "") == (request.answer.get("response") or "")
    assert _read_status(view) == "cancelled" or view["response"] == text
    if request.key is not None:
        again = clients.retry(site, TurnRequest(request.body, request.agent, request.key))
        assert again.turn_id == request.turn_id
        if request.streamed_text is None:
            assert (again.status, again.answer) == (request.status, request.answer)
    if request.streamed_text is not None:
        assert request.streamed_text == text
    late = Stream(site, TurnRequest(request.body, request.agent, turn_id=request.turn_id))
    late.follow(posts=False)
    if late.text or "redaction" not in site.features:  # whose events are deleted soon after the end
        assert late.text == text, late.events


def check_site(site: Site) -> None:
    """Nothing is left under way."""
    left = site.instances(runtimeStatus="Running,Pending,Suspended")
    assert left == []
