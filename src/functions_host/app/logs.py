"""The app's log records on the console, with function and invocation; what the app prints goes there as it is.

Theory of operation. One handler on the root logger writes to the console. Records of the host pass unchanged. All
others are the app's: from INFO on, as the Python worker sends them, filtered by ``logging.logLevel`` in ``host.json``
with the categories ``Function.<name>``, ``Function`` and ``default``.
"""

import logging
import os
import sys
from collections.abc import Mapping
from typing import TextIO

from functions_host.app.current_invocation import Running, find_current

_FORMAT = "%(asctime)s %(levelname)s %(origin)s: %(message)s"
_HOSTS_OWN = ("functions_host", "azure.functions", "uvicorn", "watchfiles", "asyncio")
_TRUE = {"1", "true", "t", "yes", "y"}


def start_logs(*, verbose: bool) -> "Console":
    """Log the host's warnings, its requests with ``verbose``, and the app's records from INFO on."""
    console = Console(sys.stderr)
    root = logging.getLogger()
    root.addHandler(console)
    root.setLevel(logging.INFO)
    for name in _HOSTS_OWN:
        logging.getLogger(name).setLevel(logging.WARNING)
    if verbose:
        logging.getLogger("functions_host").setLevel(logging.INFO)
    return console


def show_app(levels: Mapping[str, int], environment: Mapping[str, str] = os.environ) -> None:
    """Apply the app's log settings; call it before the import of the app."""
    root = logging.getLogger()
    console = next((handler for handler in root.handlers if isinstance(handler, Console)), None)
    if console is None:
        return
    console.levels = levels
    if reconfigure := getattr(sys.stdout, "reconfigure", None):  # tests may have replaced the stream
        reconfigure(line_buffering=True)  # what the app prints is seen at once, also through a pipe
    if environment.get("PYTHON_ENABLE_DEBUG_LOGGING", "").strip().lower() in _TRUE:
        root.setLevel(logging.DEBUG)


def find_level(levels: Mapping[str, int], category: str) -> int:
    """Return the minimum level of a category: its own, that of its nearest parent, or ``default``."""
    by_name = {name.lower(): level for name, level in levels.items()}
    parts = category.lower().split(".")
    names = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return next((by_name[name] for name in [*names, "default"] if name in by_name), logging.INFO)


def category_of(running: Running | None) -> str:
    """Return the category of the app's records, as in the Functions host."""
    return f"Function.{running.function}.User" if running else "default"


class Console(logging.StreamHandler[TextIO]):
    """The console handler; ``levels`` are those of ``host.json``."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.setFormatter(logging.Formatter(_FORMAT))
        self.levels: Mapping[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool | logging.LogRecord:
        """Return whether a record is shown, and set its ``origin``."""
        record.origin = record.name
        if _is_hosts_own(record.name):
            return super().filter(record)
        running = find_current()
        if running is not None:
            record.origin = f"{record.name} [{running}]"
        return record.levelno >= find_level(self.levels, category_of(running)) and super().filter(record)


def _is_hosts_own(name: str) -> bool:
    return any(name == logger_name or name.startswith(f"{logger_name}.") for logger_name in _HOSTS_OWN)
