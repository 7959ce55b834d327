"""The named points of `durable_agent_host.turn_log.crash_points`, by what passes them."""

from typing import Final

JOURNAL_POINTS: Final = (
    "turn.after_open",
    "journal.model.before_append",
    "journal.model.after_append",
    "journal.tool.before_intent",
    "journal.tool.after_intent",
    "journal.tool.after_run",
    "journal.tool.after_append",
    "pieces.after_put",
    "turn.before_outcome",
    "turn.after_outcome",
)
"""In the order in which a turn with tools passes them: ``turn.*`` once per attempt, the others at each step."""

WORKFLOW_POINTS: Final = ("journal.workflow.before_append", "journal.workflow.after_append")
"""Around the record that a workflow waits for answers."""

COPY_POINTS: Final = (
    "import.before_put",
    "import.after_put",
    "import.before_head",
    "fork.after_copy",
    "fork.before_head",
    "repair.after_copy",
    "repair.after_original",
    "repair.before_head",
)
"""Passed by imports, forks and repairs of long sessions; ``import.*_put`` each time that pieces are stored."""

UPKEEP_POINTS: Final = (
    "erasure.after_mark",
    "erasure.between_turns",
    "erasure.between_namespaces",
    "erasure.before_head",
    "sweep.before_delete",
)
"""Passed by erasures and sweeps."""

CLEANUP_POINTS: Final = ("forget.before_delete", "forget.between", "forget.after_delete")
"""Passed by the deletion of an ended turn's log and raw pieces, for apps that redact."""
