"""One trace for each turn, as a receiver of OTLP holds it that the OpenTelemetry SDK's exporters send to."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from tests.durable_agent_host.test_scenarios_journal import call, plan_rounds
from tests.kit import AgentHost, PracticeModel, running_host, start_host
from tests.otlp import Receiver, SentSpan
from tests.processes import wait_until
from tests.sweeps import IS_LONG, chooser

TELEMETRY = Path(__file__).parent / "apps" / "telemetry"
TURN = "agent_turn Traced"
ATTEMPT = "invoke_agent Traced"
SCOPES = {"durable_agent_host", "agent_framework"}
CANARY = "canary-51c2"
CONVENTIONS = {value for name, value in vars(gen_ai_attributes).items() if name.startswith("GEN_AI_")} - {
    *("gen_ai.system", "gen_ai.prompt", "gen_ai.completion"),
    *("gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens"),
}
"""The attributes of OpenTelemetry's GenAI conventions, as the installed package has them, without those of before."""


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    """Receives from all hosts of the module."""
    with Receiver() as running:
        yield running


@pytest.fixture(scope="module")
def host(
    practice_model: PracticeModel, receiver: Receiver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AgentHost]:
    """A host that sends telemetry."""
    with running_host(
        tmp_path_factory.mktemp("traced"), practice_model, app=TELEMETRY, **receiver.environment()
    ) as running:
        yield running


def trace_of(receiver: Receiver, turn_id: str) -> list[SentSpan]:
    """Wait for the trace of a turn that has ended; it is one tree."""

    def is_complete() -> bool:
        spans = receiver.spans(turn_id)
        names, ids = {span.name for span in spans}, {span.id for span in spans}
        parents = {span.parent for span in spans if span.scope in SCOPES and span.name != TURN}
        return {"session commit", TURN} <= names and parents <= ids

    wait_until(is_complete)
    time.sleep(0.2)  # what is sent twice
    everything = receiver.spans(turn_id)
    assert len({span.trace for span in everything}) == 1
    assert not [span for span in everything if CANARY in str(span)]
    spans = [span for span in everything if span.scope in SCOPES]
    ids = [span.id for span in spans]
    assert len(ids) == len(set(ids)), "a span came twice"
    assert [span.name for span in spans].count(TURN) == 1
    assert not [span for span in spans if span.parent not in ids and span.name != TURN], "a span without its parent"
    names = {"gen_ai.agent.name": "Traced", "durable_agent_host.turn.id": turn_id}
    assert not [span for span in spans if not names.items() <= span.attributes.items()]
    assert len({span.attributes["gen_ai.conversation.id"] for span in spans}) == 1
    attribute_names = {name for span in spans for name in span.attributes if name.startswith("gen_ai.")}
    assert attribute_names <= CONVENTIONS, attribute_names - CONVENTIONS
    return spans


def find_spans(spans: list[SentSpan], name: str, **attributes: Any) -> list[SentSpan]:
    """The spans of a name with attributes of ours."""
    expected_attributes = {f"durable_agent_host.{key}": value for key, value in attributes.items()}
    return [span for span in spans if span.name == name and expected_attributes.items() <= span.attributes.items()]


def wait_reasons(spans: list[SentSpan]) -> list[str]:
    """What a turn has waited for."""
    return [span.attributes["durable_agent_host.wait.reason"] for span in spans if span.name == "wait"]


def tokens(*spans: SentSpan) -> list[int]:
    """The input and output tokens of spans."""
    kinds = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")
    return [sum(span.attributes.get(kind, 0) for span in spans) for kind in kinds]


def used(turn: dict[str, Any]) -> list[int]:
    """The input and output tokens of a turn's answer."""
    return [turn["usage"]["input_token_count"], turn["usage"]["output_token_count"]]


