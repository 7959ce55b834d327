"""Cached and rewound orchestrators: what is resumed answers exactly as what is replayed."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import azure.durable_functions as df
import pytest
from azure.durable_functions import Orchestrator
from hypothesis import given, settings
from hypothesis import strategies as st

from functions_host.app import cached_orchestrators as subject
from functions_host.app.cached_orchestrators import CachedOrchestrator, is_supported
from functions_host.engine import events as ev
from functions_host.engine.durable_functions import Raised, Returned
from functions_host.engine.episodes import Episode, close_episode, open_episode, read_answer
from functions_host.engine.run_cache import Run
from functions_host.engine.sdk_wire import encode_event
from functions_host.engine.store_records import Arrival, InstanceRecord
from tests.functions_host.replay_driver import CATALOG, START
from tests.sweeps import count

POLICY = df.RetryOptions(1000, 2)
EXAMPLES = count("EXAMPLES", short=60, long=1500)
CHILD_STEPS = (
    "activity",
    "all",
    "any",
    "race",
    "event",
    "entity",
    "signal",
    "child",
    "retry",
    "again",
    "raise",
    "uuid",
)


def program(steps: list[str], seen: list[tuple[str, bool]]) -> Callable[[Any], Iterator[Any]]:
    """An orchestrator that takes these steps and notes, at each, whether it is told that it is replayed."""

    def flow(context: Any) -> Any:
        values: list[Any] = []
        first = None
        for number, step in enumerate(steps):
            seen.append((f"{number} {step}", context._is_replaying))
            context.set_custom_status({"at": number})
            try:
                first = yield from _take(context, step, values, first)
            except Exception as error:
                if step == "raise":
                    raise
                values.append(str(error))
        seen.append(("end", context._is_replaying))
        return [values, str(context.current_utc_datetime)]

    return flow


def _take(context: Any, step: str, values: list[Any], first: Any) -> Any:
    till = df.EntityId("till", "N")
    if step == "raise":
        raise ValueError(f"asked for, after {len(values)}")
    if step == "uuid":
        values.append(str(context.new_guid()))
        return first
    if step == "signal":
        context.signal_entity(till, "log", len(values))
        return first
    timer = context.create_timer(context.current_utc_datetime + timedelta(seconds=5))
    task = {
        "activity": lambda: context.call_activity("work", len(values)),
        "all": lambda: context.task_all([context.call_activity("work", n) for n in range(3)]),
        "any": lambda: context.task_any([context.call_activity("work", n) for n in range(2)]),
        "race": lambda: context.task_any([context.wait_for_external_event("Go"), timer]),
        "event": lambda: context.wait_for_external_event("Go"),
        "entity": lambda: context.call_entity(till, "get"),
        "child": lambda: context.call_sub_orchestrator("child", len(values)),
        "retry": lambda: context.task_all([context.call_activity_with_retry("flaky", POLICY, n) for n in range(2)]),
        "again": lambda: first,
    }[step]()
    value = yield task if task is not None else context.call_activity("work", "first")
    if step == "race" and not timer.is_completed:
        timer.cancel()
    values.append(value.result if isinstance(value, df.models.Task.TaskBase) else value)
    return first or task


class Driver:
    """Plays one orchestrator: in one way, with every answer of a full replay compared to the cached one's."""

    def __init__(self, steps: list[str], chooser: random.Random) -> None:
        self.seen: list[tuple[str, bool]] = []
        self.handle = Orchestrator.create(program(steps, self.seen))
        record = InstanceRecord(1, "f", "flow", "", "exec", "Running", False, None, None, None, None, START, START)
        self.run = Run(record, is_suspended=False)
        self.chooser = chooser
        self.now = START
        self.cached: CachedOrchestrator | None = None
        self.listed: list[ev.Action] = []
        self.history: list[str] = []
        self.output_json: str | None = None

    def play(self, delivered_events: list[ev.Completion] | None = None) -> str:
        """Play to the end, beginning with these arrivals; returns the final status."""
        delivered_events = delivered_events or []
        for _ in range(200):
            self.now += 1
            arrivals = [Arrival(n, encode_event(event, self.now)) for n, event in enumerate(delivered_events)]
            episode = open_episode(self.run, arrivals, delivered_events, self.now)
            result = self._call_both(episode)
            commit = close_episode(
                episode, result, catalog=CATALOG, new_id=lambda: "next", find_instance=lambda _: None
            )
            self.history += episode.texts
            if commit.status != "Running":
                self.output_json = commit.output_json
                return commit.status
            self.run.fed_count = len(self.run.replay) + episode.news_count
            for event, text in zip(episode.events, episode.texts, strict=True):
                self.run.append(event, text)
            self.run.retried_actions.update(episode.retried_actions)
            for number in commit.cancelled_timers:
                self.run.ledger.close(number)
            delivered_events = self._choose()
        raise AssertionError("it does not end")

    def _call_both(self, episode: Episode) -> ev.OrchestratorResult:
        self.seen.clear()
        full = read_answer(_call(lambda: self.handle(SimpleNamespace(body=episode.encode_context()))))
        news_of_replay = [step for step, is_replaying in self.seen if not is_replaying]
        self.seen.clear()
        if self.cached is None or not self.cached.is_waiting:
            self.cached = CachedOrchestrator(self.handle, episode.encode_context())
            _call(self.cached.start)
            self.listed = list(full.actions)
            return full
        cached = self.cached
        part = read_answer(_call(lambda: cached.resume(episode.encode_news())))
        assert [step for step, is_replaying in self.seen if not is_replaying] == news_of_replay
        assert part.is_partial
        assert (part.is_done, part.output_json, part.custom_status_json, part.error) == (
            full.is_done,
            full.output_json,
            full.custom_status_json,
            full.error,
        )
        self.listed += part.actions
        assert [_uncancelled(action) for action in self.listed] == [_uncancelled(action) for action in full.actions]
        ledger = self.run.ledger
        numbered = [action for action in full.actions if not isinstance(action, ev.WaitForEvent | ev.ContinueAsNew)]
        timers = [
            (n, numbered[ledger.position[n]])
            for n, t in ledger.open.items()
            if t.kind == "timer" and n in ledger.position
        ]
        is_cancelled = {n for n, action in timers if isinstance(action, ev.CreateTimer) and action.is_cancelled}
        fired = {event.task_id for event in episode.delivered_events if isinstance(event, ev.TimerFired)}
        assert {n for n in part.cancelled_timers if n in ledger.open} - fired == is_cancelled - fired
        return part

    def _choose(self) -> list[ev.Completion]:
        """Answer one or two of the open tasks and waits, in any order."""
        ledger = self.run.ledger
        choices: list[ev.Completion] = [self._answer(number) for number in ledger.open]
        choices += [
            ev.EventRaised(name, '"x"')
            for name, n in ledger.wait_counts.items()
            for _ in range(n - ledger.raised[name])
        ]
        assert choices, "it waits for nothing"
        count = 1 if ledger.open_retries else self.chooser.randint(1, min(2, len(choices)))
        return self.chooser.sample(choices, count)

    def _answer(self, number: int) -> ev.Completion:
        kind = self.run.ledger.open[number].kind
        fails = self.chooser.random() < 0.3
        if kind == "timer":
            return ev.TimerFired(number, START)
        if kind == "entity":
            return ev.EntityResponded(number, f"exec:{number}", '"no"' if fails else "5", fails)
        if kind == "child":
            return ev.ChildFailed(number, "R", "D") if fails else ev.ChildCompleted(number, '"c"')
        return ev.ActivityFailed(number, "R", "D") if fails else ev.ActivityCompleted(number, f"{number}")


def _call(step: Callable[[], str]) -> Returned | Raised:
    try:
        return Returned(step())
    except Exception as error:  # noqa: BLE001 - the SDK raises plain exceptions
        return Raised(type(error).__name__, str(error))


def _uncancelled(action: ev.Action) -> ev.Action:
    return replace(action, is_cancelled=False) if isinstance(action, ev.CreateTimer) else action


@settings(max_examples=EXAMPLES)
@given(st.lists(st.sampled_from(CHILD_STEPS), min_size=1, max_size=6), st.integers(0, 2**32))
def test_what_is_resumed_answers_as_what_is_replayed(steps: list[str], seed: int):
    """For any orchestrator and any order of answers, action by action, and with what it is told of replays."""
    assert Driver(steps, random.Random(seed)).play() in {"Completed", "Failed"}


def test_an_sdk_of_another_shape_is_replayed(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    """If resuming gives other answers than replaying, the host says so and replays."""
    monkeypatch.setattr(subject, "encode_events", lambda _: "[]")
    assert not is_supported()
    assert "replayed on every step" in caplog.text
