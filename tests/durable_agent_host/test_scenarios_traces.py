"""One trace for each turn, as a receiver of OTLP holds it that the OpenTelemetry SDK's exporters send to."""

import time
from collections.abc import Iterator
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

TELEMETRY = Path(__file__).parent / "apps" / "telemetry"
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


def trace_of(receiver: Receiver, turn_id: str, attempts: int = 1) -> list[SentSpan]:
    """Wait for the trace of a turn that has ended; all its spans are below those of its attempts."""
    wait_until(lambda: len(find_spans(receiver.spans(turn_id), ATTEMPT)) == attempts)
    time.sleep(0.2)  # what is sent twice
    everything = receiver.spans(turn_id)
    assert len({span.trace for span in everything}) == 1
    assert not [span for span in everything if CANARY in str(span)]
    spans = [span for span in everything if span.scope in SCOPES]
    ids = [span.id for span in spans]
    assert len(ids) == len(set(ids)), "a span came twice"
    assert not [span for span in spans if span.parent not in ids and span.name != ATTEMPT], "a span without its parent"
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
    """Attempt, model and tool are one tree below the caller's span; nothing that was said."""
    plan_rounds(model, {"calls": [call("note", text=CANARY)]}, {"text": f"{CANARY} is noted"})
    trace, span = uuid4().hex, uuid4().hex[:16]
    response = host.run("Traced", {"message": CANARY}, headers={"traceparent": f"00-{trace}-{span}-01"})
    spans = trace_of(receiver, response.headers["x-ms-turn-id"])
    (attempt,) = find_spans(spans, ATTEMPT, **{"turn.status": "completed"}, attempt=1, model_calls=2, tool_calls=1)
    assert (attempt.trace, attempt.parent) == (trace, span)
    chats, tools = find_spans(spans, "chat practice"), find_spans(spans, "execute_tool note")
    assert {child.parent for child in (*chats, *tools)} == {attempt.id}
    assert tokens(attempt) == tokens(*chats) == used(response.json())
    assert len(spans) == 1 + 2 + 1


def test_calls_within_an_agent_are_below_its_tool_call(host: AgentHost, model: PracticeModel, receiver: Receiver):
    """The inner agent's run is a child of the span of the tool call, and its model calls and tool calls of the run."""
    model.plan({"calls": [call("clerk", task="note")]}, {"text": "Done."}, agent="Use your tools.")
    model.plan({"calls": [call("note", text=CANARY)]}, {"text": "Noted."}, agent="You are the clerk.")
    turn_id = host.run("Traced", {"message": CANARY}).headers["x-ms-turn-id"]
    spans = {span.id: span for span in wait_until(lambda: ended_spans(receiver, turn_id))}

    def ancestors(span: SentSpan) -> list[str]:
        return [span.name, *(ancestors(spans[span.parent]) if span.parent in spans else [])]

    outer_path = [ATTEMPT]
    inner_path = ["invoke_agent clerk", "execute_tool clerk", *outer_path]
    expected_paths = [[name, *inner_path] for name in ("chat practice", "chat practice", "execute_tool note")]
    expected_paths += [["chat practice", *outer_path]] * 2 + [inner_path, inner_path[1:]]
    calls = [span for span in spans.values() if span.name.startswith(("chat", "execute_tool", "invoke_agent clerk"))]
    assert sorted(map(ancestors, calls)) == sorted(expected_paths)


def ended_spans(receiver: Receiver, turn_id: str) -> list[SentSpan] | None:
    """The spans of a turn, once the last ones are there."""
    spans = receiver.spans(turn_id)
    names = {span.name for span in spans}
    return spans if {ATTEMPT, "execute_tool clerk", "invoke_agent clerk"} <= names else None


def test_turns_of_an_orchestration_are_in_its_trace(host: AgentHost, model: PracticeModel, receiver: Receiver):
    """Each turn is a separate tree below the orchestration's span, and counts its own tokens."""
    model.plan({"text": "yes"}, times=None)
    trace, span = uuid4().hex, uuid4().hex[:16]
    assert host.orchestrate("talk", {"traceparent": f"00-{trace}-{span}-01"})["runtimeStatus"] == "Completed"

    def attempts() -> list[SentSpan] | None:
        spans = [span for span in receiver.all_spans() if span.trace == trace and span.name == ATTEMPT]
        return spans if len(spans) == 2 else None

    for attempt in wait_until(attempts):
        spans = [sent_span for sent_span in receiver.all_spans() if sent_span.parent == attempt.id]
        assert attempt.parent == span
        assert tokens(attempt) == tokens(*spans) != [0, 0]