def test_a_turn_continues_the_trace_of_its_request(host: AgentHost, model: PracticeModel, receiver: Receiver):
    """Orchestration, attempt, entity, model and tool are one tree below the caller's span; nothing that was said."""
    plan_rounds(model, {"calls": [call("note", text=CANARY)]}, {"text": f"{CANARY} is noted"})
    trace, span = uuid4().hex, uuid4().hex[:16]
    response = host.run("Traced", {"message": CANARY}, headers={"traceparent": f"00-{trace}-{span}-01"})
    spans = trace_of(receiver, response.headers["x-ms-turn-id"])
    (root,) = find_spans(spans, TURN, **{"turn.status": "completed"}, attempts=1, model_calls=2, tool_calls=1)
    assert (root.trace, root.parent) == (trace, span)
    (attempt,) = find_spans(spans, ATTEMPT, attempt=1)
    chats, tools = find_spans(spans, "chat practice"), find_spans(spans, "execute_tool note")
    assert {child.parent for child in (*chats, *tools)} == {attempt.id}
    assert {
        child.parent for child in (attempt, *find_spans(spans, "session admit"), *find_spans(spans, "session commit"))
    } == {root.id}
    assert tokens(root) == tokens(attempt) == tokens(*chats) == used(response.json())
    assert len(spans) == 1 + 1 + 2 + 1 + 2


def test_calls_within_an_agent_are_below_its_tool_call(host: AgentHost, model: PracticeModel, receiver: Receiver):
    """The inner agent's run is a child of the span of the tool call, and its model calls and tool calls of the run."""
    model.plan({"calls": [call("clerk", task="note")]}, {"text": "Done."}, agent="Use your tools.")
    model.plan({"calls": [call("note", text=CANARY)]}, {"text": "Noted."}, agent="You are the clerk.")
    turn_id = host.run("Traced", {"message": CANARY}).headers["x-ms-turn-id"]
    spans = {span.id: span for span in wait_until(lambda: ended_spans(receiver, turn_id))}

    def ancestors(span: SentSpan) -> list[str]:
        return [span.name, *(ancestors(spans[span.parent]) if span.parent in spans else [])]

    outer_path = [ATTEMPT, TURN]
    inner_path = ["invoke_agent clerk", "execute_tool clerk", *outer_path]
    expected_paths = [[name, *inner_path] for name in ("chat practice", "chat practice", "execute_tool note")]
    expected_paths += [["chat practice", *outer_path]] * 2 + [inner_path, inner_path[1:]]
    calls = [span for span in spans.values() if span.name.startswith(("chat", "execute_tool", "invoke_agent clerk"))]
    assert sorted(map(ancestors, calls)) == sorted(expected_paths)


def ended_spans(receiver: Receiver, turn_id: str) -> list[SentSpan] | None:
    """The spans of a turn, once those are there that are written at its end."""
    spans = receiver.spans(turn_id)
    names = {span.name for span in spans}
    return spans if {"session commit", TURN, "execute_tool clerk", "invoke_agent clerk"} <= names else None


def test_turns_of_an_orchestration_are_in_its_trace(host: AgentHost, model: PracticeModel, receiver: Receiver):
    """Each turn is a separate tree below the orchestration's span, and counts its own tokens."""
    model.plan({"text": "yes"}, times=None)
    trace, span = uuid4().hex, uuid4().hex[:16]
    assert host.orchestrate("talk", {"traceparent": f"00-{trace}-{span}-01"})["runtimeStatus"] == "Completed"

    def turns() -> list[str] | None:
        commits = [
            sent_span
            for sent_span in receiver.all_spans()
            if sent_span.trace == trace and sent_span.name == "session commit"
        ]
        return (
            [str(sent_span.attributes["durable_agent_host.turn.id"]) for sent_span in commits]
            if len(commits) == 2
            else None
        )

    for turn_id in wait_until(turns):
        spans = [
            sent_span
            for sent_span in receiver.all_spans()
            if sent_span.attributes.get("durable_agent_host.turn.id") == turn_id
        ]
        (root,) = find_spans(spans, TURN)
        assert (root.trace, root.parent) == (trace, span)
        ids = [sent_span.id for sent_span in spans]
        assert len(ids) == len(set(ids))
        assert {sent_span.parent for sent_span in spans} - {span} <= set(ids)
        assert tokens(root) == tokens(*find_spans(spans, "chat practice")) != [0, 0]


