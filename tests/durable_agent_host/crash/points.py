"""Named points of a turn at which tests kill the process, before or after what it makes durable.

The host knows nothing of them: `arm` wraps its functions, in the process that is to die. A process of the tests arms
itself when its environment has ``DURABLE_AGENT_HOST_CRASH``, see `tests.forks`.
"""

import functools
import inspect
import os
import pkgutil
import signal
from collections.abc import Callable
from typing import Any, Final

from durable_agent_host.model.journal_entry import (
    FeatureEntry,
    ModelCallCompletedEntry,
    ModelCallStartedEntry,
    ToolCallCompletedEntry,
)

JOURNAL_POINTS: Final = (
    "turn.after_open",
    "journal.model.before_append",
    "journal.model.after_append",
    "journal.tool.before_intent",
    "journal.tool.after_intent",
    "journal.tool.after_run",
    "journal.tool.after_append",
    "blobs.after_put",
    "turn.before_outcome",
    "turn.after_outcome",
)
"""In the order in which a turn with tools passes them: ``turn.*`` once per attempt, the others at each step."""

WORKFLOW_POINTS: Final = ("journal.workflow.before_append", "journal.workflow.after_append")
"""Around the record that a workflow waits for answers."""

COPY_POINTS: Final = ("blobs.before_put", "blobs.after_put", "head.before_put", "head.after_put")
"""Passed by imports, forks and repairs of long sessions, each time that blobs or the head of a session are stored."""

UPKEEP_POINTS: Final = (
    "erasure.after_mark",
    "erasure.between_turns",
    "erasure.between_namespaces",
    "erasure.before_head",
    "sweep.before_delete",
)
"""Passed by erasures and sweeps."""

CLEANUP_POINTS: Final = ("forget.before_delete", "forget.between", "forget.after_delete")
"""Passed by the deletion of an ended turn's log and raw blobs, for apps that redact."""

_ENTRIES: Final = {
    ModelCallStartedEntry: ("background.before_append", "background.after_append"),
    ModelCallCompletedEntry: ("model.before_append", "model.after_append"),
    ToolCallCompletedEntry: ("tool.after_run", "tool.after_append"),
}


def _journal_points(_journal: Any, step: Any) -> tuple[str, str]:
    if isinstance(step, FeatureEntry):
        return f"journal.{step.feature}.before_append", f"journal.{step.feature}.after_append"
    if isinstance(step, ModelCallCompletedEntry) and step.path.compaction_number is not None:
        return "journal.side_call.before_append", "journal.side_call.after_append"
    if step.path.is_agent_run:
        return WORKFLOW_POINTS
    before, after = _ENTRIES[type(step)]
    return f"journal.{before}", f"journal.{after}"


_PUT: Final = ("blobs.before_put", "blobs.after_put")
_FUNCTIONS: Final[dict[str, tuple[str, str] | Callable[..., tuple[str, str]]]] = {
    "agent.turn_attempt:TurnAttempt.__init__": ("turn.after_open", ""),
    "turn_log.journal:Journal.append": _journal_points,
    "turn_log.journal:Journal.tool_started": ("journal.tool.before_intent", "journal.tool.after_intent"),
    "turn_log.journal:Journal.close": ("turn.before_outcome", "turn.after_outcome"),
    "features.histories.feature:RunHistoryProviders.save": ("", "history.after_save"),
    "segments.sqlite_store:SqliteBlobStore.put": _PUT,
    "segments.blob_store:AzureBlobStore.put": _PUT,
    "durable.session_documents:SessionDocuments.put": ("head.before_put", "head.after_put"),
    "durable.session_erasure:_Erasing.erase_turns": ("erasure.after_mark", ""),
    "durable.session_erasure:_Erasing._erase_group": ("", "erasure.between_turns"),
    "durable.session_erasure:_Erasing.delete_blobs": ("", "erasure.before_head"),
    "segments.garbage_collection:GarbageCollector.erase": ("", "erasure.between_namespaces"),
    "segments.garbage_collection:GarbageCollector._delete": ("sweep.before_delete", ""),
    "segments.turn_data_storage:TurnDataStorage.delete_unredacted": ("forget.before_delete", "forget.between"),
    "durable.session_queue_activity:TurnStopper.delete_log": ("", "forget.after_delete"),
}
"""By module and name: the points before and after a call, or a function of its arguments that returns them."""


_plan: Final[dict[str, int]] = {}


def arm(plan: str) -> None:
    """Let this process die at a point.

    Args:
        plan: ``POINT`` or ``POINT:N``, for its N-th pass, counted from now.
    """
    point, _, nth = plan.partition(":")
    _plan.clear()
    _plan[point] = int(nth or "1")
    _wrap_functions()


@functools.cache
def _wrap_functions() -> None:
    for name, points in _FUNCTIONS.items():
        path, _, attribute = f"durable_agent_host.{name}".rpartition(".")
        owner = pkgutil.resolve_name(path)
        function = inspect.getattr_static(owner, attribute)
        names_of = points if callable(points) else lambda *_, points=points, **__: points
        setattr(owner, attribute, _wrapped(function, names_of))


def _reach(point: str) -> None:
    if point in _plan:
        _plan[point] -= 1
        if not _plan[point]:
            os.kill(os.getpid(), signal.SIGKILL)


def _wrapped(function: Any, names_of: Callable[..., tuple[str, str]]) -> Any:
    if not inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            before, after = names_of(*args, **kwargs)
            _reach(before)
            result = function(*args, **kwargs)
            _reach(after)
            return result

        return call

    @functools.wraps(function)
    async def call_async(*args: Any, **kwargs: Any) -> Any:
        before, after = names_of(*args, **kwargs)
        _reach(before)
        result = await function(*args, **kwargs)
        _reach(after)
        return result

    return call_async
