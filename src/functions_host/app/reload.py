"""``start --reload``: a parent process that restarts the host whenever a file of the app changes."""

import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from functions_host.errors import StartupError

_SUFFIXES = (".py", ".json")
_STOP_SECONDS = 5.0
_IGNORED_FOLDERS = {".venv", "venv", "env", "node_modules", "__pycache__", ".git"}


def run_reloading(arguments: Sequence[str], app_dir: Path, data_dir: Path) -> int:
    """Run ``start`` with these arguments, again after each change of the app's files, until a signal stops it.

    A host that exits, as for an app with an import error, starts again after the next change.

    Raises:
        StartupError: the package watchfiles is not installed.
    """
    try:
        import watchfiles  # noqa: PLC0415 - only this option needs it
    except ImportError:
        raise StartupError("--reload needs the package watchfiles; run: pip install watchfiles") from None

    def is_watched(_: Any, name: str) -> bool:
        path = Path(name)
        if path.suffix not in _SUFFIXES or path.is_relative_to(data_dir):
            return False
        return not any(part in _IGNORED_FOLDERS for part in path.relative_to(app_dir).parts[:-1])

    stop_event = threading.Event()

    def stop(*_: Any) -> None:
        stop_event.set()

    # Ctrl-C goes to the host itself as well; SIGTERM is handed on.
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, stop)
    child = _Child(arguments)
    try:
        for changes in watchfiles.watch(
            app_dir, watch_filter=is_watched, stop_event=stop_event, raise_interrupt=False, debounce=200, step=50
        ):
            names = ", ".join(sorted({str(Path(name).relative_to(app_dir)) for _, name in changes}))
            sys.stderr.write(f"Changed: {names}. Restarting.\n")
            child.stop()
            child = _Child(arguments)
    finally:
        child.stop()
    return 0


class _Child:
    """One host process."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", "functions_host", "start", *arguments])  # noqa: S603 - this program

    def stop(self) -> None:
        """Terminate it; kills it when it does not exit in time."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
