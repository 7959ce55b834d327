"""Named points of the engine at which a test can kill the process.

Every work item passes ``before_call`` and ``after_call`` around the app's code. Every transaction passes
``before_commit``, with everything written and nothing committed, and ``after_commit``, before anyone is notified.
Off unless ``arm`` receives a plan: the host passes ``FUNCTIONS_HOST_CRASH``.
"""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

CALLS = ("orchestrator", "activity", "entity")
COMMITS = (
    *("start", "event", "operation", "suspend", "end", "purge"),
    *("episode", "answer", "batch"),
)
POINTS = (
    *(f"{kind}.{moment}_call" for kind in CALLS for moment in ("before", "after")),
    *(f"{kind}.{moment}_commit" for kind in COMMITS for moment in ("before", "after")),
)


def kill_process() -> None:
    """Kill this process: at once, without clean-up."""
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(slots=True)
class _Plan:
    point: str
    passes_left: int
    act: Callable[[], None]


_plans: list[_Plan] = []


def arm(text: str, act: Callable[[], None] = kill_process) -> None:
    """Plan a crash.

    Raises:
        ValueError: there is no such point; the message names all.
    """
    _plans.clear()
    if not text:
        return
    point, _, nth = text.partition(":")
    if point not in POINTS or not (nth or "1").isdigit():
        raise ValueError(f"{text!r} is no crash point; use one of {', '.join(POINTS)}, with ':n' for the n-th time.")
    _plans.append(_Plan(point, int(nth or "1"), act))


def reach(point: str) -> None:
    """Pass a point; crashes when the plan names it."""
    if _plans and _plans[0].point == point:
        plan = _plans[0]
        plan.passes_left -= 1
        if plan.passes_left == 0:
            _plans.clear()
            plan.act()
