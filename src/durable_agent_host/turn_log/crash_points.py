"""Named points of a turn at which tests kill the process.

Off unless the environment variable ``DURABLE_AGENT_HOST_CRASH`` names a point when the process starts.
"""

import os
import signal
from functools import cache
from typing import Final

JOURNAL_POINTS: Final = (
    "turn.after_open",
    "journal.model.before_append",
    "journal.model.after_append",
    "journal.tool.before_intent",
    "journal.tool.after_intent",
    "journal.tool.after_run",
    "journal.tool.after_append",
    "pieces.after_hold",
    "pieces.after_put",
    "turn.before_outcome",
    "turn.after_outcome",
)
"""In the order in which a turn with tools passes them: ``turn.*`` once per attempt, the others at each step."""

HISTORY_POINTS: Final = ("history.after_save", "history.after_clear", "history.after_copy")
"""Passed by agents whose conversations a history provider of the app keeps: after it has saved the turn, before the
outcome; after it has deleted or copied the conversation, before the session changes.
"""

SIDE_CALL_POINTS: Final = ("journal.side_call.before_append", "journal.side_call.after_append")
"""Passed by agents whose compaction strategies call a model."""

WORKFLOW_POINTS: Final = ("journal.workflow.before_append", "journal.workflow.after_append")
"""Around the record that a workflow waits for answers."""

COPY_POINTS: Final = (
    "import.before_put",
    "import.after_put",
    "import.before_head",
    "fork.after_hold",
    "fork.before_head",
    "repair.after_hold",
    "repair.after_original",
    "repair.before_head",
)
"""Passed by imports, forks and repairs of long sessions; ``import.*_put`` each time that pieces are stored."""

UPKEEP_POINTS: Final = (
    "erasure.after_mark",
    "erasure.between_turns",
    "erasure.between_homes",
    "erasure.before_head",
    "sweep.before_delete",
    "sweep.before_release",
)
"""Passed by erasures and sweeps."""

BUDGET_POINTS: Final = (
    "journal.budget.before_reserve",
    "journal.budget.after_reserve",
    "journal.budget.before_release",
    "journal.budget.after_release",
)
"""Passed by agents with a budget: before each model call, and when the service refuses one."""

MESSAGE_POINTS: Final = ("journal.message.before_append", "journal.message.after_append")
"""Passed when a model call gets a message that was sent to the running turn."""

BACKGROUND_POINTS: Final = ("journal.background.before_append", "journal.background.after_append")
"""Passed when a service generates a response in the background."""

OVERFLOW_POINTS: Final = ("journal.overflow.before_append", "journal.overflow.after_append")
"""Passed when a request is longer than the model's context window."""

FALLBACK_POINTS: Final = ("journal.fallback.before_append", "journal.fallback.after_append")
"""Passed when another client answers a model call."""

CLEANUP_POINTS: Final = ("forget.before_delete", "forget.between", "forget.after_delete")
"""Passed by the deletion of an ended turn's log and raw pieces, for apps that redact."""

KEY_POINTS: Final = ("keys.before_put", "keys.after_put", "keys.after_delete")
"""Passed when making a data key and wrapping it again, for apps that encrypt; the last one only by the latter."""

CRASH_POINTS: Final = (
    *JOURNAL_POINTS,
    *HISTORY_POINTS,
    *SIDE_CALL_POINTS,
    *WORKFLOW_POINTS,
    *BUDGET_POINTS,
    *MESSAGE_POINTS,
    *BACKGROUND_POINTS,
    *OVERFLOW_POINTS,
    *FALLBACK_POINTS,
    *CLEANUP_POINTS,
    *COPY_POINTS,
    *UPKEEP_POINTS,
    *KEY_POINTS,
)

_VARIABLE: Final = "DURABLE_AGENT_HOST_CRASH"


def planned_crash(text: str) -> tuple[str, int]:
    """Parse a plan.

    Returns:
        The point, and at which of its passes to crash; an empty point for none.

    Raises:
        ValueError: the point does not exist; the message lists all.
    """
    point, _, nth = text.partition(":")
    if text and (point not in CRASH_POINTS or not (nth or "1").isdigit()):
        raise ValueError(
            f"{text!r} is no crash point: use one of {', '.join(CRASH_POINTS)}, with ':n' for the n-th time"
        )
    return point, int(nth or "1")


@cache
def armed_plan() -> list[tuple[str, int]]:
    """Read the plan of the process from the environment, once.

    Returns:
        One pair of `planned_crash`, which `reach` counts down.

    Raises:
        ValueError: the point does not exist.
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
