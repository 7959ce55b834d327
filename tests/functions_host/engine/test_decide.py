"""The pure core with the real SDK: numbers, retries, waits, ends."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import azure.durable_functions as df
import pytest

from functions_host.engine import events as ev
from functions_host.engine.sdk_wire import decode_event
from tests.functions_host.replay_driver import Player, play_all

REPLAYS = Path(__file__).parents[2] / "replay"


def chain(context: Any):
    first = yield context.call_activity("Work", 1)
    second = yield context.call_activity("Work", first)
    return second


def retried_pair(context: Any):
    policy = df.RetryOptions(5000, 3)
    values = yield context.task_all([context.call_activity_with_retry("Flaky", policy, n) for n in (1, 2)])
    return values


def two_ticks(context: Any):
    yield context.call_activity("Prepare", None)
    first = yield context.wait_for_external_event("Tick")
    second = yield context.wait_for_external_event("Tick")
    return [first, second]


def race(context: Any):
    timer = context.create_timer(context.current_utc_datetime + timedelta(seconds=10))
    event = context.wait_for_external_event("Go")
    winner = yield context.task_any([event, timer])
    if winner is event:
        timer.cancel()
        value = yield context.call_activity("Work", event.result)
        return value
    return "late"


def entity_calls(context: Any):
    till = df.EntityId("Till", "North")
    context.signal_entity(till, "open")
    total = yield context.call_entity(till, "deposit", 5)
    return total


def child_then_signal(context: Any):
    answer = yield context.call_sub_orchestrator("Child", {"a": 1})
    context.signal_entity(df.EntityId("till", "N"), "log", answer)
    raise ValueError("after the signal")


def renews(context: Any):
    yield context.call_activity("Work", 1)
    context.continue_as_new({"n": 2})


ORCHESTRATORS = {f.__name__: f for f in (chain, retried_pair, two_ticks, race, entity_calls, child_then_signal, renews)}


def read_replays() -> list[Any]:
    return [pytest.param(json.loads(path.read_text()), id=path.stem) for path in sorted(REPLAYS.glob("*.json"))]


@pytest.mark.parametrize("replay", read_replays())
def test_recorded_replays(replay: Any):
    """A recorded sequence of arrivals gives the recorded numbers, work and end."""
    player = Player(ORCHESTRATORS[replay["orchestrator"]])
    player.play()
    for group in replay["episodes"]:
        player.play(*(decode_event(json.dumps(body)) for body in group))
    assert [list(item) for item in player.scheduled_tasks()] == replay["scheduled"]
    last = player.commits[-1]
    assert (last.status, last.output_json and json.loads(last.output_json)) == (replay["status"], replay["output"])


def test_signals_of_a_failing_episode_are_sent():
    """An orchestrator that raises still does what it had asked for."""
    player = play_all(child_then_signal, [])
    assert player.commits[0].children[0].instance_id == "exec-1:0"
    end = player.play(ev.ChildCompleted(0, '"yes"'))
    assert [entity_work.operation.input_json for entity_work in end.operations] == ['"\\"yes\\""']
    assert json.loads(end.output_json) == "Orchestrator function 'flow' failed: after the signal"