def test_every_wait_is_a_span_with_its_reason(host: AgentHost, model: PracticeModel, receiver: Receiver):
    """A turn behind another one waits in the queue; one whose tool needs approval has two attempts."""
    model.plan({"calls": [call("pay", amount=1)]}, {"text": "paid"}, by_round=True, times=None, user_text="pay")
    model.plan({"text": "second"}, user_text="second")
    session, later = uuid4().hex, {"x-ms-wait-for-response": "false"}
    first = host.run("Traced", {"message": "pay", "session_id": session})
    assert first.status_code == 202
    second = host.run("Traced", {"message": "second", "session_id": session}, headers=later)
    time.sleep(0.5)
    (pending,) = first.json()["pending_calls"]
    requests.post(first.json()["turn_url"] + "/answers", json={"call_id": pending["call_id"], "approved": True})
    turn = host.end_of_turn(first.json()["turn_url"])
    spans = trace_of(receiver, first.headers["x-ms-turn-id"])
    assert wait_reasons(spans) == ["person"]
    first_attempt, second_attempt = find_spans(spans, ATTEMPT)
    assert second_attempt.links == (first_attempt.id,)
    assert first_attempt.attributes["durable_agent_host.turn.status"] == "suspended"
    (replay,) = find_spans(spans, "chat practice", replayed=True)
    assert (replay.parent, tokens(replay)) == (second_attempt.id, [0, 0])
    assert (
        tokens(*find_spans(spans, TURN))
        == tokens(first_attempt, second_attempt)
        == tokens(*find_spans(spans, "chat practice"))
        == used(turn)
    )
    host.end_of_turn(second.json()["turn_url"])
    assert wait_reasons(trace_of(receiver, second.headers["x-ms-turn-id"])) == ["queue"]


def test_errors_retries_and_cancels_are_traced(host: AgentHost, model: PracticeModel, receiver: Receiver):
    """A retry is a wait, a failed turn has its error's type, a cancelled one its status."""
    rejection = {"error": {"status": 400, "message": f"no such temperature: {CANARY}"}}
    model.plan({"error": {"status": 503, "message": CANARY}}, rejection)
    failure = host.run("Traced", {"message": CANARY})
    spans = trace_of(receiver, failure.headers["x-ms-turn-id"])
    assert wait_reasons(spans) == ["retry"]
    (root,), (attempt,) = find_spans(spans, TURN), find_spans(spans, ATTEMPT)
    assert {span.attributes["error.type"] for span in (root, attempt)} == {"ProviderError"}
    plan_rounds(model, {"calls": [call("linger", seconds=60)]}, {"text": "too late"})
    running = host.run("Traced", {"message": "linger"}, headers={"x-ms-wait-for-response": "false"})
    wait_until(model.requests)
    time.sleep(0.3)
    requests.post(running.json()["turn_url"] + "/cancel")
    host.end_of_turn(running.json()["turn_url"])
    spans = trace_of(receiver, running.headers["x-ms-turn-id"])
    assert len(find_spans(spans, TURN, **{"turn.status": "cancelled"})) == 1


def test_metrics_have_the_tokens_of_the_responses(
    practice_model: PracticeModel, model: PracticeModel, receiver: Receiver, tmp_path: Path
):
    """Each token and each step is counted once, over a kill."""
    plan_rounds(model, {"calls": [call("note", text="one")]}, {"text": "It is noted."})
    body, headers = {"message": "go", "session_id": "m"}, {"Idempotency-Key": uuid4().hex}
    start = {"app": TELEMETRY, **receiver.environment(OTEL_SERVICE_NAME="counted")}
    crash_point = "journal.tool.after_intent"
    with start_host(tmp_path, practice_model, **start, DURABLE_AGENT_HOST_CRASH=crash_point) as first_host:
        _ask(first_host, body, headers)
        first_host.process.wait(60)
    with start_host(tmp_path, practice_model, **start) as host:
        turn = host.run("Traced", body, headers=headers).json()
        host.stop()  # sends what is left
    usage = dict(zip(("input", "output"), used(turn), strict=True))
    for kind, count in usage.items():
        attributes = {"service": "counted", "gen_ai__token__type": kind}
        assert (
            wait_until(lambda attributes=attributes: receiver.total("durable_agent_host.tokens", **attributes)) == count
        )
    for name in ("turns", "journal.replays", "calls.in_doubt", "attempts.lost"):
        assert receiver.total(f"durable_agent_host.{name}", service="counted") == 1, name


