"""A command in a terminal of its own: what a person sees, and types."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Sequence

from tests.kit import ROOT, clean_environment
from tests.processes import InTerminal, wait_until

COMMAND = [sys.executable, "-c", "from durable_agent_host.cli.main import main; main()"]
_STYLES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
CTRL_C, CTRL_D = "\x03", "\x04"


class Terminal(InTerminal):
    """Runs ``durable-agent-host`` with arguments in a terminal.

    Args:
        arguments: after the program's name.
        env: further environment variables.
    """

    def __init__(self, *arguments: str, **env: str) -> None:
        super().__init__(*COMMAND, *arguments, env=clean_environment() | {"TERM": "xterm"} | env)
        self.raw = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while fragment := os.read(self.terminal, 65536):
                self.raw += fragment
        except OSError:  # Linux says so when the other side is closed
            pass

    @property
    def text(self) -> str:
        """What has been written so far, without styles."""
        return _STYLES.sub("", self.raw.decode(errors="replace")).replace("\r", "")

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self.terminal, keys.encode())

    def sees(self, text: str, *, times: int = 1, seconds: float = 60) -> str:
        """Wait until a text is on the screen; returns all that is there."""
        try:
            wait_until(lambda: self.text.count(text) >= times or self.process.poll() is not None, seconds)
        finally:
            screen = self.text
            assert screen.count(text) >= times, f"{text!r} is not on the screen:\n{screen}"
        return screen

    def wait_for_exit(self, seconds: float = 60) -> int:
        """Wait for the end; returns the exit status."""
        status = self.process.wait(seconds)
        self._reader.join(60)
        return status

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._reader.join(60)
        os.close(self.terminal)


def run_piped(arguments: Sequence[str], stdin_text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command without a terminal, to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        input=stdin_text,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=clean_environment(),
        timeout=60,
        check=False,
    )
