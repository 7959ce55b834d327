"""The app's log records and prints on the console, with function and invocation.

Theory of operation. One handler on the root logger writes to the console. Records of the host pass unchanged. All
others are the app's: from INFO on, as the Python worker sends them, filtered by ``logging.logLevel`` in ``host.json``
with the categories ``Function.<name>``, ``Function`` and ``default``. The process's stdout and stderr are wrapped:
lines printed in an invocation become records, everything else passes through.
"""

import logging
import os
import sys
import threading
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from functions_host.app.current_invocation import Running, call_when_ended, find_current

_FORMAT = "%(asctime)s %(levelname)s %(origin)s: %(message)s"
_HOSTS_OWN = ("functions_host", "azure.functions", "uvicorn", "watchfiles", "asyncio")
_FOR_THE_PLATFORM = "LanguageWorkerConsoleLog"
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
    """Apply the app's log settings and capture its prints; call it before the import of the app."""
    root = logging.getLogger()
    console = next((handler for handler in root.handlers if isinstance(handler, Console)), None)
    if console is None:
        return
    console.levels = levels
    if environment.get("PYTHON_ENABLE_DEBUG_LOGGING", "").strip().lower() in _TRUE:
        root.setLevel(logging.DEBUG)
    for name in ("stdout", "stderr"):
        prints = Prints(getattr(sys, name), name, console)
        setattr(sys, name, prints)
        call_when_ended(prints.end_line)


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
        if record.levelno < find_level(self.levels, category_of(running)) or self._is_printed_by_app(record):
            return False
        return super().filter(record)

    def _is_printed_by_app(self, record: logging.LogRecord) -> bool:
        """Return whether a handler of the app writes the record to the console."""
        logger: logging.Logger | None = logging.getLogger(record.name) if record.name != "root" else logging.getLogger()
        while logger is not None:
            for handler in logger.handlers:
                if handler is not self and handler.level <= record.levelno and _is_console(handler):
                    return True
            logger = logger.parent if logger.propagate else None
        return False


def _is_hosts_own(name: str) -> bool:
    return any(name == logger_name or name.startswith(f"{logger_name}.") for logger_name in _HOSTS_OWN)


def _is_console(handler: logging.Handler) -> bool:
    stream: Any = getattr(handler, "stream", None) or getattr(getattr(handler, "console", None), "file", None)
    streams = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    return stream is not None and any(stream is standard_stream for standard_stream in streams)


class Prints:
    """Wraps stdout or stderr: turns lines printed in an invocation into records."""

    def __init__(self, stream: TextIO, name: str, console: Console) -> None:
        self._stream = stream
        self._name = name
        self._console = console
        self._open: dict[str, str] = {}  # by invocation, what is printed of a line that has not ended
        self._lock = threading.RLock()  # the collector of garbage may print while a line is being put together

    def write(self, text: str, /) -> int:
        """Write text; collects lines within an invocation."""
        running = find_current()
        if running is None:
            return self._stream.write(text)
        with self._lock:
            *lines, unfinished_line = (self._open.pop(running.id, "") + text).split("\n")
            if unfinished_line:
                self._open[running.id] = unfinished_line
        for line in lines:
            self._show(line, running)
        return len(text)

    def writelines(self, lines: Iterable[str], /) -> None:
        """Write several texts."""
        self.write("".join(lines))

    def flush(self) -> None:
        """Flush the unfinished line of the invocation, and the stream."""
        running = find_current()
        if running is not None:
            self.end_line(running)
        self._stream.flush()

    def close(self) -> None:
        """Flush, and stay open: the worker library flushes the process's stream after each function."""
        self.flush()

    def end_line(self, running: Running) -> None:
        """Write the unfinished line of an invocation."""
        with self._lock:
            unfinished_line = self._open.pop(running.id, "")
        if unfinished_line:
            self._show(unfinished_line, running)

    def _show(self, line: str, running: Running) -> None:
        """Write a line directly to the console: a handler of the app may print its records, which would recurse."""
        level = find_level(self._console.levels, category_of(running))
        if line.startswith(_FOR_THE_PLATFORM) or level > logging.INFO:
            return
        record = logging.LogRecord(self._name, logging.INFO, "", 0, "%s", (line.rstrip("\r"),), None)
        record.origin = f"{self._name} [{running}]"
        self._console.acquire()
        try:
            self._console.emit(record)
        finally:
            self._console.release()

    def __getattr__(self, name: str) -> Any:
        """Delegate everything else to the stream."""
        return getattr(self._stream, name)