def test_the_log_has_the_start_and_end_of_a_turn(host: AgentHost, model: PracticeModel, receiver: Receiver):
    """One line each, with the ids of turn and trace; nothing that was said."""
    model.plan({"text": CANARY}, user_text=CANARY)
    response = host.run("Traced", {"message": CANARY})
    turn_id = response.headers["x-ms-turn-id"]
    (root,) = find_spans(trace_of(receiver, turn_id), TURN)
    label = f"turn {turn_id} (agent Traced, session '{response.headers['x-ms-session-id']}', trace {root.trace})"
    lines = [line for line in host.output if label in line]
    assert [" begins" in line for line in lines] == [True, False]
    count, token_counts = "1 attempts, 1 model calls, 0 tool calls", used(response.json())
    assert " completed after " in lines[1]
    assert f"{count}, {token_counts[0]} tokens in, {token_counts[1]} out\n" in lines[1]
    assert CANARY not in host.text
    sent = wait_until(lambda: len(matches := [line for line in receiver.lines if label in line.text]) > 1 and matches)
    (attempt,) = find_spans(trace_of(receiver, turn_id), ATTEMPT)
    assert [(line.trace, line.span) for line in sent] == [(root.trace, attempt.id), (root.trace, root.id)]


POINTS = (
    "turn.after_open",
    "journal.model.before_append",
    "journal.model.after_append",
    "journal.tool.before_intent",
    "journal.tool.after_intent",
    "journal.tool.after_append",
    "journal.model.before_append:2",
    "turn.before_outcome",
    "turn.after_outcome",
)


@pytest.mark.sweep
def test_a_turn_that_was_killed_is_one_trace(model: PracticeModel, receiver: Receiver, tmp_path: Path):
    """The lost attempt, the replayed steps and the end are one tree, and the turn has the tokens of its answer."""
    for index, point in enumerate(chooser("traces").sample(POINTS, len(POINTS) if IS_LONG else 3)):
        model.reset()
        plan_rounds(model, {"calls": [call("note", text="one")]}, {"text": "It is noted."})
        data, body = tmp_path / str(index), {"message": "go", "session_id": f"killed-{index}"}
        headers = {"Idempotency-Key": uuid4().hex}
        start = {"app": TELEMETRY, **receiver.environment()}
        with (
            start_host(data, model, **start, DURABLE_AGENT_HOST_CRASH=point) as first_host,
            ThreadPoolExecutor(1) as pool,
        ):
            asking = pool.submit(_ask, first_host, body, headers)
            first_host.process.wait(60)
            asking.result()
        with start_host(data, model, **start) as host:
            response = host.run("Traced", body, headers=headers)
            spans = trace_of(receiver, response.headers["x-ms-turn-id"])
        (root,) = find_spans(spans, TURN, **{"turn.status": "completed"})
        assert tokens(root) == used(response.json()), point
        assert tokens(*find_spans(spans, "chat practice", replayed=True)) == [0, 0]
        first, *later = find_spans(spans, ATTEMPT)
        if point == "turn.after_outcome":  # that attempt had done all of it
            assert (first.attributes["durable_agent_host.turn.status"], later) == ("completed", [])
            continue
        (last,) = later
        assert first.attributes["durable_agent_host.turn.status"] == "lost", point
        assert last.links == (first.id,)


def _ask(host: AgentHost, body: dict[str, str], headers: dict[str, str]) -> None:
    with suppress(requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
        host.run("Traced", body, headers=headers)
