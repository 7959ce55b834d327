"""Plan the rewind of a failed orchestration to before its failure.

Theory of operation. A prefix of a history that ends with an episode is always consistent: its replay yields the
same task numbers. So the history is cut before the episode that delivered the failure. Arrivals after the cut are
delivered again: successes of earlier tasks and external events; failed tasks of before the cut run again. Tasks
scheduled after the cut are dropped and scheduled anew when the orchestrator reaches them.

The cut is before the episode in which the orchestrator raised (``EpisodeCompleted.is_over``). If that episode
delivered no failure, an earlier failure or the orchestrator itself was the cause: then the cut is before the first
failure, or before that episode.

Guarantee: pure.
Source: ``HttpApiHandler.cs`` of azure-functions-durable-extension 2.13; the rules for caught failures and
retries are this engine's own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from functions_host.engine.events import (
    ActivityCompleted,
    ActivityFailed,
    ChildCompleted,
    ChildFailed,
    ChildScheduled,
    EntityResponded,
    EpisodeCompleted,
    EpisodeStarted,
    Event,
    EventRaised,
    TimerFired,
)
from functions_host.engine.ledger import Ledger
from functions_host.engine.sdk_wire import decode_event


@dataclass(frozen=True, slots=True)
class RewindPlan:
    """What is left of a history, and what is to happen again.

    Args:
        length: how many events stay.
        redelivered: texts of events that come in again, with the task that each answers.
        rerun: numbers of the tasks to run again.
        children: numbers and instance ids of the failed sub-orchestrations.
    """

    length: int
    redelivered_texts: tuple[tuple[int | None, str], ...]
    rerun: tuple[int, ...]
    children: tuple[tuple[int, str], ...]


def plan_rewind(texts: Sequence[str]) -> RewindPlan:
    """Plan the rewind of a failed generation from its history."""
    events = [decode_event(text) for text in texts]
    length = _find_cut(events)
    before = Ledger()
    child_ids: dict[int, str] = {}
    for event in events[:length]:
        before.apply(event)
        if isinstance(event, ChildScheduled):
            child_ids[event.task_id] = event.instance_id
    left = set(before.open)
    redelivered_texts: list[tuple[int | None, str]] = []
    children: list[tuple[int, str]] = []
    rerun: list[int] = []
    for event, text in zip(events[length:], texts[length:], strict=True):
        match event:
            case EventRaised():
                redelivered_texts.append((None, text))
            case ActivityFailed(number) if number in left:
                left.discard(number)
                rerun.append(number)
            case ChildFailed(number) if number in left:
                left.discard(number)
                children.append((number, child_ids[number]))
            case ActivityCompleted(number) | ChildCompleted(number) | TimerFired(number) | EntityResponded(number) if (
                number in left
            ):
                left.discard(number)
                redelivered_texts.append((number, text))
            case _:
                pass
    return RewindPlan(length, tuple(redelivered_texts), tuple(sorted({*rerun, *left})), tuple(children))


def _find_cut(events: Sequence[Event]) -> int:
    episode_completions = [
        (index, event.is_over) for index, event in enumerate(events) if isinstance(event, EpisodeCompleted)
    ]
    end = next((index for index, is_over in episode_completions if is_over), episode_completions[-1][0])
    start = _episode_start(events, end)
    ledger = Ledger()
    retry_of: dict[int, int] = {}
    failed_at: dict[int, int] = {}
    first_failure: int | None = None
    for index, event in enumerate(events[: end + 1]):
        if isinstance(event, ActivityFailed | ChildFailed):
            origin = retry_of.get(event.task_id)
            failed_at[event.task_id if origin is None else origin] = index
            if origin is None:
                first_failure = index if first_failure is None else first_failure
                if index > start:
                    return start
        elif isinstance(event, TimerFired) and index > start and (origin := retry_of.get(event.task_id)) in failed_at:
            return _episode_start(events, failed_at[origin])
        ledger.apply(event)
        number = getattr(event, "task_id", None)
        task = ledger.open.get(number) if number is not None else None
        if task is not None and number is not None and task.retry_of is not None:
            retry_of[number] = task.retry_of
    return start if first_failure is None else _episode_start(events, first_failure)


def _episode_start(events: Sequence[Event], index: int) -> int:
    return max(i for i, event in enumerate(events[: index + 1]) if isinstance(event, EpisodeStarted))
