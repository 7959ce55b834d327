"""``start --reload``: a parent process that restarts the host whenever a file of the app changes."""

import logging
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import watchfiles

from functions_host.settings import STOP_SECONDS

_SUFFIXES = (".py", ".json")
_IGNORED_FOLDERS = {".venv", "venv", "env", "node_modules", "__pycache__", ".git"}


def run_reloading(arguments: Sequence[str], app_dir: Path, data_dir: Path) -> int:
    """Run ``start`` with these arguments, again after each change of the app's files, until a signal stops it.

    A host that exits, as for an app with an import error, starts again after the next change.
    """
    logging.getLogger("watchfiles").setLevel(logging.ERROR)  # it warns of a process that has ended, and of Ctrl-C

    def is_watched(_: Any, name: str) -> bool:
        path = Path(name)
        if path.suffix not in _SUFFIXES or path.is_relative_to(data_dir):
            return False
        return not any(part in _IGNORED_FOLDERS for part in path.relative_to(app_dir).parts[:-1])

    def announce(changes: set[tuple[Any, str]]) -> None:
        names = ", ".join(sorted({str(Path(name).relative_to(app_dir)) for _, name in changes}))
        sys.stderr.write(f"Changed: {names}. Restarting.\n")

    os.environ.setdefault(STOP_SECONDS, "0")  # a developer who has changed a file waits for the new code
    command = shlex.join([sys.executable, "-m", "functions_host", "start", *arguments])
    watchfiles.run_process(
        app_dir, target=command, target_type="command", callback=announce, watch_filter=is_watched, debounce=200
    )
    return 0
