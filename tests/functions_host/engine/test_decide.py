"""The pure core with the real SDK: numbers, retries, waits, ends."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import azure.durable_functions as df
import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions_host.engine import events as ev
from functions_host.engine.decide import select_arrivals
from functions_host.engine.ledger import Ledger
from functions_host.engine.sdk_wire import decode_completion, decode_event, encode_event
from tests.functions_host.replay_driver import START, Player, play_all

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
        player.play(*(decode_completion(json.dumps(body)) for body in group))
    assert [list(item) for item in player.scheduled()] == replay["scheduled"]
    last = player.commits[-1]
    assert (last.status, last.output_json and json.loads(last.output_json)) == (replay["status"], replay["output"])


def test_only_new_actions_become_work():
    """What was scheduled before is not scheduled again, although the SDK lists it on every call."""
    player = play_all(chain, [])
    assert [work.input_json for work in player.commits[0].activities] == ["1"]
    commit = player.play(ev.ActivityCompleted(0, "7"))
    assert [(work.task_id, work.input_json) for work in commit.activities] == [(1, "7")]
    end = player.play(ev.ActivityCompleted(1, "8"))
    assert (end.status, end.output_json, end.activities) == ("Completed", "8", [])


def test_a_failed_attempt_waits_its_interval_and_the_last_one_does_not():
    """Retry timers are the engine's; after the last failure the SDK expects one more, which fires at once."""
    player = Player(retried_pair)
    player.play()
    for origin, (task, timer) in enumerate([(1, 2), (3, 4), (5, 6)]):
        commit = player.play(ev.ActivityFailed(task, "R", "D"))
        delay = commit.own_arrivals[0].due_at - player.now
        assert (commit.own_arrivals[0].task_id, delay) == (timer, 5.0 if origin < 2 else 0.0)
        commit = player.play(ev.TimerFired(timer, START))
        assert [work.task_id for work in commit.activities] == ([timer + 1] if origin < 2 else [])
    assert commit.status == "Running"
    assert player.play(ev.ActivityCompleted(0, "1")).status == "Failed"


def test_retried_tasks_are_answered_one_by_one():
    """With a retry open, the numbers depend on the order of events: one arrival per episode."""
    player = play_all(retried_pair, [])
    arrivals = [ev.ActivityFailed(0, "R", "D"), ev.ActivityCompleted(1, "2")]
    assert select_arrivals(player.ledger(), arrivals) == ([0], [])
    plain = Ledger()
    plain.apply(ev.ActivityScheduled(0, "a"))
    plain.apply(ev.ActivityScheduled(1, "b"))
    assert select_arrivals(plain, arrivals) == ([0, 1], [])


def test_early_events_are_held_back():
    """An event is delivered only when a wait for it is open, and only one per wait."""
    player = play_all(two_ticks, [])
    ticks = [ev.EventRaised("Tick", "1"), ev.EventRaised("Tick", "2")]
    assert select_arrivals(player.ledger(), ticks) == ([], [])
    player.play(ev.ActivityCompleted(0, None))
    assert select_arrivals(player.ledger(), ticks) == ([0], [])
    player.play(ticks[0])
    assert select_arrivals(player.ledger(), ticks[1:]) == ([0], [])


def test_answers_that_nobody_waits_for_are_dropped():
    """A second answer to a task, and one to a task that never was."""
    player = play_all(chain, [])
    arrivals = [ev.ActivityCompleted(0, "1"), ev.ActivityCompleted(0, "1"), ev.TimerFired(9, START)]
    assert select_arrivals(player.ledger(), arrivals) == ([0], [1, 2])


def test_a_cancelled_timer_is_taken_back():
    """The commit names the timer whose action says that it is cancelled."""
    player = play_all(race, [])
    commit = player.play(ev.EventRaised("Go", "3"))
    assert commit.cancelled_timers == [0]
    assert [work.input_json for work in commit.activities] == ["3"]


def test_entity_messages_carry_double_encoded_input_and_a_way_back():
    """A signal has no caller; a call is answered under its request id, the same on every replay."""
    player = play_all(entity_calls, [])
    signal, call = (work.operation for work in player.commits[0].operations)
    assert (signal.name, signal.input_json, signal.caller) == ("open", '"null"', None)
    assert (call.input_json, call.caller.task_id) == ('"5"', 1)
    end = player.play(ev.EntityResponded(1, call.caller.request_id, "15", has_failed=False))
    assert end.output_json == "15"


def test_signals_of_a_failing_episode_are_sent():
    """An orchestrator that raises still does what it had asked for."""
    player = play_all(child_then_signal, [])
    assert player.commits[0].children[0].instance_id == "exec-1:0"
    end = player.play(ev.ChildCompleted(0, '"yes"'))
    assert [work.operation.input_json for work in end.operations] == ['"\\"yes\\""']
    assert json.loads(end.output_json) == "Orchestrator function 'flow' failed: after the signal"


def test_continue_as_new_begins_a_new_generation():
    """The renewal carries a new execution id and the input as the client would send it."""
    end = play_all(renews, [[ev.ActivityCompleted(0, None)]]).commits[-1]
    assert end.renewal == ("next", json.dumps('{"n": 2}'))


TEXT = st.text(max_size=20)
NUMBER = st.integers(0, 10_000)
TIME = st.floats(1e9, 4e9).map(lambda t: round(t, 3))
EVENTS = st.one_of(
    st.builds(ev.EpisodeStarted),
    st.builds(ev.EpisodeCompleted, st.dictionaries(TEXT, NUMBER, max_size=3)),
    st.builds(ev.ExecutionStarted, TEXT, TEXT, TEXT, TEXT),
    st.builds(ev.ActivityScheduled, NUMBER, TEXT, st.none() | NUMBER),
    st.builds(ev.ChildScheduled, NUMBER, TEXT, TEXT, st.none() | NUMBER),
    st.builds(ev.TimerScheduled, NUMBER, TIME, st.none() | NUMBER),
    st.builds(ev.EntityCalled, NUMBER, TEXT, TEXT, TEXT, TEXT),
    st.builds(ev.EntitySignalled, NUMBER, TEXT, TEXT, TEXT),
    st.builds(ev.ActivityCompleted, NUMBER, st.none() | TEXT),
    st.builds(ev.ActivityFailed, NUMBER, TEXT, TEXT),
    st.builds(ev.ChildCompleted, NUMBER, st.none() | TEXT),
    st.builds(ev.ChildFailed, NUMBER, TEXT, TEXT),
    st.builds(ev.TimerFired, NUMBER, TIME),
    st.builds(ev.EntityResponded, NUMBER, TEXT, TEXT, st.booleans()),
    st.builds(ev.EventRaised, TEXT, st.none() | TEXT),
)


@given(EVENTS, TIME)
def test_events_survive_a_round_trip(event: Any, at: float):
    """What is written to the history is read back as it was."""
    back = decode_event(encode_event(event, at))
    if isinstance(event, ev.TimerScheduled | ev.TimerFired):
        assert abs(back.fire_at - event.fire_at) < 1e-5
    else:
        assert back == event
