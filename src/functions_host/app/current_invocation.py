"""The current invocation of running code: function name and invocation id.

The worker library propagates the id: in a context variable, which tasks inherit, and in the thread-local storage of
``func.Context``, which a function sets in its own threads. This module maps the id to the function's name.
"""

import asyncio
import importlib
from dataclasses import dataclass
from typing import Any

_MAX_TRACKED = 10_000  # also of invocations that have ended: a task may outlive the one that started it
_names: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Running:
    """An invocation, as shown in logs."""

    function: str
    id: str

    def __str__(self) -> str:
        """Return name and id."""
        return f"{self.function} {self.id}"


def track_invocation(invocation_id: str, function_name: str) -> None:
    """Register an invocation."""
    _names[invocation_id] = function_name
    if len(_names) > _MAX_TRACKED:
        _names.pop(next(iter(_names)), None)


def find_current() -> Running | None:
    """Return the invocation of the calling code."""
    executor: Any = importlib.import_module("azure_functions_runtime.utils.executor")
    found: str | None = executor.invocation_id_cv.get()
    # On the threads of event loops, the library leaves the last id where it is.
    if found is None and not _is_in_event_loop():
        context: Any = importlib.import_module("azure_functions_runtime.bindings.context")
        found = getattr(context._invocation_id_local, "invocation_id", None)  # noqa: SLF001 - func.Context has no other
    name = _names.get(found) if found else None
    return Running(name, found) if name and found else None


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