def test_a_turn_that_waits_has_an_attempt_before_and_after(host: AgentHost, model: PracticeModel, receiver: Receiver):
    """Each counts its own tokens; what the journal answers is marked, and counts none."""
    model.plan({"calls": [call("pay", amount=1)]}, {"text": "paid"}, by_round=True, times=None, user_text="pay")
    first = host.run("Traced", {"message": "pay"})
    assert first.status_code == 202
    (pending,) = first.json()["pending_calls"]
    requests.post(first.json()["turn_url"] + "/answers", json={"call_id": pending["call_id"], "approved": True})
    turn = host.end_of_turn(first.json()["turn_url"])
    spans = trace_of(receiver, first.headers["x-ms-turn-id"], attempts=2)
    first_attempt, second_attempt = find_spans(spans, ATTEMPT)
    assert first_attempt.attributes["durable_agent_host.turn.status"] == "suspended"
    (replay,) = find_spans(spans, "chat practice", replayed=True)
    assert (replay.parent, tokens(replay)) == (second_attempt.id, [0, 0])
    assert tokens(first_attempt, second_attempt) == tokens(*find_spans(spans, "chat practice")) == used(turn)


def test_errors_retries_and_cancels_are_traced(host: AgentHost, model: PracticeModel, receiver: Receiver):
    """A retry is a wait, a failed turn has its error's type, a cancelled one its status."""
    rejection = {"error": {"status": 400, "message": f"no such temperature: {CANARY}"}}
    model.plan({"error": {"status": 503, "message": CANARY}}, rejection)
    failure = host.run("Traced", {"message": CANARY})
    spans = trace_of(receiver, failure.headers["x-ms-turn-id"])
    assert wait_reasons(spans) == ["retry"]
    (attempt,) = find_spans(spans, ATTEMPT)
    assert attempt.attributes["error.type"] == "ProviderError"
    plan_rounds(model, {"calls": [call("linger", seconds=60)]}, {"text": "too late"})
    running = host.run("Traced", {"message": "linger"}, headers={"x-ms-wait-for-response": "false"})
    wait_until(model.requests)
    time.sleep(0.3)
    requests.post(running.json()["turn_url"] + "/cancel")
    host.end_of_turn(running.json()["turn_url"])
    spans = trace_of(receiver, running.headers["x-ms-turn-id"])
    assert len(find_spans(spans, ATTEMPT, **{"turn.status": "cancelled"})) == 1


def test_a_turn_that_was_killed_is_one_trace_and_is_counted_once(
    practice_model: PracticeModel, model: PracticeModel, receiver: Receiver, tmp_path: Path
):
    """The span of the lost attempt is lost; each token and each step is counted once."""
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
    (attempt,) = wait_until(lambda: find_spans(receiver.spans(turn["turn_id"]), ATTEMPT, attempt=2))
    everything = receiver.spans(turn["turn_id"])
    assert len({span.trace for span in everything}) == 1
    assert attempt.attributes["durable_agent_host.turn.status"] == "completed"
    assert tokens(*find_spans(everything, "chat practice", replayed=True)) == [0, 0]
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
    (attempt,) = find_spans(trace_of(receiver, turn_id), ATTEMPT)
    label = f"turn {turn_id} (agent Traced, session '{response.headers['x-ms-session-id']}', trace {attempt.trace})"
    lines = [line for line in host.output if label in line]
    assert [" begins" in line for line in lines] == [True, False]
    count, token_counts = "1 attempts, 1 model calls, 0 tool calls", used(response.json())
    assert " completed after " in lines[1]
    assert f"{count}, {token_counts[0]} tokens in, {token_counts[1]} out\n" in lines[1]
    assert CANARY not in host.text
    sent = wait_until(lambda: len(matches := [line for line in receiver.lines if label in line.text]) > 1 and matches)
    assert [line.trace for line in sent] == [attempt.trace] * 2


def _ask(host: AgentHost, body: dict[str, str], headers: dict[str, str]) -> None:
    with suppress(requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
        host.run("Traced", body, headers=headers)
