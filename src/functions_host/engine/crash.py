"""Named points of the engine at which a test can end the process.

Every work item passes ``before_call`` and ``after_call`` around the app's code, and every transaction
``before_commit``, when all of it is written and nothing is committed, and ``after_commit``, when nobody has
been told yet. Off unless ``arm`` is given a plan: the host passes ``FUNCTIONS_HOST_CRASH``.
"""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

CALLS = ("orchestrator", "activity", "entity")
COMMITS = ("start", "event", "operation", "suspend", "end", "rewind", "purge", "drop", "episode", "answer", "batch")
POINTS = (
    *(f"{kind}.{moment}_call" for kind in CALLS for moment in ("before", "after")),
    *(f"{kind}.{moment}_commit" for kind in COMMITS for moment in ("before", "after")),
)


def kill_process() -> None:
    """End this process as SIGKILL does: at once, without any clean-up."""
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(slots=True)
class _Plan:
    point: str
    passes_left: int
    act: Callable[[], None]


_plans: list[_Plan] = []


def arm(text: str, act: Callable[[], None] = kill_process) -> None:
    """Plan a crash.

    Args:
        text: ``point``, or ``point:n`` for the n-th time that the point is reached; empty for none.
        act: what to do then.

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
    """Pass a point; the planned crash happens when it is the one."""
    if _plans and _plans[0].point == point:
        plan = _plans[0]
        plan.passes_left -= 1
        if plan.passes_left == 0:
            _plans.clear()
            plan.act()
