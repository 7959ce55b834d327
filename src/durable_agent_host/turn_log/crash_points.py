"""Named points of a turn at which tests kill the process.

Off unless the environment variable ``DURABLE_AGENT_HOST_CRASH`` names a point when the process starts.
"""

import os
import signal
from functools import cache
from typing import Final

_VARIABLE: Final = "DURABLE_AGENT_HOST_CRASH"


def planned_crash(text: str) -> tuple[str, int]:
    """Parse a plan, ``POINT`` or ``POINT:N``.

    Returns:
        The point, and at which of its passes to crash; an empty point for none.
    """
    point, _, nth = text.partition(":")
    return point, int(nth or "1")


@cache
def armed_plan() -> list[tuple[str, int]]:
    """Read the plan of the process from the environment, once.

    Returns:
        One pair of `planned_crash`, which `reach` counts down.
    """
    return [planned_crash(os.environ.get(_VARIABLE, ""))]


def reach(point: str) -> None:
    """Pass a point; if it is the planned one, kill the process with SIGKILL."""
    plan = armed_plan()
    planned, left = plan[0]
    if planned == point:
        plan[0] = (point, left - 1)
        if left == 1:
            os.kill(os.getpid(), signal.SIGKILL)
